#include "device.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"

#define EXPORT __attribute__((visibility("default")))

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 3, 4))) static int32_t say(GraftError *error, int32_t code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  error->code = code;
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return code;
}

void graft_cuda_note_launch(CudaDevice *device, const char *text) {
  pthread_mutex_lock(&device->lock);
  snprintf(device->last, sizeof device->last, "%s", text);
  pthread_mutex_unlock(&device->lock);
}

int32_t graft_cuda_fail(CudaDevice *device, CudaResult result, const char *doing, GraftError *error) {
  char text[512];
  graft_cuda_describe(device->driver, result, doing, text, sizeof text);
  if (!graft_cuda_is_sticky(result)) {
    return say(error, result == CUDA_OUT_OF_MEMORY ? GRAFT_ERROR_MEMORY : GRAFT_ERROR_RUN, "%s", text);
  }
  pthread_mutex_lock(&device->lock);
  say(error, GRAFT_ERROR_RUN, "%s%s%s", text, *device->last ? "; what was launched last: " : "", device->last);
  pthread_mutex_unlock(&device->lock);
  return GRAFT_ERROR_RUN;
}

CudaResult graft_cuda_enter(const CudaDevice *device) { return device->driver->set_current(device->context); }

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static CudaResult read_facts(CudaDevice *device) {
  const CudaDriver *driver = device->driver;
  int major = 0, minor = 0;
  CudaResult result = driver->device(&device->id, device->number);
  result = result ? result : driver->device_name(device->name, sizeof device->name, device->id);
  result = result ? result : driver->attribute(&major, CUDA_MAJOR, device->id);
  result = result ? result : driver->attribute(&minor, CUDA_MINOR, device->id);
  result = result ? result : driver->attribute(&device->most_shared, CUDA_MOST_SHARED, device->id);
  result = result ? result : driver->attribute(&device->most_threads, CUDA_MOST_THREADS, device->id);
  device->arch = major * 10 + minor;
  result = result ? result : driver->retain(&device->context, device->id);
  return result ? result : graft_cuda_open_memory(device);
}

static int32_t start(CudaDevice *device, GraftError *error) {
  char message[512];
  int count = 0;
  device->driver = graft_cuda_driver(message, sizeof message);
  if (!device->driver) {
    return say(error, GRAFT_ERROR_LOADER, "%s", message);
  }
  CudaResult result = device->driver->device_count(&count);
  if (!result && device->number >= count) {
    return say(error, GRAFT_ERROR_LOADER, "there is no CUDA device %d; the driver sees %d (CUDA_VISIBLE_DEVICES may hide some)",
               device->number, count);
  }
  result = result ? result : read_facts(device);
  return result ? graft_cuda_fail(device, result, "opening the device", error) : GRAFT_OK;
}

int32_t graft_cuda_open(CudaDevice *device, GraftError *error) {
  pthread_mutex_lock(&device->lock);
  int is_first = device->users == 0;
  device->users++;
  pthread_mutex_unlock(&device->lock);
  int32_t status = is_first ? start(device, error) : GRAFT_OK;
  if (status) {
    pthread_mutex_lock(&device->lock);
    device->users--;
    pthread_mutex_unlock(&device->lock);
  }
  return status;
}

void graft_cuda_close(CudaDevice *device) {
  pthread_mutex_lock(&device->lock);
  if (--device->users == 0) {
    graft_cuda_close_memory(device);
    device->driver->release(device->id);
    device->last[0] = 0;
  }
  pthread_mutex_unlock(&device->lock);
}

static int32_t open_device(void *user, GraftError *error) { return graft_cuda_open(user, error); }

static void close_device(void *user) { graft_cuda_close(user); }

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* Calls the driver with the device current; the value is the code of this function. */
#define CALL(NAME, FUNCTION, ...)                                                                                      \
  CudaDevice *device = user;                                                                                           \
  CudaResult result = graft_cuda_enter(device);                                                                        \
  result = result ? result : device->driver->FUNCTION(__VA_ARGS__);                                                    \
  return result ? graft_cuda_fail(device, result, NAME, error) : GRAFT_OK

static int32_t allocate(void *user, uint64_t bytes, void **memory, GraftError *error) {
  CudaDevice *device = user;
  CudaAddress address = 0;
  CudaResult result = graft_cuda_enter(device);
  result = result ? result : graft_cuda_allocate(device, bytes, &address);
  *memory = (void *)(uintptr_t)address;
  return result ? graft_cuda_fail(device, result, "cuMemAlloc", error) : GRAFT_OK;
}

static void release(void *user, void *memory) {
  if (!graft_cuda_enter(user)) {
    graft_cuda_release(user, (CudaAddress)(uintptr_t)memory);
  }
}

/* Streams wait for what is on the default stream, and it for them: who hands tensors over without a stream is right. */
static int32_t create_stream(void *user, void **stream, GraftError *error) {
  CALL("cuStreamCreate", create_stream, stream, 0);
}

static void destroy_stream(void *user, void *stream) {
  CudaDevice *device = user;
  if (!graft_cuda_enter(device)) {
    graft_cuda_forget(device, stream, NULL);
    device->driver->destroy_stream(stream);
  }
}

static int32_t synchronize(void *user, void *stream, GraftError *error) {
  CudaDevice *device = user;
  CudaResult result = graft_cuda_enter(device);
  result = result ? result : device->driver->synchronize(stream);
  return result ? graft_cuda_fail(device, result, "cuStreamSynchronize", error)
                : graft_cuda_reported(device, stream, error);
}

