#!/usr/bin/env bash
# Installs CRIU, which saves and restores whole processes, for the tests of snapshots. Debian 12's
# CRIU fails on current kernels, so this takes Debian 13's, with the libraries and the loader that
# it needs, into the user's cache: nothing is installed on the machine. The packages come from
# the Debian mirror that the machine uses. Prints the program and its version. With --check nothing
# is installed: it fails if CRIU is missing.
#
# Installing needs no root; saving a process does.
set -euo pipefail

SUITE=trixie
cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard"
target="$cache/criu-$SUITE"
program="$target/bin/criu"

say() { printf 'setup-criu: %s\n' "$*" >&2; }

# mirror prints the archive from which this machine installs Debian's packages.
mirror() {
  local found
  found=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list /etc/apt/sources.list 2>/dev/null |
    grep -E '^(URIs:|deb )' | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ')
  [ -n "$found" ] || return 1
  printf '%s\n' "${found%/}"
}

install() {
  local need archive root=$target/root apt=$target/apt arch
  for need in apt-get dpkg-deb; do
    command -v "$need" >/dev/null || {
      say "needs $need: on other systems than Debian and Ubuntu, install CRIU 4.0 or newer and put it on PATH"
      exit 1
    }
  done
  archive=$(mirror) || {
    say "no Debian mirror is configured in /etc/apt: install CRIU 4.0 or newer and put it on PATH"
    exit 1
  }
  arch=$(dpkg --print-architecture)
  [ "$arch" = amd64 ] || {
    say "only for amd64, this machine is $arch"
    exit 1
  }

  say "installing $SUITE's criu into $target, once"
  rm -rf "$target"
  mkdir -p "$root" "$apt/lists/partial" "$apt/archives/partial" "$apt/parts" "$target/bin"
  : >"$apt/status" # as on an empty machine: so the libraries come too
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$archive" "$SUITE" >"$apt/sources.list"

  local options=(
    -o "Dir::Etc::sourcelist=$apt/sources.list" -o "Dir::Etc::sourceparts=$apt/parts"
    -o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt" -o "Dir::Cache::archives=$apt/archives"
    -o APT::Sandbox::User=root -o Debug::NoLocking=true -o APT::Install-Recommends=false -o Acquire::Languages=none
  )
  local log=$apt/log
  { apt-get "${options[@]}" update && apt-get "${options[@]}" --download-only --yes install criu; } >"$log" 2>&1 </dev/null || {
    tail -n 5 "$log" >&2
    say "$SUITE's packages could not be fetched from $archive"
    exit 1
  }

  local package
  for package in "$apt"/archives/*.deb; do
    case ${package##*/} in
      # Only CRIU and what it loads: not the Python of its other tools, nor what a bootable system has.
      criu_* | lib*) dpkg-deb --extract "$package" "$root" ;;
    esac
  done
  rm -rf "$apt"

  # With Debian 13's loader: a newer CRIU does not start with the C library of Debian 12. The folder
  # may be copied to another place or machine.
  cat >"$program" <<'END'
#!/bin/sh
R=$(dirname "$(readlink -f "$0")")/../root
exec "$R/usr/lib64/ld-linux-x86-64.so.2" --library-path "$R/usr/lib/x86_64-linux-gnu:$R/usr/lib" "$R/usr/sbin/criu" "$@"
END
  chmod 755 "$program"
  "$program" --version >/dev/null || {
    say "$program does not start"
    exit 1
  }
  touch "$target/.complete"
}

if [ "${1:-}" = --check ] && [ ! -e "$target/.complete" ]; then
  say "CRIU is missing: run scripts/setup-criu.sh"
  exit 1
fi
mkdir -p "$cache"
(
  flock 9
  [ -e "$target/.complete" ] || install
) 9>"$cache/.criu.lock"

printf '%s\n' "$program"
"$program" --version
