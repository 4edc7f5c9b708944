#!/usr/bin/env bash
# Installs what the portal is built with: Node.js where there is none (Debian's packages nodejs and npm, as root), and
# the packages of web/package-lock.json into web/node_modules. Nothing is done where everything is there. Fails, and says
# what is missing, where it cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup-web: %s\n' "$*" >&2; }

# have_node: Vite needs 20.19 or newer.
have_node() {
  command -v npm >/dev/null && command -v node >/dev/null &&
    node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'
}

# packages NAME...: installs Debian packages; false where that cannot be done.
packages() {
  command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
  say "installing $*"
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 </dev/null ||
    { apt-get update -qq </dev/null && apt-get install -qq -y --no-install-recommends "$@" >/dev/null </dev/null; }
}

have_node || packages nodejs npm || true
have_node || {
  say "Node.js 20.19 or newer with npm is missing: install it from https://nodejs.org or your package manager"
  exit 1
}

# What is installed is what the lock file says, or it is installed anew. Two that come at once wait for each other.
mkdir -p build
(
  flock 9
  stamp=web/node_modules/.trainyard-lock
  if ! cmp -s web/package-lock.json "$stamp"; then
    say "installing the packages of web/package-lock.json"
    npm --prefix web ci --no-audit --no-fund --ignore-scripts >&2 </dev/null
    cp web/package-lock.json "$stamp"
  fi
) 9>build/.web.lock
