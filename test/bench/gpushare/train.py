"""Work on a GPU for some windows of time, and say how much was done in each.

python3 train.py NAME KIND WINDOWS SECONDS EVERY LEAD

It warms up, prints READY, reads when the first window begins (seconds since 1970), works and prints a line
RESULT {...} for every window. Windows of SECONDS begin EVERY so many seconds; in between it rests, and before a window
after a rest it works for LEAD seconds that are not counted. KIND is what it does; see the end.
"""

import ctypes
import json
import sys
import time


def say(word, **values):
    print(word + " " + json.dumps(values), flush=True)


def windows(name, count, seconds, every, lead, start, step, wait):
    """Call step again and again, wait for the GPU every 20 steps, and say at the end of each window how many it were.

    What is done in the lead is not counted: by then whatever was saved up while the programs got ready is gone.
    """

    def work(until):
        steps = 0
        while time.time() < until:
            step()
            steps += 1
            if steps % 20 == 0:
                wait()
        wait()
        return steps

    for i in range(count):
        begin = start + i * every
        if i == 0 or every > seconds:
            time.sleep(max(0, begin - lead - time.time()))
            work(begin)

        # A program that was held back may be late by whole windows, in which it got nothing done.
        steps = work(begin + seconds)
        say("RESULT", name=name, window=i, steps=steps, rate=steps / seconds)


def network(width, rows, layers=4):
    import torch

    model = torch.nn.Sequential(
        *[torch.nn.Linear(width, width, bias=False, dtype=torch.bfloat16, device="cuda") for _ in range(layers)]
    )
    x = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).float().pow(2).mean().backward()
        optimizer.step()

    return model, x, step


def gpu_bound():
    return network(8192, 2048)[2]


def host_bound():
    return network(256, 32)[2]


def graph():
    """One step of the GPU-bound training, captured and replayed."""
    import torch

    step = gpu_bound()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)

    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()

    return captured.replay


def compiled():
    """The GPU-bound forward and backward pass, by torch.compile."""
    import torch

    model, x, _ = network(8192, 2048)

    @torch.compile
    def loss(x):
        return torch.nn.functional.gelu(model(x)).float().pow(2).mean()

    def step():
        loss(x).backward()
        for p in model.parameters():
            p.grad = None

    return step


SPIN = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 ticks)
{
  .reg .u64 %rd<4>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [ticks];
  mov.u64 %rd2, %clock64;
AGAIN:
  mov.u64 %rd3, %clock64;
  sub.u64 %rd3, %rd3, %rd2;
  setp.lt.u64 %p1, %rd3, %rd1;
  @%p1 bra AGAIN;
  ret;
}
\0"""


def plain():
    """A kernel that waits for a million ticks, through the driver and without PyTorch."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *args):
        code = getattr(cuda, name)(*args)
        if code != 0:
            raise RuntimeError(f"{name}: error {code}")

    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    device = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    call("cuModuleLoadData", ctypes.byref(module), SPIN)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"spin")
    ticks = ctypes.c_uint64(1_000_000)
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(ticks), ctypes.c_void_p))

    def step(_alive=ticks):
        call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)

    return step, lambda: call("cuCtxSynchronize")


def ready(name):
    """Wait for the others, and return when the first window begins."""
    say("READY", name=name)
    return float(sys.stdin.readline())


def fill(name):
    """Allocate until there is no more, say so, and keep it until the input ends."""
    import torch

    ready(name)
    kept, size = [], 256 << 20
    while size >= 2 << 20:
        try:
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    torch.cuda.synchronize()
    say("FULL", name=name, bytes=sum(t.numel() for t in kept), shown=torch.cuda.mem_get_info()[1])
    sys.stdin.read()


def fault(name, seconds):
    """Read outside of a tensor in a kernel, in the middle of the first window."""
    import torch

    x = torch.arange(10, device="cuda")
    start = ready(name) + seconds / 2
    while time.time() < start:
        time.sleep(0.01)
    try:
        x[torch.tensor([1 << 30], device="cuda")].sum().item()
    except RuntimeError as e:
        say("FAULT", error=str(e).splitlines()[0])
        sys.exit(7)
    sys.exit("the fault did not happen")


def main():
    name, kind, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    seconds, every, lead = (float(a) for a in sys.argv[4:7])

    if kind == "fill":
        return fill(name)
    if kind == "fault":
        return fault(name, seconds)

    if kind == "plain":
        step, wait = plain()
    else:
        import torch

        step = {"gpu": gpu_bound, "host": host_bound, "graph": graph, "compile": compiled}[kind]()
        wait = torch.cuda.synchronize

    for _ in range(20):
        step()
    wait()
    return windows(name, count, seconds, every, lead, ready(name), step, wait)


if __name__ == "__main__":
    main()
