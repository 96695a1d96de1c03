#include "devices/devices.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum { ALIGNMENT = 64 };

int32_t graft_device_number(const GraftProgram *program, DLDevice device) {
  if (graft_is_main_memory(device)) {
    return 0;
  }
  for (int32_t i = 0; i < program->device_count; i++) {
    DLDevice own = program->devices[i]->device;
    if (own.device_type == device.device_type && own.device_id == device.device_id) {
      return i + 1;
    }
  }
  return -1;
}

static int32_t fail_missing(const DeviceSpec *spec, GraftError *error) {
  graft_set_error(error, GRAFT_ERROR_LOADER, "no device '%s', which the program computes on", spec->name);
  if (error && *spec->plugin) {
    graft_append(error->message, sizeof error->message, "; plugin '%s' provides it", spec->plugin);
  }
  if (error && *spec->install) {
    graft_append(error->message, sizeof error->message, "; install it with: %s", spec->install);
  }
  return GRAFT_ERROR_LOADER;
}

static int32_t open_device(GraftProgram *program, const DeviceSpec *spec, GraftError *error) {
  const GraftDevice *found = NULL;
  GraftError own = {0};
  for (size_t i = 0; !found && i < program->source.device_count; i++) {
    const GraftDevice *device = program->source.devices[i];
    found = device && device->name && strcmp(device->name, spec->name) == 0 ? device : NULL;
  }
  if (!found) {
    return fail_missing(spec, error);
  }
  if (found->version != GRAFT_DEVICE_VERSION || found->size < GRAFT_DEVICE_LEAST) {
    return graft_set_error(error, GRAFT_ERROR_LOADER,
                           "device '%s' was built for version %" PRIu32
                           " of Graft's device interface, and this runtime has version %d; update plugin '%s'",
                           spec->name, found->version, GRAFT_DEVICE_VERSION, spec->plugin);
  }
  int32_t status = found->open(found->user, &own);
  if (status) {
    return graft_set_error(error, status == GRAFT_ERROR_MEMORY ? status : GRAFT_ERROR_LOADER,
                           "device '%s' cannot be used: %s", spec->name, own.message);
  }
  program->devices[program->device_count++] = found;
  return GRAFT_OK;
}

int32_t graft_open_devices(GraftProgram *program, GraftError *error) {
  size_t count = (size_t)program->manifest.device_count;
  if (count == 0) {
    return GRAFT_OK;
  }
  program->devices = graft_store_allocate(&program->store, count, sizeof *program->devices);
  program->device_constants = graft_store_allocate(&program->store, count, sizeof(void *));
  if (!program->devices || !program->device_constants) {
    return graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory while creating a program");
  }
  for (size_t i = 0; i < count; i++) {
    GRAFT_TRY(open_device(program, program->manifest.devices + i, error));
  }
  return GRAFT_OK;
}

/* Which constants are read on a device: where in its memory they are to lie, or -1. Gives the bytes of all of them. */
static uint64_t lay_out(const GraftProgram *program, int32_t device, int64_t *places) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < program->source.constant_count; i++) {
    places[i] = -1;
  }
  for (int32_t i = 0; i < program->manifest.procedure_count; i++) {
    const Procedure *procedure = program->manifest.procedures + i;
    for (int32_t k = 0; k < procedure->tensor_count; k++) {
      const TensorSpec *spec = procedure->tensors + k;
      if (spec->storage == STORAGE_CONSTANT && spec->device == device && places[spec->data - program->constants] < 0) {
        places[spec->data - program->constants] = (int64_t)bytes;
        bytes += (spec->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      }
    }
  }
  return bytes;
}

/* Gives the specifications tensors that have the bytes on the device. */
static int32_t point_constants(GraftProgram *program, int32_t device, const int64_t *places, GraftError *error) {
  for (int32_t i = 0; i < program->manifest.procedure_count; i++) {
    const Procedure *procedure = program->manifest.procedures + i;
    for (int32_t k = 0; k < procedure->tensor_count; k++) {
      TensorSpec *spec = procedure->tensors + k;
      if (spec->storage != STORAGE_CONSTANT || spec->device != device) {
        continue;
      }
      DLTensor *there = graft_store_allocate(&program->store, 1, sizeof *there);
      if (!there) {
        return graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory while creating a program");
      }
      *there = *spec->data;
      there->data = (char *)program->device_constants[device - 1] + places[spec->data - program->constants];
      there->device = graft_device_of(program, device)->device;
      spec->data = there;
    }
  }
  return GRAFT_OK;
}

static int32_t copy_constants(GraftProgram *program, int32_t device, const int64_t *places, GraftError *error) {
  const GraftDevice *table = graft_device_of(program, device);
  void *stream = NULL;
  GRAFT_TRY(table->create_stream(table->user, &stream, error));
  int32_t status = GRAFT_OK;
  for (size_t i = 0; !status && i < program->source.constant_count; i++) {
    const DLTensor *tensor = program->constants + i;
    size_t bytes = 0;
    graft_tensor_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes);
    if (places[i] >= 0 && bytes) {
      status = table->copy(table->user, GRAFT_TO_DEVICE, (char *)program->device_constants[device - 1] + places[i],
                           tensor->data, bytes, stream, error);
    }
  }
  GraftError unheard;
  int32_t done = table->synchronize(table->user, stream, status ? &unheard : error);
  table->destroy_stream(table->user, stream);
  return status ? status : done;
}

static int32_t upload(GraftProgram *program, int32_t device, int64_t *places, GraftError *error) {
  const GraftDevice *table = graft_device_of(program, device);
  GraftError own = {0};
  uint64_t bytes = lay_out(program, device, places);
  if (bytes == 0) {
    return point_constants(program, device, places, error);
  }
  GRAFT_TRY(graft_check_constants(program, NULL, error));
  int32_t status = table->allocate(table->user, bytes, program->device_constants + device - 1, &own);
  status = status ? status : copy_constants(program, device, places, &own);
  if (status) {
    return graft_set_error(error, status, "%" PRIu64 " bytes of constants cannot be put on device '%s': %s", bytes,
                           table->name, own.message);
  }
  return point_constants(program, device, places, error);
}

int32_t graft_upload_constants(GraftProgram *program, GraftError *error) {
  if (program->device_count == 0) {
    return GRAFT_OK;
  }
  int64_t *places = graft_allocate_zeroed(program->memory, program->source.constant_count, sizeof *places);
  if (!places) {
    return graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory while creating a program");
  }
  int32_t status = GRAFT_OK;
  for (int32_t i = 1; !status && i <= program->device_count; i++) {
    status = upload(program, i, places, error);
  }
  graft_release(program->memory, places);
  return status;
}

void graft_close_devices(GraftProgram *program) {
  for (int32_t i = program->device_count - 1; i >= 0; i--) {
    const GraftDevice *device = program->devices[i];
    if (program->device_constants[i]) {
      device->release(device->user, program->device_constants[i]);
    }
    device->close(device->user);
  }
  program->device_count = 0;
}
