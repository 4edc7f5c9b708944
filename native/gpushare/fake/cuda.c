// A fake libcuda.so.1: enough of the driver for GPU sharing to be tested without a GPU. See state.h for the GPU.
//
// A kernel takes as many microseconds as its grid is wide. All streams of a process are one queue, which is right for
// events and for busy clocks. What the real driver forbids while a stream captures is forbidden here, and spoils the
// capture in the same way.

#define _GNU_SOURCE
#include "state.h"

#include <stdbool.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef unsigned int U;

enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	INVALID_CONTEXT = 201,
	NOT_FOUND = 500,
	NOT_READY = 600,
	CAPTURE_UNSUPPORTED = 900,
	CAPTURE_INVALIDATED = 901,
};

enum { QUEUE = 1024, MAPPINGS = 4096, STREAMS = 64 };

struct stream {
	bool taken, capturing, spoiled;
	double work; // captured
};

struct event {
	double target;
};

struct graph {
	double work;
};

struct allocation {
	uint64_t size;
	struct pool *pool;
	int references;
};

struct pool {
	uint64_t reserved, used;
};

struct config {
	U gx, gy, gz, bx, by, bz, shared;
	struct stream *stream;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of this process's own state
static struct fake_gpu *gpu;
static struct fake_proc *self;
static struct stream streams[STREAMS];
static struct pool device_pool;
static double queue[QUEUE]; // what must be done before the next launch fits in
static unsigned int queued;
static int context; // its address is the handle of the primary context
static __thread void *current;
static __thread int capture_mode;
static struct {
	CUdeviceptr at;
	uint64_t size;
	struct allocation *memory;
} mappings[MAPPINGS];
static CUdeviceptr next_address = 1ull << 40;

static void forked(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
	lock = fresh;
	gpu = NULL; // a child has no driver: it must call cuInit, if its parent has not
	self = NULL;
	current = NULL;
}

__attribute__((constructor)) static void loaded(void) { pthread_atfork(NULL, NULL, forked); }

CUresult cuInit(U flags);
CUresult cuInit(U flags)
{
	(void)flags;
	pthread_mutex_lock(&lock);
	if (gpu == NULL && (gpu = fake_open()) != NULL) {
		fake_lock(gpu);
		for (int i = 0; i < FAKE_PROCS && self == NULL; i++)
			if (gpu->proc[i].pid == 0) {
				self = &gpu->proc[i];
				memset(self, 0, sizeof *self);
				self->pid = (uint64_t)getpid();
			}
		fake_unlock(gpu);
	}
	CUresult r = self ? SUCCESS : NOT_INITIALIZED;
	pthread_mutex_unlock(&lock);

	return r;
}

// spoil invalidates all captures, as the real driver does when something is called that they do not allow.
static bool spoil(void)
{
	bool found = false;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < STREAMS; i++)
		if (streams[i].capturing)
			found = streams[i].spoiled = true;
	pthread_mutex_unlock(&lock);

	return found;
}

static bool done(double target, int *busy)
{
	fake_lock(gpu);
	*busy = fake_advance(gpu);
	bool r = self->executed >= target;
	fake_unlock(gpu);

	return r;
}

static void wait_for(double target)
{
	int busy;
	while (!done(target, &busy)) {
		double left = (target - self->executed) * (busy ? busy : 1);
		long ns = left < 20000 ? 20000 : left > 2000000 ? 2000000 : (long)left;
		struct timespec t = {0, ns};
		nanosleep(&t, NULL);
	}
}

static double enqueue(double ns)
{
	pthread_mutex_lock(&lock);
	double before = queue[queued % QUEUE];
	pthread_mutex_unlock(&lock);
	wait_for(before); // the real driver blocks as well if its queue is full

	pthread_mutex_lock(&lock);
	fake_lock(gpu);
	fake_advance(gpu);
	self->enqueued += ns;
	self->launches++;
	double target = self->enqueued;
	fake_unlock(gpu);
	queue[queued++ % QUEUE] = target;
	pthread_mutex_unlock(&lock);

	return target;
}

