#include "devices/border.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "devices/devices.h"
#include "devices/streams.h"
#include "state/tensor_memory.h"

/* An output on a device for which the runtime found the memory: where its shape lies. */
typedef struct DeviceOutput {
  int64_t shape[GRAFT_MAXIMUM_DIMENSIONS];
  const GraftDevice *device;
  void *memory;
  const GraftAllocator *allocator; /* of this */
} DeviceOutput;

/* ---- Inputs --------------------------------------------------------------------------------------------------- */

static int32_t stage_input(Context *context, Frame *entry, int32_t number, int32_t given) {
  const TensorSpec *spec = entry->procedure->tensors + number;
  DLTensor *tensor = entry->tensors + number;
  size_t bytes = graft_frame_bytes(entry, number);
  const void *source = tensor->data;
  if (given && spec->device) {
    return graft_context_fail(context, GRAFT_ERROR_INPUT, "input '%s' is on device '%s', and the program computes with it on '%s'; copy it there",
                              spec->name, graft_device_of(context->instance->program, given)->name,
                              graft_device_of(context->instance->program, spec->device)->name);
  }
  if (spec->device) {
    DeviceBlock *block = entry->device->staged + number;
    int32_t status = graft_device_reserve(context, spec->device, block, bytes, "an input");
    status = status ? status : graft_device_copy(context, spec->device, GRAFT_TO_DEVICE, block->memory, source, bytes);
    tensor->device = graft_device_of(context->instance->program, spec->device)->device;
    graft_frame_bind(entry, number, block->memory);
    return status;
  }
  int64_t *shape = tensor->shape;
  DLTensor copy = {.dtype = tensor->dtype};
  if (!graft_block_reserve(graft_memory_of(context), entry->blocks + number, &copy, tensor->ndim, shape, bytes)) {
    return graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory: %zu bytes for input '%s'", bytes, spec->name);
  }
  tensor->device = (DLDevice){kDLCPU, 0};
  graft_frame_bind(entry, number, copy.data);
  return graft_device_copy(context, given, GRAFT_TO_HOST, copy.data, source, bytes);
}

int32_t graft_stage_inputs(Context *context, Frame *entry) {
  const Procedure *procedure = entry->procedure;
  int32_t status = GRAFT_OK, downloads = 0;
  for (int32_t i = 0; !status && i < procedure->inputs.count; i++) {
    int32_t number = procedure->inputs.items[i];
    int32_t given = graft_device_number(context->instance->program, entry->tensors[number].device);
    if (given != procedure->tensors[number].device) {
      status = stage_input(context, entry, number, given);
      downloads |= given != 0;
    }
  }
  return status || !downloads ? status : graft_finish_devices(context);
}

/* ---- Outputs -------------------------------------------------------------------------------------------------- */

static int32_t allocate_output(Context *context, int32_t device, const TensorSpec *spec, const DLTensor *like,
                               uint64_t bytes, DLTensor *output) {
  const GraftDevice *table = graft_device_of(context->instance->program, device);
  DeviceOutput *made = graft_allocate(graft_memory_of(context), sizeof *made);
  GraftError error = {0};
  if (!made) {
    return graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory for output '%s'", spec->name);
  }
  int32_t status = table->allocate(table->user, bytes ? bytes : 1, &made->memory, &error);
  if (status) {
    graft_release(graft_memory_of(context), made);
    return graft_context_fail(context, status, "device '%s': %" PRIu64 " bytes for output '%s': %s", table->name, bytes,
                              spec->name, error.message);
  }
  made->device = table;
  made->allocator = graft_memory_of(context);
  if (like->ndim) {
    memcpy(made->shape, like->shape, (size_t)like->ndim * sizeof(int64_t));
  }
  *output = (DLTensor){
      .data = made->memory, .device = table->device, .ndim = like->ndim, .dtype = spec->dtype, .shape = made->shape};
  return GRAFT_OK;
}

