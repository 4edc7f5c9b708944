// A program that uses the fake GPU like a training loop: the jobs of the tests.
//
// Its arguments are of the form key=value; main says what they mean. It finds the driver's functions in the ways that
// CUDA's runtime and libraries do. Built with -DLINKED it calls them by name instead, as a program that is linked to
// the driver.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long P;
typedef unsigned int U;
typedef struct {
	U gx, gy, gz, bx, by, bz, shared;
	void *stream, *attributes;
	U count;
} config;
typedef struct {
	int type, handle_types, location, id;
	unsigned char rest[64];
} property;
typedef struct {
	size_t width, height;
	int format;
	U channels;
} array_desc;
typedef struct {
	unsigned long long total, free, used;
} nvml_memory;

#define API(X) \
	X(cuInit, , (U)) \
	X(cuDeviceTotalMem, _v2, (size_t *, int)) \
	X(cuDevicePrimaryCtxRetain, , (void **, int)) \
	X(cuCtxSetCurrent, , (void *)) \
	X(cuCtxSynchronize, , (void)) \
	X(cuStreamCreate, , (void **, U)) \
	X(cuStreamSynchronize, , (void *)) \
	X(cuStreamBeginCapture, _v2, (void *, int)) \
	X(cuStreamEndCapture, , (void *, void **)) \
	X(cuGraphInstantiateWithFlags, , (void **, void *, unsigned long long)) \
	X(cuGraphLaunch, , (void *, void *)) \
	X(cuLaunchKernel, , (void *, U, U, U, U, U, U, U, void *, void **, void **)) \
	X(cuLaunchKernelEx, , (const config *, void *, void **, void **)) \
	X(cuLaunchCooperativeKernel, , (void *, U, U, U, U, U, U, U, void *, void **)) \
	X(cuMemsetD8Async, , (P, unsigned char, size_t, void *)) \
	X(cuMemcpyDtoDAsync, _v2, (P, P, size_t, void *)) \
	X(cuMemAlloc, _v2, (P *, size_t)) \
	X(cuMemAllocManaged, , (P *, size_t, U)) \
	X(cuMemAllocPitch, _v2, (P *, size_t *, size_t, size_t, U)) \
	X(cuMemAllocAsync, , (P *, size_t, void *)) \
	X(cuMemPoolCreate, , (void **, const void *)) \
	X(cuMemAllocFromPoolAsync, , (P *, size_t, void *, void *)) \
	X(cuMemFree, _v2, (P)) \
	X(cuMemFreeAsync, , (P, void *)) \
	X(cuDeviceGetMemPool, , (void **, int)) \
	X(cuMemPoolTrimTo, , (void *, size_t)) \
	X(cuArrayCreate, _v2, (P *, const array_desc *)) \
	X(cuArrayDestroy, , (P)) \
	X(cuMemAddressReserve, , (P *, size_t, size_t, P, unsigned long long)) \
	X(cuMemCreate, , (P *, size_t, const property *, unsigned long long)) \
	X(cuMemRelease, , (P)) \
	X(cuMemMap, , (P, size_t, size_t, P, unsigned long long)) \
	X(cuMemUnmap, , (P, size_t)) \
	X(cuMemGetInfo, _v2, (size_t *, size_t *))

#define X(name, version, params) static int(*name) params __asm__("pointer_" #name);
API(X)
#undef X

#ifdef LINKED
#define X(name, version, params) extern int linked_##name params __asm__(#name #version);
API(X)
#undef X
#endif

static int argc_;
static char **argv_;

static const char *text(const char *key, const char *otherwise)
{
	size_t n = strlen(key);
	for (int i = 1; i < argc_; i++)
		if (strncmp(argv_[i], key, n) == 0 && argv_[i][n] == '=')
			return argv_[i] + n + 1;

	return otherwise;
}

static long number(const char *key, long otherwise)
{
	const char *value = text(key, NULL);
	return value ? atol(value) : otherwise;
}

static void die(const char *what, int code)
{
	printf("error %s %d\n", what, code);
	fflush(stdout);
	_exit(3);
}

