"""Measures HyperQueue: separate jobs of one task each, submitted one after the other to a server on this machine with
one worker. Prints how many a second, from the first submission until all have finished."""

import os
import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig


def main():
    jobs, folder = int(sys.argv[1]), sys.argv[2]
    os.chdir(folder)  # for the output of tasks

    with LocalCluster(folder) as cluster:
        cluster.start_worker(WorkerConfig(cores=os.cpu_count()))
        client = cluster.client()

        def submit():
            job = Job()
            job.program(["/bin/sh", "-c", "true"])
            return client.submit(job)

        client.wait_for_jobs([submit()])  # its first job waits for the worker

        began = time.monotonic()
        client.wait_for_jobs([submit() for _ in range(jobs)])
        print(jobs / (time.monotonic() - began))


main()
