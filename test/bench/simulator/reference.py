"""A gang-scheduling event simulator with strict FIFO, as one writes it in Python.

This is the other side of bench-sim. It does what is needed for the completion times of
rigid jobs on one pool of GPUs and nothing else: a heap of events, a queue, a counter of
free GPUs. A job starts with all its GPUs at once and holds up everybody behind it.

It reads from standard input

    {"gpus": 64, "times": 3, "jobs": [[submit, run, gpus], ...]}

with times in seconds and jobs by submission, simulates that many times, and writes

    {"seconds": <least processor seconds of one simulation>, "mean": <mean completion>, "events": <handled>}

Reading, writing and the start of the interpreter are not in the seconds.
"""

import collections
import heapq
import json
import sys
import time

END, SUBMIT = 0, 1  # GPUs that become free at a moment serve who comes at that moment


def simulate(gpus, jobs):
    """Returns the mean completion time and the number of events."""
    events = [(submit, SUBMIT, i) for i, (submit, _, _) in enumerate(jobs)]
    heapq.heapify(events)
    queue = collections.deque()
    free, total, handled = gpus, 0.0, 0

    while events:
        now, kind, i = heapq.heappop(events)
        handled += 1
        if kind == SUBMIT:
            queue.append(i)
        else:
            free += jobs[i][2]
            total += now - jobs[i][0]

        while queue and jobs[queue[0]][2] <= free:
            first = queue.popleft()
            free -= jobs[first][2]
            heapq.heappush(events, (now + jobs[first][1], END, first))

    if queue:
        raise SystemExit(f"{len(queue)} jobs never fit {gpus} GPUs")
    return total / len(jobs), handled


def main():
    given = json.load(sys.stdin)
    least, mean, events = None, 0.0, 0
    for _ in range(given["times"]):
        began = time.process_time()
        mean, events = simulate(given["gpus"], given["jobs"])
        took = time.process_time() - began
        least = took if least is None else min(least, took)

    json.dump({"seconds": least, "mean": mean, "events": events}, sys.stdout)


if __name__ == "__main__":
    main()
