#!/usr/bin/env bash
# Checks what tests do not: format, vet, linters, modules, known vulnerabilities, generated files, the Python package,
# and a brief fuzz of every target. Runs all of them and names those that failed.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/tools.sh

sources() { git ls-files --cached --others --exclude-standard '*.go'; }

check_format() {
  local bad
  bad=$(sources | while read -r f; do [ ! -f "$f" ] || echo "$f"; done | xargs -r gofmt -l)
  [ -z "$bad" ] || { printf 'not formatted, run gofmt -w:\n%s\n' "$bad"; return 1; }
}

check_vet() { go vet ./...; }

# The nvml tag needs a C compiler for the headers that go-nvml brings.
check_vet_nvml() {
  if ! command -v "${CC:-cc}" >/dev/null; then
    [ "${CI:-}" != true ] || return 1
    echo "skipped: no C compiler"
    return 0
  fi
  CGO_ENABLED=1 go vet -tags nvml ./...
}

check_lint() {
  local lint
  lint=$(golangci_lint)
  [ -x "$lint" ] || { echo "golangci-lint $GOLANGCI_LINT_VERSION is not built: run make setup"; return 1; }
  "$lint" run ./...
}

# go mod tidy asks for the tests of all dependencies; a registry that does not serve
# them all, or a missing network, does not make the check fail.
check_modules() {
  local diff errors code=0
  go mod verify || return 1
  errors=$(mktemp)
  diff=$(go mod tidy -diff 2>"$errors") || code=$?
  if [ -n "$diff" ]; then
    printf 'go.mod or go.sum is not tidy:\n%s\n' "$diff"
    code=1
  elif [ "$code" != 0 ]; then
    printf 'skipped: go mod tidy cannot be asked here: %s\n' "$(tail -n 1 "$errors")"
    code=0
  fi
  rm -f "$errors"
  return "$code"
}

# Known vulnerabilities in what we call. The database is a web site: where it cannot be reached nobody was
# asked: the check says so and does not fail, not even under CI=true. VULNDB names a mirror, also as file:///folder
# with a copy of it (https://vuln.go.dev/vulndb.zip unpacked).
check_vulnerabilities() {
  local tool db=${VULNDB:-https://vuln.go.dev} code=0
  tool=$(govulncheck)
  [ -x "$tool" ] || { echo "govulncheck $GOVULNCHECK_VERSION is not built: run make setup"; return 1; }
  if ! can_read "$db/index/db.json"; then
    echo "NOT CHECKED: the vulnerability database $db cannot be reached from here, so nothing is known about vulnerabilities."
    echo "Run make check where it can, or set VULNDB to a mirror."
    return 0
  fi
  "$tool" -db "$db" ./... || code=$?
  [ "$code" != 3 ] || echo "vulnerabilities were found in code that is called: update the modules named above"
  return "$code"
}

# can_read URL: of a file or over the network.
can_read() {
  case $1 in
    file://*) [ -r "${1#file://}" ] ;;
    *) command -v curl >/dev/null && curl -fsS -m 20 -o /dev/null "$1" 2>/dev/null ;;
  esac
}

# The generated files, compared by digest: in a clean clone they are as committed, in a
# working tree they may be new and not committed yet.
generated=(web/src/api/schema.ts api/openapi.yaml api/jobfile.schema.json docs/reference ARCHITECTURE.md)
fingerprint() { find "${generated[@]}" -type f -exec sha256sum {} + 2>/dev/null | sort -k 2; }

check_generated() {
  local before after
  before=$(fingerprint || true)
  make --no-print-directory generate || return 1
  after=$(fingerprint || true)
  if [ "$before" != "$after" ]; then
    echo "generated files were not current; they are now, commit them:"
    diff <(echo "$before") <(echo "$after") | awk '/^[<>]/ {print "  " $3}' | sort -u
    return 1
  fi
}

# The Python package: ruff and mypy, where they can be had.
check_python() {
  local bin
  if ! bin=$(scripts/setup-pylint.sh); then
    [ "${CI:-}" != true ] || return 1
    echo "skipped: ruff and mypy cannot be installed here"
    return 0
  fi
  (cd sdk/python && "$bin/ruff" check . && "$bin/ruff" format --check . && "$bin/mypy")
}

# The portal: types and rules of its sources. A lock file that names a registry would not work elsewhere.
check_portal() {
  if ! scripts/setup-web.sh; then
    [ "${CI:-}" != true ] || return 1
    echo "skipped: Node.js cannot be installed here"
    return 0
  fi
  if grep -n '"resolved"' web/package-lock.json; then
    echo "web/package-lock.json names registries: remove the fields resolved"
    return 1
  fi
  npm --prefix web run --silent check
}

check_fuzz() { scripts/fuzz.sh "${FUZZTIME:-500x}"; }

failed=()
for step in format vet vet_nvml modules vulnerabilities generated portal python lint fuzz; do
  start=$SECONDS
  echo "== $step"
  if "check_$step" </dev/null; then
    echo "-- $step ok ($((SECONDS - start)) s)"
  else
    echo "-- $step FAILED ($((SECONDS - start)) s)"
    failed+=("$step")
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "check failed: ${failed[*]}"
  exit 1
fi
echo "check ok"
