#include "execute/execute.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/platform.h"
#include "devices/device_frames.h"
#include "devices/graphs.h"
#include "devices/streams.h"
#include "execute/append.h"

enum { NAMED_ORIGINS = 3 };

/* ---- Inputs and results --------------------------------------------------------------------------------------- */

static int32_t fail_shape(Context *context, const char *what, const TensorSpec *spec, const DLTensor *actual,
                          int32_t ndim, const int64_t *shape) {
  char expected[256] = "", got[256] = "";
  graft_append_shape(expected, sizeof expected, ndim, shape);
  graft_append_shape(got, sizeof got, actual->ndim, actual->shape);
  return graft_context_fail(context, GRAFT_ERROR_RUN, "%s '%s' has shape %s where %s is expected", what, spec->name,
                            got, expected);
}

/* What grows may be rows of a larger buffer. 0 if it is something else. */
static int bind_strides(Frame *frame, int32_t number, const DLTensor *value) {
  int32_t axis = frame->procedure->tensors[number].grows;
  frame->tensors[number].strides = NULL;
  if (axis < 0 || !value->strides) {
    return graft_is_contiguous(value);
  }
  int64_t pitch = graft_block_pitch(value, axis);
  if (pitch >= 0) {
    frame->tensors[number].strides = frame->strides[number];
    graft_grow_strides(value, axis, pitch, frame->strides[number]);
  }
  return pitch >= 0;
}

int32_t graft_bind_input(Context *context, Frame *frame, int32_t i, const DLTensor *value) {
  int32_t number = frame->procedure->inputs.items[i];
  const TensorSpec *spec = frame->procedure->tensors + number;
  DLTensor *tensor = frame->tensors + number;
  if (spec->ndim < 0) {
    tensor->ndim = value->ndim;
    tensor->shape = value->shape;
  } else if (graft_is_symbolic(spec)) {
    if (value->ndim != spec->ndim) {
      return graft_fail_rank(context, frame, spec, value);
    }
    tensor->shape = memcpy(frame->shapes[number], value->shape, (size_t)spec->ndim * sizeof(int64_t));
  } else if (!graft_shape_equal(spec->ndim, spec->shape, value->ndim, value->shape)) {
    return fail_shape(context, "input", spec, value, spec->ndim, spec->shape);
  }
  if (!bind_strides(frame, number, value)) {
    return graft_context_fail(context, GRAFT_ERROR_INPUT, "input '%s' is not contiguous; pass a row-major copy", spec->name);
  }
  if (!graft_frame_bind(frame, number, (char *)value->data + value->byte_offset)) {
    return graft_context_fail(context, GRAFT_ERROR_RUN, "input '%s' is too small for a view of it", spec->name);
  }
  return GRAFT_OK;
}

static int32_t out_of_memory(Context *context, const TensorSpec *spec) {
  return graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory for tensor '%s'", spec->name);
}

static size_t tensor_bytes(const DLTensor *tensor) {
  size_t bytes = 0;
  graft_tensor_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes);
  return bytes;
}

static int32_t copy_result(Context *context, const TensorSpec *spec, const DLTensor *source, Result *result) {
  size_t bytes = tensor_bytes(source);
  if (!result->tensor.data) {
    result->tensor.dtype = source->dtype;
    result->tensor.device = source->device;
    if (!graft_block_reserve(&result->block, &result->tensor, source->ndim, source->shape, bytes)) {
      return out_of_memory(context, spec);
    }
  } else if (!graft_shape_equal(result->tensor.ndim, result->tensor.shape, source->ndim, source->shape)) {
    return fail_shape(context, "output", spec, source, result->tensor.ndim, result->tensor.shape);
  }
  char *target = (char *)result->tensor.data + result->tensor.byte_offset;
  if (bytes && target != source->data) {
    memcpy(target, source->data, bytes);
  }
  return GRAFT_OK;
}

