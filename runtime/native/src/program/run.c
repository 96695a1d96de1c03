#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/platform.h"
#include "devices/border.h"
#include "devices/devices.h"
#include "devices/streams.h"
#include "execute/append.h"
#include "execute/execute.h"
#include "execute/values.h"
#include "program/program.h"

static int32_t fail_type(const char *what, const Procedure *main, const TensorSpec *spec, const int64_t *shape,
                         const DLTensor *tensor, GraftError *error) {
  char expected[256] = "", got[256] = "";
  if (shape == spec->shape && spec->ndim >= 0) {
    graft_append_dimensions(expected, sizeof expected, main, spec);
  } else if (spec->ndim >= 0) {
    graft_append_shape(expected, sizeof expected, spec->ndim, shape);
  }
  graft_append_shape(got, sizeof got, tensor->ndim, tensor->shape);
  return graft_set_error(error, GRAFT_ERROR_INPUT, "%s '%s' must be %s%s, got %s%s", what, spec->name,
                         graft_dtype_name(spec->dtype), expected, graft_dtype_name(tensor->dtype), got);
}

/* What grows may be rows of a larger buffer. */
static int has_right_strides(const TensorSpec *spec, const DLTensor *tensor) {
  return spec->grows < 0 ? graft_is_contiguous(tensor) : graft_block_pitch(tensor, spec->grows) >= 0;
}

/* It is neither in main memory nor on a device of the program. */
static int32_t fail_place(const char *what, const GraftProgram *program, const TensorSpec *spec, const DLTensor *tensor,
                          GraftError *error) {
  int32_t type = tensor->device.device_type;
  if (program->device_count == 0) {
    return graft_set_error(error, GRAFT_ERROR_INPUT, "%s '%s' is on device type %" PRId32 ", not in main memory; copy it there", what,
                           spec->name, type);
  }
  graft_set_error(error, GRAFT_ERROR_INPUT, "%s '%s' is on device type %" PRId32 ", number %" PRId32
                  ", and the program computes in main memory", what, spec->name, type, tensor->device.device_id);
  for (int32_t i = 0; error && i < program->device_count; i++) {
    const GraftDevice *device = program->devices[i];
    graft_append(error->message, sizeof error->message, " and on '%s' (type %" PRId32 ", number %" PRId32 ")",
                 device->name, device->device.device_type, device->device.device_id);
  }
  if (error) graft_append(error->message, sizeof error->message, "; copy it there");
  return GRAFT_ERROR_INPUT;
}

/* The tensor must be what the specification says, contiguous and in main memory. `shape` is that of the specification,
 * or what is known of it now; -1 stands for any extent. */
static int32_t check_tensor(const char *what, const GraftProgram *program, const Procedure *main,
                            const TensorSpec *spec, const int64_t *shape, const DLTensor *tensor, GraftError *error) {
  int same_shape = spec->ndim < 0 ? tensor->ndim >= 0 && tensor->ndim <= GRAFT_MAXIMUM_DIMENSIONS
                                  : spec->ndim == tensor->ndim;
  for (int32_t i = 0; same_shape && i < spec->ndim; i++) {
    same_shape = tensor->shape[i] == shape[i] || shape[i] < 0;
  }
  size_t bytes;
  if (tensor->device.device_type != kDLCPU && tensor->device.device_type != kDLCUDAHost &&
      graft_device_number(program, tensor->device) <= 0) {
    return fail_place(what, program, spec, tensor, error);
  }
  if (!same_shape || !graft_dtype_equal(spec->dtype, tensor->dtype)) {
    return fail_type(what, main, spec, shape, tensor, error);
  }
  if (!graft_tensor_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes) || (bytes && !tensor->data)) {
    return graft_set_error(error, GRAFT_ERROR_INPUT, "%s '%s' has no data", what, spec->name);
  }
  if (!has_right_strides(spec, tensor)) {
    return graft_set_error(error, GRAFT_ERROR_INPUT,
                           spec->grows < 0 ? "%s '%s' is not contiguous; pass a row-major copy"
                                           : "%s '%s' is neither contiguous nor the first rows of a contiguous buffer",
                           what, spec->name);
  }
  return GRAFT_OK;
}

static int32_t check_inputs(const GraftProgram *program, const DLTensor *inputs, GraftError *error) {
  const Procedure *main = program->manifest.procedures;
  for (int32_t i = 0; i < main->inputs.count; i++) {
    const TensorSpec *spec = main->tensors + main->inputs.items[i];
    GRAFT_TRY(check_tensor("input", program, main, spec, spec->shape, inputs + i, error));
  }
  return GRAFT_OK;
}

