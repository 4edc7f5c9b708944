#!/usr/bin/env bash
# Starts a yard on this machine, trains the digits example on it, and stays up until Ctrl-C.
# What it keeps is in build/yard: remove that folder to start afresh.
set -euo pipefail
cd "$(dirname "$0")/.."
exec build/trainyard up --data build/yard --submit examples/digits/job.yaml "$@"