/* Outputs that are not written in place: first the copies, then what can be handed over. */
static int32_t collect_results(Context *context, Frame *frame, Result *results) {
  const Procedure *procedure = frame->procedure;
  int32_t status = GRAFT_OK;
  for (int32_t handing_over = 0; handing_over < 2; handing_over++) {
    for (int32_t i = 0; !status && i < procedure->outputs.count; i++) {
      int32_t number = procedure->outputs.items[i];
      const TensorSpec *spec = procedure->tensors + number;
      int own = spec->storage == STORAGE_OUTPUT && spec->index == i && !results[i].tensor.data;
      if (graft_writes_in_place(procedure, i) || own != handing_over) {
        continue;
      }
      if (own) {
        results[i].tensor = frame->tensors[number];
        results[i].block = frame->blocks[number];
        frame->blocks[number] = (Block){0};
      } else {
        status = copy_result(context, spec, frame->tensors + number, results + i);
      }
    }
  }
  return status;
}

int32_t graft_prepare_result(Context *context, Frame *frame, int32_t tensor, const Frame *body, int32_t i,
                             Result *result) {
  int32_t number = body->procedure->outputs.items[i];
  const DLTensor *inner = body->tensors + number;
  *result = (Result){0};
  if (tensor >= 0 && !frame->procedure->tensors[tensor].is_unknown) {
    result->tensor = frame->tensors[tensor];
    return GRAFT_OK;
  }
  if (!graft_writes_in_place(body->procedure, i)) {
    return GRAFT_OK;
  }
  size_t bytes = graft_frame_bytes(body, number);
  result->tensor = (DLTensor){.ndim = inner->ndim, .dtype = inner->dtype, .shape = inner->shape, .device = {kDLCPU, 0}};
  if (tensor < 0) {
    result->tensor.data = graft_call_memory(context, bytes, 1);
    return result->tensor.data ? GRAFT_OK : GRAFT_ERROR_MEMORY;
  }
  if (!graft_block_reserve(frame->blocks + tensor, frame->tensors + tensor, inner->ndim, inner->shape, bytes)) {
    return out_of_memory(context, body->procedure->tensors + number);
  }
  result->tensor = frame->tensors[tensor];
  return GRAFT_OK;
}

int32_t graft_deliver_result(Context *context, Frame *frame, int32_t tensor, Result *result) {
  if (tensor < 0) {
    graft_block_free(&result->block);
    return GRAFT_OK;
  }
  const TensorSpec *spec = frame->procedure->tensors + tensor;
  if (result->block.start) {
    graft_block_free(frame->blocks + tensor);
    frame->blocks[tensor] = result->block;
    result->block = (Block){0};
  }
  if (spec->is_unknown) {
    frame->tensors[tensor].ndim = result->tensor.ndim;
    frame->tensors[tensor].shape = result->tensor.shape;
    if (!graft_frame_bind(frame, tensor, result->tensor.data)) {
      return graft_context_fail(context, GRAFT_ERROR_RUN, "output '%s' is too small for a view of it", spec->name);
    }
  }
  return GRAFT_OK;
}

int32_t graft_store_value(Context *context, Frame *frame, int32_t number, const DLTensor *value) {
  DLTensor *target = frame->tensors + number;
  const TensorSpec *spec = frame->procedure->tensors + number;
  size_t bytes = tensor_bytes(value);
  if (spec->is_unknown) {
    if (!graft_block_reserve(frame->blocks + number, target, value->ndim, value->shape, bytes)) {
      return out_of_memory(context, spec);
    }
    if (!graft_frame_bind(frame, number, target->data)) {
      return graft_context_fail(context, GRAFT_ERROR_RUN, "output '%s' is too small for a view of it", spec->name);
    }
  } else if (bytes != graft_frame_bytes(frame, number)) {
    return fail_shape(context, "output", spec, value, target->ndim, target->shape);
  }
  if (bytes) {
    memcpy(target->data, value->data, bytes);
  }
  return GRAFT_OK;
}

/* ---- Calls ---------------------------------------------------------------------------------------------------- */

static void append_origin(char *text, size_t size, const Call *call, int32_t number) {
  if (call->origin_count == 0) {
    graft_append(text, size, "call %" PRId32, number);
    return;
  }
  for (int32_t i = 0; i < call->origin_count && i < NAMED_ORIGINS; i++) {
    graft_append(text, size, "%s'%s'", i ? ", " : "node ", call->origin[i]);
  }
  if (call->origin_count > NAMED_ORIGINS) {
    graft_append(text, size, " and %" PRId32 " more", call->origin_count - NAMED_ORIGINS);
  }
}

