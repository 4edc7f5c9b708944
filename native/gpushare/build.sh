#!/usr/bin/env bash
# Builds libtrainyard-gpu.so as build.sh FILE, or into a folder with the fake driver and the test programs as
# build.sh FOLDER fake. CC, if set, is the compiler: one that makes 64-bit libraries for Linux with glibc.
# SANITIZE=undefined or SANITIZE=thread is for tests.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-gcc}
common=(-std=gnu11 -O2 -Wall -Wextra -Werror)
program=()
if [ -n "${SANITIZE:-}" ]; then
  program=(-g "-fsanitize=$SANITIZE" -fno-sanitize-recover=all)
  common+=("${program[@]}" -DGPUSHARE_SANITIZE)
fi

# In C libraries before 2.34 threads and dlopen have libraries of their own; in later ones these are empty.
old=(-Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2)
if [ -n "${SANITIZE:-}" ] || ! "$cc" -shared -o /dev/null "${old[@]}" 2>/dev/null; then
  old=()
fi

library() {
  "$cc" "${common[@]}" -fPIC -shared -fvisibility=hidden -ffile-prefix-map="$here"=. -Wl,--build-id=none \
    -Wl,-soname,libtrainyard-gpu.so -Wl,-z,relro,-z,now -o "$1" "$here/gpushare.c" "${old[@]}"
}

if [ "${2:-}" != fake ]; then
  library "$1.tmp"
  mv "$1.tmp" "$1"
  exit
fi

mkdir -p "$1"
library "$1/libtrainyard-gpu.so"
fake() { gcc -std=gnu11 -O2 -Wall -Wextra -Werror "$@"; }
fake -fPIC -shared -Wl,-soname,libcuda.so.1 -o "$1/libcuda.so.1" "$here/fake/cuda.c"
fake -fPIC -shared -Wl,-soname,libnvidia-ml.so.1 -o "$1/libnvidia-ml.so.1" "$here/fake/nvml.c"
fake -o "$1/nvidia-smi" "$here/fake/smi.c"
install "$here/fake/mps-control.sh" "$1/nvidia-cuda-mps-control"
fake "${program[@]}" -o "$1/trainer" "$here/fake/trainer.c"
fake -DLINKED -o "$1/trainer-linked" "$here/fake/trainer.c" "$1/libcuda.so.1"
