/* A device in the host's memory that behaves as another's would at its worst.
 *
 * - Its addresses are pages without any access: who touches them on the host is killed. The bytes lie elsewhere.
 * - Nothing on a stream is done before somebody waits for it; copies read and write main memory then.
 * - Fresh memory holds rubbish, and what leaves its allocation is an error.
 * - fake_fail makes the n-th allocation, copy, launch or wait from now on fail, once; a failed wait leaves the device
 *   broken until fake_mend.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "graft/device.h"
#include "program/program.h"

#define EXPORT __attribute__((visibility("default")))

enum { FAKE_TYPE = 12 /* kDLExtDev */, MOST_TENSORS = 64, MOST_SCRATCH = 64, PAGE = 4096 };
enum { ALLOCATE, COPY, LAUNCH, WAIT, FAILURES };
enum { LIVE, TO_DEVICE, TO_HOST, WITHIN, LAUNCHES, WAITS, PROGRAMS, STREAMS, EVENTS, COUNTS };

typedef struct Memory {
  struct Memory *next;
  char *address, *bytes;
  size_t size, mapped;
} Memory;

typedef struct Operation {
  struct Operation *next;
  GraftFunction function; /* NULL: a copy */
  void *state;
  GraftCopyDirection direction;
  void *target;
  const void *source;
  uint64_t size;
  int32_t input_count, output_count;
  DLTensor tensors[MOST_TENSORS]; /* inputs, then outputs; without data: absent */
  int64_t *shapes;
} Operation;

typedef struct Stream {
  Operation *first, **last;
  int64_t put, done;
} Stream;

typedef struct Event {
  Stream *stream;
  int64_t place;
} Event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Memory *memories;
static int64_t failures[FAILURES] = {-1, -1, -1, -1}, counts[COUNTS], limit = INT64_MAX, used;
static char broken[256];

/* ---- For tests -------------------------------------------------------------------------------------------------- */

EXPORT void fake_fail(int32_t what, int64_t after) { failures[what] = after; }
EXPORT int64_t fake_count(int32_t what) { return counts[what]; }
EXPORT void fake_limit(int64_t bytes) { limit = bytes < 0 ? INT64_MAX : bytes; }
EXPORT void fake_mend(void) { broken[0] = 0; }

static int fails(int what) { return failures[what] >= 0 && failures[what]-- == 0; }

