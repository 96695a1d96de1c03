#include "devices/device_frames.h"

#include "devices/devices.h"
#include "devices/graphs.h"
#include "devices/streams.h"
#include "state/tensor_memory.h"

int graft_create_device_frame(Store *store, const Procedure *procedure, const GraftProgram *program, Frame *frame) {
  if (!procedure->uses_devices) {
    return 1;
  }
  size_t devices = (size_t)program->device_count;
  DeviceFrame *device = frame->device = graft_store_allocate(store, 1, sizeof *device);
  if (!device) {
    return 0;
  }
  device->arenas = graft_store_allocate(store, devices, sizeof(DeviceBlock));
  device->stage_arenas = graft_store_allocate(store, devices * (size_t)procedure->stage_count, sizeof(DeviceBlock));
  device->staged = graft_store_allocate(store, (size_t)procedure->tensor_count, sizeof(DeviceBlock));
  device->events = graft_store_allocate(store, (size_t)procedure->call_count, sizeof(void *));
  device->series = graft_store_allocate(store, (size_t)procedure->call_count, sizeof(Series));
  device->pinned = graft_store_allocate(store, devices, sizeof(void *));
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    int32_t number = procedure->tensors[i].device;
    frame->tensors[i].device = number ? graft_device_of(program, number)->device : (DLDevice){kDLCPU, 0};
  }
  return device->arenas && device->stage_arenas && device->staged && device->events && device->series &&
         device->pinned;
}

static int32_t create_event(Context *context, const Frame *frame, int32_t number) {
  const Call *call = frame->procedure->calls + number;
  const GraftDevice *table = graft_device_of(context->instance->program, call->device);
  GraftError error = {0};
  if (frame->device->events[number]) {
    return GRAFT_OK;
  }
  int32_t status = table->create_event(table->user, frame->device->events + number, &error);
  if (status) {
    frame->device->events[number] = NULL;
    return graft_fail_device(context, table, status, "no event", error.message);
  }
  return GRAFT_OK;
}

/* Whether a call copies from a device to main memory. */
static int is_download(const Procedure *procedure, const Call *call) {
  return call->kind == CALL_COPY && call->device && procedure->tensors[call->outputs.items[0]].device == 0;
}

static int32_t place_arenas(Context *context, Frame *frame) {
  const Procedure *procedure = frame->procedure;
  for (int32_t i = 0; graft_is_planned(procedure) && i < context->instance->program->device_count; i++) {
    if (procedure->device_arenas[i]) {
      GRAFT_TRY(graft_device_reserve(context, i + 1, frame->device->arenas + i, procedure->device_arenas[i],
                                     "an arena"));
    }
  }
  for (int32_t i = 0; graft_is_planned(procedure) && i < procedure->tensor_count; i++) {
    const TensorSpec *spec = procedure->tensors + i;
    if (spec->storage == STORAGE_ARENA && spec->device) {
      graft_frame_bind(frame, i, (char *)frame->device->arenas[spec->device - 1].memory + spec->offset);
    }
  }
  return GRAFT_OK;
}

/* The bytes of main memory's arena, planned once, that copies from and to devices read and write: from `low` to below the
 * value. */
static uint64_t copied(const Procedure *procedure, uint64_t *low) {
  uint64_t high = 0;
  *low = UINT64_MAX;
  for (int32_t i = 0; graft_is_planned(procedure) && i < procedure->call_count; i++) {
    const Call *call = procedure->calls + i;
    if (call->kind != CALL_COPY || !call->device) {
      continue;
    }
    const int32_t ends[] = {call->inputs.items[0], call->outputs.items[0]};
    for (int k = 0; k < 2; k++) {
      const TensorSpec *spec = procedure->tensors + procedure->tensors[ends[k]].root;
      if (spec->storage == STORAGE_ARENA && !spec->device && spec->room) {
        *low = spec->offset < *low ? spec->offset : *low;
        high = spec->offset + spec->room > high ? spec->offset + spec->room : high;
      }
    }
  }
  return high;
}

