#!/usr/bin/env bash
# Runs all benchmarks one after the other, each alone on the machine and all of one build: make bench-all has built
# build/trainyard, the programs that measure are built here. The arguments are the targets of test/bench/policies.
# Each writes build/bench/bench-<target>.json and its tables to the .txt beside it. One that fails writes no figures;
# the others go on, and the script fails at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=build/bench/bin
mkdir -p "$bin"
go build -o "$bin/" ./test/bench ./test/bench/policies ./test/bench/forecast

quick=()
jobs=()
if [[ -n "${QUICK:-}" ]]; then
  quick=(-quick)
  jobs=(-jobs 100)
fi

failed=()
measure() { # NAME COMMAND…
  local name=$1
  shift
  echo "== bench-$name"
  if ! "$@" -out "build/bench/bench-$name.json" 2>&1 | tee "build/bench/bench-$name.txt"; then
    failed+=("bench-$name")
  fi
}

measure core "$bin/bench" -binary build/trainyard "${quick[@]}"
for target in "$@"; do
  measure "$target" "$bin/policies" -target "$target" "${quick[@]}"
done
measure forecast "$bin/forecast"
measure forecast-scale "$bin/forecast" -scale "${jobs[@]}"

# All of one build, or nothing is to be published.
commits=$(sed -nE 's/^ *"commit": "([^"]*)",?$/\1/p' build/bench/bench-*.json | sort -u)
echo "commit: ${commits:-none}"
if (( $(wc -l <<<"$commits") > 1 )); then
  echo "bench-all: the figures are of more than one build" >&2
  exit 1
fi
if (( ${#failed[@]} > 0 )); then
  echo "bench-all: failed: ${failed[*]}" >&2
  exit 1
fi
