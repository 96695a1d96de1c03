/* A library with the functions of CUDA's driver that has no device: memory that the host cannot touch, streams that put
 * work off until somebody waits, kernels that are functions `void k(const int64_t grid[3], const int64_t block[3], void
 * **parameters)` of a shared object, which is the image, or of the program itself where the image is text. Tests say what
 * it is like, and what fails. */
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, MOST_PARAMETERS = 256 };
enum { FAIL_ALLOCATE, FAIL_COPY, FAIL_LAUNCH, FAIL_SYNCHRONIZE, FAIL_LOAD, FAIL_CAPTURE, FAIL_PIN, FAILURES };
enum { LIVE, LAUNCHES, GRAPHS, GRAPH_LAUNCHES, MODULES, PINNED, COUNTS };

typedef int Result;
typedef void (*Kernel)(const int64_t *grid, const int64_t *block, void **parameters);

typedef struct Memory {
  struct Memory *next;
  char *address, *bytes;
  size_t size, mapped;
} Memory;

typedef struct Work {
  struct Work *next;
  Kernel kernel; /* NULL: a copy */
  int64_t grid[3], block[3];
  uint64_t parameters[MOST_PARAMETERS];
  int count;
  uint64_t target, source, size;
} Work;

typedef struct Stream {
  Work *first, **last;
  int is_captured, is_of_memory;
} Stream;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Memory *memories;
static Stream legacy;
static int64_t after[FAILURES] = {-1, -1, -1, -1, -1, -1, -1}, counts[COUNTS];
static Result code[FAILURES], broken;
static int devices = 2, version = 12040, arch = 80, most_shared = 166912;

/* ---- For tests -------------------------------------------------------------------------------------------------- */

void fake_machine(int device_count, int driver_version, int device_arch, int shared) {
  devices = device_count;
  version = driver_version;
  arch = device_arch;
  most_shared = shared;
}

void fake_fail(int what, int64_t later, int result) {
  after[what] = later;
  code[what] = result;
}

void fake_mend(void) {
  broken = 0;
  for (int i = 0; i < FAILURES; i++) after[i] = -1;
}

int64_t fake_count(int what) { return counts[what]; }

static Result fails(int what) {
  if (broken) return broken;
  Result result = after[what] >= 0 && after[what]-- == 0 ? code[what] : 0;
  if (result >= 700) broken = result;
  return result;
}

/* ---- Devices ---------------------------------------------------------------------------------------------------- */

Result cuInit(unsigned flags) {
  (void)flags;
  return devices ? 0 : 100;
}

Result cuDriverGetVersion(int *result) {
  *result = version;
  return 0;
}

Result cuDeviceGetCount(int *count) {
  *count = devices;
  return 0;
}

Result cuDeviceGet(int *device, int number) {
  *device = number;
  return number < devices ? 0 : 101;
}

Result cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, (size_t)size, "Card %d", device);
  return 0;
}

Result cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? arch / 10 : attribute == 76 ? arch % 10 : attribute == 97 ? most_shared
           : attribute == 115 ? device == 0 /* the second has no memory pools */ : 1024;
  return 0;
}

Result cuDevicePrimaryCtxRetain(void **context, int device) {
  (void)device;
  *context = &legacy;
  return 0;
}

Result cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return 0;
}

Result cuCtxSetCurrent(void *context) {
  (void)context;
  return 0;
}

Result cuCtxSynchronize(void) { return 0; }

Result cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = device < devices ? (size_t)1 << 30 : 0;
  return 0;
}

Result cuGetErrorName(Result result, const char **text) {
  *text = result == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : result == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OTHER";
  return 0;
}

