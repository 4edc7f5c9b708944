#!/usr/bin/env bash
# Installs moto, a server of the EC2 and S3 APIs, for the tests of the AWS provider and of blobs: once, into the
# user's cache, with what it needs at the versions below. Nothing is started: the tests start
# it on a free port and end it. Prints where its program is and its version.
set -euo pipefail
source "$(dirname "$0")/tools.sh"

MOTO_VERSION=5.2.5
# Of moto's own extra "server" only what serves EC2 and S3: the rest is 180 MB for other services.
packages="
  moto[ec2]==$MOTO_VERSION blinker==1.9.0 boto3==1.44.0 botocore==1.44.0 certifi==2026.10.18 cffi==2.1.1
  charset-normalizer==3.5.2 click==8.5.1 cryptography==50.0.2 Flask==3.1.3 flask-cors==6.0.5 idna==3.20
  itsdangerous==2.2.0 Jinja2==3.1.6 jmespath==1.1.0 MarkupSafe==3.0.4 pycparser==3.12
  python-dateutil==2.9.0.post0 PyYAML==6.0.3 requests==2.34.2 responses==0.26.3 s3transfer==0.19.3
  six==1.17.0 urllib3==2.8.0 Werkzeug==3.1.9 xmltodict==1.0.4
"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard"
target="$cache/moto-$MOTO_VERSION"
server="$target/bin/moto_server"

say() { printf 'setup-moto: %s\n' "$*" >&2; }

install() {
  local py
  if ! py=$(venv_python); then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
      say "installing python3-venv"
      DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3 python3-venv >/dev/null 2>&1 </dev/null ||
        { apt-get update -qq </dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3 python3-venv >/dev/null </dev/null; }
    fi
    py=$(venv_python) || {
      say "needs python3 with venv: on Debian, apt-get install python3-venv"
      exit 1
    }
  fi
  say "installing moto $MOTO_VERSION into $target, once"
  # A folder that is half made must not look finished, and programs in it know their path:
  # so it is made in place, and the stamp is written last.
  rm -rf "$target"
  "$py" -m venv "$target"
  # shellcheck disable=SC2086 # a list of words
  "$target/bin/pip" install --quiet --disable-pip-version-check --no-input $packages >&2
  touch "$target/.complete"
}

mkdir -p "$cache"
(
  flock 9
  [ -e "$target/.complete" ] || install
) 9>"$cache/.moto.lock"

printf '%s\n' "$server"
"$target/bin/python" -c 'import moto; print("moto", moto.__version__)'
