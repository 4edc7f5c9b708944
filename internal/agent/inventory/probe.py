"""Measures how fast GPUs multiply matrices and prints one JSON line for each.

Run by the agent with the seconds it may take; the GPUs are those that
CUDA_VISIBLE_DEVICES names, and are counted from 0 in its order.
"""
import json
import signal
import sys


def say(**what):
    print(json.dumps(what), flush=True)


def kind(torch, index):
    """The numbers that one would train in on this device."""
    major, minor = torch.cuda.get_device_capability(index)
    if major >= 8:
        return "bf16", torch.bfloat16
    if major == 7 or (major, minor) == (6, 0):
        return "fp16", torch.float16
    return "fp32", torch.float32


def product(torch, a, b, out, rounds):
    """TFLOPS of that many products in a row."""
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(rounds):
        torch.mm(a, b, out=out)
    end.record()
    end.synchronize()
    seconds = start.elapsed_time(end) / 1000
    return 2 * a.shape[0] ** 3 * rounds / seconds / 1e12


def measure(torch, index):
    torch.cuda.set_device(index)
    name, dtype = kind(torch, index)
    free, _ = torch.cuda.mem_get_info(index)
    size = 8192 if free > 4 << 30 else 4096
    a = torch.randn(size, size, device="cuda", dtype=dtype)
    b = torch.randn(size, size, device="cuda", dtype=dtype)
    out = torch.empty_like(a)
    first = product(torch, a, b, out, 2)  # loads the kernels
    first = product(torch, a, b, out, 2)
    # Bursts of a tenth of a second at most: longer ones measure how warm the
    # machine is. The best of five counts, as in tables that others have made.
    rounds = max(1, min(10, int(0.1 * first * 1e12 / (2 * size**3))))
    best = max(product(torch, a, b, out, rounds) for _ in range(5))
    say(gpu=index, numbers=name, tflops=round(best, 1))


def main():
    signal.alarm(int(sys.argv[1]))
    try:
        import torch
    except ImportError:
        return say(missing="torch")
    if not torch.cuda.is_available():
        return say(missing="a torch that can use these GPUs")
    for index in range(torch.cuda.device_count()):
        try:
            measure(torch, index)
        except Exception as err:  # the next GPU may be in order
            say(gpu=index, error=str(err)[:200])


main()
