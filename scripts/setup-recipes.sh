#!/usr/bin/env bash
# Installs what the recipe for Hugging Face in examples/checkpoints needs beside Debian's PyTorch: the last transformers
# whose Trainer works with it, and what that imports; 96 MB, once, into the user's cache. Prints the Python that has
# them. With --check nothing is installed: it fails if something is missing.
#
# Lightning, Keras and JAX are not installed: Lightning needs PyTorch 2, of which PyPI has only the build for GPUs, and
# Keras with JAX takes 450 MB. Their recipes are tested where they are installed.
set -euo pipefail

TRANSFORMERS=4.44.2
packages="
  transformers==$TRANSFORMERS accelerate==0.30.1 certifi==2024.7.4 charset-normalizer==3.3.2 filelock==3.15.4
  fsspec==2024.6.1 huggingface_hub==0.23.5 idna==3.7 packaging==24.1 psutil==6.0.0 PyYAML==6.0.3 regex==2024.5.15
  requests==2.32.3 safetensors==0.4.5 tokenizers==0.19.1 tqdm==4.67.1 typing_extensions==4.16.0 urllib3==2.2.2
"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard"
target="$cache/recipes-transformers-$TRANSFORMERS"
here=$(dirname "$0")

say() { printf 'setup-recipes: %s\n' "$*" >&2; }

if [ "${1:-}" = --check ]; then
  "$here/setup-train.sh" --check >/dev/null
  [ -e "$target/.complete" ] || {
    say "transformers $TRANSFORMERS is missing: run scripts/setup-recipes.sh"
    exit 1
  }
else
  "$here/setup-train.sh" >/dev/null # PyTorch
fi
mkdir -p "$cache"
(
  flock 9
  [ -e "$target/.complete" ] || {
    say "installing transformers $TRANSFORMERS into $target, once"
    # A folder that is half made must not look finished: the stamp is written last.
    rm -rf "$target"
    /usr/bin/python3 -m venv --system-site-packages "$target"
    # shellcheck disable=SC2086 # a list of words
    "$target/bin/pip" install --quiet --disable-pip-version-check --no-input --no-compile --no-deps $packages >&2 || {
      say "it could not be installed from PyPI"
      exit 1
    }
    touch "$target/.complete"
  }
) 9>"$cache/.recipes.lock"

printf '%s\n' "$target/bin/python"
