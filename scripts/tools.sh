# shellcheck shell=bash
# Tools that are built or installed at a pinned version, once for each user. Sourced by other scripts.

GOLANGCI_LINT_VERSION=v2.11.4
GOVULNCHECK_VERSION=v1.8.0
VERSITYGW_VERSION=v1.8.0

# cache_dir prints the user's cache. The Makefile has the same rule.
cache_dir() { printf '%s/trainyard' "${XDG_CACHE_HOME:-${HOME:-$PWD/build}/.cache}"; }

# go_home prints where a Go is that was fetched because there was none.
go_home() { printf '%s/go' "$(cache_dir)"; }

# tools_dir prints the folder for built tools. It is outside the clone, so that a fresh clone finds them.
tools_dir() { printf '%s/tools' "$(cache_dir)"; }

# golangci_lint prints where the linter is. The Go version is part of the name: a linter
# built with an older Go cannot read sources for a newer one.
golangci_lint() { printf '%s/golangci-lint-%s-%s/golangci-lint' "$(tools_dir)" "$GOLANGCI_LINT_VERSION" "$(go env GOVERSION)"; }

# govulncheck prints where the vulnerability checker is; it too cannot read sources for a newer Go.
govulncheck() { printf '%s/govulncheck-%s-%s/govulncheck' "$(tools_dir)" "$GOVULNCHECK_VERSION" "$(go env GOVERSION)"; }

# versitygw prints where the server of the S3 API is that tests start.
versitygw() { printf '%s/versitygw-%s/versitygw' "$(tools_dir)" "$VERSITYGW_VERSION"; }

build_golangci_lint() { build_tool "$(golangci_lint)" github.com/golangci/golangci-lint/v2/cmd/golangci-lint "$GOLANGCI_LINT_VERSION"; }
build_govulncheck() { build_tool "$(govulncheck)" golang.org/x/vuln/cmd/govulncheck "$GOVULNCHECK_VERSION"; }

build_versitygw() { build_tool "$(versitygw)" github.com/versity/versitygw/cmd/versitygw "$VERSITYGW_VERSION"; }

# build_tool TARGET PACKAGE VERSION builds a tool where it is absent. Two that run at once wait for
# each other, and one that is killed half-way leaves nothing that looks finished.
build_tool() {
  local target=$1 package=$2 version=$3 name dir staging
  [ -x "$target" ] && return 0
  name=$(basename "$target")
  dir=$(dirname "$target")
  mkdir -p "$(tools_dir)"
  (
    flock 9
    [ -x "$target" ] && exit 0
    printf 'setup: building %s %s, once: this can take some minutes\n' "$name" "$version" >&2
    staging=$(mktemp -d "$(tools_dir)/.building.XXXXXX")
    trap 'rm -rf "$staging"' EXIT
    cd "$staging" || exit 1 # outside the module: its versions must not mix with ours
    CGO_ENABLED=0 GOBIN="$staging" go install "$package@$version" </dev/null || exit 1
    mkdir -p "$dir" && mv "$staging/$name" "$target"
  ) 9>"$(tools_dir)/.lock"
}

# venv_python prints a Python with venv and pip; Debian keeps ensurepip apart, in python3-venv.
venv_python() {
  local p
  for p in python3 /usr/bin/python3; do
    if "$p" -c 'import venv, ensurepip' 2>/dev/null; then
      printf '%s' "$p"
      return 0
    fi
  done
  return 1
}
