// libtrainyard-gpu.so: the part of GPU sharing that is loaded into the programs of a job.
//
// It is loaded by LD_PRELOAD or /etc/ld.so.preload and stands between the program and NVIDIA's driver library. It
// holds back kernel launches until the agent's broker grants them the GPU, and refuses allocations above the memory
// cap of the job. Shares, classes and limits live in the agent: this library has none of them. It is not a security
// boundary: a program that wants to get around it can, and the agent finds that out from NVML.
//
// TRAINYARD_GPU_BROKER names a folder of this job and this GPU, with the socket of the broker ("socket") and the
// memory accounts of the processes of the job ("memory"). Without it every call goes straight to the driver.
//
// It needs neither CUDA headers nor the driver to be built: the few types and signatures of the driver's stable ABI
// that matter here are declared below. See docs/adr/0056-gpu-shares.md.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are little-endian");
_Static_assert(sizeof(void *) == 8, "handles of the driver are pointers of 64 bits");

// The library is built on one machine and loaded in containers with older C libraries. glibc 2.34 moved these
// functions and gave them new versions; the old ones exist everywhere.
#if defined(__x86_64__)
#define OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#elif defined(__aarch64__)
#define OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#endif
#if defined(OLD) && !defined(GPUSHARE_SANITIZE)
OLD(dlopen);
OLD(dladdr);
OLD(dlvsym);
OLD(pthread_create);
OLD(pthread_detach);
OLD(pthread_sigmask);
OLD(pthread_mutex_trylock);
#endif

#define EXPORT __attribute__((visibility("default")))
// Sanitizers look functions up before they are ready themselves.
#define EARLY __attribute__((no_sanitize("thread", "undefined")))
#define LIKELY(x) __builtin_expect(!!(x), 1)

// ---------------------------------------------------------------------------------------------------------------
// The driver's ABI, as far as it is used here.

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle; // of physical memory
typedef void *CUcontext, *CUfunction, *CUstream, *CUevent, *CUgraph, *CUgraphExec, *CUmempool, *CUarray, *CUmipmap;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
};

typedef struct {
	unsigned int gx, gy, gz, bx, by, bz, shared;
	CUstream stream;
	void *attributes;
	unsigned int count;
} CUlaunchConfig;

typedef struct {
	size_t width, height;
	int format;
	unsigned int channels;
} CUarrayDesc;

typedef struct {
	size_t width, height, depth;
	int format;
	unsigned int channels, flags;
} CUarray3DDesc;

typedef struct {
	int type, handle_types;
	struct {
		int type, id;
	} location;
} CUmemProp; // the beginning of it

enum { LOCATION_DEVICE = 1, POOL_RESERVED_CURRENT = 5, POOL_USED_CURRENT = 7, CAPTURE_RELAXED = 2 };
enum { EVENT_BLOCKING_SYNC = 1, EVENT_DISABLE_TIMING = 2 };

typedef void *nvmlDevice_t;

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} nvmlMemoryV2;

typedef struct {
	unsigned int pid;
	unsigned long long used;
	unsigned int gpu_instance, compute_instance;
} nvmlProcess;

// ---------------------------------------------------------------------------------------------------------------
// What is hooked. Each name has a function of the same name below.

#define LAUNCH_HOOKS(X) \
	X(cuLaunchKernel) X(cuLaunchKernel_ptsz) X(cuLaunchKernelEx) X(cuLaunchKernelEx_ptsz) \
	X(cuLaunchCooperativeKernel) X(cuLaunchCooperativeKernel_ptsz) X(cuLaunchCooperativeKernelMultiDevice) \
	X(cuLaunch) X(cuLaunchGrid) X(cuLaunchGridAsync) X(cuGraphLaunch) X(cuGraphLaunch_ptsz)

#define FILL_HOOKS(X) \
	X(cuMemsetD8_v2) X(cuMemsetD8_v2_ptds) X(cuMemsetD16_v2) X(cuMemsetD16_v2_ptds) X(cuMemsetD32_v2) \
	X(cuMemsetD32_v2_ptds) X(cuMemsetD2D8_v2) X(cuMemsetD2D8_v2_ptds) X(cuMemsetD2D16_v2) X(cuMemsetD2D16_v2_ptds) \
	X(cuMemsetD2D32_v2) X(cuMemsetD2D32_v2_ptds) X(cuMemsetD8Async) X(cuMemsetD8Async_ptsz) X(cuMemsetD16Async) \
	X(cuMemsetD16Async_ptsz) X(cuMemsetD32Async) X(cuMemsetD32Async_ptsz) X(cuMemsetD2D8Async) \
	X(cuMemsetD2D8Async_ptsz) X(cuMemsetD2D16Async) X(cuMemsetD2D16Async_ptsz) X(cuMemsetD2D32Async) \
	X(cuMemsetD2D32Async_ptsz) X(cuMemcpyDtoD_v2) X(cuMemcpyDtoD_v2_ptds) X(cuMemcpyDtoDAsync_v2) \
	X(cuMemcpyDtoDAsync_v2_ptsz)

#define CAPTURE_HOOKS(X) \
	X(cuStreamBeginCapture) X(cuStreamBeginCapture_ptsz) X(cuStreamBeginCapture_v2) X(cuStreamBeginCapture_v2_ptsz) \
	X(cuStreamBeginCaptureToGraph) X(cuStreamBeginCaptureToGraph_ptsz) X(cuStreamEndCapture) X(cuStreamEndCapture_ptsz)

#define MEMORY_HOOKS(X) \
	X(cuMemAlloc_v2) X(cuMemAllocPitch_v2) X(cuMemAllocManaged) X(cuMemFree_v2) X(cuArrayCreate_v2) \
	X(cuArray3DCreate_v2) X(cuArrayDestroy) X(cuMipmappedArrayCreate) X(cuMipmappedArrayDestroy) X(cuMemAllocAsync) \
	X(cuMemAllocAsync_ptsz) X(cuMemAllocFromPoolAsync) X(cuMemAllocFromPoolAsync_ptsz) X(cuMemFreeAsync) \
	X(cuMemFreeAsync_ptsz) X(cuMemPoolTrimTo) X(cuMemPoolDestroy) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) \
	X(cuMemUnmap) X(cuMemRetainAllocationHandle) X(cuMemGetInfo_v2) X(cuDeviceTotalMem_v2)

#define OTHER_HOOKS(X) \
	X(cuGetProcAddress) X(cuGetProcAddress_v2) X(cuCtxDestroy_v2) X(cuDevicePrimaryCtxRelease_v2) \
	X(cuDevicePrimaryCtxReset_v2) X(nvmlDeviceGetMemoryInfo) X(nvmlDeviceGetMemoryInfo_v2)

// What this library calls itself, and does not hook.
#define CALLS(X) \
	X(cuCtxGetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxSynchronize) X(cuCtxRecordEvent) \
	X(cuCtxGetDevice) X(cuEventCreate) X(cuEventRecord) X(cuEventSynchronize) X(cuEventQuery) \
	X(cuThreadExchangeStreamCaptureMode) X(cuDeviceGetMemPool) X(cuMemPoolGetAttribute) X(cuDevicePrimaryCtxGetState)

#define HOOKS(X) LAUNCH_HOOKS(X) FILL_HOOKS(X) CAPTURE_HOOKS(X) MEMORY_HOOKS(X) OTHER_HOOKS(X)

enum {
#define X(name) I_##name,
	HOOKS(X) COUNT_HOOKED,
	BEFORE_CALLS = COUNT_HOOKED - 1, // the numbers go on without a gap
	CALLS(X) COUNT_ALL
#undef X
};

static const char *const names[COUNT_ALL] = {
#define X(name) [I_##name] = #name,
	HOOKS(X) CALLS(X)
#undef X
};

static void *_Atomic reals[COUNT_ALL]; // the driver's own functions; zero for those that it lacks

static void *wrapper_of(int hook);

typedef void *(*dlsym_fn)(void *, const char *);

// real_dlsym returns the C library's dlsym. That name is ours, so it is asked for by version.
EARLY static dlsym_fn real_dlsym(void)
{
	static void *_Atomic cached;
	void *found = atomic_load_explicit(&cached, memory_order_acquire);

	if (LIKELY(found != NULL))
		return (dlsym_fn)found;

	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
	for (size_t i = 0; found == NULL && i < sizeof versions / sizeof *versions; i++)
		found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	atomic_store_explicit(&cached, found, memory_order_release);

	return (dlsym_fn)found;
}

// from_driver reports whether an address lies in the driver library (1) or in NVML (2), and in which file. Other
// shims may stand between us and the driver: what they return is theirs and stays as it is.
static int from_driver(void *address, const char **file)
{
	Dl_info info;
	if (address == NULL || !dladdr(address, &info) || info.dli_fname == NULL)
		return 0;

	*file = info.dli_fname;
	const char *base = strrchr(info.dli_fname, '/');
	base = base ? base + 1 : info.dli_fname;
	if (strncmp(base, "libcuda.so", 10) == 0)
		return 1;

	return strncmp(base, "libnvidia-ml.so", 15) == 0 ? 2 : 0;
}

