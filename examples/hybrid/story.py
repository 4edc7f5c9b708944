#!/usr/bin/env python3
"""Tells a feed of events, which comes as lines of JSON, as a story for people.

The first argument is a file with lines of ID NAME: what jobs are called.
"""
import json
import sys
import time
from datetime import datetime

WORDS = {
    "job.starting": "starts on",
    "job.succeeded": "is done",
    "job.failed": "failed:",
    "job.recovering": "starts again:",
    "job.held": "waits:",
    "lease.asked": "",
    "lease.active": "its machine has booted and",
    "lease.returning": "a machine goes back:",
    "lease.ended": "a machine has ended:",
    "lease.refused": "a machine was refused:",
    "lease.stray": "a machine that nobody knows:",
    "data.override": "the rules of its data are set aside:",
}


def name(path, job):
    """What a job is called. Who submitted it may not have written that down yet."""
    for _ in range(20):
        with open(path) as f:
            called = dict(line.split() for line in f if line.endswith("\n"))
        if job in called:
            return called[job]
        time.sleep(0.1)
    return job


def when(event):
    """The time of an event, in whole seconds: older Pythons read not every fraction."""
    return datetime.strptime(event["at"].split(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S")


def tell(event, begun, path):
    """One line of the story, None if the event is not worth one."""
    kind = event["kind"]
    words = "budget:" if kind.startswith("budget.") else WORDS.get(kind)
    if words is None:
        return None
    job = event.get("job", "")
    about = name(path, job) if job else event.get("owner", "")
    if event.get("lease"):
        about += f" [{event['lease']}]"
    said = [words] if kind == "job.succeeded" else [words, event.get("reason", "")]
    clock = f"{(when(event) - begun).total_seconds():.0f}s"
    return f"  {clock:>5}  {about}: {' '.join(filter(None, said))}"


def main():
    begun = None
    for line in sys.stdin:
        event = json.loads(line)
        begun = begun or when(event)
        told = tell(event, begun, sys.argv[1])
        if told:
            print(told, flush=True)


if __name__ == "__main__":
    main()
