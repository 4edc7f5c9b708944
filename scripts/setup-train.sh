#!/usr/bin/env bash
# Installs what the real trainings of the forecast tests need: Debian's PyTorch (without GPU
# support: 130 MB to fetch where PyPI's is gigabytes), and beside it, once, into the user's
# cache, the writer of TensorBoard's files and Hugging Face's transformers. Prints the
# Python that has all of them and their versions. Nothing is started. With --check nothing is
# installed either: it fails if something is missing.
set -euo pipefail

TRANSFORMERS=5.22.2
TENSORBOARD=2.21.0
# What their imports need here and no more: tensorboard without the server that shows pages,
# transformers without what fetches models. numpy is Debian's, the one that its PyTorch was built with.
packages="
  transformers==$TRANSFORMERS tensorboard==$TENSORBOARD
  absl-py==2.5.1 annotated-doc==0.0.6 anyio==4.16.0 certifi==2026.10.18 click==8.5.1 filelock==4.2.10 fsspec==2026.9.0
  h11==0.16.0 hf-xet==1.8.0 httpcore2==2.16.0 httpx2==2.16.0 huggingface_hub==2.4.0 idna==3.20 markdown-it-py==4.3.0
  mdurl==0.1.2 packaging==26.3 protobuf==7.36.2 Pygments==2.21.0 PyYAML==6.0.3 regex==2026.11.9 rich==15.0.0
  safetensors==0.8.0 shellingham==1.5.4 sniffio==1.3.1 tokenizers==0.23.3 tqdm==4.70.1 truststore==0.10.5 typer==0.29.0
  typing_extensions==4.16.0
"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard"
target="$cache/train-transformers-$TRANSFORMERS-tensorboard-$TENSORBOARD"
base=/usr/bin/python3 # Debian's: only this one sees Debian's PyTorch

say() { printf 'setup-train: %s\n' "$*" >&2; }

# ready: found, not imported, which takes seconds.
ready() { "$base" -c 'import ensurepip, sys, venv; from importlib.util import find_spec; sys.exit(not find_spec("torch"))' 2>/dev/null; }

# debian installs PyTorch and what makes venvs.
debian() {
  if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    say "needs PyTorch for $base: as root on Debian or Ubuntu, apt-get install --no-install-recommends python3-torch python3-venv"
    exit 1
  fi
  say "installing python3-torch and python3-venv"
  local log
  log=$(mktemp)
  export DEBIAN_FRONTEND=noninteractive
  # The lists may be old or empty: try as it is, then with fresh lists.
  apt-get install -y --no-install-recommends python3-torch python3-venv >"$log" 2>&1 </dev/null ||
    { apt-get update >"$log" 2>&1 </dev/null && apt-get install -y --no-install-recommends python3-torch python3-venv >>"$log" 2>&1 </dev/null; } ||
    { tail -n 5 "$log" >&2 && rm -f "$log" && exit 1; }
  rm -f "$log"
  "$base" -c 'import torch' >/dev/null || {
    say "python3-torch is installed, but $base cannot import it"
    exit 1
  }
}

install() {
  say "installing transformers $TRANSFORMERS and tensorboard $TENSORBOARD into $target, once"
  # A folder that is half made must not look finished, and programs in it know their path:
  # so it is made in place, and the stamp is written last.
  rm -rf "$target"
  "$base" -m venv --system-site-packages "$target"
  # shellcheck disable=SC2086 # a list of words
  "$target/bin/pip" install --quiet --disable-pip-version-check --no-input --no-compile --no-deps $packages >&2 || {
    say "they could not be installed from PyPI"
    exit 1
  }
  touch "$target/.complete"
}

if [ "${1:-}" = --check ]; then
  ready && [ -e "$target/.complete" ] || {
    say "PyTorch, transformers or tensorboard is missing: run scripts/setup-train.sh"
    exit 1
  }
fi
mkdir -p "$cache"
(
  flock 9
  ready || debian
  [ -e "$target/.complete" ] || install
) 9>"$cache/.train.lock"

printf '%s\n' "$target/bin/python"
"$target/bin/python" -c '
from importlib.metadata import version
for name in ("torch", "transformers", "tensorboard"):
    print(name, version(name))'
