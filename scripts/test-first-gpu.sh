#!/usr/bin/env bash
# Proves what a newcomer sees on a machine with a real GPU: `trainyard up` shows the node while it measures its GPU, a job
# that was submitted at once runs, programs get the machine's settings of MPI and not the agent's own, a program that
# imports PyTorch is "starting", an unchanged Lightning script runs, and the use of the GPU is shown.
#
#	TRAINYARD=build/trainyard PYTHON=python3 scripts/test-first-gpu.sh
#
# Everything lies in one temporary folder (KEEP=1 keeps it), and nothing outlives the script.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/gpu-lib.sh
. scripts/gpu-lib.sh
chmod 755 "$work" # jobs of users of their own read it

mkdir "$work/train"
cat >"$work/train/plain.py" <<'PROGRAM'
import os, time
import torch

print("device", torch.cuda.get_device_name(), flush=True)
print("passed", sorted(k for k in os.environ if k.startswith(("OMPI_", "PMIX_"))), flush=True)
print("leaked", sorted(k for k in os.environ if k in ("TRAINYARD_TOKEN", "AGENT_ONLY")), flush=True)
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
began, step = time.time(), 0
while time.time() - began < 25:
    for _ in range(20):
        a = torch.nn.functional.normalize(a @ a)
    torch.cuda.synchronize()
    step += 1
    if step % 10 == 0:
        print(f"step={step} loss={1 / step:.4f}", flush=True)
PROGRAM
cat >"$work/train/lit.py" <<'PROGRAM'
import torch
try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)

    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(640, 32)), batch_size=16)
pl.Trainer(max_epochs=3, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False).fit(Model(), data)
print("lightning done", flush=True)
PROGRAM
for name in plain lit; do
  cat >"$work/train/$name.yaml" <<JOB
name: $name
workdir: .
run: $python $name.py
resources: {gpus: 1}
JOB
done

began=$(date +%s.%N)
passed() { echo "$(date +%s.%N) $began" | awk '{ printf "%5.1f s", $1 - $2 }'; }
AGENT_ONLY=1 OMPI_MCA_btl=self,tcp PMIX_MCA_gds=hash XDG_CONFIG_HOME=$work/config "$trainyard" up --data "$work/yard" \
  --listen 127.0.0.1:0 >"$work/up.log" 2>&1 &
answers() { ty jobs; }
await "the yard" answers
echo "== $(passed): the yard answers; its nodes:"
measures() { ty nodes | grep 'measuring its GPUs'; }
await "the measurement of the GPU" measures
ty nodes
first=$(ty submit "$work/train/plain.yaml" --detach -q)
echo "== $(passed): submitted $first"
for _ in $(seq 40); do
  echo "== $(passed)"
  ty jobs | tee -a "$work/jobs"
  if ty logs "$first" 2>/dev/null | grep -q '^step='; then break; fi
  sleep 0.5
done
echo "== top while it computes"
sleep 12
ty top | tee "$work/top"
ty wait "$first" >/dev/null || fail "the training did not succeed: $(ty job "$first" 2>&1; ty logs "$first" 2>&1)"
second=$(ty submit "$work/train/lit.yaml" --detach -q)
ty wait "$second" >/dev/null || fail "the Lightning script did not succeed: $(ty job "$second" 2>&1; ty logs "$second" 2>&1)"

for j in "$first" "$second"; do
  echo "== job $j"
  ty job "$j" | tee "$work/job-$j"
  ty logs "$j" >"$work/log-$j"
done
again() { ! ty nodes | grep -q table; }
await "the measurement after the jobs" again
ty nodes
head -n 4 "$work/log-$first"

check() { # WHAT PATTERN FILE
  grep -Eq -- "$2" "$3" || fail "$1: $3 lacks $2"
}
check "the program was to get MPI's settings" "passed .*'OMPI_MCA_btl'.*'PMIX_MCA_gds'" "$work/log-$first"
check "the agent's own variables were to be kept from it" 'leaked \[\]' "$work/log-$first"
check "a program that imports PyTorch was to be starting" 'starting' "$work/jobs"
check "top was to show the GPU at work" ' (9[0-9]|100)% ' "$work/top"
check "the use of the GPU was to be shown" 'GPUs busy: .* (9[0-9]|100)% at most' "$work/job-$first"
check "Lightning was to train" 'lightning done' "$work/log-$second"
echo passed
