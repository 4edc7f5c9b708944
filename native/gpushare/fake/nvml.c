// A fake libnvidia-ml.so.1: the part of NVML that GPU sharing uses, over the fake GPU of state.h.

#include "state.h"

typedef struct {
	unsigned int pid;
	unsigned long long used;
	unsigned int gpu_instance, compute_instance;
} process_info;

typedef struct {
	unsigned long long total, free, used;
} memory_info;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} memory_info_v2;

enum { NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, UNINITIALIZED = 1 };

static const char uuid[] = "GPU-fake";
static struct fake_gpu *gpu;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned int *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device);
int nvmlDeviceGetHandleByUUID(const char *wanted, void **device);
int nvmlDeviceGetUUID(void *device, char *text, unsigned int size);
int nvmlDeviceGetMemoryInfo(void *device, memory_info *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, memory_info_v2 *memory);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, process_info *rows);

static void open_gpu(void) { gpu = fake_open(); }

int nvmlInit_v2(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, open_gpu);

	return gpu ? 0 : UNINITIALIZED;
}

int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned int *count)
{
	*count = 1;
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device)
{
	*device = gpu;
	return index == 0 && gpu ? 0 : NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *wanted, void **device)
{
	*device = gpu;
	return gpu && strcmp(wanted, uuid) == 0 ? 0 : NOT_FOUND;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned int size)
{
	(void)device;
	return snprintf(text, size, "%s", uuid) < (int)size ? 0 : INSUFFICIENT_SIZE;
}

static unsigned long long used(void)
{
	fake_lock(gpu);
	fake_advance(gpu);
	unsigned long long n = fake_used(gpu);
	fake_unlock(gpu);

	return n;
}

int nvmlDeviceGetMemoryInfo(void *device, memory_info *memory)
{
	if (device == NULL)
		return UNINITIALIZED;
	memory->total = gpu->capacity;
	memory->used = used();
	memory->free = memory->total - memory->used;

	return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_info_v2 *memory)
{
	if (device == NULL)
		return UNINITIALIZED;
	memory->total = gpu->capacity;
	memory->reserved = 0;
	memory->used = used();
	memory->free = memory->total - memory->used;

	return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, process_info *rows)
{
	if (device == NULL)
		return UNINITIALIZED;

	unsigned int n = 0;
	fake_lock(gpu);
	fake_advance(gpu);
	for (int i = 0; i < FAKE_PROCS; i++) {
		struct fake_proc *p = &gpu->proc[i];
		if (p->context == 0)
			continue;
		if (n < *count)
			rows[n] = (process_info){(unsigned int)p->pid, p->allocated + p->context, ~0u, ~0u};
		n++;
	}
	fake_unlock(gpu);
	int r = n <= *count ? 0 : INSUFFICIENT_SIZE;
	*count = n;

	return r;
}
