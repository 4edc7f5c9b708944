"""Trains a small transformer with dropout and AdamW; prints the exact loss of every step.

Usage: training.py STEPS GIB. GIB is memory that is filled at the start, takes part in every step and is summed up at the
end, so that a bit of it that is lost shows.
"""

import sys

import torch

steps, gib = int(sys.argv[1]), float(sys.argv[2])
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.use_deterministic_algorithms(True)
torch.manual_seed(7)

WIDTH = 512 if device == "cuda" else 64
LENGTH = 64
layer = torch.nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.1, batch_first=True)
net = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 4), torch.nn.Linear(WIDTH, 1)).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
ballast = torch.randint(0, 256, (int(gib * 2**30),), dtype=torch.uint8, device=device)

for step in range(1, steps + 1):
    x = torch.randn(16, LENGTH, WIDTH, device=device)
    x = x + ballast[step * WIDTH : (step + 1) * WIDTH].float() / 256
    loss = ((net(x).squeeze(2) - x.mean(2)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex(), flush=True)

weights = sum(p.double().sum() for p in net.parameters()).item().hex()
total = sum(part.sum(dtype=torch.int64).item() for part in ballast.split(2**28))
print("end", weights, total, device, flush=True)
