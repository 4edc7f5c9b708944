"""Lists the files of this machine that an image needs to run train.py, links as "path -> target". It runs a training of
one process first, so that everything is loaded that a training loads."""
import os
import runpy
import socket
import sys
import sysconfig

import torch
import torch.distributed.run

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]

os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "STEPS": "1"}
out, sys.stdout = sys.stdout, sys.stderr
try:
    runpy.run_path(os.path.join(os.path.dirname(__file__), "train.py"))
except SystemExit:
    pass

files = {os.path.realpath(sys.executable)}
with open("/proc/self/maps") as maps:
    files |= {line.split()[5] for line in maps if len(line.split()) == 6 and line.split()[5].startswith("/")}
files |= {m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)}

# What is imported later, by torchrun and by its workers.
folders_of_links = {"/usr/bin", sysconfig.get_config_var("LIBDIR"), "/usr/lib/" + sysconfig.get_config_var("MULTIARCH")}
for root in [sysconfig.get_path("stdlib"), os.path.dirname(torch.__file__)]:
    for path, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in ("__pycache__", "test", "tests", "include")]
        files |= {os.path.join(path, n) for n in names if n.endswith(".py") or n == "torch_shm_manager"}
        folders_of_links.add(path)

files = {f for f in files if os.path.isfile(f)}
real = {os.path.realpath(f) for f in files}
for path in sorted(real):
    print(path, file=out)

# Libraries are looked for by names that are links.
for folder in sorted({os.path.dirname(f) for f in files} | folders_of_links):
    for entry in os.scandir(folder):
        target = os.path.realpath(entry.path)
        if entry.is_symlink() and target in real and os.path.realpath(folder) == folder:
            print(entry.path, "->", target, file=out)