#define MUST(call) \
	do { \
		int code_ = (call); \
		if (code_ != 0) \
			die(#call, code_); \
	} while (0)

static void find_functions(void)
{
#ifdef LINKED
#define X(name, version, params) name = linked_##name;
	API(X)
#undef X
#else
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (driver == NULL)
		die("dlopen", 0);
	const char *lookup = text("lookup", "dlsym");
	int (*find)(const char *, void **, int, uint64_t, int *) =
		(int (*)(const char *, void **, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2");
	uint64_t flags = strcmp(lookup, "ptsz") == 0 ? 2 : 0;
#define X(name, version, params) \
	if (strcmp(lookup, "dlsym") == 0) \
		name = (int(*) params)dlsym(driver, #name #version); \
	else \
		find(#name, (void **)&name, 13000, flags, NULL); \
	if (name == NULL) \
		die(#name, 0);
	API(X)
#undef X
#endif
}

static void sleep_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};
	if (us > 0)
		nanosleep(&t, NULL);
}

static void use_gpu(void)
{
	void *context;
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
}

static void launch_one(long i, U us, void *stream)
{
	config c = {us, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
	switch (i % 5) {
	case 0:
		MUST(cuLaunchKernelEx(&c, NULL, NULL, NULL));
		break;
	case 1:
		MUST(cuLaunchCooperativeKernel(NULL, us, 1, 1, 1, 1, 1, 0, stream, NULL));
		break;
	case 2:
		MUST(cuMemsetD8Async(0, 0, 1, stream));
		break;
	case 3:
		MUST(cuMemcpyDtoDAsync(0, 0, 1, stream));
		break;
	default:
		MUST(cuLaunchKernel(NULL, us, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	}
}

// train: steps of launches=20 kernels of kernel=200 us; host=us between launches and pause=us between steps;
// sync=steps between synchronisations; graph=1 replays a graph instead; steps=0 is without end; every step is
// said=1 on the output.
static void train(void)
{
	long launches = number("launches", 20), host = number("host", 0), pause = number("pause", 0);
	long sync = number("sync", 1), steps = number("steps", 0);
	U us = (U)number("kernel", 200);
	void *stream, *graph = NULL, *ready = NULL;
	use_gpu();
	MUST(cuStreamCreate(&stream, 0));
	if (number("graph", 0)) {
		MUST(cuStreamBeginCapture(stream, 0));
		for (long i = 0; i < launches; i++)
			MUST(cuLaunchKernel(NULL, us, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
		MUST(cuStreamEndCapture(stream, &graph));
		MUST(cuGraphInstantiateWithFlags(&ready, graph, 0));
	}

	for (long step = 1; steps == 0 || step <= steps; step++) {
		for (long i = 0; ready == NULL && i < launches; i++) {
			launch_one(i, us, stream);
			sleep_us(host);
		}
		if (ready)
			MUST(cuGraphLaunch(ready, stream));
		if (step % sync == 0)
			MUST(cuStreamSynchronize(stream));
		if (number("said", 0)) {
			printf("step %ld\n", step);
			fflush(stdout);
		}
		sleep_us(pause);
	}
	MUST(cuCtxSynchronize());
}

// capture: captures and replays graphs all the time, as a program that compiles does.
static void capture(void)
{
	void *stream, *graph, *ready;
	long steps = number("steps", 50);
	use_gpu();
	MUST(cuStreamCreate(&stream, 0));
	for (long step = 0; step < steps; step++) {
		MUST(cuStreamBeginCapture(stream, 0));
		for (int i = 0; i < 10; i++) {
			MUST(cuLaunchKernel(NULL, 100, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
			sleep_us(500);
		}
		MUST(cuStreamEndCapture(stream, &graph));
		MUST(cuGraphInstantiateWithFlags(&ready, graph, 0));
		for (int i = 0; i < 5; i++)
			MUST(cuGraphLaunch(ready, stream));
		MUST(cuStreamSynchronize(stream));
	}
}

static void show_memory(const char *word)
{
	size_t available, total, device;
	MUST(cuMemGetInfo(&available, &total));
	MUST(cuDeviceTotalMem(&device, 0));
	nvml_memory m = {0, 0, 0};
	void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW), *handle = NULL;
	int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
	int (*by_index)(U, void **) = (int (*)(U, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
	int (*info)(void *, nvml_memory *) = (int (*)(void *, nvml_memory *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
	MUST(init());
	MUST(by_index(0, &handle));
	MUST(info(handle, &m));
	printf("%s free %zu total %zu device %zu nvml_total %llu nvml_free %llu\n", word, available, total, device, m.total,
	       m.free);
	fflush(stdout);
}

static int allocate(const char *how, size_t n, P *p, P *handle)
{
	static void *pool;
	static P at;
	size_t pitch;
	if (strcmp(how, "alloc") == 0)
		return cuMemAlloc(p, n);
	if (strcmp(how, "managed") == 0)
		return cuMemAllocManaged(p, n, 1);
	if (strcmp(how, "pitch") == 0)
		return cuMemAllocPitch(p, &pitch, 1024, n / 1024, 4);
	if (strcmp(how, "async") == 0)
		return cuMemAllocAsync(p, n, NULL);
	if (strcmp(how, "pool") == 0) {
		if (pool == NULL)
			MUST(cuMemPoolCreate(&pool, NULL));
		return cuMemAllocFromPoolAsync(p, n, pool, NULL);
	}
	if (strcmp(how, "array") == 0) {
		array_desc d = {1024, n / 4096, 0x20, 1};
		return cuArrayCreate(p, &d);
	}

	property device = {1, 0, 1, 0, {0}};
	if (at == 0)
		MUST(cuMemAddressReserve(&at, 1ull << 40, 0, 0, 0));
	int r = cuMemCreate(handle, n, &device, 0);
	if (r == 0) {
		*p = at;
		at += n;
		MUST(cuMemMap(*p, n, 0, *handle, 0));
	}

	return r;
}

static void release(const char *how, size_t n, P p, P handle)
{
	if (strcmp(how, "array") == 0)
		MUST(cuArrayDestroy(p));
	else if (strcmp(how, "async") == 0 || strcmp(how, "pool") == 0)
		MUST(cuMemFreeAsync(p, NULL));
	else if (strcmp(how, "vmm") == 0) {
		MUST(cuMemRelease(handle));
		MUST(cuMemUnmap(p, n));
	} else
		MUST(cuMemFree(p));
}

// alloc: takes step=MiB at a time by how= until it has most=MiB or is refused, frees all and does it again. With
// wait=1 it keeps what it has until its input ends.
static void alloc(void)
{
	const char *how = text("how", "alloc");
	size_t n = (size_t)number("step", 64) << 20;
	long most = number("most", 4096 * number("step", 64)) / number("step", 64);
	use_gpu();
	show_memory("before");
	for (int round = 0; round < 2; round++) {
		static P p[4096], handle[4096];
		int count = 0, r = 0;
		while (count < most && (r = allocate(how, n, &p[count], &handle[count])) == 0)
			count++;
		printf("round %d allocated %zu refused %d\n", round, count * n, r);
		show_memory("full");
		if (number("wait", 0)) {
			char c;
			while (read(0, &c, 1) > 0) {
			}
			return;
		}
		while (count-- > 0)
			release(how, n, p[count], handle[count]);
		void *device_pool;
		MUST(cuDeviceGetMemPool(&device_pool, 0));
		if (strcmp(how, "async") == 0 && round == 1)
			MUST(cuMemPoolTrimTo(device_pool, 0));
	}
	show_memory("after");
}

// fork: trains a little, then forks children that do not use the GPU, as data loaders; and, with early=1, a child that
// does, before it uses the GPU itself.
static void forks(void)
{
	if (number("early", 0)) {
		pid_t child = fork();
		if (child == 0) {
			train();
			_exit(0);
		}
		int status;
		waitpid(child, &status, 0);
		printf("early child %d\n", status);
	}
	train();
	for (int i = 0; i < 4; i++) {
		pid_t child = fork();
		if (child == 0) {
			sleep_us(2000);
			_exit(0);
		}
		int status;
		waitpid(child, &status, 0);
		if (status != 0)
			die("child", status);
	}
	train();
}

static void *train_thread(void *unused)
{
	train();
	return unused;
}

// threads: trains in threads=3 threads at once.
static void threads(void)
{
	pthread_t all[16];
	long n = number("threads", 3);
	for (long i = 0; i < n && i < 16; i++)
		pthread_create(&all[i], NULL, train_thread, NULL);
	for (long i = 0; i < n && i < 16; i++)
		pthread_join(all[i], NULL);
}

int main(int argc, char **argv)
{
	argc_ = argc;
	argv_ = argv;
	find_functions();
	const char *mode = text("mode", "train");
	if (strcmp(mode, "train") == 0)
		train();
	else if (strcmp(mode, "capture") == 0)
		capture();
	else if (strcmp(mode, "alloc") == 0)
		alloc();
	else if (strcmp(mode, "fork") == 0)
		forks();
	else if (strcmp(mode, "threads") == 0)
		threads();
	else
		die("mode", 0);
	printf("done\n");

	return 0;
}
