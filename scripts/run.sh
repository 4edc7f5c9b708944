#!/usr/bin/env bash
# Starts a yard on this machine, trains an example on it, and stays up until Ctrl-C: digits, a neural network in plain
# Python, or without Python a program in Go.
# What it keeps is in build/yard: remove that folder to start afresh.
set -euo pipefail
cd "$(dirname "$0")/.."

first=(--submit examples/digits/job.yaml)
if ! command -v python3 >/dev/null; then
  echo "run: no Python here, so the first job is the example in Go" >&2
  first=(--submit examples/go-sgd/job.yaml)
  command -v go >/dev/null || first=() # a binary that was copied here; any command can be a job
fi

exec build/trainyard up --data build/yard "${first[@]}" "$@"