static CUresult launch(struct stream *s, double ns)
{
	if (self == NULL || current == NULL)
		return INVALID_CONTEXT;
	if (s && s->capturing) {
		s->work += ns;
		return s->spoiled ? CAPTURE_INVALIDATED : SUCCESS;
	}
	enqueue(ns);

	return SUCCESS;
}

#define API CUresult __attribute__((visibility("default")))

// Contexts and devices.

API cuDriverGetVersion(int *v) { return *v = 13000, SUCCESS; }
API cuDeviceGetCount(int *n) { return *n = 1, SUCCESS; }
API cuDeviceGet(int *d, int i) { return *d = i, i == 0 ? SUCCESS : INVALID_VALUE; }
API cuDeviceTotalMem_v2(size_t *n, int d) { return (void)d, gpu ? (*n = gpu->capacity, SUCCESS) : NOT_INITIALIZED; }

API cuDevicePrimaryCtxRetain(void **c, int d)
{
	(void)d;
	if (self == NULL)
		return NOT_INITIALIZED;
	fake_lock(gpu);
	CUresult r = SUCCESS;
	if (self->context == 0 && fake_used(gpu) + gpu->context > gpu->capacity)
		r = OUT_OF_MEMORY;
	else
		self->context = gpu->context;
	fake_unlock(gpu);
	*c = &context;

	return r;
}

API cuDevicePrimaryCtxRelease_v2(int d) { return (void)d, SUCCESS; }
API cuDevicePrimaryCtxGetState(int d, U *flags, int *active) { return (void)d, *flags = 0, *active = 1, SUCCESS; }
API cuCtxSetCurrent(void *c) { return current = c, SUCCESS; }
API cuCtxGetCurrent(void **c) { return *c = current, SUCCESS; }
API cuCtxPushCurrent_v2(void *c) { return current = c, SUCCESS; } // one context: no stack is needed
API cuCtxPopCurrent_v2(void **c) { return *c = current, SUCCESS; }
API cuCtxGetDevice(int *d) { return *d = 0, current ? SUCCESS : INVALID_CONTEXT; }

API cuCtxSynchronize(void)
{
	if (self == NULL)
		return INVALID_CONTEXT;
	if (spoil())
		return CAPTURE_UNSUPPORTED;
	wait_for(self->enqueued);

	return SUCCESS;
}

// Streams, events, captures and graphs.

API cuStreamCreate(struct stream **s, U flags)
{
	(void)flags;
	pthread_mutex_lock(&lock);
	*s = NULL;
	for (int i = 0; i < STREAMS && *s == NULL; i++)
		if (!streams[i].taken)
			*s = &streams[i];
	if (*s)
		(*s)->taken = true;
	pthread_mutex_unlock(&lock);

	return *s ? SUCCESS : OUT_OF_MEMORY;
}

API cuStreamSynchronize(struct stream *s)
{
	if (s && s->capturing) {
		s->spoiled = true;
		return CAPTURE_UNSUPPORTED;
	}
	wait_for(self->enqueued);

	return SUCCESS;
}

API cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = capture_mode;
	capture_mode = *mode;
	*mode = before;

	return SUCCESS;
}

API cuEventCreate(struct event **e, U flags)
{
	(void)flags;
	*e = calloc(1, sizeof **e);

	return *e ? SUCCESS : OUT_OF_MEMORY;
}

API cuEventDestroy_v2(struct event *e) { return free(e), SUCCESS; }

API cuEventRecord(struct event *e, struct stream *s)
{
	if (s && s->capturing) {
		s->spoiled = true; // not needed by any test, and a mistake of the shim if it happens
		return CAPTURE_UNSUPPORTED;
	}
	fake_lock(gpu);
	e->target = self->enqueued;
	fake_unlock(gpu);

	return SUCCESS;
}

API cuCtxRecordEvent(void *c, struct event *e)
{
	if (c != &context)
		return INVALID_CONTEXT;
	if (spoil())
		return CAPTURE_UNSUPPORTED;

	return cuEventRecord(e, NULL);
}

API cuEventQuery(struct event *e)
{
	int busy;
	return done(e->target, &busy) ? SUCCESS : NOT_READY;
}

API cuEventSynchronize(struct event *e) { return wait_for(e->target), SUCCESS; }

