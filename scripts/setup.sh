#!/usr/bin/env bash
# Installs what is missing, and only that: scripts/setup.sh run|test|check|docker ...
#
#   run    Go and python3: a yard on this machine and its examples
#   test   + PostgreSQL, a C compiler (the race detector needs one), the solvers CBC and
#          GLPK, moto (an EC2 and S3 API server), versitygw (an S3 API server), promtool,
#          PyTorch and others for real trainings, CRIU (snapshots of processes), podman (containers), uv (Python environments), ip and nft
#          (networks that tests break), Node.js and Chromium (the portal), and in CI Slurm
#   check  + golangci-lint and govulncheck, built once into the user's cache, ruff and mypy
#   docker the tools of test, and Docker's engine: for make test-docker
#
# Go is fetched into the user's cache, without root (scripts/setup-go.sh). As root on Debian or Ubuntu it installs
# packages by name; elsewhere it says what to install. Without CI=true a missing part is a warning where the rest still works: tests
# that need it are skipped and say so. With CI=true it is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/tools.sh

say() { printf 'setup: %s\n' "$*" >&2; }

# missing NAME WHAT_STILL_WORKS: ends the script under CI, else warns.
missing() {
  if [ "${CI:-}" = true ]; then
    say "$1 is missing, and CI=true allows no skipping"
    exit 1
  fi
  say "$1 is missing: $2"
}

# have_postgres: the server's own programs, which Debian keeps out of PATH.
have_postgres() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
have_solvers() { command -v cbc >/dev/null && command -v glpsol >/dev/null; }
have_networks() { command -v ip >/dev/null && command -v nft >/dev/null; }
have_podman() { command -v podman >/dev/null && command -v runc >/dev/null && command -v conmon >/dev/null; }
have_cc() { command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null; }

# packages NAME...: installs Debian packages; false where that cannot be done.
packages() {
  if ! command -v apt-get >/dev/null; then
    say "not Debian or Ubuntu: install $* with your package manager"
    return 1
  fi
  if [ "$(id -u)" != 0 ]; then
    say "not root; to install it yourself: sudo apt-get install --no-install-recommends $*"
    return 1
  fi
  say "installing $*"
  local log code=0
  log=$(mktemp)
  export DEBIAN_FRONTEND=noninteractive
  # Packages bring services; 101 tells their scripts not to start them. Tests start their own.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
  fi
  # The lists may be old or empty: try as it is, then with fresh lists.
  apt-get install -y --no-install-recommends "$@" >"$log" 2>&1 </dev/null ||
    { apt-get update >"$log" 2>&1 </dev/null && apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1 </dev/null; } ||
    { code=1 && tail -n 5 "$log" >&2; }
  rm -f "$log"
  return "$code"
}

# need_go fetches Go into the user's cache where there is none, and lets what follows find it.
need_go() {
  local go
  go=$(scripts/setup-go.sh)
  PATH="$(dirname "$go"):$PATH"
  export PATH
}

need_run() {
  [ -x build/trainyard ] || need_go # a binary that is there is enough
  command -v python3 >/dev/null || packages python3 || true
  command -v python3 >/dev/null || missing python3 "the yard works and trains an example in Go; most others are Python programs"
}

need_test() {
  need_go
  need_run
  have_postgres || packages postgresql || true
  have_postgres || missing PostgreSQL "tests against it are skipped, those on SQLite run"
  have_cc || packages gcc libc6-dev || true
  have_cc || missing "a C compiler" "tests run without the race detector"
  have_solvers || packages coinor-cbc glpk-utils || true
  have_solvers || missing "CBC or GLPK" "tests and benchmarks that compare with a solver are skipped"
  have_networks || packages iproute2 nftables || true
  have_networks || missing "ip or nft" "tests that break networks are skipped"
  have_podman || packages podman runc conmon netavark iptables || true
  have_podman || missing podman "tests of jobs in containers are skipped"
  command -v chromium-headless-shell >/dev/null || packages chromium-headless-shell || true
  command -v chromium-headless-shell >/dev/null || missing "chromium-headless-shell" "the portal is not tested"
  command -v npm >/dev/null || packages nodejs npm || true
  # What follows is fetched from elsewhere than Debian: npm's packages beside the others.
  local web
  scripts/setup-web.sh &
  web=$!
  scripts/setup-moto.sh >/dev/null || missing moto "tests of the AWS provider against an EC2 server and of blobs against an S3 server are skipped"
  build_versitygw || missing versitygw "tests of blobs against an S3 server are skipped"
  scripts/setup-train.sh >/dev/null || missing "PyTorch, transformers or tensorboard" "tests of forecasts on real trainings are skipped"
  scripts/setup-criu.sh >/dev/null || missing "CRIU 4" "tests of snapshots are skipped"
  [ "$(id -u)" = 0 ] || missing root "tests of snapshots and of broken networks are skipped: they need namespaces and CRIU as root"
  scripts/setup-uv.sh >/dev/null || missing uv "tests of Python environments by uv are skipped, those by pip run"
  scripts/setup-recipes.sh >/dev/null || missing "transformers with a Trainer" "the recipe for Hugging Face is not tested"
  scripts/setup-promtool.sh >/dev/null || missing promtool "the alert rules in deploy/ are not checked"
  wait "$web" || missing "Node.js 20.19" "the portal is not tested"
  # The benchmark's opponent has a test too; elsewhere it is skipped where Slurm is not installed.
  if [ "${CI:-}" = true ]; then scripts/setup-slurm.sh; fi
}

need_check() {
  need_go
  build_golangci_lint || missing golangci-lint "make check cannot run, make test can"
  build_govulncheck || missing govulncheck "known vulnerabilities are not looked up"
  scripts/setup-web.sh || missing Node.js "the portal is not checked"
  scripts/setup-pylint.sh >/dev/null || missing "ruff or mypy" "the Python package is not checked"
}

need_docker() {
  need_test
  command -v dockerd >/dev/null || packages docker.io || true
  command -v dockerd >/dev/null || { say "Docker's engine is missing"; exit 1; }
}

[ $# -gt 0 ] || set -- run test check
for part in "$@"; do
  case $part in
    run | test | check | docker) "need_$part" ;;
    *)
      say "unknown part $part: run, test, check or docker"
      exit 2
      ;;
  esac
done
