#!/usr/bin/env python3
"""Print an event stream, read as lines of JSON, in plain sentences.

The first argument is a file with a line "ID NAME" for each job. The second is a file
that gets the number of the last event that was printed or left out.
"""
import json
import sys
import time
from datetime import datetime

WORDS = {
    "job.starting": "starts on",
    "job.succeeded": "succeeded",
    "job.failed": "failed:",
    "job.recovering": "restarts:",
    "job.held": "is blocked:",
    "lease.requested": "",
    "lease.active": "its machine has booted and",
    "lease.releasing": "releases its machine:",
    "lease.ended": "its machine has ended:",
    "lease.refused": "the provider refused a machine:",
    "lease.stray": "found a machine without a lease:",
    "data.override": "the placement rule of its data is overridden:",
}


def name(path, job):
    """Return the name of a job. The submitting process may not have written it down yet."""
    for _ in range(600):
        with open(path) as f:
            called = dict(line.split() for line in f if line.endswith("\n"))
        if job in called:
            return called[job]
        time.sleep(0.1)
    return job


def when(event):
    """Return the time of an event in whole seconds: older versions of Python cannot parse every fraction."""
    return datetime.strptime(event["at"].split(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S")


def describe(event, begun, path):
    """Return the line for an event, or None if it is not shown."""
    kind = event["kind"]
    words = "budget:" if kind.startswith("budget.") else WORDS.get(kind)
    if words is None:
        return None
    job = event.get("job", "")
    about = name(path, job) if job else event.get("owner", "")
    if event.get("lease"):
        about += f" [{event['lease']}]"
    parts = [words] if kind == "job.succeeded" else [words, event.get("reason", "")]
    clock = f"{(when(event) - begun).total_seconds():.0f}s"
    return f"  {clock:>5}  {about}: {' '.join(filter(None, parts))}"


def main():
    begun = None
    for line in sys.stdin:
        event = json.loads(line)
        begun = begun or when(event)
        text = describe(event, begun, sys.argv[1])
        if text:
            print(text, flush=True)
        with open(sys.argv[2], "w") as f:
            f.write(str(event["seq"]))


if __name__ == "__main__":
    main()
