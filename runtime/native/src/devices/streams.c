#include "devices/streams.h"

#include <inttypes.h>

#include "devices/devices.h"

int32_t graft_fail_device(Context *context, const GraftDevice *device, int32_t status, const char *doing,
                          const char *reason) {
  return graft_context_fail(context, status, "device '%s': %s%s%s", device->name, doing, *doing ? ": " : "", reason);
}

int32_t graft_device_reserve(Context *context, int32_t device, DeviceBlock *block, uint64_t bytes, const char *what) {
  const GraftDevice *table = graft_device_of(context->instance->program, device);
  if (block->memory && block->capacity >= bytes) {
    return GRAFT_OK;
  }
  graft_device_block_free(context->instance->program, device, block);
  GraftError error = {0};
  int32_t status = table->allocate(table->user, bytes ? bytes : 1, &block->memory, &error);
  if (status) {
    block->memory = NULL;
    return graft_context_fail(context, status, "device '%s': %" PRIu64 " bytes for %s: %s", table->name, bytes, what,
                              error.message);
  }
  block->capacity = bytes;
  return GRAFT_OK;
}

void graft_device_block_free(const GraftProgram *program, int32_t device, DeviceBlock *block) {
  if (block->memory) {
    const GraftDevice *table = graft_device_of(program, device);
    table->release(table->user, block->memory);
  }
  *block = (DeviceBlock){0};
}

DeviceStream *graft_device_stream(Context *context, int32_t device) {
  const GraftDevice *table = graft_device_of(context->instance->program, device);
  DeviceStream *stream = context->instance->streams + device - 1;
  if (!stream->stream) {
    GraftError error = {0};
    int32_t status = table->create_stream(table->user, &stream->stream, &error);
    if (status) {
      stream->stream = NULL;
      graft_fail_device(context, table, status, "no stream", error.message);
      return NULL;
    }
  }
  stream->is_busy = 1;
  return stream;
}

void graft_destroy_streams(Instance *instance) {
  for (int32_t i = 0; instance->streams && i < instance->program->device_count; i++) {
    const GraftDevice *table = instance->program->devices[i];
    DeviceStream *stream = instance->streams + i;
    for (int32_t k = 0; k < GRAFT_DEVICE_SCRATCH; k++) {
      graft_device_block_free(instance->program, i + 1, stream->scratch + k);
    }
    if (stream->stream) {
      table->destroy_stream(table->user, stream->stream);
    }
  }
}

static int32_t synchronize(Context *context, int32_t device) {
  const GraftDevice *table = graft_device_of(context->instance->program, device);
  DeviceStream *stream = context->instance->streams + device - 1;
  GraftError error = {0};
  if (!stream->is_busy) {
    return GRAFT_OK;
  }
  stream->is_busy = 0;
  int32_t status = table->synchronize(table->user, stream->stream, &error);
  return status ? graft_fail_device(context, table, status, "", error.message) : GRAFT_OK;
}

int32_t graft_finish_devices(Context *context) {
  int32_t status = GRAFT_OK;
  for (int32_t i = 1; i <= context->instance->program->device_count; i++) {
    int32_t one = synchronize(context, i);
    status = status ? status : one;
  }
  return status;
}

int32_t graft_device_copy(Context *context, int32_t device, GraftCopyDirection direction, void *target,
                          const void *source, uint64_t bytes) {
  const GraftDevice *table = graft_device_of(context->instance->program, device);
  DeviceStream *stream = graft_device_stream(context, device);
  GraftError error = {0};
  if (!stream) {
    return GRAFT_ERROR_RUN;
  }
  if (bytes == 0 || target == source) {
    return GRAFT_OK;
  }
  int32_t status = table->copy(table->user, direction, target, source, bytes, stream->stream, &error);
  return status ? graft_fail_device(context, table, status, "", error.message) : GRAFT_OK;
}