/* What the inputs have to be is what the general entry says; a variant runs those that fit it. */
static int32_t bind_inputs(Instance *instance, const DLTensor *inputs, GraftError *error) {
  const Manifest *manifest = &instance->program->manifest;
  GRAFT_TRY(check_inputs(instance->program, inputs, error));
  int32_t status = GRAFT_OK;
  instance->entry = instance->frames + graft_choose_entry(manifest, inputs);
  for (int32_t i = 0; !status && i < instance->entry->procedure->inputs.count; i++) {
    DLTensor value = inputs[i];
    if (!value.data) {
      value.data = instance->context.message; /* empty tensors are not read, but NULL means absent */
    }
    status = graft_bind_input(&instance->context, instance->entry, i, &value) ? GRAFT_ERROR_INPUT : GRAFT_OK;
    instance->entry->tensors[instance->entry->procedure->inputs.items[i]].device = value.device;
  }
  status = status ? status : graft_enter(&instance->context, instance->entry);
  return status ? graft_set_error(error, status, "%s", instance->context.message) : GRAFT_OK;
}

const DLTensor *graft_run_output(const Instance *instance, int32_t i) {
  const Frame *main = instance->entry;
  int32_t number = main->procedure->outputs.items[i];
  const TensorSpec *spec = main->procedure->tensors + number;
  return spec->stage == 0 && !spec->is_unknown ? main->tensors + number : NULL;
}

/* In the memory of what it appends to, it has the rows where they are. */
static int32_t check_appended(const Frame *frame, const TensorSpec *spec, const DLTensor *output, GraftError *error) {
  const DLTensor *past = frame->tensors + spec->past;
  if (past->shape[spec->grows] == 0 || past->data != (char *)output->data + output->byte_offset ||
      graft_appends_in_place(past, output, spec->grows)) {
    return GRAFT_OK;
  }
  return graft_set_error(error, GRAFT_ERROR_INPUT,
                         "output '%s' begins where input '%s' does, but has other strides; give both those of one buffer",
                         spec->name, frame->procedure->tensors[spec->past].name);
}

static int is_border(const Instance *instance, int32_t i, const DLTensor *output) {
  const Procedure *main = instance->entry->procedure;
  return main->tensors[main->outputs.items[i]].device || !graft_is_main_memory(output->device);
}

static int32_t prepare_output(Instance *instance, int32_t i, const DLTensor *output, Result *result,
                              GraftError *error) {
  const Procedure *main = instance->entry->procedure;
  const TensorSpec *spec = main->tensors + main->outputs.items[i];
  const DLTensor *known = graft_run_output(instance, i);
  int64_t *shape = known ? known->shape : spec->shape;
  result->tensor = *output;
  if (output->data) {
    GRAFT_TRY(check_tensor("output", instance->program, main, spec, shape, output, error));
    if (spec->grows >= 0) {
      GRAFT_TRY(check_appended(instance->entry, spec, output, error));
    }
  }
  if (is_border(instance, i, output)) {
    int32_t status = graft_prepare_border(&instance->context, instance->entry, i, output, result);
    return status ? graft_set_error(error, status, "%s", instance->context.message) : GRAFT_OK;
  }
  if (output->data) {
    return GRAFT_OK;
  }
  result->tensor = (DLTensor){.ndim = spec->ndim, .dtype = spec->dtype, .shape = shape, .device = {kDLCPU, 0}};
  if (graft_writes_in_place(main, i)) {
    size_t bytes = graft_frame_bytes(instance->entry, main->outputs.items[i]);
    if (!graft_block_reserve(instance->program->memory, &result->block, &result->tensor, spec->ndim, shape, bytes)) {
      return graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory: %zu bytes for output '%s'", bytes, spec->name);
    }
  }
  return GRAFT_OK;
}

/* Runs the entry; what is put on devices is done when this returns. */
static int32_t run_entry(Instance *instance, const DLTensor *outputs, Result *results) {
  Context *context = &instance->context;
  Frame *entry = instance->entry;
  if (instance->program->device_count == 0) {
    return graft_run_procedure(context, entry, results);
  }
  int32_t status = graft_stage_inputs(context, entry);
  status = status ? status : graft_run_procedure(context, entry, results);
  for (int32_t i = 0; !status && i < entry->procedure->outputs.count; i++) {
    if (is_border(instance, i, outputs + i)) {
      status = graft_deliver_border(context, entry, i, outputs + i, results + i);
    }
  }
  int32_t finished = graft_finish_devices(context);
  return status ? status : finished;
}

static int32_t run_main(Instance *instance, DLTensor *outputs, Result *results, GraftError *error) {
  int32_t count = instance->entry->procedure->outputs.count, status = GRAFT_OK;
  memset(results, 0, (size_t)count * sizeof(Result));
  for (int32_t i = 0; !status && i < count; i++) {
    status = prepare_output(instance, i, outputs + i, results + i, error);
  }
  if (!status) {
    status = run_entry(instance, outputs, results);
    if (status) {
      const Stop *stop = instance->context.stop;
      int32_t code = status == GRAFT_ERROR_MEMORY ? GRAFT_ERROR_MEMORY : GRAFT_ERROR_RUN;
      code = instance->refused ? GRAFT_ERROR_INPUT : stop && stop->status ? stop->status : code;
      status = graft_set_error(error, code, "%s", instance->context.message);
    }
  }
  for (int32_t i = 0; i < count; i++) {
    int at_border = is_border(instance, i, outputs + i);
    if (at_border) {
      graft_settle_border(status, outputs + i, results + i);
    } else if (status) {
      graft_block_free(&results[i].block);
    } else {
      outputs[i] = results[i].tensor;
    }
  }
  return status;
}

