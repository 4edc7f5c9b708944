"""Mean bounded slowdown of simple batch policies, computed on its own.

This is the other side of bench-swf: a small event simulator of one machine with a
number of processors, written from the published rules with nothing but the standard
library. It shares no code with the simulator and the policies that it is compared
with; both are given the same windows of jobs.

It reads from standard input

    {"policies": ["fcfs", "fcfs+easy", "fcfs+held", "fcfs+held+easy", ...],
     "windows": [{"procs": 256, "jobs": [[submit, run, requested, procs], ...]}, ...]}

with times in seconds, submit counted from the beginning of the log, and writes for
each window the mean bounded slowdown of each policy.

The waiting jobs are put in order again whenever something happens. With "held" it is
as in the simulator of the published table: a job that was first once is waited for,
whoever comes meanwhile, and backfill goes by submission and takes only jobs that end
before its turn.
"""

import bisect
import heapq
import json
import math
import sys

TAU = 10.0  # seconds: shorter jobs count as this long
ONE = 1e-9  # for the logarithm of one processor


def static_score(rule):
    """The score of rules that do not look at the waiting time, smallest first."""
    return {
        "fcfs": lambda submit, req, n: 0.0,
        "sjf": lambda submit, req, n: req,
        "saf": lambda submit, req, n: req * n,
        "f1": lambda submit, req, n: math.log10(req) * n + 870.0 * math.log10(max(submit, 1.0)),
    }.get(rule)


def waiting_score(rule):
    """The score of rules that do, smallest first."""
    return {
        "wfp3": lambda wait, req, n: -((wait / req) ** 3) * n,
        "unicep": lambda wait, req, n: -wait / (max(math.log2(n), ONE) * req),
    }[rule]


class Machine:
    """A machine, what runs on it, and what waits, under one policy."""

    def __init__(self, procs, jobs, rule, easy, held):
        self.free = procs
        self.jobs = jobs
        self.easy = easy
        self.held = held
        self.chosen = None  # the job that is waited for, if it is held
        self.turn = 0.0  # and when its turn will come
        self.static = static_score(rule)
        self.dynamic = None if self.static else waiting_score(rule)
        self.queue = []  # (score, number) in order; the score is 0 for rules that change
        self.ends = []  # heap of (end, number)
        self.running = {}  # number -> (expected end, processors)
        self.start = [0.0] * len(jobs)

    def arrive(self, i):
        submit, _, req, n = self.jobs[i]
        score = self.static(submit, req, n) if self.static else 0.0
        bisect.insort(self.queue, (score, i))

    def order(self, now):
        """The waiting jobs, first to be served first."""
        if self.static:
            return [i for _, i in self.queue]
        scored = []
        for _, i in self.queue:
            submit, _, req, n = self.jobs[i]
            scored.append((self.dynamic(now - submit, req, n), i))
        scored.sort()
        return [i for _, i in scored]

    def launch(self, i, now):
        _, run, req, n = self.jobs[i]
        self.free -= n
        self.start[i] = now
        self.running[i] = (now + req, n)
        heapq.heappush(self.ends, (now + run, i))

    def schedule(self, now):
        if not self.queue or self.free == 0:
            return
        started = set()
        order = self.order(now)
        head = 0
        while head < len(order) and self.jobs[order[head]][3] <= self.free:
            self.launch(order[head], now)
            started.add(order[head])
            head += 1
        if self.easy and head < len(order) and self.free > 0:
            started |= self.backfill(order[head], order[head + 1:], now)
        if started:
            self.queue = [q for q in self.queue if q[1] not in started]

    def schedule_held(self, now):
        """Like schedule, but whoever was first once stays first."""
        while self.queue or self.chosen is not None:
            if self.chosen is None:
                self.chosen = self.order(now)[0]
                self.queue = [q for q in self.queue if q[1] != self.chosen]
                self.turn = self.release(self.jobs[self.chosen][3], now)[0]
            if self.jobs[self.chosen][3] > self.free:
                break
            self.launch(self.chosen, now)
            self.chosen = None
        if self.easy and self.chosen is not None:
            started = set()
            for i in sorted(i for _, i in self.queue):
                _, _, req, n = self.jobs[i]
                if n <= self.free and now + req < self.turn:
                    self.launch(i, now)
                    started.add(i)
            if started:
                self.queue = [q for q in self.queue if q[1] not in started]

    def release(self, need, now):
        """When so many processors are expected to be free, and how many are by then."""
        have, shadow = self.free, now
        for end, n in sorted((max(e, now), n) for e, n in self.running.values()):
            if have >= need:
                break
            have, shadow = have + n, end
        # What ends at the same moment is free too.
        return shadow, self.free + sum(n for e, n in self.running.values() if max(e, now) <= shadow)

    def backfill(self, head, rest, now):
        """Starts what does not delay the head: it ends before, or needs what is over."""
        shadow, have = self.release(self.jobs[head][3], now)
        over = have - self.jobs[head][3]
        started = set()
        for i in rest:
            if self.free == 0:
                break
            _, _, req, n = self.jobs[i]
            if n > self.free:
                continue
            if now + req > shadow:
                if n > over:
                    continue
                over -= n
            self.launch(i, now)
            started.add(i)
        return started

    def run(self):
        next_job, total = 0, len(self.jobs)
        while next_job < total or self.ends:
            now = math.inf
            if next_job < total:
                now = self.jobs[next_job][0]
            if self.ends:
                now = min(now, self.ends[0][0])
            while self.ends and self.ends[0][0] <= now:
                _, i = heapq.heappop(self.ends)
                self.free += self.running.pop(i)[1]
            while next_job < total and self.jobs[next_job][0] <= now:
                self.arrive(next_job)
                next_job += 1
            if self.held:
                self.schedule_held(now)
            else:
                self.schedule(now)
        slow = 0.0
        for i, (submit, run, _, _) in enumerate(self.jobs):
            slow += max(1.0, (self.start[i] - submit + run) / max(run, TAU))
        return slow / total


def main():
    task = json.load(sys.stdin)
    results = []
    for window in task["windows"]:
        row = {}
        for policy in task["policies"]:
            rule, *modes = policy.split("+")
            row[policy] = Machine(window["procs"], window["jobs"], rule, "easy" in modes, "held" in modes).run()
        results.append(row)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
