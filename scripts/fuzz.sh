#!/usr/bin/env bash
# Fuzzes every target of the repository, one after the other: scripts/fuzz.sh 5s, or 1000x for so many inputs each.
# A target is a func FuzzX in a _test.go file. An input that breaks one is kept by go
# test below testdata/fuzz: commit it with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?how long for each target, such as 5s or 1000x}

targets=$(git ls-files --cached --others --exclude-standard '*_test.go' |
  xargs -r grep -HoE '^func Fuzz[A-Za-z0-9_]*\(' 2>/dev/null |
  sed -E 's|^(.*)/[^/]*_test\.go:func (Fuzz[A-Za-z0-9_]*)\($|./\1 \2|' | sort -u)
if [ -z "$targets" ]; then
  echo "fuzz: no targets found" >&2
  exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz PACKAGE TARGET: the go command sometimes ends a run that reached its time with "context deadline exceeded"
# although no input failed. That is not a failure: an input that takes too long fails by itself (test/fuzzing).
fuzz() {
  if go test "$1" -run '^$' -fuzz "^$2\$" -fuzztime "$time" </dev/null 2>&1 | tee "$log"; then
    return 0
  fi
  if ! grep -q '^ *context deadline exceeded$' "$log" || grep -qE 'Failing input written|panic|build failed' "$log"; then
    return 1
  fi
  echo "fuzz $1 $2: ended at its deadline without a failing input"
}

failed=0
while read -r package target; do
  echo "fuzz $package $target"
  if ! fuzz "$package" "$target"; then
    echo "fuzz $package $target FAILED" >&2
    failed=1
  fi
done <<<"$targets"
exit "$failed"