static pthread_mutex_t resolve_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int resolved[3]; // by what from_driver returns

// resolve finds the functions of a driver library that is loaded already.
static void resolve(int library, const char *file)
{
	if (atomic_load_explicit(&resolved[library], memory_order_acquire))
		return;

	void *handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
	if (handle == NULL)
		return;

	pthread_mutex_lock(&resolve_lock);
	for (int i = 0; i < COUNT_ALL; i++) {
		if ((strncmp(names[i], "nvml", 4) == 0) != (library == 2) || atomic_load(&reals[i]) != NULL)
			continue;

		// Without an object of this name in libcuda, the lookup ends in what libcuda depends on, never in us: a
		// handle's scope is the object and its dependencies.
		void *found = real_dlsym()(handle, names[i]);
		const char *where;
		if (from_driver(found, &where) == library)
			atomic_store(&reals[i], found);
	}
	atomic_store_explicit(&resolved[library], 1, memory_order_release);
	pthread_mutex_unlock(&resolve_lock);
}

// real returns the driver's function, NULL if there is none. A program that is linked to the driver calls our
// functions without a lookup before, so the library may have to be found first.
static void *real(int index)
{
	void *found = atomic_load_explicit(&reals[index], memory_order_acquire);
	if (LIKELY(found != NULL))
		return found;

	bool nvml = strncmp(names[index], "nvml", 4) == 0;
	resolve(nvml ? 2 : 1, nvml ? "libnvidia-ml.so.1" : "libcuda.so.1");

	return atomic_load_explicit(&reals[index], memory_order_acquire);
}

// substitute returns our function for one of the driver's, and everything else as it is. Functions are compared by
// address: names have versions and variants by default stream, which the driver alone resolves.
static void *substitute(void *address)
{
	const char *file;
	int library = from_driver(address, &file);
	if (library == 0)
		return address;

	resolve(library, file);
	for (int i = 0; i < COUNT_HOOKED; i++)
		if (atomic_load_explicit(&reals[i], memory_order_relaxed) == address)
			return wrapper_of(i);

	return address;
}

EARLY static bool hooked(const char *name)
{
	if (LIKELY(strncmp(name, "cu", 2) != 0 && strncmp(name, "nvml", 4) != 0))
		return false;
	for (int i = 0; i < COUNT_HOOKED; i++)
		if (strcmp(name, names[i]) == 0)
			return true;

	return false;
}

// dlsym is what CUDA's runtime and other libraries find the driver's functions with. A lookup that is none of our
// business is a tail call, so that RTLD_NEXT still means what comes after the caller: so shims find each other.
EARLY EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
	dlsym_fn next = real_dlsym();
	if (LIKELY(handle == RTLD_NEXT || !hooked(name)))
		return next(handle, name);

	return substitute(next(handle, name));
}

// inside is set while a thread is in the driver: it may call itself by names that are ours.
static __thread int inside __attribute__((tls_model("initial-exec")));

// CALL calls the driver's function of this name, or returns that there is none.
#define CALL(name, type, ...) \
	({ \
		void *f_ = real(I_##name); \
		inside++; \
		CUresult r_ = f_ == NULL ? CUDA_ERROR_NOT_FOUND : ((CUresult(*) type)f_)(__VA_ARGS__); \
		inside--; \
		r_; \
	})

// ---------------------------------------------------------------------------------------------------------------
// The protocol. Records have 64 bytes; internal/agent/share/protocol.go has the other side.

struct record {
	uint32_t type, version;
	uint64_t value[7];
};

_Static_assert(sizeof(struct record) == 64, "a record has 64 bytes");

enum { PROTOCOL = 1 };
enum { HELLO = 1, WANT, RELEASE, IDLE, DENIED, DEMAND };                             // to the broker
enum { GRANT = 65, REVOKE, CONTEND, MODE, QUIESCE, ALIVE };                          // from the broker
enum { MODE_OPEN = 0, MODE_TOKEN = 1 };

// ---------------------------------------------------------------------------------------------------------------
// State of this process.

enum { GATE_OPEN, GATE_FIRST, GATE_BOUND, GATE_CLOSED };
enum { MAX_CONTEXTS = 8, RING = 2, RING_STEP = 64 };

static const int64_t ms = 1000000;
#define IDLE_AFTER (2 * ms)       // without a launch a holder counts as idle, before and after a drain
#define PROBE_EVERY (5 * ms)      // how often demand is measured
#define PROBE_WAIT (50 * 1000)    // within which a GPU without queued work answers
#define DEMAND_EVERY (100 * ms)   // how often what was measured is reported
#define SILENCE_LIMIT (5000 * ms) // without a word of the broker a waiting program goes on

// The fields of a launch's hot path: calls that entered and left the gate, and the gate.
static struct {
	_Atomic uint64_t entered, left;
	atomic_int gate;
	atomic_int captures; // streams that capture now
} hot = {.gate = GATE_FIRST};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t gate, worker;
	const char *folder; // of the job and the GPU; NULL without one
	int fd;             // of the broker's socket, -1 without a connection; closed by the reader alone
	int64_t heard;      // when the broker last said something
	bool started, stopping, wanted, holding, revoked, yielding, contended, measure;
	int mode, waiting;
	int64_t away; // until when not to connect again
} state = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, -1, 0,
	   false, false, false, false, false, false, false, false, MODE_OPEN, 0, 0};

// drain_lock keeps a capture from beginning while an event is recorded on its context, which would spoil it.
static pthread_mutex_t drain_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	CUcontext context;
	CUevent event;
} contexts[MAX_CONTEXTS]; // under drain_lock

static struct {
	pthread_mutex_t lock;
	CUcontext context;
	CUevent event[RING];
	bool recorded[RING];
	unsigned int next;
	atomic_uint count;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_ns(int64_t ns)
{
	struct timespec t = {ns / 1000000000, ns % 1000000000};
	nanosleep(&t, NULL);
}

static void timed_wait(pthread_cond_t *cond, int64_t ns)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	ns += t.tv_nsec;
	t.tv_sec += ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	pthread_cond_timedwait(cond, &state.lock, &t);
}

