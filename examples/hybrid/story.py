#!/usr/bin/env python3
"""Tells a feed of events, which comes as lines of JSON, as a story for people.

The first argument is a file with lines of ID NAME: what jobs are called.
"""
import json
import sys
from datetime import datetime

WORDS = {
    "job.starting": "starts on",
    "job.succeeded": "is done",
    "job.failed": "failed:",
    "job.recovering": "starts again:",
    "job.held": "waits:",
    "lease.asked": "a machine is hired:",
    "lease.active": "its machine has booted and",
    "lease.returning": "a machine goes back:",
    "lease.ended": "a machine has ended:",
    "lease.refused": "a machine was refused:",
    "lease.stray": "a machine that nobody knows:",
    "data.override": "the rules of its data are set aside:",
}


def names(path):
    """What jobs are called by now."""
    try:
        with open(path) as f:
            return dict(line.split() for line in f if line.strip())
    except OSError:
        return {}


def when(event):
    """The time of an event, to the millisecond: older Pythons read no other fraction."""
    return datetime.strptime(event["at"].split(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S")


def tell(event, begun, called):
    """One line of the story, None if the event is not worth one."""
    kind = event["kind"]
    words = "budget:" if kind.startswith("budget.") else WORDS.get(kind)
    if words is None:
        return None
    job = event.get("job", "")
    about = called.get(job, job) or event.get("owner", "")
    lease = event.get("lease", "")
    reason = "" if kind == "job.succeeded" else " " + event.get("reason", "")
    clock = f"{(when(event) - begun).total_seconds():.0f}s"
    return f"  {clock:>5}  {about}{' [' + lease + ']' if lease else ''}: {words}{reason}"


def main():
    begun = None
    for line in sys.stdin:
        event = json.loads(line)
        begun = begun or when(event)
        told = tell(event, begun, names(sys.argv[1]))
        if told:
            print(told, flush=True)


if __name__ == "__main__":
    main()
