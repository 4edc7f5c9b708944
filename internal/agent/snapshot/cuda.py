"""Asks the NVIDIA driver for the state of other processes, or suspends or resumes their use of the GPU.

Usage: cuda.py VERB TIMEOUT_MS PID... with VERB state, suspend or resume. Prints a JSON object for each PID, and one with
"missing" if the driver or its checkpoint calls are missing. With VERB memory there are names of GPUs instead of PIDs, and
the object has how many bytes of each are in use.
"""

import ctypes
import json
import sys

NOT_INITIALIZED = 3  # the answer for a process that does not use CUDA
STATES = ["running", "locked", "suspended", "failed"]


def say(**fields):
    print(json.dumps(fields), flush=True)


def load():
    """Returns the driver's library; one before 570 does not have the calls."""
    try:
        lib = ctypes.CDLL("libcuda.so.1")
        for name in ("GetState", "Lock", "Checkpoint", "Restore", "Unlock"):
            getattr(lib, "cuCheckpointProcess" + name)
    except (OSError, AttributeError) as err:
        say(missing=str(err))
        sys.exit(0)
    return lib


def state(lib, pid):
    """Returns the state of a process, "" if it does not use CUDA."""
    found = ctypes.c_int(-1)
    code = lib.cuCheckpointProcessGetState(pid, ctypes.byref(found))
    if code == NOT_INITIALIZED:
        return ""
    if code != 0:
        raise RuntimeError(f"cuCheckpointProcessGetState: CUDA error {code}")
    return STATES[found.value]


def call(lib, name, pid, first=0):
    args = (ctypes.c_uint64 * 8)()  # every argument structure is 64 bytes
    args[0] = first
    code = getattr(lib, "cuCheckpointProcess" + name)(pid, args)
    if code != 0:
        raise RuntimeError(f"cuCheckpointProcess{name}: CUDA error {code}")


def suspend(lib, pid, timeout):
    if state(lib, pid) == "running":
        call(lib, "Lock", pid, timeout)
    if state(lib, pid) == "locked":
        try:
            call(lib, "Checkpoint", pid)
        except RuntimeError:
            if state(lib, pid) == "locked":
                call(lib, "Unlock", pid)
            raise


def resume(lib, pid):
    if state(lib, pid) == "suspended":
        call(lib, "Restore", pid)
    if state(lib, pid) == "locked":
        call(lib, "Unlock", pid)


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def memory(names):
    """Prints how much memory of each GPU is in use, by UUID or index."""
    try:
        lib = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as err:
        say(missing=str(err))
        return
    lib.nvmlInit_v2()
    for name in names:
        device, used = ctypes.c_void_p(), Memory()
        if name.isdigit():
            code = lib.nvmlDeviceGetHandleByIndex_v2(int(name), ctypes.byref(device))
        else:
            code = lib.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(device))
        code = code or lib.nvmlDeviceGetMemoryInfo(device, ctypes.byref(used))
        if code != 0:
            say(error=f"GPU {name}: NVML error {code}")
        else:
            say(used=used.used)


def main():
    verb, timeout = sys.argv[1], int(sys.argv[2])
    if verb == "memory":
        memory(sys.argv[3:])
        return
    pids = [int(word) for word in sys.argv[3:]]
    lib = load()
    for pid in pids:
        try:
            if verb == "suspend":
                suspend(lib, pid, timeout)
            elif verb == "resume":
                resume(lib, pid)
            say(pid=pid, state=state(lib, pid))
        except RuntimeError as err:
            say(pid=pid, error=str(err))


main()
