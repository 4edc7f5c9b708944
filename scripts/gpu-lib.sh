# What the tests on a machine with a GPU share: a temporary folder, a yard that lies in it, and an end that leaves nothing.
# They source it from the root of the repository:
#
#	. scripts/gpu-lib.sh
#
# It sets $trainyard and $python from TRAINYARD and PYTHON, and $work, the folder. KEEP=1 keeps the folder.
# shellcheck shell=bash
script=$(basename "$0" .sh)
trainyard=$(realpath "${TRAINYARD:-build/trainyard}")
python=$(command -v "${PYTHON:-python3}")
work=$(mktemp -d "${TMPDIR:-/tmp}/$script-XXXXXX")

fail() {
  printf '%s: %s\n' "$script" "$*" >&2
  tail -n 40 "$work"/*.log >&2 || true
  exit 1
}
ours() { # processes that name the folder, whose name is drawn
  local p
  for p in /proc/[0-9]*; do
    [ "${p#/proc/}" != "$$" ] || continue
    if grep -qsF "$work" "$p/cmdline" "$p/environ"; then echo "${p#/proc/}"; fi
  done
}
cleanup() {
  local code=$? pid
  trap - EXIT
  for pid in $(ours); do kill -KILL "$pid" 2>/dev/null || true; done
  if [ -n "${KEEP:-}" ]; then printf 'all of it is kept in %s\n' "$work"; else rm -rf "$work"; fi
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

ty() { XDG_CONFIG_HOME=$work/config timeout --foreground 500 "$trainyard" "$@"; }
await() { # WHAT COMMAND...
  local what=$1
  shift
  for _ in $(seq 600); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  fail "waited in vain for $what: $(ty jobs 2>&1)"
}

"$python" -c 'import torch; assert torch.cuda.is_available()' || fail "PyTorch finds no GPU"