/* Puts in front of the message where it happened; of nested calls only the innermost does. */
static int32_t describe_failure(Context *context, const Frame *frame, const Call *call, int32_t status) {
  int is_stopped = context->stop && atomic_load_explicit(&context->stop->status, memory_order_relaxed);
  if (context->instance->failed || context->instance->refused || is_stopped) {
    return status;
  }
  context->instance->failed = call;
  char reason[sizeof context->message];
  memcpy(reason, context->message, sizeof reason);
  context->message[0] = 0;
  append_origin(context->message, sizeof context->message, call, (int32_t)(call - frame->procedure->calls));
  if (call->kind == CALL_FUNCTION) {
    const ModuleSpec *module = context->instance->program->manifest.modules + call->module;
    graft_append(context->message, sizeof context->message, ": function '%s' of module '%s' (kind '%s'%s%s%s)",
                 call->function, module->name, module->kind, *module->plugin ? ", plugin '" : "", module->plugin,
                 *module->plugin ? "'" : "");
  }
  if (reason[0]) {
    graft_append(context->message, sizeof context->message, ": %s", reason);
  } else {
    graft_append(context->message, sizeof context->message, ": failed with code %" PRId32 " and no message", status);
  }
  return status;
}

static void forget_outputs(Frame *frame, const Call *call) {
  for (int32_t i = 0; i < call->outputs.count; i++) {
    int32_t number = call->outputs.items[i];
    if (number >= 0 && frame->procedure->tensors[number].is_unknown) {
      frame->tensors[number].data = NULL;
    }
  }
}

static int32_t run_function(Context *context, Frame *frame, const Call *call) {
  DLTensor **inputs = frame->pointers + call->first_pointer;
  DLTensor **outputs = inputs + call->inputs.count;
  int32_t status = call->entry(&context->base, call->state, (const DLTensor *const *)inputs, outputs);
  if (status == GRAFT_OK && call->has_unknown_output) {
    for (int32_t i = 0; i < call->outputs.count; i++) {
      if (!outputs[i]->data) {
        return graft_context_fail(context, GRAFT_ERROR_RUN, "output '%s' was not allocated",
                                  frame->procedure->tensors[call->outputs.items[i]].name);
      }
    }
  }
  return status;
}

static int32_t run_call(Context *context, Frame *frame, const Call *call) {
  switch (call->kind) {
    case CALL_FUNCTION:
      return run_function(context, frame, call);
    case CALL_COPY:
      if (call->device) {
        return graft_run_transfer(context, frame, call);
      }
      return graft_store_value(context, frame, call->outputs.items[0], frame->tensors + call->inputs.items[0]);
    case CALL_APPEND:
      return graft_run_append(context, frame, call);
    case CALL_IF:
      return graft_run_if(context, frame, call);
    case CALL_LOOP:
      return graft_run_loop(context, frame, call);
    case CALL_SCAN:
      return graft_run_scan(context, frame, call);
  }
  return GRAFT_OK;
}

static int32_t run_one(Context *context, Frame *frame, const Call *call) {
  ScratchMark mark = graft_scratch_mark(&context->scratch);
  int32_t status = GRAFT_OK;
  if (call->device) {
    context->instance->streams[call->device - 1].scratch_count = 0;
  }
  context->frame = frame;
  context->call = call;
  context->message[0] = 0;
  if (call->has_unknown_output) {
    forget_outputs(frame, call);
  }
  if (call->waits.count) {
    status = graft_wait_transfers(context, frame, call);
  }
  status = status ? status : run_call(context, frame, call);
  if (!status && call->has_unknown_output) {
    status = graft_accept_outputs(context, frame, call);
  }
  graft_scratch_release(&context->scratch, mark);
  if (status) {
    describe_failure(context, frame, call, status);
  }
  return status;
}