API cuStreamBeginCapture_v2(struct stream *s, int mode)
{
	(void)mode;
	if (s == NULL || s->capturing)
		return INVALID_VALUE;
	pthread_mutex_lock(&lock);
	s->work = 0;
	s->spoiled = false;
	s->capturing = true;
	pthread_mutex_unlock(&lock);

	return SUCCESS;
}

API cuStreamBeginCapture_v2_ptsz(struct stream *s, int mode) { return cuStreamBeginCapture_v2(s, mode); }

API cuStreamEndCapture(struct stream *s, struct graph **g)
{
	pthread_mutex_lock(&lock);
	bool captured = s && s->capturing, spoiled = captured && s->spoiled;
	if (captured)
		s->capturing = false;
	pthread_mutex_unlock(&lock);
	if (!captured)
		return INVALID_VALUE;
	if (spoiled)
		return CAPTURE_INVALIDATED;

	*g = calloc(1, sizeof **g);
	(*g)->work = s->work;

	return SUCCESS;
}

API cuStreamEndCapture_ptsz(struct stream *s, struct graph **g) { return cuStreamEndCapture(s, g); }
API cuGraphInstantiateWithFlags(struct graph **x, struct graph *g, unsigned long long flags)
{
	return (void)flags, *x = g, SUCCESS;
}
API cuGraphLaunch(struct graph *g, struct stream *s) { return launch(s, g->work); }
API cuGraphLaunch_ptsz(struct graph *g, struct stream *s) { return launch(s, g->work); }

// Launches.

#define LAUNCH(name) \
	API name(void *f, U gx, U gy, U gz, U bx, U by, U bz, U sh, struct stream *s, void **p, void **e) \
	{ \
		(void)f, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)sh, (void)p, (void)e; \
		return launch(s, gx * 1000.0); \
	}
LAUNCH(cuLaunchKernel)
LAUNCH(cuLaunchKernel_ptsz)

#define LAUNCH_EX(name) \
	API name(const struct config *c, void *f, void **p, void **e) \
	{ \
		(void)f, (void)p, (void)e; \
		return launch(c->stream, c->gx * 1000.0); \
	}
LAUNCH_EX(cuLaunchKernelEx)
LAUNCH_EX(cuLaunchKernelEx_ptsz)

#define LAUNCH_TOGETHER(name) \
	API name(void *f, U gx, U gy, U gz, U bx, U by, U bz, U sh, struct stream *s, void **p) \
	{ \
		(void)f, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)sh, (void)p; \
		return launch(s, gx * 1000.0); \
	}
LAUNCH_TOGETHER(cuLaunchCooperativeKernel)
LAUNCH_TOGETHER(cuLaunchCooperativeKernel_ptsz)

API cuMemsetD8_v2(CUdeviceptr d, unsigned char v, size_t n) { return (void)d, (void)v, (void)n, launch(NULL, 1000); }
API cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, struct stream *s)
{
	return (void)d, (void)v, (void)n, launch(s, 1000);
}
API cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr a, size_t n, struct stream *s)
{
	return (void)d, (void)a, (void)n, launch(s, 1000);
}

// Memory.

static bool take(uint64_t n)
{
	fake_lock(gpu);
	fake_advance(gpu);
	bool fits = fake_used(gpu) + n <= gpu->capacity;
	if (fits)
		self->allocated += n;
	fake_unlock(gpu);

	return fits;
}

static void give(uint64_t n)
{
	fake_lock(gpu);
	self->allocated -= n;
	fake_unlock(gpu);
}

static CUresult allocate(uint64_t n, struct pool *pool, CUdeviceptr *p)
{
	struct allocation *a = calloc(1, sizeof *a);
	a->size = n;
	a->pool = pool;
	a->references = 1;
	*p = (CUdeviceptr)(uintptr_t)a;

	return SUCCESS;
}

API cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
	if (current == NULL)
		return INVALID_CONTEXT;

	return take(n) ? allocate(n, NULL, p) : OUT_OF_MEMORY;
}

API cuMemAllocManaged(CUdeviceptr *p, size_t n, U flags) { return (void)flags, cuMemAlloc_v2(p, n); }

API cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t w, size_t h, U e)
{
	(void)e;
	*pitch = (w + 511) / 512 * 512;

	return cuMemAlloc_v2(p, *pitch * h);
}

