#!/usr/bin/env bash
# Runs every test of the repository; the closing lines are go test's own.
set -euo pipefail
cd "$(dirname "$0")/.."

# SQLite is C that was translated to Go. With the race detector and the checks of pointers that come with it every
# statement takes several times as long, and what they could find is not ours: it is compiled without them.
race=(-race '-gcflags=modernc.org/...=-race=false')
export CGO_ENABLED=1
if ! command -v "${CC:-cc}" >/dev/null && ! command -v gcc >/dev/null; then
  echo "test: no C compiler, so without the race detector" >&2
  race=()
  CGO_ENABLED=0
fi

# The race detector makes arithmetic ten times as slow and finds nothing where nothing runs at the same time: in the
# tests of the house rules, of the packages that decide, of the simulator and of benchmarks that simulate
# (internal/arch_race_test.go sees to it).
sequential='^trainyard/(internal(/((contact|forecast|formula|ledger|place|provision|queue|quota|spec)(/.*)?|sim|sim/(scenario|yardview|trace(/.*)?)))?|test/(features|bench/(alloc|burst|datacenter|edl|elastic|harvest|simulator)))$'
packages=$(go list ./...)
mapfile -t alone < <(grep -E "$sequential" <<<"$packages")

# Those that take longest begin first, so that none is left to run alone at the end.
long='^trainyard/(test/(chaos|crash|docs|e2e|gangs|moves|portal|walls)|internal/(agent/runtime|server))$'
mapfile -t others < <(grep -Ev "$sequential" <<<"$packages" | grep -E "$long")
mapfile -t -O "${#others[@]}" others < <(grep -Ev "$sequential|$long" <<<"$packages")

# A python3 that is a shim of pyenv or asdf takes a tenth of a second to find the real one, and agents that look for all
# versions take longer: the tests, which start hundreds, use the real one.
if [[ $(command -v python3) == */shims/* ]]; then
  real=$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))')
  PATH=$real:$(tr : '\n' <<<"$PATH" | grep -v '/shims$' | paste -sd :)
fi

# Not from the cache: test/crash and test/e2e start the binary, whose sources the cache does not know of.
echo "== go test, ${#alone[@]} sequential packages"
failed=
go test -p 3 -count=1 -vet=off -timeout 30m "${alone[@]}" "$@" </dev/null || failed=yes
# Most of them wait for processes, so more run at a time than there are processors.
echo "== go test ${race[*]}, ${#others[@]} packages"
go test "${race[@]}" -p 4 -count=1 -vet=off -timeout 30m "${others[@]}" "$@" </dev/null || failed=yes
if [ -n "$failed" ]; then
  exit 1
fi
echo "== python package"
if command -v python3 >/dev/null; then
  (cd sdk/python && python3 -B -m unittest </dev/null)
elif [ "${CI:-}" = true ]; then
  echo "test: python3 is missing, and CI=true allows no skipping" >&2
  exit 1
else
  echo "skipped: python3 is missing"
fi