/* Memory that another process sees stays as it is. */
static void pin(Context *context, Frame *frame) {
  uint64_t low, high = copied(frame->procedure, &low);
  for (int32_t i = 0; high && !frame->memory && i < context->instance->program->device_count; i++) {
    const GraftDevice *table = graft_device_of(context->instance->program, i + 1);
    GraftError error = {0};
    if (table->size >= sizeof(GraftDevice) && table->pin &&
        table->pin(table->user, frame->arena + low, high - low, &error) == GRAFT_OK) {
      frame->device->pinned[i] = frame->arena + low;
    }
  }
}

int32_t graft_place_device_frame(Context *context, Frame *frame) {
  if (frame->device->is_placed) {
    return GRAFT_OK;
  }
  int32_t status = place_arenas(context, frame);
  for (int32_t i = 0; !status && i < frame->procedure->call_count; i++) {
    if (is_download(frame->procedure, frame->procedure->calls + i)) {
      status = create_event(context, frame, i);
    }
  }
  if (!status) {
    pin(context, frame);
  }
  frame->device->is_placed = status == GRAFT_OK;
  return status;
}

void graft_destroy_device_frame(Frame *frame, const GraftProgram *program) {
  const Procedure *procedure = frame->procedure;
  DeviceFrame *device = frame->device;
  if (!device) {
    return;
  }
  for (int32_t i = 0; i < program->device_count; i++) {
    if (device->pinned && device->pinned[i]) {
      const GraftDevice *table = graft_device_of(program, i + 1);
      table->unpin(table->user, device->pinned[i]);
    }
    if (device->arenas) {
      graft_device_block_free(program, i + 1, device->arenas + i);
    }
    for (int32_t k = 0; device->stage_arenas && k < procedure->stage_count; k++) {
      graft_device_block_free(program, i + 1, device->stage_arenas + k * program->device_count + i);
    }
  }
  for (int32_t i = 0; device->staged && i < procedure->tensor_count; i++) {
    if (device->staged[i].memory) {
      graft_device_block_free(program, procedure->tensors[i].device, device->staged + i);
    }
  }
  for (int32_t i = 0; device->series && i < procedure->call_count; i++) {
    graft_drop_series(program, procedure->calls[i].device, device->series + i);
  }
  for (int32_t i = 0; device->events && i < procedure->call_count; i++) {
    if (device->events[i]) {
      const GraftDevice *table = graft_device_of(program, procedure->calls[i].device);
      table->destroy_event(table->user, device->events[i]);
    }
  }
}

int32_t graft_run_transfer(Context *context, Frame *frame, const Call *call) {
  const Procedure *procedure = frame->procedure;
  int32_t from = call->inputs.items[0], to = call->outputs.items[0], number = (int32_t)(call - procedure->calls);
  size_t bytes = graft_frame_bytes(frame, from);
  if (bytes != graft_frame_bytes(frame, to)) {
    return graft_context_fail(context, GRAFT_ERROR_RUN, "tensor '%s' has %zu bytes, and '%s', which it is copied to, has %zu",
                              procedure->tensors[from].name, bytes, procedure->tensors[to].name,
                              graft_frame_bytes(frame, to));
  }
  GraftCopyDirection direction = !procedure->tensors[from].device ? GRAFT_TO_DEVICE
                                 : procedure->tensors[to].device  ? GRAFT_WITHIN_DEVICE
                                                                  : GRAFT_TO_HOST;
  int32_t status = graft_device_copy(context, call->device, direction, frame->tensors[to].data,
                                     frame->tensors[from].data, bytes);
  if (status || direction != GRAFT_TO_HOST) {
    return status;
  }
  const GraftDevice *table = graft_device_of(context->instance->program, call->device);
  GraftError error = {0};
  status = table->record(table->user, frame->device->events[number], graft_device_stream(context, call->device)->stream,
                         &error);
  return status ? graft_fail_device(context, table, status, "", error.message) : GRAFT_OK;
}

int32_t graft_wait_transfers(Context *context, const Frame *frame, const Call *call) {
  for (int32_t i = 0; i < call->waits.count; i++) {
    const Call *copy = frame->procedure->calls + call->waits.items[i];
    const GraftDevice *table = graft_device_of(context->instance->program, copy->device);
    GraftError error = {0};
    int32_t status = table->wait(table->user, frame->device->events[call->waits.items[i]], &error);
    if (status) {
      return graft_fail_device(context, table, status, "", error.message);
    }
  }
  return GRAFT_OK;
}