int32_t graft_run_begin(GraftProgram *program, const DLTensor *inputs, Instance **started, GraftError *error) {
  Instance *instance = graft_acquire_instance(program);
  if (!instance) {
    return graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory for another call of the program");
  }
  Context *context = &instance->context;
  ScratchMark mark = graft_scratch_mark(&context->scratch);
  context->message[0] = 0;
  int32_t status = bind_inputs(instance, inputs, error);
  graft_scratch_release(&context->scratch, mark);
  if (status) {
    graft_release_instance(instance);
    return status;
  }
  *started = instance;
  return GRAFT_OK;
}

/* The elements of all inputs of a run. */
static int64_t input_elements(const Instance *instance) {
  const Procedure *procedure = instance->entry->procedure;
  int64_t total = 0;
  for (int32_t i = 0; i < procedure->inputs.count; i++) {
    const DLTensor *tensor = instance->entry->tensors + procedure->inputs.items[i];
    int64_t elements = 1;
    for (int32_t d = 0; d < tensor->ndim; d++) {
      elements *= tensor->shape[d];
    }
    total += elements;
  }
  return total;
}

/* Runs the main procedure and shares its loops in the way that takes the least time. */
static int32_t run_shared(Instance *instance, DLTensor *outputs, Result *results, GraftError *error) {
  Context *context = &instance->context;
  GraftThreadPool *pool = context->pool;
  if (!pool) {
    return run_main(instance, outputs, results, error);
  }
  SharingTrial trial;
  uintptr_t work = (uintptr_t)instance->entry->procedure;
  int way = graft_sharing_begin(&instance->program->sharing, work, input_elements(instance), &trial);
  context->grain_scale = graft_sharing_scales[way];
  context->pool = context->grain_scale ? pool : NULL;
  int32_t status = run_main(instance, outputs, results, error);
  context->pool = pool;
  context->grain_scale = 1;
  graft_sharing_end(&trial);
  return status;
}

int32_t graft_run_end(Instance *instance, DLTensor *outputs, GraftRunDetails *details, GraftError *error) {
  GraftProgram *program = instance->program;
  int entered = program->pool && graft_pool_enter(program->pool);
  Context *context = &instance->context;
  ScratchMark mark = graft_scratch_mark(&context->scratch);
  instance->failed = NULL;
  instance->refused = 0;
  instance->timing = details->timing;
  instance->depth = 0;
  instance->user = details->user;
  context->message[0] = 0;
  int32_t status = graft_check_constants(program, &context->base, error);
  context->stop = details->stop;
  if (!status) {
    Result *results = graft_call_memory(context, (size_t)instance->entry->procedure->outputs.count, sizeof *results);
    status = results ? run_shared(instance, outputs, results, error)
                     : graft_set_error(error, GRAFT_ERROR_MEMORY, "%s", context->message);
  }
  graft_scratch_release(&context->scratch, mark);
  context->stop = NULL;
  details->failed = instance->failed;
  details->procedure = (int32_t)(instance->entry - instance->frames);
  if (entered) {
    graft_pool_leave(program->pool);
  }
  graft_release_instance(instance);
  return status;
}

void graft_cancel(GraftCancelToken *token) { __atomic_store_n(&token->is_cancelled, 1, __ATOMIC_RELAXED); }

int32_t graft_program_run(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs, GraftError *error) {
  return graft_program_run_with(program, inputs, outputs, NULL, error);
}

int32_t graft_program_run_with(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs,
                               const GraftRunOptions *options, GraftError *error) {
  GraftRunOptions taken = {0};
  GRAFT_TRY(graft_take_options("GraftRunOptions", options, &taken, sizeof taken, error));
  Stop stop = {.token = taken.cancel};
  if (taken.nanoseconds) {
    int64_t now = graft_nanoseconds();
    stop.end = taken.nanoseconds < INT64_MAX - now ? now + taken.nanoseconds : INT64_MAX;
  }
  Timing timing = {taken.timed, taken.user};
  GraftRunDetails details = {.stop = stop.token || stop.end ? &stop : NULL, .timing = taken.timed ? &timing : NULL};
  Instance *instance;
  GRAFT_TRY(graft_run_begin(program, inputs, &instance, error));
  return graft_run_end(instance, outputs, &details, error);
}

void graft_free_output(DLTensor *output) {
  if (output) {
    if (output->data && !graft_is_main_memory(output->device)) {
      graft_free_device_output(output);
    } else {
      graft_block_free(&(Block){.start = output->shape});
    }
    output->data = NULL;
    output->shape = NULL;
  }
}