static int32_t create_event(void *user, void **event, GraftError *error) {
  CALL("cuEventCreate", create_event, event, CUDA_EVENT_WITHOUT_TIME);
}

static void destroy_event(void *user, void *event) {
  CudaDevice *device = user;
  if (!graft_cuda_enter(device)) {
    device->driver->destroy_event(event);
  }
}

static int32_t record(void *user, void *event, void *stream, GraftError *error) {
  CALL("cuEventRecord", record, event, stream);
}

static int32_t wait_for(void *user, void *event, GraftError *error) { CALL("cuEventSynchronize", wait, event); }

static int32_t copy(void *user, GraftCopyDirection direction, void *target, const void *source, uint64_t bytes,
                    void *stream, GraftError *error) {
  CudaAddress to = (CudaAddress)(uintptr_t)target, from = (CudaAddress)(uintptr_t)source;
  switch (direction) {
    case GRAFT_TO_DEVICE: {
      CALL("cuMemcpyHtoDAsync", to_device, to, source, bytes, stream);
    }
    case GRAFT_TO_HOST: {
      CALL("cuMemcpyDtoHAsync", to_host, target, from, bytes, stream);
    }
    case GRAFT_WITHIN_DEVICE: {
      CALL("cuMemcpyDtoDAsync", within, to, from, bytes, stream);
    }
  }
  return GRAFT_OK;
}

static int32_t begin_capture(void *user, void *stream, GraftError *error) {
  CudaDevice *device = user;
  pthread_mutex_lock(&device->capture);
  CudaResult result = graft_cuda_enter(device);
  result = result ? result : device->driver->begin_capture(stream, CUDA_CAPTURE_THREAD);
  if (result) {
    pthread_mutex_unlock(&device->capture);
  }
  return result ? graft_cuda_fail(device, result, "cuStreamBeginCapture", error) : GRAFT_OK;
}

static int32_t end_capture(void *user, void *stream, void **graph, GraftError *error) {
  CudaDevice *device = user;
  CudaHandle captured = NULL;
  CudaResult result = graft_cuda_enter(device);
  result = result ? result : device->driver->end_capture(stream, &captured);
  pthread_mutex_unlock(&device->capture);
  result = result ? result : device->driver->instantiate(graph, captured, 0);
  if (captured) {
    device->driver->destroy_graph(captured);
  }
  return result ? graft_cuda_fail(device, result, "a CUDA graph", error) : GRAFT_OK;
}

static int32_t launch(void *user, void *graph, void *stream, GraftError *error) {
  CALL("cuGraphLaunch", launch_graph, graph, stream);
}

static void destroy_graph(void *user, void *graph) {
  CudaDevice *device = user;
  if (!graft_cuda_enter(device)) {
    device->driver->destroy_executable(graph);
  }
}

static int32_t pin(void *user, void *memory, uint64_t bytes, GraftError *error) {
  CALL("cuMemHostRegister", pin, memory, bytes, CUDA_PIN_FOR_ALL);
}

static void unpin(void *user, void *memory) {
  CudaDevice *device = user;
  if (!graft_cuda_enter(device)) {
    device->driver->unpin(memory);
  }
}

static const GraftDevice TABLE = {.version = GRAFT_DEVICE_VERSION,
                                  .size = sizeof(GraftDevice),
                                  .name = "cuda",
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
                                  .copy = copy,
                                  .begin_capture = begin_capture,
                                  .end_capture = end_capture,
                                  .launch = launch,
                                  .destroy_graph = destroy_graph,
                                  .pin = pin,
                                  .unpin = unpin};

static int has_locks(CudaDevice *device) {
  pthread_mutexattr_t attributes;
  return !pthread_mutex_init(&device->lock, NULL) && !pthread_mutexattr_init(&attributes) &&
         !pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE) &&
         !pthread_mutex_init(&device->capture, &attributes);
}

CudaDevice *graft_cuda_device(int number) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static CudaDevice devices[CUDA_DEVICES];
  if (number < 0 || number >= CUDA_DEVICES) {
    return NULL;
  }
  CudaDevice *device = devices + number;
  pthread_mutex_lock(&lock);
  if (!device->table.version && has_locks(device)) {
    device->number = number;
    device->table = TABLE;
    device->table.device = (DLDevice){kDLCUDA, number};
    device->table.user = device;
  }
  pthread_mutex_unlock(&lock);
  return device->table.version ? device : NULL;
}

/* For `graft backends doctor`: 0 with what the device is, or an error code with why there is none. */
EXPORT int32_t graft_cuda_probe(int32_t id, char *text, size_t size);

int32_t graft_cuda_probe(int32_t id, char *text, size_t size) {
  CudaDevice *device = graft_cuda_device(id);
  GraftError error = {0};
  int32_t status = device ? graft_cuda_open(device, &error) : say(&error, GRAFT_ERROR_LOADER, "there is no device %d", id);
  if (status) {
    snprintf(text, size, "%s", error.message);
    return status;
  }
  snprintf(text, size, "%s (sm_%d)", device->name, device->arch);
  graft_cuda_close(device);
  return GRAFT_OK;
}

EXPORT const GraftDevice *graft_device(int32_t id);

const GraftDevice *graft_device(int32_t id) {
  CudaDevice *device = graft_cuda_device(id);
  return device ? &device->table : NULL;
}
