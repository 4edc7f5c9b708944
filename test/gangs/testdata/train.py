"""Data-parallel training with PyTorch: every process has its own part of the data, DistributedDataParallel averages the
gradients. Started by torchrun without any options for the network. FAIL_RANK fails at FAIL_STEP."""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
truth = torch.linspace(-1, 1, 8).reshape(8, 1)
torch.manual_seed(100 + rank)
data = torch.randn(256, 8)
print(f"rank={rank} size={size} master={os.environ['MASTER_ADDR']} interface={os.environ.get('GLOO_SOCKET_IFNAME')}",
      flush=True)

for step in range(int(os.environ.get("STEPS", "60"))):
    if os.environ.get("FAIL_RANK") == str(rank) and step == int(os.environ.get("FAIL_STEP", "5")):
        raise ValueError(f"a bad batch on rank {rank}")
    loss = torch.nn.functional.mse_loss(model(data), data @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

total = sum(p.double().sum() for p in model.parameters()).reshape(1)
low, high = total.clone(), total.clone()
dist.all_reduce(low, dist.ReduceOp.MIN)
dist.all_reduce(high, dist.ReduceOp.MAX)
same = bool(low == high)
print(f"rank={rank} loss={loss.item():.4f} same_on_all_ranks={same}", flush=True)
sys.exit(0 if same and loss.item() < 0.05 else 1)