// send_locked never blocks: a broker that does not read is treated as gone.
static void send_locked(uint32_t type, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	if (state.fd < 0)
		return;

	struct record r = {type, PROTOCOL, {a, b, c, d, 0, 0, 0}};
	if (send(state.fd, &r, sizeof r, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof r)
		shutdown(state.fd, SHUT_RDWR); // the reader notices and opens the gate
}

static void want_locked(void)
{
	if (state.wanted || state.holding || state.fd < 0 || state.mode != MODE_TOKEN)
		return;

	state.wanted = true;
	send_locked(WANT, 0, 0, 0, 0);
}

// update_locked computes the gate from the rest of the state.
static void update_locked(void)
{
	int gate = GATE_OPEN;
	if (state.fd >= 0 && state.mode == MODE_TOKEN && !state.stopping) {
		if (!state.holding || state.revoked || state.yielding)
			gate = GATE_CLOSED;
		else if (state.contended)
			gate = GATE_BOUND;
	}

	atomic_store(&hot.gate, gate);
	if (gate != GATE_CLOSED)
		pthread_cond_broadcast(&state.gate);
	pthread_cond_signal(&state.worker);
}

// ---------------------------------------------------------------------------------------------------------------
// Contexts: what has to be drained.

static void remember_context(void)
{
	CUcontext current = NULL;
	if (CALL(cuCtxGetCurrent, (CUcontext *), &current) != CUDA_SUCCESS || current == NULL)
		return;

	pthread_mutex_lock(&drain_lock);
	int at = -1;
	for (int i = 0; i < MAX_CONTEXTS; i++) {
		if (contexts[i].context == current) {
			at = -1;
			break;
		}
		if (contexts[i].context == NULL && at < 0)
			at = i;
	}
	if (at >= 0)
		contexts[at].context = current;
	pthread_mutex_unlock(&drain_lock);
}

// forget_contexts forgets one context, or all of them: those that live on are met again at their next launch.
static void forget_contexts(CUcontext gone)
{
	pthread_mutex_lock(&ring.lock);
	if (gone == NULL || ring.context == gone) {
		ring.context = NULL;
		memset(ring.recorded, 0, sizeof ring.recorded);
	}
	pthread_mutex_unlock(&ring.lock);

	pthread_mutex_lock(&drain_lock);
	for (int i = 0; i < MAX_CONTEXTS; i++)
		if (gone == NULL || contexts[i].context == gone)
			contexts[i].context = NULL, contexts[i].event = NULL;
	pthread_mutex_unlock(&drain_lock);
}

// record_locked records an event behind all work of a context. Without cuCtxRecordEvent (before CUDA 12.5) there is
// none to record, and the result is CUDA_ERROR_NOT_FOUND.
static CUresult record_locked(int i)
{
	if (real(I_cuCtxRecordEvent) == NULL)
		return CUDA_ERROR_NOT_FOUND;

	if (contexts[i].event == NULL) {
		CUcontext popped;
		CUresult r = CALL(cuCtxPushCurrent_v2, (CUcontext), contexts[i].context);
		if (r != CUDA_SUCCESS)
			return r;
		r = CALL(cuEventCreate, (CUevent *, unsigned int), &contexts[i].event,
			 EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING);
		CALL(cuCtxPopCurrent_v2, (CUcontext *), &popped);
		if (r != CUDA_SUCCESS)
			return r;
	}

	return CALL(cuCtxRecordEvent, (CUcontext, CUevent), contexts[i].context, contexts[i].event);
}

// drain waits until the GPU has done all that was launched. It reports false while a stream captures: a context that
// is synchronised would spoil the capture.
static bool drain(void)
{
	for (int i = 0; i < MAX_CONTEXTS; i++) {
		pthread_mutex_lock(&drain_lock);
		CUcontext context = contexts[i].context;
		if (context == NULL) {
			pthread_mutex_unlock(&drain_lock);
			continue;
		}
		if (atomic_load(&hot.captures) > 0) {
			pthread_mutex_unlock(&drain_lock);
			return false;
		}

		CUresult r = record_locked(i);
		CUevent event = contexts[i].event;
		if (r == CUDA_ERROR_NOT_FOUND) {
			CUcontext popped;
			r = CALL(cuCtxPushCurrent_v2, (CUcontext), context);
			if (r == CUDA_SUCCESS) {
				CALL(cuCtxSynchronize, (void));
				CALL(cuCtxPopCurrent_v2, (CUcontext *), &popped);
			}
			event = NULL;
		}
		if (r != CUDA_SUCCESS) { // destroyed, or broken by an error that the program sees itself
			contexts[i].context = NULL;
			contexts[i].event = NULL;
			event = NULL;
		}
		pthread_mutex_unlock(&drain_lock);

		if (event != NULL)
			CALL(cuEventSynchronize, (CUevent), event);
	}

	return true;
}

// probe reports whether the GPU has work of this process in its queue while it has the GPU to itself: 1 if it has, 0 if
// not, -1 if that cannot be said now. A queue that is empty answers within a moment; a full one does not.
static int probe(void)
{
	pthread_mutex_lock(&drain_lock);
	int i = 0;
	while (i < MAX_CONTEXTS && contexts[i].context == NULL)
		i++;
	if (i == MAX_CONTEXTS || atomic_load(&hot.captures) > 0) {
		pthread_mutex_unlock(&drain_lock);
		return -1;
	}
	CUresult r = record_locked(i);
	CUevent event = contexts[i].event;
	pthread_mutex_unlock(&drain_lock);
	if (r != CUDA_SUCCESS)
		return -1;

	sleep_ns(PROBE_WAIT);

	return CALL(cuEventQuery, (CUevent), event) == CUDA_ERROR_NOT_READY;
}

// ---------------------------------------------------------------------------------------------------------------
// Memory accounts. The file is made by the agent; internal/agent/share/accounts has the other side.

enum { SLOTS = 128, LOCKS_AT = 1 << 20 };

struct slot {
	_Atomic uint64_t pid, allocated, context, peak;
	// The last allocation that failed: when (CLOCK_MONOTONIC; 0 for never), its bytes, and those that the job had and may
	// have. They stay when the process is gone: whoever asks why it ended reads them.
	_Atomic uint64_t denied_at, denied_bytes, denied_used, denied_cap;
};

struct accounts {
	uint64_t magic, version;
	_Atomic uint64_t cap;    // bytes for all processes of the job; 0 for no cap
	_Atomic uint64_t bare;   // bytes that a context costs, if that cannot be measured
	uint64_t slots;
	char uuid[64];           // of the GPU
	uint64_t unused[19];
	struct slot slot[SLOTS];
};

_Static_assert(sizeof(struct slot) == 64 && offsetof(struct accounts, slot) == 256, "the layout of the file");

#define ACCOUNTS_MAGIC 0x3155504759544e54ull

static struct {
	pthread_mutex_t lock;
	bool mapped;                   // or tried to
	atomic_bool charged;           // the context
	int fd;
	struct accounts *_Atomic map;  // NULL without a file
	struct slot *_Atomic mine;
	struct slot fallback;          // if all slots are taken, or there is no file
} account = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static int lock_slot(int cmd, short type, int i)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = LOCKS_AT + i, .l_len = 1};
	return fcntl(account.fd, cmd, &l);
}

// map_accounts finds the accounts of the job and takes a slot in them. A slot belongs to whoever has its byte of the
// file locked, so it is free again when the process is gone, however it went.
static struct accounts *map_accounts(void)
{
	pthread_mutex_lock(&account.lock);
	if (!account.mapped) {
		account.mapped = true;
		account.mine = &account.fallback;
		const char *folder = getenv("TRAINYARD_GPU_BROKER");
		char path[4096];
		if (folder && snprintf(path, sizeof path, "%s/memory", folder) < (int)sizeof path)
			account.fd = open(path, O_RDWR | O_CLOEXEC);
		if (account.fd >= 0) {
			void *p = mmap(NULL, sizeof(struct accounts), PROT_READ | PROT_WRITE, MAP_SHARED, account.fd, 0);
			if (p != MAP_FAILED && lseek(account.fd, 0, SEEK_END) >= (off_t)sizeof(struct accounts) &&
			    ((struct accounts *)p)->magic == ACCOUNTS_MAGIC)
				account.map = p;
		}
		for (int i = 0; account.map && i < SLOTS; i++) {
			if (lock_slot(F_OFD_SETLK, F_WRLCK, i) != 0)
				continue;
			account.mine = &account.map->slot[i];
			atomic_store(&account.mine->allocated, 0);
			atomic_store(&account.mine->context, 0);
			atomic_store(&account.mine->peak, 0);
			atomic_store(&account.mine->denied_at, 0);
			atomic_store(&account.mine->pid, (uint64_t)getpid());
			break;
		}
	}
	pthread_mutex_unlock(&account.lock);

	return account.map;
}

static uint64_t cap_bytes(void)
{
	struct accounts *m = map_accounts();
	return m ? atomic_load(&m->cap) : 0;
}

// used_bytes sums up what all processes of the job have.
static uint64_t used_bytes(void)
{
	struct accounts *m = map_accounts();
	uint64_t sum = 0;
	for (int i = 0; m && i < SLOTS; i++)
		if (atomic_load_explicit(&m->slot[i].pid, memory_order_relaxed))
			sum += atomic_load(&m->slot[i].allocated) + atomic_load(&m->slot[i].context);
	if (account.mine == &account.fallback)
		sum += atomic_load(&account.fallback.allocated) + atomic_load(&account.fallback.context);

	return sum;
}

// reap clears the slots of processes that are gone.
static void reap(void)
{
	struct accounts *m = account.map;
	for (int i = 0; m && i < SLOTS; i++) {
		if (&m->slot[i] == account.mine || !atomic_load(&m->slot[i].pid) ||
		    lock_slot(F_OFD_SETLK, F_WRLCK, i) != 0)
			continue;
		atomic_store(&m->slot[i].pid, 0);
		atomic_store(&m->slot[i].allocated, 0);
		atomic_store(&m->slot[i].context, 0);
		lock_slot(F_OFD_SETLK, F_UNLCK, i);
	}
}