static CUresult from_pool(CUdeviceptr *p, size_t n, struct pool *pool)
{
	if (current == NULL)
		return INVALID_CONTEXT;

	pthread_mutex_lock(&lock);
	CUresult r = SUCCESS;
	if (pool->used + n > pool->reserved) {
		uint64_t unit = 32 << 20, more = (pool->used + n - pool->reserved + unit - 1) / unit * unit;
		if (take(more))
			pool->reserved += more;
		else
			r = OUT_OF_MEMORY;
	}
	if (r == SUCCESS) {
		pool->used += n;
		allocate(n, pool, p);
	}
	pthread_mutex_unlock(&lock);

	return r;
}

API cuDeviceGetMemPool(struct pool **pool, int d) { return (void)d, *pool = &device_pool, SUCCESS; }
API cuMemPoolCreate(struct pool **pool, const void *p) { return (void)p, *pool = calloc(1, sizeof **pool), SUCCESS; }
API cuMemAllocAsync(CUdeviceptr *p, size_t n, struct stream *s) { return (void)s, from_pool(p, n, &device_pool); }
API cuMemAllocAsync_ptsz(CUdeviceptr *p, size_t n, struct stream *s) { return (void)s, from_pool(p, n, &device_pool); }

API cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t n, struct pool *pool, struct stream *s)
{
	return (void)s, from_pool(p, n, pool);
}

API cuMemFree_v2(CUdeviceptr p)
{
	struct allocation *a = (struct allocation *)(uintptr_t)p;
	if (a == NULL)
		return SUCCESS;
	if (a->pool) {
		pthread_mutex_lock(&lock);
		a->pool->used -= a->size;
		pthread_mutex_unlock(&lock);
	} else {
		give(a->size);
	}
	free(a);

	return SUCCESS;
}

API cuMemFreeAsync(CUdeviceptr p, struct stream *s) { return (void)s, cuMemFree_v2(p); }
API cuMemFreeAsync_ptsz(CUdeviceptr p, struct stream *s) { return (void)s, cuMemFree_v2(p); }

API cuMemPoolTrimTo(struct pool *pool, size_t keep)
{
	pthread_mutex_lock(&lock);
	uint64_t least = pool->used > keep ? pool->used : keep;
	if (pool->reserved > least) {
		give(pool->reserved - least);
		pool->reserved = least;
	}
	pthread_mutex_unlock(&lock);

	return SUCCESS;
}

API cuMemPoolDestroy(struct pool *pool) { return cuMemPoolTrimTo(pool, 0), free(pool), SUCCESS; }

API cuMemPoolGetAttribute(struct pool *pool, int attribute, uint64_t *value)
{
	pthread_mutex_lock(&lock);
	*value = attribute == 5 ? pool->reserved : attribute == 7 ? pool->used : 0;
	pthread_mutex_unlock(&lock);

	return SUCCESS;
}

struct array_desc {
	size_t width, height;
	int format;
	U channels;
};

API cuArrayCreate_v2(CUdeviceptr *a, const struct array_desc *d)
{
	return cuMemAlloc_v2(a, d->width * (d->height ? d->height : 1) * 4 * d->channels);
}

API cuArrayDestroy(CUdeviceptr a) { return cuMemFree_v2(a); }

API cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t align, CUdeviceptr hint, unsigned long long flags)
{
	(void)align, (void)hint, (void)flags;
	pthread_mutex_lock(&lock);
	*p = next_address;
	next_address += n;
	pthread_mutex_unlock(&lock);

	return SUCCESS;
}

API cuMemCreate(CUdeviceptr *h, size_t n, const void *prop, unsigned long long flags)
{
	return (void)prop, (void)flags, cuMemAlloc_v2(h, n);
}

static void unreference(struct allocation *a)
{
	if (--a->references == 0) {
		give(a->size);
		free(a);
	}
}

API cuMemRelease(CUdeviceptr h)
{
	pthread_mutex_lock(&lock);
	unreference((struct allocation *)(uintptr_t)h);
	pthread_mutex_unlock(&lock);

	return SUCCESS;
}