Result cuGetErrorString(Result result, const char **text) {
  *text = result == 2 ? "out of memory" : result == 700 ? "an illegal memory access was encountered"
          : result == 100 ? "no CUDA-capable device is detected" : "something else";
  return 0;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

Result cuMemAlloc_v2(uint64_t *address, size_t size) {
  pthread_mutex_lock(&lock);
  Result result = fails(FAIL_ALLOCATE);
  Memory *made = result ? NULL : calloc(1, sizeof *made);
  if (made) {
    made->size = size;
    made->mapped = (size + PAGE - 1) / PAGE * PAGE;
    made->address = mmap(NULL, made->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    made->bytes = mmap(NULL, made->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(made->bytes, 0xA5, made->mapped);
    made->next = memories;
    memories = made;
    counts[LIVE]++;
    *address = (uint64_t)(uintptr_t)made->address;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

Result cuMemFree_v2(uint64_t address) {
  pthread_mutex_lock(&lock);
  for (Memory **at = &memories; *at; at = &(*at)->next) {
    if ((uint64_t)(uintptr_t)(*at)->address == address) {
      Memory *dead = *at;
      *at = dead->next;
      counts[LIVE]--;
      munmap(dead->address, dead->mapped);
      munmap(dead->bytes, dead->mapped);
      free(dead);
      break;
    }
  }
  pthread_mutex_unlock(&lock);
  return 0;
}

/* A pool keeps nothing here: memory that is used after it was given back must be found. */
Result cuMemPoolCreate(void **pool, const void *properties) {
  const int32_t *facts = properties;
  *pool = &counts;
  return facts[0] == 1 && facts[2] == 1 && facts[3] < devices ? 0 : 1;
}

Result cuMemPoolDestroy(void *pool) { return pool == &counts ? 0 : 1; }

Result cuMemPoolSetAttribute(void *pool, int attribute, void *value) {
  return pool == &counts && attribute == 4 && *(uint64_t *)value ? 0 : 1;
}

Result cuMemAllocFromPoolAsync(uint64_t *address, size_t size, void *pool, void *stream) {
  return pool == &counts && stream ? cuMemAlloc_v2(address, size) : 1;
}

Result cuMemFreeAsync(uint64_t address, void *stream) { return stream ? cuMemFree_v2(address) : 1; }

/* Of the host, and seen by the device at the same address. */
Result cuMemHostAlloc(void **memory, size_t size, unsigned flags) {
  pthread_mutex_lock(&lock);
  Result result = flags == 3 ? fails(FAIL_ALLOCATE) : 1;
  *memory = result ? NULL : malloc(size);
  counts[LIVE] += *memory != NULL;
  pthread_mutex_unlock(&lock);
  return result;
}

Result cuMemFreeHost(void *memory) {
  pthread_mutex_lock(&lock);
  counts[LIVE]--;
  free(memory);
  pthread_mutex_unlock(&lock);
  return 0;
}

Result cuMemHostRegister_v2(void *memory, size_t size, unsigned flags) {
  pthread_mutex_lock(&lock);
  Result result = flags == 1 && memory && size ? fails(FAIL_PIN) : 1;
  counts[PINNED] += !result;
  pthread_mutex_unlock(&lock);
  return result;
}

Result cuMemHostUnregister(void *memory) {
  (void)memory;
  pthread_mutex_lock(&lock);
  counts[PINNED]--;
  pthread_mutex_unlock(&lock);
  return 0;
}

/* Where the bytes of a device's address are; 0 for what is none. */
static uint64_t bytes_at(uint64_t address) {
  for (const Memory *one = memories; one; one = one->next) {
    uint64_t begin = (uint64_t)(uintptr_t)one->address;
    if (address >= begin && address < begin + one->size) return (uint64_t)(uintptr_t)one->bytes + (address - begin);
  }
  return 0;
}

/* ---- Streams ---------------------------------------------------------------------------------------------------- */

static Stream *stream_of(void *stream) {
  Stream *one = stream ? stream : &legacy;
  if (!one->last) one->last = &one->first;
  return one;
}

static Work *put(void *stream) {
  Stream *one = stream_of(stream);
  Work *made = calloc(1, sizeof *made);
  *one->last = made;
  one->last = &made->next;
  return made;
}

static void do_work(Work *work) {
  if (!work->kernel) {
    uint64_t target = bytes_at(work->target), source = bytes_at(work->source);
    memcpy((void *)(uintptr_t)(target ? target : work->target), (void *)(uintptr_t)(source ? source : work->source),
           work->size);
    return;
  }
  void *pointers[MOST_PARAMETERS];
  uint64_t values[MOST_PARAMETERS];
  for (int i = 0; i < work->count; i++) {
    uint64_t there = bytes_at(work->parameters[i]);
    values[i] = there ? there : work->parameters[i];
    pointers[i] = values + i;
  }
  work->kernel(work->grid, work->block, pointers);
}

static Result finish(void *stream) {
  Stream *one = stream_of(stream);
  while (one->first) {
    Work *work = one->first;
    one->first = work->next;
    if (!broken) do_work(work);
    free(work);
  }
  one->last = &one->first;
  return one->is_of_memory ? broken : fails(FAIL_SYNCHRONIZE);
}

Result cuStreamCreate(void **stream, unsigned flags) {
  Stream *made = calloc(1, sizeof *made);
  if (made) made->is_of_memory = (int)(flags & 1);
  *stream = made;
  return made ? 0 : 2;
}

Result cuStreamDestroy_v2(void *stream) {
  free(stream);
  return 0;
}

Result cuStreamSynchronize(void *stream) {
  pthread_mutex_lock(&lock);
  Result result = finish(stream);
  pthread_mutex_unlock(&lock);
  return result;
}

Result cuEventCreate(void **event, unsigned flags) {
  (void)flags;
  *event = calloc(1, sizeof(void *));
  return *event ? 0 : 2;
}

Result cuEventDestroy_v2(void *event) {
  free(event);
  return 0;
}

Result cuEventRecord(void *event, void *stream) {
  *(void **)event = stream;
  return 0;
}

Result cuEventSynchronize(void *event) { return cuStreamSynchronize(*(void **)event); }

static Result copy(uint64_t target, uint64_t source, size_t size, void *stream) {
  pthread_mutex_lock(&lock);
  Result result = fails(FAIL_COPY);
  if (!result) {
    Work *work = put(stream);
    work->target = target;
    work->source = source;
    work->size = size;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

Result cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t size, void *stream) {
  return copy(target, (uint64_t)(uintptr_t)source, size, stream);
}

Result cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t size, void *stream) {
  return copy((uint64_t)(uintptr_t)target, source, size, stream);
}

Result cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size, void *stream) {
  return copy(target, source, size, stream);
}

/* ---- Modules and launches --------------------------------------------------------------------------------------- */

Result cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
  pthread_mutex_lock(&lock);
  Result result = fails(FAIL_LOAD);
  pthread_mutex_unlock(&lock);
  if (result) {
    for (unsigned i = 0; i < count; i++) {
      if (options[i] == 5) strcpy(values[i], "ptxas fatal: what is this");
    }
    return result;
  }
  const Elf64_Ehdr *header = image;
  if (strncmp(image, ELFMAG, SELFMAG) != 0) {
    *module = dlopen(NULL, RTLD_NOW);
  } else {
    char path[] = "/tmp/graft-fake-image-XXXXXX";
    size_t size = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
    int file = mkstemp(path);
    if (file < 0 || write(file, image, size) != (ssize_t)size) return 2;
    close(file);
    *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
  }
  counts[MODULES] += *module != NULL;
  return *module ? 0 : 200;
}

Result cuModuleUnload(void *module) {
  counts[MODULES]--;
  dlclose(module);
  return 0;
}

Result cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = dlsym(module, name);
  return *function ? 0 : 500;
}

Result cuFuncSetAttribute(void *function, int attribute, int value) {
  (void)function;
  return attribute == 8 && value > most_shared ? 1 : 0;
}

/* How many parameters there are nobody says: they are behind one another in memory, which ends where the last is. */
Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **parameters, void **extra) {
  (void)extra;
  (void)shared;
  pthread_mutex_lock(&lock);
  Result result = fails(FAIL_LAUNCH);
  if (!result) {
    Work *work = put(stream);
    memcpy(&work->kernel, &function, sizeof function);
    memcpy(work->grid, (int64_t[]){gx, gy, gz}, sizeof work->grid);
    memcpy(work->block, (int64_t[]){bx, by, bz}, sizeof work->block);
    while (work->count < MOST_PARAMETERS && parameters[work->count] == (char *)parameters[0] + 8 * work->count) {
      memcpy(work->parameters + work->count, parameters[work->count], 8);
      work->count++;
    }
    counts[LAUNCHES]++;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

/* ---- Graphs: what a stream holds, taken off it, and put on one again with each launch --------------------------- */

Result cuStreamBeginCapture_v2(void *stream, int mode) {
  (void)mode;
  pthread_mutex_lock(&lock);
  Result result = fails(FAIL_CAPTURE);
  result = result || !stream_of(stream)->first ? result : finish(stream);
  stream_of(stream)->is_captured = !result;
  pthread_mutex_unlock(&lock);
  return result;
}

Result cuStreamEndCapture(void *stream, void **graph) {
  Stream *one = stream_of(stream), *made = calloc(1, sizeof *made);
  made->first = one->first;
  one->first = NULL;
  one->last = &one->first;
  one->is_captured = 0;
  *graph = made;
  counts[GRAPHS]++;
  return 0;
}

Result cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  (void)flags;
  Stream *made = calloc(1, sizeof *made);
  Work **last = &made->first;
  for (const Work *work = ((Stream *)graph)->first; work; work = work->next) {
    *last = malloc(sizeof **last);
    **last = *work;
    (*last)->next = NULL;
    last = &(*last)->next;
  }
  *executable = made;
  return 0;
}

Result cuGraphLaunch(void *executable, void *stream) {
  pthread_mutex_lock(&lock);
  Result result = fails(FAIL_LAUNCH);
  for (const Work *work = ((Stream *)executable)->first; !result && work; work = work->next) {
    Work *copied = put(stream), *next = copied->next;
    *copied = *work;
    copied->next = next;
  }
  counts[GRAPH_LAUNCHES] += !result;
  pthread_mutex_unlock(&lock);
  return result;
}

static void free_work(Stream *stream) {
  while (stream->first) {
    Work *next = stream->first->next;
    free(stream->first);
    stream->first = next;
  }
  free(stream);
}

Result cuGraphExecDestroy(void *executable) {
  free_work(executable);
  return 0;
}

Result cuGraphDestroy(void *graph) {
  counts[GRAPHS]--;
  free_work(graph);
  return 0;
}
