#!/usr/bin/env bash
# Installs moto, a server of the EC2 API, for the tests of the AWS provider: once, into the
# user's cache, with the packages it needs at the versions below. Nothing is started: the tests
# start it on a free port and end it. Prints where its program is and its version.
set -euo pipefail

MOTO_VERSION=5.2.5

cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard"
target="$cache/moto-$MOTO_VERSION"
server="$target/bin/moto_server"

say() { printf 'setup-moto: %s\n' "$*" >&2; }

# python prints a Python with venv and pip; Debian keeps ensurepip apart, in python3-venv.
python() {
  local p
  for p in python3 /usr/bin/python3; do
    if "$p" -c 'import venv, ensurepip' 2>/dev/null; then
      printf '%s' "$p"
      return 0
    fi
  done
  return 1
}

install() {
  local py
  if ! py=$(python); then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
      say "installing python3-venv"
      DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3 python3-venv >/dev/null 2>&1 </dev/null ||
        { apt-get update -qq </dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3 python3-venv >/dev/null </dev/null; }
    fi
    py=$(python) || {
      say "needs python3 with venv: on Debian, apt-get install python3-venv"
      exit 1
    }
  fi
  say "installing moto $MOTO_VERSION into $target, once"
  # A folder that is half made must not look finished, and programs in it know their path:
  # so it is made in place, and the stamp is written last.
  rm -rf "$target"
  "$py" -m venv "$target"
  "$target/bin/pip" install --quiet --disable-pip-version-check --no-input "moto[ec2,server]==$MOTO_VERSION" >&2
  touch "$target/.complete"
}

mkdir -p "$cache"
(
  flock 9
  [ -e "$target/.complete" ] || install
) 9>"$cache/.moto.lock"

printf '%s\n' "$server"
"$target/bin/python" -c 'import moto; print("moto", moto.__version__)'
