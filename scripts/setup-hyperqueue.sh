#!/usr/bin/env bash
# Installs HyperQueue, a scheduler of short tasks, for `make bench-scale`: once, into the user's cache, from the Python
# registry that pip uses. Nothing is started: the benchmark starts its server and worker and ends them. Prints the
# Python that has it.
set -euo pipefail
source "$(dirname "$0")/tools.sh"

HYPERQUEUE_VERSION=0.27.0
packages="hyperqueue==$HYPERQUEUE_VERSION"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard"
target="$cache/hyperqueue-$HYPERQUEUE_VERSION"

say() { printf 'setup-hyperqueue: %s\n' "$*" >&2; }

install() {
  local py
  py=$(venv_python) || {
    say "needs python3 with venv: on Debian, apt-get install python3-venv"
    exit 1
  }
  say "installing HyperQueue $HYPERQUEUE_VERSION into $target, once"
  # A folder that is half made must not look finished: the stamp is written last.
  rm -rf "$target"
  "$py" -m venv "$target"
  # shellcheck disable=SC2086 # a list of words
  "$target/bin/pip" install --quiet --disable-pip-version-check --no-input $packages >&2 || {
    say "the Python registry does not have it or cannot be reached: the benchmark leaves HyperQueue out"
    exit 1
  }
  touch "$target/.complete"
}

mkdir -p "$cache"
(
  flock 9
  [ -e "$target/.complete" ] || install
) 9>"$cache/.hyperqueue.lock"

printf '%s\n' "$target/bin/python"
