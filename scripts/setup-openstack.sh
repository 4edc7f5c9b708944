#!/usr/bin/env bash
# OpenStack for the tests of internal/cloud/openstack: Keystone, Nova with its fake
# hypervisor, Placement and Glance from Debian 13, in a root of their own under the
# user's cache. Nothing is installed on the machine itself but debootstrap.
#
#   scripts/setup-openstack.sh            installs what is missing and prints the root
#   scripts/setup-openstack.sh run DIR    starts all on free ports, in the foreground, with
#                                         everything it writes in DIR; DIR/env is there as soon
#                                         as the services answer. Ending this process ends them:
#                                         by Ctrl-C or SIGKILL, it is deaf for other signals.
#
# Needs Debian or Ubuntu, root and 3 GB of disk; a first installation takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=trixie
packages=(python3-keystone python3-placement nova-common glance-common python3-pymysql
  uwsgi-core uwsgi-plugin-python3 rabbitmq-server mariadb-server)
services=internal/cloud/openstack/testdata/services

say() { printf 'setup-openstack: %s\n' "$*" >&2; }
fail() {
  tail -n 5 "$root.log" >&2
  say "$*; the whole log is $root.log"
  exit 1
}
# The root depends on what is installed in it, the databases on what boot.sh does with them.
stamp() { sha256sum | cut -c1-12; }
cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard"
root="$cache/openstack-$(printf '%s\n' "$suite" "${packages[@]}" | stamp)"
TEMPLATE="/srv/template-$(stamp <"$services/boot.sh")"
export TEMPLATE

# inside MODE [DIR]: boot.sh in the root, with mounts and processes of its own that end with it.
inside() {
  # shellcheck disable=SC2016
  exec unshare --mount --pid --fork --kill-child bash -c '
    set -e
    mount -t proc proc "$1/proc"
    mount --bind "$2" "$1/srv/services"
    if [ -n "$4" ]; then mount --bind "$4" "$1/srv/state"; fi
    exec chroot "$1" /bin/bash /srv/services/boot.sh "$3"' inside "$root" "$PWD/$services" "$1" "${2:-}"
}

# debian: a Debian of its own in $root, moved into place only when it is whole.
debian() {
  if ! command -v debootstrap >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends debootstrap >/dev/null 2>&1 ||
      { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends debootstrap >/dev/null; }
  fi
  local new="$root.new"
  rm -rf --one-file-system "$new"
  say "installing into $root; this takes some minutes, its log is $root.log"
  nice debootstrap --variant=minbase --include=ca-certificates "$suite" "$new" http://deb.debian.org/debian >"$root.log" 2>&1 ||
    fail "debootstrap failed"
  # 101 tells the packages' scripts not to start their services.
  printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d"
  chmod 755 "$new/usr/sbin/policy-rc.d"
  printf '127.0.0.1 localhost\n' >"$new/etc/hosts"
  # shellcheck disable=SC2016
  nice unshare --mount --pid --fork --kill-child bash -c '
    set -e
    mount -t proc proc "$0/proc"
    DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 exec chroot "$0" apt-get install -y --no-install-recommends \
      -o Dpkg::Options::=--force-unsafe-io "$@"' "$new" "${packages[@]}" >>"$root.log" 2>&1 </dev/null || fail "the packages could not be installed"
  mkdir -p "$new/srv/services" "$new/srv/state"
  rm -rf "$new"/var/cache/apt/archives/*.deb
  mv "$new" "$root"
}

# install: everything up to databases that are ready to be copied. One at a time.
install() {
  if [ "$(id -u)" != 0 ]; then
    say "this needs root: it makes a Debian of its own and changes into it"
    exit 1
  fi
  mkdir -p "$cache"
  exec 9>"$cache/openstack.lock"
  flock 9
  if [ ! -d "$root" ]; then debian; fi
  if [ ! -d "$root$TEMPLATE" ]; then
    say "making the databases"
    (inside prepare) >>"$root.log" 2>&1 || fail "the databases could not be made"
  fi
  exec 9>&-
}

run() {
  local dir ports
  dir=$(realpath "$1")
  install
  ports=$(python3 - <<'END'
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
print(*(s.getsockname()[1] for s in held))
END
)
  read -r KEYSTONE_PORT NOVA_PORT GLANCE_PORT PLACEMENT_PORT NEUTRON_PORT RABBIT_PORT ERLANG_PORT EPMD_PORT <<<"$ports"
  export KEYSTONE_PORT NOVA_PORT GLANCE_PORT PLACEMENT_PORT NEUTRON_PORT RABBIT_PORT ERLANG_PORT EPMD_PORT
  export PAGE=5 # servers in a page of a list, so that a few make several pages
  inside run "$dir"
}

case "${1:-install}" in
  install) install && echo "$root" ;;
  run) run "${2:?which folder}" ;;
  *)
    say "unknown: $1"
    exit 2
    ;;
esac