// context_bytes measures what the driver uses for this process beside its allocations.
static uint64_t context_bytes(struct accounts *m)
{
	uint64_t bare = m ? atomic_load(&m->bare) : 0;
	void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
	if (nvml == NULL)
		return bare;

	dlsym_fn find = real_dlsym();
	int (*init)(void) = (int (*)(void))find(nvml, "nvmlInit_v2");
	int (*by_uuid)(const char *, nvmlDevice_t *) =
		(int (*)(const char *, nvmlDevice_t *))find(nvml, "nvmlDeviceGetHandleByUUID");
	int (*list)(nvmlDevice_t, unsigned int *, nvmlProcess *) = (int (*)(nvmlDevice_t, unsigned int *, nvmlProcess *))
		find(nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
	nvmlDevice_t device;
	if (!init || !by_uuid || !list || !m || !m->uuid[0] || init() != 0 || by_uuid(m->uuid, &device) != 0)
		return bare;

	unsigned int count = 256;
	nvmlProcess *rows = calloc(count, sizeof *rows);
	if (rows && list(device, &count, rows) == 0)
		for (unsigned int i = 0; i < count; i++)
			if (rows[i].pid == (unsigned int)getpid() && rows[i].used != ~0ull)
				bare = rows[i].used;
	free(rows);

	return bare;
}

// charge_context enters the driver's own use of memory once. The agent corrects it later by what NVML says.
static void charge_context(void)
{
	struct accounts *m = map_accounts();
	CUcontext current = NULL;
	if (account.charged || CALL(cuCtxGetCurrent, (CUcontext *), &current) != CUDA_SUCCESS || current == NULL)
		return;

	uint64_t bytes = context_bytes(m);
	pthread_mutex_lock(&account.lock);
	if (!account.charged) {
		account.charged = true;
		atomic_store(&account.mine->context, bytes);
	}
	pthread_mutex_unlock(&account.lock);
}

static void sync_pools(void);
static void start(void);

static void deny(uint64_t bytes, uint64_t used, uint64_t cap)
{
	size_t available = 0, total = 0;
	CALL(cuMemGetInfo_v2, (size_t *, size_t *), &available, &total);
	atomic_store(&account.mine->denied_bytes, bytes);
	atomic_store(&account.mine->denied_used, used);
	atomic_store(&account.mine->denied_cap, cap);
	atomic_store(&account.mine->denied_at, (uint64_t)now_ns());
	pthread_mutex_lock(&state.lock);
	send_locked(DENIED, bytes, used, cap, available);
	pthread_mutex_unlock(&state.lock);
}

// add_bytes changes the account of this process without a look at the cap.
static void add_bytes(int64_t bytes)
{
	if (account.mine == NULL)
		return;

	uint64_t sum = atomic_fetch_add(&account.mine->allocated, (uint64_t)bytes) + (uint64_t)bytes;
	uint64_t peak = atomic_load(&account.mine->peak);
	while (bytes > 0 && sum > peak && !atomic_compare_exchange_weak(&account.mine->peak, &peak, sum)) {
	}
}

// reserve enters bytes before they are allocated, or reports that the cap does not allow them. Every process enters
// its bytes before it sums up, so two that allocate at once may both be refused, but never both be allowed beyond the
// cap; for this reason it tries again.
static bool reserve(uint64_t bytes)
{
	if (atomic_load(&hot.gate) == GATE_FIRST)
		start(); // a program may run out of memory before its first launch
	charge_context();
	uint64_t cap = cap_bytes(), used = 0;
	for (int attempt = 0; attempt < 4; attempt++) {
		add_bytes((int64_t)bytes);
		used = used_bytes();
		if (cap == 0 || used <= cap)
			return true;

		add_bytes(-(int64_t)bytes);
		if (attempt == 0) {
			sync_pools();
			reap();
		} else {
			sleep_ns(200 * 1000 * attempt);
		}
	}
	deny(bytes, used - bytes, cap);

	return false;
}

// The table of allocations: what to give back to the account when something is freed.
enum { NONE, POINTER, ARRAY, HANDLE, MAPPING };

struct entry {
	uint64_t key, size, handle; // handle: the physical memory of a mapping
	uint32_t kind, references;
};

static struct {
	pthread_mutex_t lock;
	struct entry *entries;
	size_t size, used;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t place_of(uint32_t kind, uint64_t key, size_t size)
{
	uint64_t h = (key ^ ((uint64_t)kind << 56)) * 0x9e3779b97f4a7c15ull;
	return (size_t)(h >> 20) & (size - 1);
}

static struct entry *find_locked(uint32_t kind, uint64_t key)
{
	if (table.size == 0)
		return NULL;

	size_t i = place_of(kind, key, table.size);
	while (table.entries[i].kind != NONE) {
		if (table.entries[i].kind == kind && table.entries[i].key == key)
			return &table.entries[i];
		i = (i + 1) & (table.size - 1);
	}

	return NULL;
}

static void insert_locked(struct entry e)
{
	if (table.used * 2 >= table.size) {
		size_t old = table.size, size = old ? old * 2 : 1024;
		struct entry *before = table.entries, *after = calloc(size, sizeof *after);
		if (after == NULL)
			return; // the bytes stay charged
		table.entries = after;
		table.size = size;
		table.used = 0;
		for (size_t i = 0; i < old; i++)
			if (before[i].kind != NONE)
				insert_locked(before[i]);
		free(before);
	}

	size_t i = place_of(e.kind, e.key, table.size);
	while (table.entries[i].kind != NONE)
		i = (i + 1) & (table.size - 1);
	table.entries[i] = e;
	table.used++;
}

static void remove_locked(struct entry *e)
{
	size_t hole = (size_t)(e - table.entries), mask = table.size - 1;
	table.entries[hole].kind = NONE;
	table.used--;
	for (size_t i = (hole + 1) & mask; table.entries[i].kind != NONE; i = (i + 1) & mask) {
		size_t home = place_of(table.entries[i].kind, table.entries[i].key, table.size);
		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		table.entries[hole] = table.entries[i];
		table.entries[i].kind = NONE;
		hole = i;
	}
}

static void insert(uint32_t kind, uint64_t key, uint64_t size)
{
	pthread_mutex_lock(&table.lock);
	insert_locked((struct entry){.kind = kind, .key = key, .size = size, .references = 1});
	pthread_mutex_unlock(&table.lock);
}

// drop removes one reference, and gives the bytes back with the last one. It reports whether there was such an entry.
static bool drop(uint32_t kind, uint64_t key)
{
	pthread_mutex_lock(&table.lock);
	struct entry *e = find_locked(kind, key);
	bool found = e != NULL;
	if (found && --e->references == 0) {
		add_bytes(-(int64_t)e->size);
		remove_locked(e);
	}
	pthread_mutex_unlock(&table.lock);

	return found;
}

// Pools of stream-ordered allocation keep freed memory. What a pool has reserved is charged, not what is allocated
// from it, because that is what the neighbours cannot have.
enum { MAX_POOLS = 16, POOL_SLACK = 64 << 20 };

static struct {
	pthread_mutex_t lock;
	struct {
		CUmempool pool;
		uint64_t charged;
	} pool[MAX_POOLS];
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t pool_attribute(CUmempool pool, int attribute)
{
	uint64_t value = 0;
	if (CALL(cuMemPoolGetAttribute, (CUmempool, int, void *), pool, attribute, &value) != CUDA_SUCCESS)
		return 0;

	return value;
}

static void sync_pool_locked(int i, uint64_t reserved)
{
	add_bytes((int64_t)(reserved - pools.pool[i].charged));
	pools.pool[i].charged = reserved;
}

static int pool_index_locked(CUmempool pool)
{
	for (int i = 0; i < MAX_POOLS; i++) {
		if (pools.pool[i].pool == pool || pools.pool[i].pool == NULL) {
			pools.pool[i].pool = pool;
			return i;
		}
	}

	return MAX_POOLS - 1;
}

static void sync_pools(void)
{
	pthread_mutex_lock(&pools.lock);
	for (int i = 0; i < MAX_POOLS && pools.pool[i].pool; i++)
		sync_pool_locked(i, pool_attribute(pools.pool[i].pool, POOL_RESERVED_CURRENT));
	pthread_mutex_unlock(&pools.lock);
}

// ---------------------------------------------------------------------------------------------------------------
// Reader and worker: the two threads of a process that uses the GPU.

static int connect_broker(void)
{
	// The path of a socket has at most 107 bytes, that of a folder may have more: it is opened first.
	int folder = open(state.folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return -1;

	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", folder);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct timeval limit = {1, 0}; // of connect, if the broker does not accept
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
		close(fd);
		fd = -1;
	}
	close(folder);

	return fd;
}

// introduce_locked begins to speak to a broker. Until it answers, launches wait for it.
static void introduce_locked(int fd)
{
	state.fd = fd;
	state.mode = MODE_TOKEN;
	state.holding = state.revoked = state.yielding = state.wanted = state.contended = state.measure = false;
	state.heard = now_ns();
	send_locked(HELLO, (uint64_t)getpid(), account.mine ? atomic_load(&account.mine->context) : 0, 0, 0);
	if (state.waiting)
		want_locked();
}

static void disconnect_locked(void)
{
	close(state.fd);
	state.fd = -1;
	state.mode = MODE_OPEN;
	state.holding = state.revoked = state.yielding = state.wanted = state.contended = state.measure = false;
	update_locked();
}

static void obey_locked(const struct record *r)
{
	state.heard = now_ns();
	switch (r->type) {
	case GRANT:
		state.holding = true;
		state.revoked = state.wanted = false;
		state.contended = r->value[0] != 0;
		break;
	case REVOKE:
		state.revoked = state.holding; // one that crosses our own release is too late
		break;
	case CONTEND:
		state.contended = r->value[0] != 0;
		break;
	case MODE:
		state.measure = r->value[1] != 0;
		if (state.mode == (int)r->value[0])
			break;
		state.mode = (int)r->value[0];
		state.holding = state.revoked = state.yielding = state.wanted = false;
		break;
	case QUIESCE:
		state.away = now_ns() + (int64_t)r->value[0] * ms;
		shutdown(state.fd, SHUT_RDWR);
		break;
	default: // ALIVE, and what later brokers may say
		break;
	}
	if (state.waiting)
		want_locked();
	update_locked();
}

static void *reader(void *unused)
{
	inside = 1;
	int64_t pause = 50 * ms;
	for (;;) {
		pthread_mutex_lock(&state.lock);
		int fd = state.fd;
		int64_t away = state.away;
		bool stopping = state.stopping;
		pthread_mutex_unlock(&state.lock);
		if (stopping)
			return unused;

		if (fd < 0) {
			int64_t left = away - now_ns();
			sleep_ns(left > pause ? left : pause);
			pause = pause * 2 > 2000 * ms ? 2000 * ms : pause * 2;
			fd = connect_broker();
			if (fd < 0)
				continue;
			pthread_mutex_lock(&state.lock);
			introduce_locked(fd);
			// Not closed yet: a broker that accepts and says nothing must not stop a program that runs.
			pthread_mutex_unlock(&state.lock);
		}

		struct record r;
		ssize_t n = recv(fd, &r, sizeof r, 0);
		if (n < 0 && errno == EINTR)
			continue;
		pthread_mutex_lock(&state.lock);
		if (n == (ssize_t)sizeof r && r.version == PROTOCOL) {
			pause = 50 * ms;
			obey_locked(&r);
		} else {
			disconnect_locked();
		}
		pthread_mutex_unlock(&state.lock);
	}
}

// give_back drains the GPU and returns the token.
static void give_back(void)
{
	// If the broker is gone meanwhile, the gate is open, and launches may go on without a pause.
	bool revoked = true;
	while (revoked && atomic_load(&hot.entered) != atomic_load(&hot.left)) {
		sleep_ns(50 * 1000);
		pthread_mutex_lock(&state.lock);
		revoked = state.revoked;
		pthread_mutex_unlock(&state.lock);
	}
	if (!revoked)
		return;
	bool drained = drain();

	pthread_mutex_lock(&state.lock);
	if (drained && state.revoked) {
		state.holding = state.revoked = false;
		send_locked(RELEASE, atomic_load(&hot.entered), 0, 0, 0);
		if (state.waiting)
			want_locked();
		update_locked();
	}
	pthread_mutex_unlock(&state.lock);
	if (!drained)
		sleep_ns(ms);
}

// yield_if_idle returns the token if the program does nothing with it: no launch for a while, and after a drain again
// none for a while. A loop that reads a loss is idle for microseconds after each drain and must not lose its turn.
static void yield_if_idle(uint64_t *seen, int64_t *since, bool *drained)
{
	uint64_t count = atomic_load(&hot.entered);
	int64_t now = now_ns();
	if (count != *seen || count != atomic_load(&hot.left)) {
		*seen = count;
		*since = now;
		*drained = false;
		return;
	}
	if (now - *since < IDLE_AFTER)
		return;
	if (!*drained) {
		*drained = drain();
		*since = now_ns();
		return;
	}

	pthread_mutex_lock(&state.lock);
	if (state.holding && !state.revoked) {
		state.yielding = true;
		update_locked();
		bool idle = atomic_load(&hot.entered) == count;
		state.yielding = false;
		if (idle) {
			state.holding = false;
			send_locked(IDLE, count, 0, 0, 0);
			if (state.waiting)
				want_locked();
		}
		update_locked();
	}
	pthread_mutex_unlock(&state.lock);
	*drained = false;
	*since = now_ns();
}

static void *worker(void *unused)
{
	inside = 1;
	int relaxed = CAPTURE_RELAXED;
	CALL(cuThreadExchangeStreamCaptureMode, (int *), &relaxed);

	uint64_t seen = 0, probes = 0, idle = 0, counted = 0;
	int64_t since = now_ns(), next_probe = 0, next_demand = 0;
	bool drained = false;
	for (;;) {
		pthread_mutex_lock(&state.lock);
		for (;;) {
			if (state.stopping) {
				pthread_mutex_unlock(&state.lock);
				return unused;
			}
			if (state.fd >= 0 && (state.revoked || state.measure ||
					      (state.holding && state.contended && state.mode == MODE_TOKEN)))
				break;
			pthread_cond_wait(&state.worker, &state.lock);
			since = now_ns();
			drained = false;
		}
		bool revoked = state.revoked, holds = state.holding && state.mode == MODE_TOKEN;
		bool contended = holds && state.contended;
		bool measure = state.measure && (contended || state.mode == MODE_OPEN);
		bool waits = !revoked && !contended && !measure;
		if (waits)
			timed_wait(&state.worker, 50 * ms);
		pthread_mutex_unlock(&state.lock);
		if (waits)
			continue;
		if (revoked) {
			give_back();
			continue;
		}
		if (contended)
			yield_if_idle(&seen, &since, &drained);

		// On an open GPU a probe would wait for the neighbours' time slices and say nothing about our queue: there
		// the launches are counted.
		int64_t now = now_ns();
		if (measure && holds && now >= next_probe) {
			next_probe = now + PROBE_EVERY;
			int answer = probe();
			probes += answer >= 0;
			idle += answer == 0;
		}
		if (measure && now >= next_demand) {
			uint64_t entered = atomic_load(&hot.entered);
			pthread_mutex_lock(&state.lock);
			send_locked(DEMAND, probes, idle, entered - counted, 0);
			pthread_mutex_unlock(&state.lock);
			probes = idle = 0;
			counted = entered;
			next_demand = now + DEMAND_EVERY;
		}

		pthread_mutex_lock(&state.lock);
		if (!state.revoked && !state.stopping)
			timed_wait(&state.worker, contended ? ms / 2 : DEMAND_EVERY);
		pthread_mutex_unlock(&state.lock);
	}
}

static void start_thread(void *(*run)(void *))
{
	// Signals are the program's: our threads take none.
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_t thread;
	if (pthread_create(&thread, NULL, run, NULL) == 0)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// start connects this process to the broker, once, when it uses the GPU for the first time.
static void start(void)
{
	charge_context();
	remember_context();
	pthread_mutex_lock(&state.lock);
	if (!state.started) {
		state.started = true;
		state.folder = getenv("TRAINYARD_GPU_BROKER");
		if (state.folder != NULL && !state.stopping) {
			int fd = connect_broker();
			if (fd >= 0)
				introduce_locked(fd);
			else
				dprintf(2, "trainyard: the GPU share of this job is not enforced until its agent answers\n");
			start_thread(reader);
			start_thread(worker);
		}
		update_locked();
	}
	pthread_mutex_unlock(&state.lock);
}

// A child of fork has neither our threads nor the connection: it starts over if it uses the GPU at all.
static void after_fork(void)
{
	static const pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static const pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
	if (state.fd >= 0)
		close(state.fd);
	state.lock = drain_lock = ring.lock = table.lock = pools.lock = account.lock = resolve_lock = lock;
	state.gate = state.worker = cond;
	state.fd = -1;
	state.mode = MODE_OPEN;
	state.started = state.holding = state.revoked = state.yielding = state.wanted = state.contended = false;
	state.measure = false;
	state.waiting = 0;
	state.away = 0;

	memset(contexts, 0, sizeof contexts);
	ring.context = NULL;
	memset(ring.recorded, 0, sizeof ring.recorded);
	memset(pools.pool, 0, sizeof pools.pool);
	if (table.size)
		memset(table.entries, 0, table.size * sizeof *table.entries);
	table.used = 0;

	// The slot stays with the parent, whose lock ends with its last descriptor: the child must not keep one.
	if (account.fd >= 0)
		close(account.fd);
	account.fd = -1;
	account.map = NULL;
	account.mine = NULL;
	account.mapped = account.charged = false;
	memset(&account.fallback, 0, sizeof account.fallback);

	atomic_store(&hot.captures, 0);
	atomic_store(&hot.left, atomic_load(&hot.entered));
	atomic_store(&hot.gate, GATE_FIRST);
}

__attribute__((constructor)) static void loaded(void) { pthread_atfork(NULL, NULL, after_fork); }

// When the process ends, the token is free at once, and nothing touches a driver that is being taken down.
__attribute__((destructor)) static void unloading(void)
{
	// Whoever calls exit in a signal handler may have interrupted a thread that has the lock.
	int tries = 0;
	while (pthread_mutex_trylock(&state.lock) != 0)
		if (tries++ == 100)
			return;
		else
			sleep_ns(ms);
	state.stopping = true;
	if (state.fd >= 0)
		shutdown(state.fd, SHUT_RDWR);
	update_locked();
	pthread_mutex_unlock(&state.lock);
}

// ---------------------------------------------------------------------------------------------------------------
// The gate.

// enter_slow waits until the launch may go ahead, and returns the gate through which it goes: behind GATE_BOUND there is
// something left to do.
static int enter_slow(void)
{
	for (;;) {
		int gate = atomic_load(&hot.gate);
		switch (gate) {
		case GATE_OPEN:
		case GATE_BOUND:
			return gate;
		case GATE_FIRST:
			start();
			continue;
		default:
			break;
		}

		if (atomic_load(&hot.captures) > 0)
			return GATE_OPEN; // it is recorded, not executed

		atomic_fetch_add(&hot.left, 1);
		remember_context();
		pthread_mutex_lock(&state.lock);
		state.waiting++;
		while (atomic_load(&hot.gate) == GATE_CLOSED && atomic_load(&hot.captures) == 0) {
			want_locked();
			timed_wait(&state.gate, 1000 * ms);
			// A broker says every second that it is there. One that is silent must not stop the program.
			if (state.fd >= 0 && now_ns() - state.heard > SILENCE_LIMIT)
				shutdown(state.fd, SHUT_RDWR);
		}
		state.waiting--;
		pthread_mutex_unlock(&state.lock);
		atomic_fetch_add(&hot.entered, 1);
	}
}

static inline int enter(void)
{
	atomic_fetch_add(&hot.entered, 1);
	return LIKELY(atomic_load(&hot.gate) == GATE_OPEN) ? GATE_OPEN : enter_slow();
}

static inline void leave(void) { atomic_fetch_add_explicit(&hot.left, 1, memory_order_release); }

// bound keeps the launches in flight to about RING * RING_STEP while others wait, so that a drain is short.
static void bound(CUstream stream, unsigned int weight)
{
	unsigned int count = atomic_fetch_add(&ring.count, weight);
	if (count / RING_STEP == (count + weight) / RING_STEP || atomic_load(&hot.captures) > 0)
		return;

	remember_context();
	CUcontext current = NULL;
	if (CALL(cuCtxGetCurrent, (CUcontext *), &current) != CUDA_SUCCESS || current == NULL)
		return;

	pthread_mutex_lock(&ring.lock);
	if (ring.context != current) { // the events of another context are left to it
		memset(ring.recorded, 0, sizeof ring.recorded);
		for (int i = 0; i < RING; i++)
			if (CALL(cuEventCreate, (CUevent *, unsigned int), &ring.event[i],
				 EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
				ring.context = NULL;
				pthread_mutex_unlock(&ring.lock);
				return;
			}
		ring.context = current;
	}
	unsigned int i = ring.next++ % RING;
	CUevent event = ring.event[i];
	bool wait = ring.recorded[i];
	pthread_mutex_unlock(&ring.lock);

	if (wait)
		CALL(cuEventSynchronize, (CUevent), event);
	bool recorded = CALL(cuEventRecord, (CUevent, CUstream), event, stream) == CUDA_SUCCESS;
	pthread_mutex_lock(&ring.lock);
	if (ring.context == current)
		ring.recorded[i] = recorded;
	pthread_mutex_unlock(&ring.lock);
}

// GATED defines a hook that waits for the GPU. weight says how many launches the call counts for.
#define GATED(name, params, args, stream, weight) \
	EXPORT CUresult name params \
	{ \
		void *f = real(I_##name); \
		if (f == NULL) \
			return CUDA_ERROR_NOT_FOUND; \
		if (inside) \
			return ((CUresult(*) params)f)args; \
		inside = 1; \
		int gate = enter(); \
		CUresult r = ((CUresult(*) params)f)args; \
		if (gate == GATE_BOUND) \
			bound(stream, weight); \
		leave(); \
		inside = 0; \
		return r; \
	}

#define GATED2(name, twin, params, args, stream, weight) \
	CUresult name params; \
	CUresult twin params; \
	GATED(name, params, args, stream, weight) GATED(twin, params, args, stream, weight)

typedef unsigned int U;

GATED2(cuLaunchKernel, cuLaunchKernel_ptsz,
       (CUfunction f_, U gx, U gy, U gz, U bx, U by, U bz, U shared, CUstream s, void **p, void **e),
       (f_, gx, gy, gz, bx, by, bz, shared, s, p, e), s, 1)
GATED2(cuLaunchKernelEx, cuLaunchKernelEx_ptsz, (const CUlaunchConfig *c, CUfunction f_, void **p, void **e),
       (c, f_, p, e), c->stream, 1)
GATED2(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz,
       (CUfunction f_, U gx, U gy, U gz, U bx, U by, U bz, U shared, CUstream s, void **p),
       (f_, gx, gy, gz, bx, by, bz, shared, s, p), s, 1)
CUresult cuLaunchCooperativeKernelMultiDevice(void *list, U n, U flags);
GATED(cuLaunchCooperativeKernelMultiDevice, (void *list, U n, U flags), (list, n, flags), NULL, 1)
CUresult cuLaunch(CUfunction f_);
GATED(cuLaunch, (CUfunction f_), (f_), NULL, 1)
CUresult cuLaunchGrid(CUfunction f_, int w, int h);
GATED(cuLaunchGrid, (CUfunction f_, int w, int h), (f_, w, h), NULL, 1)
CUresult cuLaunchGridAsync(CUfunction f_, int w, int h, CUstream s);
GATED(cuLaunchGridAsync, (CUfunction f_, int w, int h, CUstream s), (f_, w, h, s), s, 1)
GATED2(cuGraphLaunch, cuGraphLaunch_ptsz, (CUgraphExec g, CUstream s), (g, s), s, RING_STEP)

typedef CUdeviceptr P;
GATED2(cuMemsetD8_v2, cuMemsetD8_v2_ptds, (P d, unsigned char v, size_t n), (d, v, n), NULL, 1)
GATED2(cuMemsetD16_v2, cuMemsetD16_v2_ptds, (P d, unsigned short v, size_t n), (d, v, n), NULL, 1)
GATED2(cuMemsetD32_v2, cuMemsetD32_v2_ptds, (P d, U v, size_t n), (d, v, n), NULL, 1)
GATED2(cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds, (P d, size_t p, unsigned char v, size_t w, size_t h), (d, p, v, w, h),
       NULL, 1)
GATED2(cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds, (P d, size_t p, unsigned short v, size_t w, size_t h),
       (d, p, v, w, h), NULL, 1)
GATED2(cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds, (P d, size_t p, U v, size_t w, size_t h), (d, p, v, w, h), NULL, 1)
GATED2(cuMemsetD8Async, cuMemsetD8Async_ptsz, (P d, unsigned char v, size_t n, CUstream s), (d, v, n, s), s, 1)
GATED2(cuMemsetD16Async, cuMemsetD16Async_ptsz, (P d, unsigned short v, size_t n, CUstream s), (d, v, n, s), s, 1)
GATED2(cuMemsetD32Async, cuMemsetD32Async_ptsz, (P d, U v, size_t n, CUstream s), (d, v, n, s), s, 1)
GATED2(cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz,
       (P d, size_t p, unsigned char v, size_t w, size_t h, CUstream s), (d, p, v, w, h, s), s, 1)
GATED2(cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz,
       (P d, size_t p, unsigned short v, size_t w, size_t h, CUstream s), (d, p, v, w, h, s), s, 1)
GATED2(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz, (P d, size_t p, U v, size_t w, size_t h, CUstream s),
       (d, p, v, w, h, s), s, 1)
GATED2(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (P d, P s, size_t n), (d, s, n), NULL, 1)
GATED2(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz, (P d, P a, size_t n, CUstream s), (d, a, n, s), s, 1)

// ---------------------------------------------------------------------------------------------------------------
// Capture.

#define CAPTURE_BEGIN(name, params, args) \
	CUresult name params; \
	EXPORT CUresult name params \
	{ \
		void *f = real(I_##name); \
		if (f == NULL) \
			return CUDA_ERROR_NOT_FOUND; \
		pthread_mutex_lock(&drain_lock); \
		atomic_fetch_add(&hot.captures, 1); \
		pthread_mutex_unlock(&drain_lock); \
		CUresult r = ((CUresult(*) params)f)args; \
		if (r != CUDA_SUCCESS) \
			atomic_fetch_sub(&hot.captures, 1); \
		return r; \
	}

#define CAPTURE_END(name) \
	CUresult name(CUstream s, CUgraph *g); \
	EXPORT CUresult name(CUstream s, CUgraph *g) \
	{ \
		CUresult r = CALL(name, (CUstream, CUgraph *), s, g); \
		int captures = atomic_load(&hot.captures); \
		while (captures > 0 && !atomic_compare_exchange_weak(&hot.captures, &captures, captures - 1)) { \
		} \
		return r; \
	}

#define TO_GRAPH (CUstream s, CUgraph g, const void *d, const void *dd, size_t n, int m)
CAPTURE_BEGIN(cuStreamBeginCapture, (CUstream s), (s))
CAPTURE_BEGIN(cuStreamBeginCapture_ptsz, (CUstream s), (s))
CAPTURE_BEGIN(cuStreamBeginCapture_v2, (CUstream s, int m), (s, m))
CAPTURE_BEGIN(cuStreamBeginCapture_v2_ptsz, (CUstream s, int m), (s, m))
CAPTURE_BEGIN(cuStreamBeginCaptureToGraph, TO_GRAPH, (s, g, d, dd, n, m))
CAPTURE_BEGIN(cuStreamBeginCaptureToGraph_ptsz, TO_GRAPH, (s, g, d, dd, n, m))
CAPTURE_END(cuStreamEndCapture)
CAPTURE_END(cuStreamEndCapture_ptsz)

// ---------------------------------------------------------------------------------------------------------------
// Allocation.

// ALLOCATED is the end of an allocator: it keeps what was reserved, or gives it back.
static CUresult allocated(CUresult r, uint32_t kind, uint64_t key, uint64_t reserved, uint64_t size)
{
	if (r != CUDA_SUCCESS) {
		add_bytes(-(int64_t)reserved);
		if (r == CUDA_ERROR_OUT_OF_MEMORY)
			deny(reserved, used_bytes(), cap_bytes());
		return r;
	}

	add_bytes((int64_t)(size - reserved));
	insert(kind, key, size);

	return r;
}

CUresult cuMemAlloc_v2(P *p, size_t n);
EXPORT CUresult cuMemAlloc_v2(P *p, size_t n)
{
	if (inside || p == NULL)
		return CALL(cuMemAlloc_v2, (P *, size_t), p, n);
	if (!reserve(n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = CALL(cuMemAlloc_v2, (P *, size_t), p, n);

	return allocated(r, POINTER, *p, n, n);
}

CUresult cuMemAllocPitch_v2(P *p, size_t *pitch, size_t w, size_t h, U e);
EXPORT CUresult cuMemAllocPitch_v2(P *p, size_t *pitch, size_t w, size_t h, U e)
{
	if (inside || p == NULL || pitch == NULL)
		return CALL(cuMemAllocPitch_v2, (P *, size_t *, size_t, size_t, U), p, pitch, w, h, e);
	uint64_t n = (w + 511) / 512 * 512 * h;
	if (!reserve(n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = CALL(cuMemAllocPitch_v2, (P *, size_t *, size_t, size_t, U), p, pitch, w, h, e);

	return allocated(r, POINTER, *p, n, *pitch * h);
}

CUresult cuMemAllocManaged(P *p, size_t n, U flags);
EXPORT CUresult cuMemAllocManaged(P *p, size_t n, U flags)
{
	if (inside || p == NULL)
		return CALL(cuMemAllocManaged, (P *, size_t, U), p, n, flags);
	if (!reserve(n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = CALL(cuMemAllocManaged, (P *, size_t, U), p, n, flags);

	return allocated(r, POINTER, *p, n, n);
}

CUresult cuMemFree_v2(P p);
EXPORT CUresult cuMemFree_v2(P p)
{
	CUresult r = CALL(cuMemFree_v2, (P), p);
	if (r == CUDA_SUCCESS && !inside && p != 0 && !drop(POINTER, p))
		sync_pools();

	return r;
}

static uint64_t array_bytes(size_t w, size_t h, size_t d, int format, U channels)
{
	uint64_t element = format == 0x01 || format == 0x08		     ? 1
			   : format == 0x02 || format == 0x09 || format == 0x10 ? 2
										: 4;
	return (uint64_t)w * (h ? h : 1) * (d ? d : 1) * element * (channels ? channels : 1);
}

CUresult cuArrayCreate_v2(CUarray *a, const CUarrayDesc *d);
EXPORT CUresult cuArrayCreate_v2(CUarray *a, const CUarrayDesc *d)
{
	if (inside || a == NULL || d == NULL)
		return CALL(cuArrayCreate_v2, (CUarray *, const CUarrayDesc *), a, d);
	uint64_t n = array_bytes(d->width, d->height, 1, d->format, d->channels);
	if (!reserve(n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = CALL(cuArrayCreate_v2, (CUarray *, const CUarrayDesc *), a, d);

	return allocated(r, ARRAY, (uint64_t)(uintptr_t)*a, n, n);
}

CUresult cuArray3DCreate_v2(CUarray *a, const CUarray3DDesc *d);
EXPORT CUresult cuArray3DCreate_v2(CUarray *a, const CUarray3DDesc *d)
{
	if (inside || a == NULL || d == NULL)
		return CALL(cuArray3DCreate_v2, (CUarray *, const CUarray3DDesc *), a, d);
	uint64_t n = array_bytes(d->width, d->height, d->depth, d->format, d->channels);
	if (!reserve(n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = CALL(cuArray3DCreate_v2, (CUarray *, const CUarray3DDesc *), a, d);

	return allocated(r, ARRAY, (uint64_t)(uintptr_t)*a, n, n);
}

CUresult cuArrayDestroy(CUarray a);
EXPORT CUresult cuArrayDestroy(CUarray a)
{
	CUresult r = CALL(cuArrayDestroy, (CUarray), a);
	if (r == CUDA_SUCCESS && !inside)
		drop(ARRAY, (uint64_t)(uintptr_t)a);

	return r;
}

CUresult cuMipmappedArrayCreate(CUmipmap *a, const CUarray3DDesc *d, U levels);
EXPORT CUresult cuMipmappedArrayCreate(CUmipmap *a, const CUarray3DDesc *d, U levels)
{
	if (inside || a == NULL || d == NULL)
		return CALL(cuMipmappedArrayCreate, (CUmipmap *, const CUarray3DDesc *, U), a, d, levels);
	uint64_t n = array_bytes(d->width, d->height, d->depth, d->format, d->channels);
	n += levels > 1 ? n / 3 : 0; // each level has a quarter of the one before
	if (!reserve(n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = CALL(cuMipmappedArrayCreate, (CUmipmap *, const CUarray3DDesc *, U), a, d, levels);

	return allocated(r, ARRAY, (uint64_t)(uintptr_t)*a, n, n);
}

CUresult cuMipmappedArrayDestroy(CUmipmap a);
EXPORT CUresult cuMipmappedArrayDestroy(CUmipmap a)
{
	CUresult r = CALL(cuMipmappedArrayDestroy, (CUmipmap), a);
	if (r == CUDA_SUCCESS && !inside)
		drop(ARRAY, (uint64_t)(uintptr_t)a);

	return r;
}

static CUmempool current_pool(void)
{
	CUdevice device;
	CUmempool pool = NULL;
	if (CALL(cuCtxGetDevice, (CUdevice *), &device) != CUDA_SUCCESS ||
	    CALL(cuDeviceGetMemPool, (CUmempool *, CUdevice), &pool, device) != CUDA_SUCCESS)
		return NULL;

	return pool;
}

// from_pool allocates from a pool. Memory that the pool has reserved and not given out costs nothing more.
static CUresult from_pool(int hook, P *p, size_t n, CUmempool pool, CUstream s)
{
	bool given = hook == I_cuMemAllocFromPoolAsync || hook == I_cuMemAllocFromPoolAsync_ptsz;
	void *f = real(hook);
	if (f == NULL)
		return CUDA_ERROR_NOT_FOUND;
	if (!given)
		pool = current_pool();

	uint64_t more = n;
	bool counted = !inside && p != NULL && pool != NULL && atomic_load(&hot.captures) == 0;
	if (counted) {
		uint64_t reserved = pool_attribute(pool, POOL_RESERVED_CURRENT), used = pool_attribute(pool, POOL_USED_CURRENT);
		uint64_t slack = reserved > used ? reserved - used : 0;
		more = n > slack ? n - slack : 0;
		if (more > 0 && !reserve(more))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}

	inside++;
	CUresult r = given ? ((CUresult(*)(P *, size_t, CUmempool, CUstream))f)(p, n, pool, s)
			   : ((CUresult(*)(P *, size_t, CUstream))f)(p, n, s);
	inside--;
	if (!counted)
		return r;

	pthread_mutex_lock(&pools.lock);
	sync_pool_locked(pool_index_locked(pool), pool_attribute(pool, POOL_RESERVED_CURRENT));
	pthread_mutex_unlock(&pools.lock);
	add_bytes(-(int64_t)more);
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		deny(n, used_bytes(), cap_bytes());

	// A fragmented pool grows although it had enough: that is undone if it goes far beyond the cap.
	uint64_t cap = cap_bytes(), used = used_bytes();
	if (r == CUDA_SUCCESS && cap != 0 && used > cap + POOL_SLACK && more == 0) {
		CALL(cuMemFreeAsync, (P, CUstream), *p, s);
		CALL(cuMemPoolTrimTo, (CUmempool, size_t), pool, 0);
		sync_pools();
		deny(n, used, cap);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}

	return r;
}

CUresult cuMemAllocAsync(P *p, size_t n, CUstream s);
EXPORT CUresult cuMemAllocAsync(P *p, size_t n, CUstream s) { return from_pool(I_cuMemAllocAsync, p, n, NULL, s); }

CUresult cuMemAllocAsync_ptsz(P *p, size_t n, CUstream s);
EXPORT CUresult cuMemAllocAsync_ptsz(P *p, size_t n, CUstream s)
{
	return from_pool(I_cuMemAllocAsync_ptsz, p, n, NULL, s);
}

CUresult cuMemAllocFromPoolAsync(P *p, size_t n, CUmempool pool, CUstream s);
EXPORT CUresult cuMemAllocFromPoolAsync(P *p, size_t n, CUmempool pool, CUstream s)
{
	return from_pool(I_cuMemAllocFromPoolAsync, p, n, pool, s);
}

CUresult cuMemAllocFromPoolAsync_ptsz(P *p, size_t n, CUmempool pool, CUstream s);
EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(P *p, size_t n, CUmempool pool, CUstream s)
{
	return from_pool(I_cuMemAllocFromPoolAsync_ptsz, p, n, pool, s);
}

// Memory of a pool stays charged until the pool lets go of it. Memory of cuMemAlloc may be freed here as well.
#define FREE_ASYNC(name) \
	CUresult name(P p, CUstream s); \
	EXPORT CUresult name(P p, CUstream s) \
	{ \
		CUresult r = CALL(name, (P, CUstream), p, s); \
		if (r == CUDA_SUCCESS && !inside) \
			drop(POINTER, p); \
		return r; \
	}
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)

CUresult cuMemPoolTrimTo(CUmempool pool, size_t n);
EXPORT CUresult cuMemPoolTrimTo(CUmempool pool, size_t n)
{
	CUresult r = CALL(cuMemPoolTrimTo, (CUmempool, size_t), pool, n);
	if (!inside)
		sync_pools();

	return r;
}

CUresult cuMemPoolDestroy(CUmempool pool);
EXPORT CUresult cuMemPoolDestroy(CUmempool pool)
{
	pthread_mutex_lock(&pools.lock);
	for (int i = 0; i < MAX_POOLS && pool; i++) {
		if (pools.pool[i].pool != pool)
			continue;
		sync_pool_locked(i, 0);
		int last = i;
		while (last + 1 < MAX_POOLS && pools.pool[last + 1].pool)
			last++;
		pools.pool[i] = pools.pool[last];
		pools.pool[last].pool = NULL;
		pools.pool[last].charged = 0;
		break;
	}
	pthread_mutex_unlock(&pools.lock);

	return CALL(cuMemPoolDestroy, (CUmempool), pool);
}

CUresult cuMemCreate(CUhandle *h, size_t n, const CUmemProp *prop, unsigned long long flags);
EXPORT CUresult cuMemCreate(CUhandle *h, size_t n, const CUmemProp *prop, unsigned long long flags)
{
	bool counted = !inside && h && prop && prop->location.type == LOCATION_DEVICE;
	if (counted && !reserve(n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = CALL(cuMemCreate, (CUhandle *, size_t, const CUmemProp *, unsigned long long), h, n, prop, flags);

	return counted ? allocated(r, HANDLE, *h, n, n) : r;
}

CUresult cuMemRelease(CUhandle h);
EXPORT CUresult cuMemRelease(CUhandle h)
{
	CUresult r = CALL(cuMemRelease, (CUhandle), h);
	if (r == CUDA_SUCCESS && !inside)
		drop(HANDLE, h);

	return r;
}

// Physical memory lives as long as its handle or a mapping of it.
CUresult cuMemMap(P p, size_t n, size_t offset, CUhandle h, unsigned long long flags);
EXPORT CUresult cuMemMap(P p, size_t n, size_t offset, CUhandle h, unsigned long long flags)
{
	CUresult r = CALL(cuMemMap, (P, size_t, size_t, CUhandle, unsigned long long), p, n, offset, h, flags);
	if (r != CUDA_SUCCESS || inside)
		return r;

	pthread_mutex_lock(&table.lock);
	struct entry *e = find_locked(HANDLE, h);
	if (e != NULL) {
		e->references++;
		insert_locked((struct entry){.kind = MAPPING, .key = p, .size = n, .handle = h, .references = 1});
	}
	pthread_mutex_unlock(&table.lock);

	return r;
}

CUresult cuMemUnmap(P p, size_t n);
EXPORT CUresult cuMemUnmap(P p, size_t n)
{
	CUresult r = CALL(cuMemUnmap, (P, size_t), p, n);
	if (r != CUDA_SUCCESS || inside)
		return r;

	for (P end = p + n; p < end;) {
		pthread_mutex_lock(&table.lock);
		struct entry *e = find_locked(MAPPING, p);
		uint64_t size = e ? e->size : 0, handle = e ? e->handle : 0;
		if (e)
			remove_locked(e);
		pthread_mutex_unlock(&table.lock);
		if (size == 0)
			break;
		drop(HANDLE, handle);
		p += size;
	}

	return r;
}

CUresult cuMemRetainAllocationHandle(CUhandle *h, void *address);
EXPORT CUresult cuMemRetainAllocationHandle(CUhandle *h, void *address)
{
	CUresult r = CALL(cuMemRetainAllocationHandle, (CUhandle *, void *), h, address);
	if (r != CUDA_SUCCESS || inside)
		return r;

	pthread_mutex_lock(&table.lock);
	struct entry *e = find_locked(HANDLE, *h);
	if (e != NULL)
		e->references++;
	pthread_mutex_unlock(&table.lock);

	return r;
}

// ---------------------------------------------------------------------------------------------------------------
// What the program is shown of the GPU's memory: never more than there is.

static void shown(uint64_t *available, uint64_t *total)
{
	uint64_t cap = cap_bytes();
	if (cap == 0)
		return;

	sync_pools();
	uint64_t used = used_bytes(), left = used < cap ? cap - used : 0;
	if (available && *available > left)
		*available = left;
	if (*total > cap)
		*total = cap;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total);
EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
	CUresult r = CALL(cuMemGetInfo_v2, (size_t *, size_t *), available, total);
	if (r != CUDA_SUCCESS || inside || !available || !total)
		return r;

	charge_context();
	uint64_t a = *available, t = *total;
	shown(&a, &t);
	*available = a;
	*total = t;

	return r;
}

CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice device);
EXPORT CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice device)
{
	CUresult r = CALL(cuDeviceTotalMem_v2, (size_t *, CUdevice), n, device);
	if (r != CUDA_SUCCESS || inside || !n)
		return r;

	uint64_t t = *n;
	shown(NULL, &t);
	*n = t;

	return r;
}

// ours reports whether NVML speaks of the GPU that is shared: it shows all of the machine.
static bool ours(nvmlDevice_t device)
{
	struct accounts *m = map_accounts();
	if (m == NULL || !m->uuid[0])
		return m != NULL;

	void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int (*uuid_of)(nvmlDevice_t, char *, U) =
		nvml ? (int (*)(nvmlDevice_t, char *, U))real_dlsym()(nvml, "nvmlDeviceGetUUID") : NULL;
	char uuid[96] = "";

	return uuid_of && uuid_of(device, uuid, sizeof uuid) == 0 && strncmp(uuid, m->uuid, sizeof m->uuid) == 0;
}

CUresult nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory *memory);
EXPORT CUresult nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory *memory)
{
	void *f = real(I_nvmlDeviceGetMemoryInfo);
	if (f == NULL)
		return 13; // NVML_ERROR_FUNCTION_NOT_FOUND
	CUresult r = ((CUresult(*)(nvmlDevice_t, nvmlMemory *))f)(device, memory);
	if (r != 0 || inside || !memory || cap_bytes() == 0 || !ours(device))
		return r;

	uint64_t a = memory->free, t = memory->total;
	shown(&a, &t);
	memory->free = a;
	memory->total = t;
	memory->used = t - a;

	return r;
}

CUresult nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemoryV2 *memory);
EXPORT CUresult nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemoryV2 *memory)
{
	void *f = real(I_nvmlDeviceGetMemoryInfo_v2);
	if (f == NULL)
		return 13;
	CUresult r = ((CUresult(*)(nvmlDevice_t, nvmlMemoryV2 *))f)(device, memory);
	if (r != 0 || inside || !memory || cap_bytes() == 0 || !ours(device))
		return r;

	uint64_t a = memory->free, t = memory->total;
	shown(&a, &t);
	memory->free = a;
	memory->total = t;
	memory->reserved = 0;
	memory->used = t - a;

	return r;
}

// ---------------------------------------------------------------------------------------------------------------
// Lookups by the driver itself, and the ends of contexts.

CUresult cuGetProcAddress(const char *symbol, void **f, int version, uint64_t flags);
EXPORT CUresult cuGetProcAddress(const char *symbol, void **f, int version, uint64_t flags)
{
	CUresult r = CALL(cuGetProcAddress, (const char *, void **, int, uint64_t), symbol, f, version, flags);
	if (r == CUDA_SUCCESS && f && *f)
		*f = substitute(*f);

	return r;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **f, int version, uint64_t flags, int *status);
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **f, int version, uint64_t flags, int *status)
{
	CUresult r = CALL(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *), symbol, f, version, flags,
			  status);
	if (r == CUDA_SUCCESS && f && *f)
		*f = substitute(*f);

	return r;
}

CUresult cuCtxDestroy_v2(CUcontext context);
EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
	forget_contexts(context);
	return CALL(cuCtxDestroy_v2, (CUcontext), context);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	// Libraries retain and release it all the time; it ends with the last of them.
	pthread_mutex_lock(&drain_lock);
	CUresult r = CALL(cuDevicePrimaryCtxRelease_v2, (CUdevice), device);
	U flags = 0;
	int active = 0;
	CALL(cuDevicePrimaryCtxGetState, (CUdevice, U *, int *), device, &flags, &active);
	pthread_mutex_unlock(&drain_lock);
	if (!active)
		forget_contexts(NULL);

	return r;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	forget_contexts(NULL);
	return CALL(cuDevicePrimaryCtxReset_v2, (CUdevice), device);
}

static void *wrapper_of(int hook)
{
	static void *const wrappers[COUNT_HOOKED] = {
#define X(name) [I_##name] = (void *)name,
		HOOKS(X)
#undef X
	};

	return wrappers[hook];
}
