// The fake GPU: a file that all processes map. Time on it is real time; the work of processes that are busy at once
// goes on at equal rates, as under the driver's time-slicing.
//
// FAKE_GPU names the file. Tests make it with a capacity and read the busy clock of each process from it:
// internal/agent/share/sharetest has the same layout.

#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { FAKE_PROCS = 64, FAKE_SIZE = 4096 + FAKE_PROCS * 128 };

struct fake_proc {
	uint64_t pid;
	double executed; // nanoseconds of work that the GPU has done: the busy clock
	double enqueued; // nanoseconds of work that were launched
	uint64_t launches;
	uint64_t allocated; // bytes
	uint64_t context;   // bytes
	uint64_t unused[10];
};

struct fake_gpu {
	uint64_t capacity, context; // bytes; set by whoever makes the file
	uint64_t ready;
	int64_t updated; // until when the busy clocks are right
	int64_t reaped;
	char before_lock[512 - 40];
	pthread_mutex_t lock;
	char before_procs[4096 - 512 - sizeof(pthread_mutex_t)];
	struct fake_proc proc[FAKE_PROCS];
};

_Static_assert(sizeof(struct fake_proc) == 128 && sizeof(struct fake_gpu) == FAKE_SIZE, "the layout of the file");

static inline int64_t fake_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline struct fake_gpu *fake_open(void)
{
	const char *path = getenv("FAKE_GPU");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return NULL;

	struct fake_gpu *gpu = mmap(NULL, FAKE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (gpu == MAP_FAILED)
		return NULL;

	flock(fd, LOCK_EX);
	if (!gpu->ready) {
		pthread_mutexattr_t a;
		pthread_mutexattr_init(&a);
		pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
		pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
		pthread_mutex_init(&gpu->lock, &a);
		gpu->updated = fake_now();
		gpu->ready = 1;
	}
	flock(fd, LOCK_UN);
	close(fd);

	return gpu;
}

static inline void fake_lock(struct fake_gpu *gpu)
{
	if (pthread_mutex_lock(&gpu->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&gpu->lock);
}

static inline void fake_unlock(struct fake_gpu *gpu) { pthread_mutex_unlock(&gpu->lock); }

// fake_advance lets the GPU work until now.
static inline int fake_advance(struct fake_gpu *gpu)
{
	int64_t now = fake_now();
	if (now - gpu->reaped > 50000000) { // the work and the memory of the dead are gone
		gpu->reaped = now;
		for (int i = 0; i < FAKE_PROCS; i++)
			if (gpu->proc[i].pid && kill((pid_t)gpu->proc[i].pid, 0) != 0 && errno == ESRCH) {
				gpu->proc[i].enqueued = gpu->proc[i].executed;
				gpu->proc[i].allocated = gpu->proc[i].context = 0;
			}
	}

	double passed = (double)(now - gpu->updated);
	int busy = 0;
	for (;;) {
		double least = 0;
		busy = 0;
		for (int i = 0; i < FAKE_PROCS; i++) {
			double backlog = gpu->proc[i].enqueued - gpu->proc[i].executed;
			if (backlog <= 0)
				continue;
			if (busy++ == 0 || backlog < least)
				least = backlog;
		}
		if (busy == 0 || passed <= 0)
			break;

		double each = least * busy < passed ? least : passed / busy;
		for (int i = 0; i < FAKE_PROCS; i++) {
			double backlog = gpu->proc[i].enqueued - gpu->proc[i].executed;
			if (backlog <= 0)
				continue;
			// Exactly, so that no crumb is left.
			gpu->proc[i].executed = backlog <= each ? gpu->proc[i].enqueued : gpu->proc[i].executed + each;
		}
		passed -= each * busy;
		if (passed < 1)
			break;
	}
	gpu->updated = now;

	return busy;
}

static inline uint64_t fake_used(struct fake_gpu *gpu)
{
	uint64_t sum = 0;
	for (int i = 0; i < FAKE_PROCS; i++)
		sum += gpu->proc[i].allocated + gpu->proc[i].context;

	return sum;
}

#endif
