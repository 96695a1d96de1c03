#include "execute/values.h"

#include <string.h>

#include "execute/append.h"

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
    if (!graft_block_reserve(graft_memory_of(context), &result->block, &result->tensor, source->ndim, source->shape, bytes)) {
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

int32_t graft_collect_results(Context *context, Frame *frame, Result *results) {
  const Procedure *procedure = frame->procedure;
  for (int32_t handing_over = 0; handing_over < 2; handing_over++) {
    for (int32_t i = 0; i < procedure->outputs.count; i++) {
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
        GRAFT_TRY(copy_result(context, spec, frame->tensors + number, results + i));
      }
    }
  }
  return GRAFT_OK;
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
  if (!graft_block_reserve(graft_memory_of(context), frame->blocks + tensor, frame->tensors + tensor, inner->ndim, inner->shape, bytes)) {
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
    if (!graft_block_reserve(graft_memory_of(context), frame->blocks + number, target, value->ndim, value->shape, bytes)) {
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

int32_t graft_bind_outputs(Context *context, Frame *frame, const Result *results) {
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
  return GRAFT_OK;
}