static int32_t fail(GraftError *error, int32_t code, const char *text) {
  error->code = code;
  snprintf(error->message, sizeof error->message, "%s", text);
  return code;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static int32_t allocate(void *user, uint64_t size, void **memory, GraftError *error) {
  (void)user;
  int32_t status = GRAFT_OK;
  pthread_mutex_lock(&lock);
  size_t mapped = (size + PAGE - 1) / PAGE * PAGE;
  Memory *made = calloc(1, sizeof *made);
  if (fails(ALLOCATE) || used + (int64_t)size > limit || !made) {
    free(made);
    status = fail(error, GRAFT_ERROR_MEMORY, "out of device memory");
  } else {
    made->address = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    made->bytes = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(made->bytes, 0xA5, mapped);
    made->size = size;
    made->mapped = mapped;
    made->next = memories;
    memories = made;
    used += (int64_t)size;
    counts[LIVE]++;
    *memory = made->address;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

static void release(void *user, void *memory) {
  (void)user;
  pthread_mutex_lock(&lock);
  for (Memory **at = &memories; *at; at = &(*at)->next) {
    if ((*at)->address == memory) {
      Memory *dead = *at;
      *at = dead->next;
      used -= (int64_t)dead->size;
      counts[LIVE]--;
      munmap(dead->address, dead->mapped);
      munmap(dead->bytes, dead->mapped);
      free(dead);
      pthread_mutex_unlock(&lock);
      return;
    }
  }
  fprintf(stderr, "fake device: release of what is no memory\n");
  abort();
}

/* Where the bytes are; NULL with the device broken if they are not all in one allocation. */
static void *bytes_at(const void *address, size_t size) {
  for (const Memory *one = memories; one; one = one->next) {
    if ((const char *)address >= one->address && (const char *)address + size <= one->address + one->size) {
      return one->bytes + ((const char *)address - one->address);
    }
  }
  snprintf(broken, sizeof broken, "%zu bytes at %p are no memory of the device", size, (void *)(uintptr_t)address);
  return NULL;
}

/* ---- Kernels ---------------------------------------------------------------------------------------------------- */

typedef struct Machine {
  GraftContext base;
  void *scratch[MOST_SCRATCH];
  int count;
} Machine;

static int32_t run_serially(GraftContext *context, int64_t count, int64_t grain, GraftTask task, void *closure) {
  (void)grain;
  return count > 0 ? task(context, closure, 0, count) : GRAFT_OK;
}

static void *take_scratch(GraftContext *context, uint64_t bytes) {
  Machine *machine = (Machine *)context;
  void *block = machine->count < MOST_SCRATCH ? aligned_alloc(64, (bytes + 64) / 64 * 64) : NULL;
  return block ? machine->scratch[machine->count++] = block : NULL;
}

static int32_t fail_kernel(GraftContext *context, const char *format, ...) {
  (void)context;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(broken, sizeof broken, format, arguments);
  va_end(arguments);
  return GRAFT_ERROR_RUN;
}

static int32_t one_thread(GraftContext *context) {
  (void)context;
  return 1;
}

static const GraftApi MACHINE_API = {.abi_version = GRAFT_ABI_VERSION,
                                     .size = sizeof(GraftApi),
                                     .parallel_for = run_serially,
                                     .scratch = take_scratch,
                                     .fail = fail_kernel,
                                     .thread_count = one_thread};

static size_t size_of(const DLTensor *tensor) {
  size_t count = 1;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    count *= (size_t)tensor->shape[i];
  }
  return count * (tensor->dtype.bits / 8);
}

static void launch(Operation *operation) {
  Machine machine = {.base = {&MACHINE_API}};
  const DLTensor *pointers[MOST_TENSORS];
  for (int32_t i = 0; i < operation->input_count + operation->output_count; i++) {
    DLTensor *tensor = operation->tensors + i;
    pointers[i] = tensor->data ? tensor : NULL;
    if (tensor->data) {
      tensor->data = bytes_at(tensor->data, size_of(tensor));
    }
  }
  if (!broken[0] && operation->function(&machine.base, operation->state, pointers,
                                        (DLTensor *const *)(pointers + operation->input_count)) &&
      !broken[0]) {
    snprintf(broken, sizeof broken, "a kernel failed");
  }
  for (int i = 0; i < machine.count; i++) {
    free(machine.scratch[i]);
  }
}

static void copy_now(const Operation *operation) {
  void *target = operation->target;
  const void *source = operation->source;
  if (operation->direction != GRAFT_TO_HOST) target = bytes_at(target, operation->size);
  if (operation->direction != GRAFT_TO_DEVICE) source = bytes_at(source, operation->size);
  if (!broken[0]) memmove(target, source, operation->size);
}

/* ---- Streams ---------------------------------------------------------------------------------------------------- */

static void put(Stream *stream, Operation *operation) {
  operation->next = NULL;
  *stream->last = operation;
  stream->last = &operation->next;
  stream->put++;
}

static int32_t work(Stream *stream, int64_t place, GraftError *error) {
  while (stream->first && stream->done < place) {
    Operation *operation = stream->first;
    stream->first = operation->next;
    stream->last = stream->first ? stream->last : &stream->first;
    stream->done++;
    if (!broken[0]) {
      if (operation->function) {
        launch(operation);
      } else {
        copy_now(operation);
      }
    }
    free(operation->shapes);
    free(operation);
  }
  counts[WAITS]++;
  if (fails(WAIT)) {
    snprintf(broken, sizeof broken, "the device fell off the bus");
  }
  return broken[0] ? fail(error, GRAFT_ERROR_RUN, broken) : GRAFT_OK;
}

static int32_t create_stream(void *user, void **stream, GraftError *error) {
  (void)user;
  Stream *made = calloc(1, sizeof *made);
  if (!made) return fail(error, GRAFT_ERROR_MEMORY, "out of memory");
  made->last = &made->first;
  *stream = made;
  counts[STREAMS]++;
  return GRAFT_OK;
}

static void destroy_stream(void *user, void *stream) {
  (void)user;
  if (((Stream *)stream)->first) {
    fprintf(stderr, "fake device: a stream is destroyed with work on it\n");
    abort();
  }
  counts[STREAMS]--;
  free(stream);
}

static int32_t synchronize(void *user, void *stream, GraftError *error) {
  (void)user;
  pthread_mutex_lock(&lock);
  int32_t status = work(stream, ((Stream *)stream)->put, error);
  pthread_mutex_unlock(&lock);
  return status;
}

static int32_t create_event(void *user, void **event, GraftError *error) {
  (void)user;
  *event = calloc(1, sizeof(Event));
  counts[EVENTS]++;
  return *event ? GRAFT_OK : fail(error, GRAFT_ERROR_MEMORY, "out of memory");
}

static void destroy_event(void *user, void *event) {
  (void)user;
  counts[EVENTS]--;
  free(event);
}

static int32_t record(void *user, void *event, void *stream, GraftError *error) {
  (void)user, (void)error;
  *(Event *)event = (Event){stream, ((Stream *)stream)->put};
  return GRAFT_OK;
}

static int32_t wait_for(void *user, void *event, GraftError *error) {
  (void)user;
  Event *one = event;
  if (!one->stream) return GRAFT_OK;
  pthread_mutex_lock(&lock);
  int32_t status = work(one->stream, one->place, error);
  pthread_mutex_unlock(&lock);
  return status;
}

static int32_t copy(void *user, GraftCopyDirection direction, void *target, const void *source, uint64_t size,
                    void *stream, GraftError *error) {
  (void)user;
  Operation *made = calloc(1, sizeof *made);
  if (!made) return fail(error, GRAFT_ERROR_MEMORY, "out of memory");
  *made = (Operation){.direction = direction, .target = target, .source = source, .size = size};
  pthread_mutex_lock(&lock);
  int failed = broken[0] || fails(COPY);
  counts[TO_DEVICE + (int)direction] += !failed;
  if (!failed) put(stream, made);
  pthread_mutex_unlock(&lock);
  if (failed) free(made);
  return failed ? fail(error, GRAFT_ERROR_RUN, broken[0] ? broken : "the copy was refused") : GRAFT_OK;
}

static int32_t open_device(void *user, GraftError *error) {
  (void)user;
  pthread_mutex_lock(&lock);
  counts[PROGRAMS]++;
  pthread_mutex_unlock(&lock);
  const char *missing = getenv("GRAFT_FAKE_MISSING");
  if (missing && *missing) {
    counts[PROGRAMS]--;
    return fail(error, GRAFT_ERROR_LOADER, missing);
  }
  return GRAFT_OK;
}

static void close_device(void *user) {
  (void)user;
  pthread_mutex_lock(&lock);
  counts[PROGRAMS]--;
  pthread_mutex_unlock(&lock);
}

static const GraftDevice DEVICE = {.version = GRAFT_DEVICE_VERSION,
                                   .size = sizeof(GraftDevice),
                                   .name = "fake",
                                   .device = {FAKE_TYPE, 0},
                                   .open = open_device,
                                   .close = close_device,
                                   .allocate = allocate,
                                   .release = release,
                                   .create_stream = create_stream,
                                   .destroy_stream = destroy_stream,
                                   .synchronize = synchronize,
                                   .create_event = create_event,
                                   .destroy_event = destroy_event,
                                   .record = record,
                                   .wait = wait_for,
                                   .copy = copy};

EXPORT const GraftDevice *graft_device(int32_t id);
const GraftDevice *graft_device(int32_t id) { return id == 0 ? &DEVICE : NULL; }

/* ---- Modules: native images, whose functions are launched ------------------------------------------------------ */

typedef struct Kernel {
  struct Kernel *next;
  GraftFunction function;
  void *state;
} Kernel;

typedef struct Module {
  void *image;
  Kernel *kernels;
} Module;

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **module) {
  (void)user;
  Module *made = calloc(1, sizeof *made);
  int32_t status = made ? graft_native_loader.load(NULL, host, source, &made->image) : host->fail(host, "out of memory");
  if (status) free(made);
  *module = made;
  return status;
}

static int32_t add_tensor(GraftContext *context, Operation *operation, int32_t number, const DLTensor *tensor,
                          int64_t **shapes) {
  DLTensor *here = operation->tensors + number;
  if (!tensor) return GRAFT_OK;
  if (tensor->device.device_type != FAKE_TYPE) {
    return context->api->fail(context, "tensor %d is not in the memory of the device", number);
  }
  *here = *tensor;
  here->shape = memcpy(*shapes, tensor->shape, (size_t)tensor->ndim * sizeof(int64_t));
  *shapes += tensor->ndim;
  if (tensor->strides) {
    here->strides = memcpy(*shapes, tensor->strides, (size_t)tensor->ndim * sizeof(int64_t));
    *shapes += tensor->ndim;
  }
  return GRAFT_OK;
}

static int32_t run(GraftContext *base, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  const Kernel *kernel = state;
  const Call *call = ((Context *)base)->call; /* the numbers of tensors, which a real module knows itself */
  void *stream = base->api->stream(base, DEVICE.device);
  Operation *operation = calloc(1, sizeof *operation);
  int64_t *shapes = calloc(MOST_TENSORS * 2 * 8, sizeof(int64_t));
  if (!stream || !operation || !shapes || call->inputs.count + call->outputs.count > MOST_TENSORS) {
    free(operation);
    free(shapes);
    return base->api->fail(base, "the launch has no stream, or too many tensors");
  }
  operation->function = kernel->function;
  operation->state = kernel->state;
  operation->shapes = shapes;
  operation->input_count = call->inputs.count;
  operation->output_count = call->outputs.count;
  int32_t status = GRAFT_OK;
  for (int32_t i = 0; !status && i < call->inputs.count + call->outputs.count; i++) {
    const DLTensor *tensor = i < call->inputs.count ? inputs[i] : outputs[i - call->inputs.count];
    status = add_tensor(base, operation, i, tensor, &shapes);
  }
  pthread_mutex_lock(&lock);
  if (!status && (broken[0] || fails(LAUNCH))) {
    status = base->api->fail(base, "%s", broken[0] ? broken : "the launch was refused");
  }
  counts[LAUNCHES] += !status;
  if (!status) put(stream, operation);
  pthread_mutex_unlock(&lock);
  if (status) {
    free(operation->shapes);
    free(operation);
  }
  return status;
}

static int32_t lookup(void *user, const GraftLoaderHost *host, void *module, const char *name, GraftFunction *entry,
                      void **state) {
  (void)user;
  Module *self = module;
  Kernel *kernel = calloc(1, sizeof *kernel);
  if (!kernel) return host->fail(host, "out of memory");
  int32_t status = graft_native_loader.lookup(NULL, host, self->image, name, &kernel->function, &kernel->state);
  kernel->next = self->kernels;
  self->kernels = kernel;
  *entry = run;
  *state = kernel;
  return status;
}

static void unload(void *user, void *module) {
  (void)user;
  Module *self = module;
  while (self->kernels) {
    Kernel *next = self->kernels->next;
    free(self->kernels);
    self->kernels = next;
  }
  graft_native_loader.unload(NULL, self->image);
  free(self);
}

EXPORT const GraftLoader *graft_loader(void);
const GraftLoader *graft_loader(void) {
  static const GraftLoader LOADER = {GRAFT_ABI_VERSION, "fake", NULL, load, lookup, unload};
  return &LOADER;
}