API cuMemMap(CUdeviceptr p, size_t n, size_t offset, CUdeviceptr h, unsigned long long flags)
{
	(void)offset, (void)flags;
	CUresult r = OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAPPINGS && r != SUCCESS; i++) {
		if (mappings[i].memory)
			continue;
		mappings[i].at = p;
		mappings[i].size = n;
		mappings[i].memory = (struct allocation *)(uintptr_t)h;
		mappings[i].memory->references++;
		r = SUCCESS;
	}
	pthread_mutex_unlock(&lock);

	return r;
}

API cuMemUnmap(CUdeviceptr p, size_t n)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAPPINGS; i++)
		if (mappings[i].memory && mappings[i].at >= p && mappings[i].at < p + n) {
			unreference(mappings[i].memory);
			mappings[i].memory = NULL;
		}
	pthread_mutex_unlock(&lock);

	return SUCCESS;
}

API cuMemGetInfo_v2(size_t *available, size_t *total)
{
	if (current == NULL)
		return INVALID_CONTEXT;
	fake_lock(gpu);
	fake_advance(gpu);
	*total = gpu->capacity;
	*available = gpu->capacity - fake_used(gpu);
	fake_unlock(gpu);

	return SUCCESS;
}

// Lookups. The names are those of the API; the newest version and, if asked for, the variant for the per-thread default
// stream is returned, as the real driver does.

API cuGetProcAddress_v2(const char *symbol, void **f, int version, uint64_t flags, int *status);

#define NAMES(X) \
	X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceTotalMem_v2) \
	X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxGetState) \
	X(cuCtxSetCurrent) X(cuCtxGetCurrent) \
	X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxGetDevice) X(cuCtxSynchronize) X(cuStreamCreate) \
	X(cuStreamSynchronize) X(cuThreadExchangeStreamCaptureMode) X(cuEventCreate) X(cuEventDestroy_v2) \
	X(cuEventRecord) X(cuCtxRecordEvent) X(cuEventQuery) X(cuEventSynchronize) X(cuStreamBeginCapture_v2) \
	X(cuStreamBeginCapture_v2_ptsz) X(cuStreamEndCapture) X(cuStreamEndCapture_ptsz) X(cuGraphInstantiateWithFlags) \
	X(cuGraphLaunch) X(cuGraphLaunch_ptsz) X(cuLaunchKernel) X(cuLaunchKernel_ptsz) X(cuLaunchKernelEx) \
	X(cuLaunchKernelEx_ptsz) X(cuLaunchCooperativeKernel) X(cuLaunchCooperativeKernel_ptsz) X(cuMemsetD8_v2) \
	X(cuMemsetD8Async) X(cuMemcpyDtoDAsync_v2) X(cuMemAlloc_v2) X(cuMemAllocManaged) X(cuMemAllocPitch_v2) \
	X(cuDeviceGetMemPool) X(cuMemPoolCreate) X(cuMemAllocAsync) X(cuMemAllocAsync_ptsz) X(cuMemAllocFromPoolAsync) \
	X(cuMemFree_v2) X(cuMemFreeAsync) X(cuMemFreeAsync_ptsz) X(cuMemPoolTrimTo) X(cuMemPoolDestroy) \
	X(cuMemPoolGetAttribute) X(cuArrayCreate_v2) X(cuArrayDestroy) X(cuMemAddressReserve) X(cuMemCreate) \
	X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemGetInfo_v2) X(cuGetProcAddress_v2)

static void *named(const char *name)
{
	static const struct {
		const char *name;
		void *f;
	} all[] = {
#define X(name) {#name, (void *)name},
		NAMES(X)
#undef X
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(all[i].name, name) == 0)
			return all[i].f;

	return NULL;
}

API cuGetProcAddress_v2(const char *symbol, void **f, int version, uint64_t flags, int *status)
{
	static const char *const suffixes[] = {"_v2_ptsz", "_ptsz", "_v2", ""};
	(void)version;
	*f = NULL;
	for (size_t i = flags & 2 ? 0 : 2; i < 4 && *f == NULL; i++) {
		char name[128];
		snprintf(name, sizeof name, "%s%s", symbol, suffixes[i]);
		*f = named(name);
	}
	if (status)
		*status = *f ? 0 : 1;

	return *f ? SUCCESS : NOT_FOUND;
}