void graft_free_device_output(DLTensor *output) {
  DeviceOutput *made = (DeviceOutput *)output->shape;
  if (made) {
    made->device->release(made->device->user, made->memory);
    graft_release(made->allocator, made);
  }
}

int32_t graft_prepare_border(Context *context, Frame *entry, int32_t i, const DLTensor *output, Result *result) {
  int32_t number = entry->procedure->outputs.items[i];
  const TensorSpec *spec = entry->procedure->tensors + number;
  const DLTensor *known = entry->tensors + number;
  int32_t wanted = graft_device_number(context->instance->program, output->device);
  size_t bytes = graft_frame_bytes(entry, number);
  if (wanted < 0 || (wanted && spec->device && wanted != spec->device)) {
    return graft_context_fail(context, GRAFT_ERROR_INPUT, "output '%s' is asked for on device type %" PRId32 ", number %" PRId32
                              ", where the program does not compute it; ask for it in main memory",
                              spec->name, output->device.device_type, output->device.device_id);
  }
  if (spec->device == 0) { /* it goes to a device when it is done */
    result->tensor = (DLTensor){.ndim = spec->ndim, .dtype = spec->dtype, .shape = known->shape, .device = {kDLCPU, 0}};
    if (graft_writes_in_place(entry->procedure, i) &&
        !graft_block_reserve(graft_memory_of(context), &result->block, &result->tensor, spec->ndim, known->shape, bytes)) {
      return graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory: %zu bytes for output '%s'", bytes, spec->name);
    }
    return GRAFT_OK;
  }
  if (wanted && output->data) {
    result->tensor = *output;
    return GRAFT_OK;
  }
  if (wanted) {
    int32_t status = allocate_output(context, wanted, spec, known, bytes, &result->tensor);
    result->delivered = status ? result->delivered : result->tensor;
    return status;
  }
  int32_t status = graft_device_reserve(context, spec->device, entry->device->staged + number, bytes, "an output");
  result->tensor = (DLTensor){.data = entry->device->staged[number].memory, .ndim = spec->ndim, .dtype = spec->dtype,
                              .shape = known->shape, .device = known->device};
  return status;
}

/* Puts what the procedure has on a device into main memory, or the other way round. */
int32_t graft_deliver_border(Context *context, Frame *entry, int32_t i, const DLTensor *output, Result *result) {
  const TensorSpec *spec = entry->procedure->tensors + entry->procedure->outputs.items[i];
  int32_t wanted = graft_device_number(context->instance->program, output->device), status = GRAFT_OK;
  DLTensor *made = &result->delivered;
  size_t bytes = 0;
  graft_tensor_bytes(result->tensor.dtype, result->tensor.ndim, result->tensor.shape, &bytes);
  if (wanted == spec->device) {
    *made = result->tensor;
    return GRAFT_OK;
  }
  if (output->data) {
    *made = *output;
  } else if (wanted) {
    status = allocate_output(context, wanted, spec, &result->tensor, bytes, made);
  } else {
    *made = (DLTensor){.dtype = spec->dtype, .device = {kDLCPU, 0}};
    if (!graft_block_reserve(graft_memory_of(context), &result->block, made, result->tensor.ndim, result->tensor.shape, bytes)) {
      made->data = NULL;
      status = graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory: %zu bytes for output '%s'", bytes, spec->name);
    }
  }
  return status ? status
                : graft_device_copy(context, wanted ? wanted : spec->device, wanted ? GRAFT_TO_DEVICE : GRAFT_TO_HOST,
                                    (char *)made->data + made->byte_offset, result->tensor.data, bytes);
}

void graft_settle_border(int32_t status, DLTensor *output, Result *result) {
  int is_new = result->delivered.data && !output->data;
  if (status && is_new && !graft_is_main_memory(result->delivered.device)) {
    graft_free_device_output(&result->delivered);
  }
  if (status || result->delivered.shape != result->block.start) {
    graft_block_free(&result->block);
  }
  if (!status) {
    *output = result->delivered;
  }
}
