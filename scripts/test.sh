#!/usr/bin/env bash
# Runs every test of the repository; the closing lines are go test's own.
set -euo pipefail
cd "$(dirname "$0")/.."

race=-race
export CGO_ENABLED=1
if ! command -v "${CC:-cc}" >/dev/null && ! command -v gcc >/dev/null; then
  echo "test: no C compiler, so without the race detector" >&2
  race=
  CGO_ENABLED=0
fi

echo "== go vet"
go vet ./...
echo "== go test $race"
# Not from the cache: test/crash and test/e2e start the binary, whose sources the cache does not know of.
# shellcheck disable=SC2086 # empty when there is no race detector
go test $race -count=1 -vet=off -timeout 15m ./... "$@" </dev/null
echo "== python package"
if command -v python3 >/dev/null; then
  (cd sdk/python && python3 -B -m unittest </dev/null)
elif [ "${CI:-}" = true ]; then
  echo "test: python3 is missing, and CI=true allows no skipping" >&2
  exit 1
else
  echo "skipped: python3 is missing"
fi
