/* What the tests of loaders share: a host that keeps what it is told, a run's context, and tensors on the device. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graft/device.h"

#define CHECK(CONDITION)                                                   \
  do {                                                                     \
    if (!(CONDITION)) {                                                    \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #CONDITION);      \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

const GraftLoader *graft_loader(void);
const GraftDevice *graft_device(int32_t id);

static char message[1024];

static int32_t say(const char *format, va_list arguments, int32_t code) {
  vsnprintf(message, sizeof message, format, arguments);
  return code;
}

static int32_t host_fail(const GraftLoaderHost *host, const char *format, ...) {
  va_list arguments;
  (void)host;
  va_start(arguments, format);
  int32_t code = say(format, arguments, GRAFT_ERROR_LOADER);
  va_end(arguments);
  return code;
}

static int32_t run_fail(GraftContext *context, const char *format, ...) {
  va_list arguments;
  (void)context;
  va_start(arguments, format);
  int32_t code = say(format, arguments, GRAFT_ERROR_RUN);
  va_end(arguments);
  return code;
}

static const GraftLoaderHost HOST = {GRAFT_ABI_VERSION, host_fail, -1, -1};
static void *stream, *scratch_on_device;
static char scratch_here[4096];

static void *stream_of(GraftContext *context, DLDevice device) {
  (void)context;
  return device.device_type == kDLCUDA && device.device_id == 0 ? stream : NULL;
}

static void *take_scratch(GraftContext *context, uint64_t bytes) {
  (void)context;
  return bytes <= sizeof scratch_here ? scratch_here : NULL;
}

static void *take_device_scratch(GraftContext *context, DLDevice device, uint64_t bytes) {
  const GraftDevice *table = graft_device(0);
  GraftError error;
  (void)context, (void)device;
  if (scratch_on_device) table->release(table->user, scratch_on_device);
  return table->allocate(table->user, bytes, &scratch_on_device, &error) ? NULL : scratch_on_device;
}

static const GraftApi API = {.abi_version = GRAFT_ABI_VERSION,
                             .size = sizeof(GraftApi),
                             .scratch = take_scratch,
                             .fail = run_fail,
                             .stream = stream_of,
                             .device_scratch = take_device_scratch};

static void *on_device(const GraftDevice *table, const void *bytes, size_t size) {
  GraftError error;
  void *memory;
  CHECK(table->allocate(table->user, size, &memory, &error) == GRAFT_OK);
  if (bytes) CHECK(table->copy(table->user, GRAFT_TO_DEVICE, memory, bytes, size, stream, &error) == GRAFT_OK);
  return memory;
}

/* Runs tests with the device open. */
static void with_device(void (*const *tests)(void), int count) {
  const GraftDevice *table = graft_device(0);
  GraftError error;
  CHECK(table->open(table->user, &error) == GRAFT_OK);
  CHECK(table->create_stream(table->user, &stream, &error) == GRAFT_OK);
  for (int i = 0; i < count; i++) tests[i]();
  if (scratch_on_device) table->release(table->user, scratch_on_device);
  table->destroy_stream(table->user, stream);
  table->close(table->user);
}
