#!/usr/bin/env bash
# Installs uv, which makes Python environments, for tests: once, into the user's cache, at the version below. Prints
# where the program is. With --check it installs nothing and fails where there is none.
set -euo pipefail
source "$(dirname "$0")/tools.sh"

UV_VERSION=0.13.8
target="$(tools_dir)/uv-$UV_VERSION/uv"

say() { printf 'setup-uv: %s\n' "$*" >&2; }

install() {
  local py staging
  py=$(venv_python) || {
    say "needs python3 with venv: on Debian, apt-get install python3-venv"
    return 1
  }
  say "installing uv $UV_VERSION into $target, once"
  staging=$(mktemp -d "$(tools_dir)/.uv.XXXXXX")
  # shellcheck disable=SC2064 # the folder is the one of now
  trap "rm -rf '$staging'" RETURN
  "$py" -m venv "$staging/venv"
  "$staging/venv/bin/pip" install --quiet --disable-pip-version-check --no-input "uv==$UV_VERSION" >&2
  "$staging/venv/bin/uv" --version >&2
  mkdir -p "$(dirname "$target")"
  mv "$staging/venv/bin/uv" "$target"
}

if [ "${1:-}" != --check ] && [ ! -x "$target" ]; then
  mkdir -p "$(tools_dir)"
  (
    flock 9
    [ -x "$target" ] || install
  ) 9>"$(tools_dir)/.uv.lock"
fi

[ -x "$target" ] || exit 1
printf '%s\n' "$target"