/* With the time of each call; what it put on a stream is to be in it. */
static int32_t run_timed(Context *context, Frame *frame, int64_t *times) {
  const Procedure *procedure = frame->procedure;
  int32_t status = GRAFT_OK;
  for (int32_t i = 0; i < procedure->call_count && !status; i++) {
    int64_t start = graft_nanoseconds();
    status = run_one(context, frame, procedure->calls + i);
    if (procedure->calls[i].device && !status) {
      status = graft_finish_devices(context);
    }
    times[i] = graft_nanoseconds() - start;
  }
  return status;
}

/* Says how far the entry came in a run that was stopped. */
static int32_t describe_stop(Context *context, const Frame *frame, int32_t i, int has_begun, int32_t status) {
  const Procedure *procedure = frame->procedure;
  if (frame != context->instance->entry) {
    return status;
  }
  context->message[0] = 0;
  graft_append(context->message, sizeof context->message, "%s %s call %" PRId32 " of %" PRId32,
               status == GRAFT_ERROR_CANCELLED ? "the run was cancelled" : "the deadline of the run passed",
               has_begun ? "in" : "before", i + 1, procedure->call_count);
  if (i < procedure->call_count && procedure->calls[i].origin_count) {
    context->instance->failed = procedure->calls + i;
    graft_append(context->message, sizeof context->message, ", ");
    append_origin(context->message, sizeof context->message, procedure->calls + i, i);
  }
  return status;
}

static int32_t run_calls(Context *context, Frame *frame) {
  const Procedure *procedure = frame->procedure;
  if (frame == context->instance->entry && context->instance->nanoseconds) {
    return run_timed(context, frame, context->instance->nanoseconds);
  }
  int32_t status = frame == context->instance->entry ? GRAFT_OK : graft_stop_status(context->stop); /* empty bodies */
  for (int32_t i = 0; i < procedure->call_count && !status; i++) {
    const Call *call = procedure->calls + i;
    int32_t first = i, stopped = graft_stop_status(context->stop);
    if (stopped) {
      return describe_stop(context, frame, i, 0, stopped);
    }
    if (call->series) {
      status = graft_run_series(context, frame, i, run_one);
      i += call->series - 1;
      if (status && !context->instance->failed) {
        describe_failure(context, frame, call, status);
      }
    } else {
      status = run_one(context, frame, call);
    }
    /* A function may have kept the error of its tasks to itself. */
    if (context->stop && (stopped = atomic_load_explicit(&context->stop->status, memory_order_relaxed))) {
      return describe_stop(context, frame, first, 1, stopped);
    }
  }
  return status;
}

/* Bodies hand over what they have done; of the entry graft_run_end waits for all, if it did not fail. */
static int32_t finish_devices(Context *context, const Frame *frame, int32_t status) {
  const Procedure *procedure = frame->procedure;
  int waits = status || frame != context->instance->entry;
  for (int32_t i = 0; i < procedure->outputs.count; i++) {
    waits |= !graft_writes_in_place(procedure, i);
  }
  return waits ? graft_finish_devices(context) : GRAFT_OK;
}

int32_t graft_run_procedure(Context *context, Frame *frame, Result *results) {
  const Procedure *procedure = frame->procedure;
  for (int32_t i = 0; i < procedure->outputs.count; i++) {
    int32_t number = procedure->outputs.items[i];
    const DLTensor *wanted = &results[i].tensor, *own = frame->tensors + number;
    if (graft_writes_in_place(procedure, i)) {
      if (!graft_shape_equal(wanted->ndim, wanted->shape, own->ndim, own->shape)) {
        return fail_shape(context, "output", procedure->tensors + number, own, wanted->ndim, wanted->shape);
      }
      bind_strides(frame, number, wanted);
      graft_frame_bind(frame, number, (char *)wanted->data + wanted->byte_offset);
    }
  }
  int32_t status = frame->device ? graft_place_device_frame(context, frame) : GRAFT_OK;
  status = status ? status : run_calls(context, frame);
  if (frame->device) {
    int32_t finished = finish_devices(context, frame, status);
    status = status ? status : finished;
  }
  return status ? status : collect_results(context, frame, results);
}
