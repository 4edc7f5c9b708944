#!/usr/bin/env bash
# Proves with a real GPU and PyTorch that a training that exceeds the memory of its GPU is detected, gets a larger one and
# finishes, without anybody doing anything, and that the next training like it starts there. One GPU plays two nodes: on
# "small" PyTorch may use 16 GiB of it, on "large" all of it.
#
#	TRAINYARD=build/trainyard PYTHON=python3 scripts/test-oom-gpu.sh
#
# Everything lies in one temporary folder (KEEP=1 keeps it), and nothing outlives the script.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/gpu-lib.sh
. scripts/gpu-lib.sh
root=$PWD
mkdir "$work/train" "$work/alone" "$work/capped"
printf '#!/bin/sh\nGPU_CAP_GB=16 exec "%s" "$@"\n' "$python" >"$work/capped/python3"
chmod +x "$work/capped/python3"
cp test/oom/train.py "$work/train/"
for seed in 1 2; do
  cat >"$work/train/job$seed.yaml" <<JOB
name: train-seed$seed
workdir: .
run: python3 train.py --seed $seed --pause 0.3
resources: {gpus: 1}
checkpoint: {dir: ckpt}
JOB
done

# The same training without a yard and without a limit, to compare with.
(cd "$work/alone" && PYTHONPATH=$root/sdk/python/src "$python" ../train/train.py --seed 1) >"$work/alone.log" 2>&1 ||
  fail "the training fails on this GPU"

"$trainyard" server --data "$work/server" --listen 127.0.0.1:0 --report-every 500ms --retry-wait 500ms >"$work/server.log" 2>&1 &
printed() { grep -q -- '--token-file' "$work/server.log"; }
await "the server" printed
url=$(sed -n 's|.*trainyard login \(https://[^ ]*\) --token-file .*|\1|p' "$work/server.log")
ty login "$url" --token-file "$work/server/bootstrap-token" >/dev/null

join() { # NAME GPUS FOLDER: where its jobs find python3
  local secret
  secret=$(ty tokens create --join -q)
  TRAINYARD_TOKEN=$secret PATH="$3:$PATH" "$trainyard" agent join "$url" --isolation none --name "$1" --data "$work/$1" \
    --fake-gpus "$2" --probe off >"$work/$1.log" 2>&1 &
  await "node $1" grep -q 'agent started' "$work/$1.log"
}

# The large node joins while the first training already runs on the small one.
join small 1xH200:16GB "$work/capped"
first=$(ty submit "$work/train/job1.yaml" --detach -q)
runs() { ty logs "$first" 2>/dev/null | grep -q '^step 1 '; }
await "the training" runs
join large 1xH200:140GB "$(dirname "$python")"
ty wait "$first" >/dev/null || fail "the training did not succeed: $(ty job "$first" 2>&1)"

echo "== would another one like it start there?"
ty submit "$work/train/job2.yaml" --dry-run
second=$(ty submit "$work/train/job2.yaml" --detach -q)
ty wait "$second" >/dev/null || fail "the second training did not succeed: $(ty job "$second" 2>&1)"

for j in "$first" "$second"; do
  echo "== job $j"
  ty job "$j"
  ty logs "$j" >"$work/$j.log"
  ty job "$j" -o json >"$work/$j.json"
  ty events --limit 1000 --job "$j" | tail -n 20
done
ty inbox >"$work/inbox"
cat "$work/inbox"

"$python" - "$work" "$first" "$second" <<'CHECK'
import json, re, sys

work, first, second = sys.argv[1:]
text = {j: open(f"{work}/{j}.log").read() for j in (first, second, "alone")}
runs = {j: json.load(open(f"{work}/{j}.json"))["runs"] for j in (first, second)}
places = {j: [(r["ranks"][0]["node"], r.get("cause", "")) for r in sorted(runs[j], key=lambda r: r["epoch"])] for j in runs}
print("runs:", places)
assert places[first] == [("small", "gpu_oom"), ("large", "")], "the first was to move from small to large"
assert places[second] == [("large", "")], "the second was to start on large"

ended = min(runs[first], key=lambda r: r["epoch"])["reason"]
print("reason:", ended)
assert "out of GPU memory: OutOfMemoryError: CUDA out of memory" in ended, "the SDK was to report it"
begins = [int(n) for n in re.findall(r"begins at (\d+)", text[first])]
assert begins[0] == 0 and begins[-1] > 0, f"it was to continue from a checkpoint: {begins}"

losses = {j: dict(re.findall(r"step (\d+) loss (\S+)", text[j])) for j in text}
same = sum(losses[first].get(step) == loss for step, loss in losses["alone"].items())
print(f"begins at {begins}; {same} of {len(losses['alone'])} steps have the loss of the training alone")
assert same == len(losses["alone"]) > 0, "losses differ"
assert "out_of_memory" not in open(f"{work}/inbox").read(), "somebody was asked"
print(re.findall(r"finished with.*", text[first])[-1])
print("passed")
CHECK
