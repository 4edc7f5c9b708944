#!/usr/bin/env bash
# Gets promtool, which checks the alert rules in deploy/prometheus, out of Debian's package
# prometheus: once, into the user's cache. The package itself is not installed: it would bring a
# server that starts with the machine. Where a promtool is in PATH, that one is used. Prints
# where the program is and its version.
set -euo pipefail

cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard"
target="$cache/tools/promtool"

say() { printf 'setup-promtool: %s\n' "$*" >&2; }

install() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    say "not Debian or Ubuntu: install promtool, which comes with Prometheus, and put it on PATH"
    return 1
  fi
  say "taking promtool out of Debian's package prometheus, once"
  local staging
  staging=$(mktemp -d "$cache/tools/.promtool.XXXXXX")
  # shellcheck disable=SC2064 # the folder is the one of now
  trap "rm -rf '$staging'" RETURN
  (
    cd "$staging"
    # The lists may be old or empty: try as it is, then with fresh lists. As root, apt would like to
    # be another user, who cannot write here.
    apt-get download -q -o APT::Sandbox::User=root prometheus >&2 </dev/null ||
      { apt-get update -qq >&2 </dev/null && apt-get download -q -o APT::Sandbox::User=root prometheus >&2 </dev/null; }
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xO ./usr/bin/promtool >promtool
  )
  chmod 755 "$staging/promtool"
  "$staging/promtool" --version >/dev/null
  mv "$staging/promtool" "$target"
}

if found=$(command -v promtool); then
  target=$found
else
  mkdir -p "$cache/tools"
  (
    flock 9
    [ -x "$target" ] || install
  ) 9>"$cache/tools/.promtool.lock"
fi

printf '%s\n' "$target"
"$target" --version | sed -n 1p
