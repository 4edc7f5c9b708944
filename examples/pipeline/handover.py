"""Files that one job of the pipeline hands to the next, in $SHARED_DIR."""
import os
import sys


def path(name):
    """Return where a shared file is, or end the job with what is missing."""
    folder = os.environ.get("SHARED_DIR")
    if not folder:
        sys.exit("SHARED_DIR is not set: name a folder that every node sees")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name)


def write(name, text):
    """Write a shared file so that a reader sees all of it or none."""
    target = path(name)
    with open(target + ".new", "w") as f:
        f.write(text)
    os.replace(target + ".new", target)
    print(f"wrote {target}", flush=True)


def read(name):
    """Return a shared file's text, or end the job with what is missing."""
    try:
        with open(path(name)) as f:
            return f.read()
    except FileNotFoundError:
        sys.exit(f"{path(name)} is not there: is SHARED_DIR the same folder on every node?")
