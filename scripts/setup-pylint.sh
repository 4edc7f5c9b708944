#!/usr/bin/env bash
# Installs ruff and mypy, which check the Python package: once, into the user's cache, at the
# versions below. Prints the folder with their programs.
set -euo pipefail
source "$(dirname "$0")/tools.sh"

packages="ruff==0.17.4 mypy==2.4.1"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard"
target="$cache/python-checks-$(printf '%s' "$packages" | cksum | cut -d ' ' -f 1)"

say() { printf 'setup-pylint: %s\n' "$*" >&2; }

install() {
  local py
  py=$(venv_python) || {
    say "needs python3 with venv: on Debian, apt-get install python3-venv"
    exit 1
  }
  say "installing $packages into $target, once"
  rm -rf "$target"
  "$py" -m venv "$target"
  # shellcheck disable=SC2086 # a list of words
  "$target/bin/pip" install --quiet --disable-pip-version-check --no-input $packages >&2
  touch "$target/.complete" # last: a folder that is half made must not look finished
}

mkdir -p "$cache"
(
  flock 9
  [ -e "$target/.complete" ] || install
) 9>"$cache/.pylint.lock"
printf '%s\n' "$target/bin"
