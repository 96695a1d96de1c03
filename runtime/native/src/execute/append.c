/* Growing caches: an input with more rows behind it is an output. Where both are views of one buffer with room for them,
 * only the new rows are written; else the old ones are copied, too. */
#include "execute/append.h"

#include <inttypes.h>
#include <string.h>

#include "instance/instance.h"

enum { TASK_BYTES = 256 << 10 };

/* ---- Memory --------------------------------------------------------------------------------------------------- */

static int64_t product(const int64_t *shape, int32_t begin, int32_t end) {
  int64_t total = 1;
  for (int32_t i = begin; i < end; i++) {
    total *= shape[i];
  }
  return total;
}

int64_t graft_block_pitch(const DLTensor *tensor, int32_t axis) {
  int64_t row = product(tensor->shape, axis + 1, tensor->ndim), block = tensor->shape[axis] * row;
  if (!tensor->strides) {
    return block;
  }
  int64_t expected = 1, pitch = -1, blocks = product(tensor->shape, 0, axis);
  for (int32_t i = tensor->ndim - 1; i >= axis; i--) {
    if (tensor->shape[i] > 1 && tensor->strides[i] != expected) {
      return -1;
    }
    expected *= tensor->shape[i];
  }
  for (int32_t i = axis - 1; i >= 0 && blocks > 1; i--) {
    if (tensor->shape[i] == 1) {
      continue;
    }
    pitch = pitch < 0 ? tensor->strides[i] : pitch;
    if (pitch < block || pitch > GRAFT_MAXIMUM_EXTENT / 64 / blocks ||
        tensor->strides[i] != pitch * product(tensor->shape, i + 1, axis)) {
      return -1;
    }
  }
  return pitch < 0 ? block : pitch;
}

void graft_grow_strides(const DLTensor *tensor, int32_t axis, int64_t pitch, int64_t *strides) {
  int64_t next = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
    strides[i] = i == axis - 1 ? pitch : next;
    next = strides[i] * tensor->shape[i];
  }
}

/* ---- Runs ----------------------------------------------------------------------------------------------------- */

int graft_appends_in_place(const DLTensor *past, const DLTensor *present, int32_t axis) {
  return (char *)past->data + past->byte_offset == (char *)present->data + present->byte_offset &&
         (product(past->shape, 0, axis) <= 1 || graft_block_pitch(past, axis) == graft_block_pitch(present, axis));
}

/* One copy of rows: block by block. */
typedef struct Copy {
  const char *from;
  char *to;
  size_t from_pitch, to_pitch, bytes;
} Copy;

static int32_t copy_blocks(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  const Copy *copy = closure;
  (void)context;
  for (int64_t i = begin; i < end; i++) {
    memcpy(copy->to + (size_t)i * copy->to_pitch, copy->from + (size_t)i * copy->from_pitch, copy->bytes);
  }
  return GRAFT_OK;
}

static int32_t copy_rows(Context *context, const DLTensor *from, const DLTensor *to, int32_t axis, int64_t first) {
  size_t size = to->dtype.bits / 8u, row = (size_t)product(to->shape, axis + 1, to->ndim) * size;
  int64_t count = product(to->shape, 0, axis);
  Copy copy = {.from = (const char *)from->data + from->byte_offset,
               .to = (char *)to->data + to->byte_offset + (size_t)first * row,
               .from_pitch = (size_t)graft_block_pitch(from, axis) * size,
               .to_pitch = (size_t)graft_block_pitch(to, axis) * size,
               .bytes = (size_t)from->shape[axis] * row};
  if (!copy.bytes || !count) {
    return GRAFT_OK;
  }
  int64_t grain = copy.bytes >= TASK_BYTES ? 1 : (int64_t)(TASK_BYTES / copy.bytes);
  return count <= grain ? copy_blocks(&context->base, &copy, 0, count)
                        : context->base.api->parallel_for(&context->base, count, grain, copy_blocks, &copy);
}

int32_t graft_run_append(Context *context, Frame *frame, const Call *call) {
  const DLTensor *past = frame->tensors + call->inputs.items[0], *more = frame->tensors + call->inputs.items[1];
  const DLTensor *present = frame->tensors + call->outputs.items[0];
  for (int32_t i = 0; i < present->ndim; i++) {
    int64_t rows = past->shape[i] + (i == call->axis ? more->shape[i] : 0);
    if (rows != present->shape[i] || (i != call->axis && rows != more->shape[i])) {
      return graft_context_fail(context, GRAFT_ERROR_RUN,
                                "%" PRId64 " and %" PRId64 " at axis %" PRId32 " do not make the %" PRId64
                                " of output '%s'",
                                past->shape[i], more->shape[i], i, present->shape[i],
                                frame->procedure->tensors[call->outputs.items[0]].name);
    }
  }
  if (!graft_appends_in_place(past, present, call->axis)) {
    GRAFT_TRY(copy_rows(context, past, present, call->axis, 0));
  }
  return copy_rows(context, more, present, call->axis, past->shape[call->axis]);
}
