#!/usr/bin/env bash
# Runs all benchmarks one after the other, each alone on the machine and all of one build: make bench-all has built
# build/trainyard, the programs that measure are built here. The arguments are the targets of test/bench/policies.
# Each writes build/bench/bench-<target>.json and its tables to the .txt beside it. One that fails writes no figures;
# the others go on, and the script fails at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

commit=$(git rev-parse HEAD)
if [[ -n "$(git status --porcelain)" ]]; then
  commit+=-dirty
fi

bin=build/bench/bin
mkdir -p "$bin"
export TRAINYARD_BENCH_COMMIT=$commit
go build -o "$bin/" \
  ./test/bench ./test/bench/policies ./test/bench/forecast

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

# First what times the machine, then what only simulates.
measure core "$bin/bench" -binary build/trainyard "${quick[@]}"
measure scale "$bin/bench" -suite scale -binary build/trainyard -hyperqueue "$(scripts/setup-hyperqueue.sh || true)" "${quick[@]}"
measure forecast-scale "$bin/forecast" -scale "${jobs[@]}"

for target in "$@"; do
  measure "$target" "$bin/policies" -target "$target" "${quick[@]}"
done
measure forecast "$bin/forecast"

# What was not looked at when parameters were chosen.
measure andreas-held-out "$bin/policies" -target andreas -skip-seeds 5 "${quick[@]}"
measure forecast-held-out "$bin/forecast" -half second

# All of this build, or nothing is to be published.
for file in build/bench/bench-*.json; do
  if ! grep -q "\"commit\": \"$commit\"" "$file"; then
    failed+=("$file is not of commit $commit")
  fi
done

if (( ${#failed[@]} > 0 )); then
  printf 'bench-all: failed: %s\n' "${failed[@]}" >&2
  exit 1
fi

echo "bench-all: all of commit $commit"
