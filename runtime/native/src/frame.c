#include <string.h>

#include "extents.h"
#include "memory.h"
#include "platform.h"

enum { HEADER_BYTES = GRAFT_MAXIMUM_DIMENSIONS * sizeof(int64_t), HUGE_PAGE_BYTES = 2 << 20 };

/* ---- Memory of tensors ---------------------------------------------------------------------------------------- */

int graft_block_reserve(Block *block, DLTensor *tensor, int32_t ndim, const int64_t *shape, size_t bytes) {
  if (!block->start || block->capacity < bytes) {
    void *start = bytes > SIZE_MAX / 4 ? NULL : graft_aligned_malloc(HEADER_BYTES + bytes);
    if (!start) {
      return 0;
    }
    graft_block_free(block);
    *block = (Block){start, bytes};
    if (bytes >= HUGE_PAGE_BYTES) {
      graft_advise_huge_pages(start, HEADER_BYTES + bytes);
    }
  }
  if (ndim) {
    memmove(block->start, shape, (size_t)ndim * sizeof(int64_t));
  }
  tensor->ndim = ndim;
  tensor->shape = block->start;
  tensor->strides = NULL;
  tensor->byte_offset = 0;
  tensor->data = (char *)block->start + HEADER_BYTES;
  return 1;
}

void graft_block_free(Block *block) {
  free(block->start);
  *block = (Block){0};
}

int graft_frame_bind(Frame *frame, int32_t tensor, void *data) {
  const TensorSpec *specs = frame->procedure->tensors;
  frame->tensors[tensor].data = data;
  if (specs[tensor].next_view < 0) {
    return 1;
  }
  const DLTensor *root = frame->tensors + tensor;
  size_t bytes = graft_is_symbolic(specs + tensor) ? SIZE_MAX : specs[tensor].bytes; /* then views are compared later */
  if (specs[tensor].ndim < 0 && !graft_tensor_bytes(root->dtype, root->ndim, root->shape, &bytes)) {
    return 0;
  }
  for (int32_t view = specs[tensor].next_view; view >= 0; view = specs[view].next_view) {
    if (specs[view].offset > bytes || specs[view].bytes > bytes - specs[view].offset) {
      return 0;
    }
    frame->tensors[view].data = (char *)data + specs[view].offset;
  }
  return 1;
}

size_t graft_frame_bytes(const Frame *frame, int32_t tensor) {
  const TensorSpec *spec = frame->procedure->tensors + tensor;
  size_t bytes = spec->bytes;
  if (!graft_is_static(spec)) {
    graft_tensor_bytes(spec->dtype, frame->tensors[tensor].ndim, frame->tensors[tensor].shape, &bytes);
  }
  return bytes;
}

int64_t graft_known_extent(const Frame *frame, int32_t tensor, int32_t axis) {
  const TensorSpec *spec = frame->procedure->tensors + tensor;
  if (!spec->dimensions) {
    return spec->shape[axis];
  }
  Dimension dimension = spec->dimensions[axis];
  int32_t first_operation = frame->procedure->symbol_count, stage = 0;
  if (dimension.place >= 0) {
    stage = dimension.place < first_operation ? frame->procedure->symbols[dimension.place].stage
                                              : frame->procedure->operations[dimension.place - first_operation].stage;
  }
  int64_t value = stage == 0 || frame->stages[stage].is_bound ? graft_value(frame, dimension) : 0;
  return value < 0 ? 0 : value;
}

/* ---- Frames --------------------------------------------------------------------------------------------------- */

/* Tensors of the arena and constants have their place for good, and so have views of them. */
static void place_tensors(Frame *frame) {
  const Procedure *procedure = frame->procedure;
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    const TensorSpec *spec = procedure->tensors + i;
    frame->tensors[i] =
        (DLTensor){.device = {kDLCPU, 0}, .ndim = spec->ndim, .dtype = spec->dtype, .shape = spec->shape};
  }
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    const TensorSpec *spec = procedure->tensors + i;
    if (spec->storage == STORAGE_ARENA && graft_is_planned(procedure)) {
      graft_frame_bind(frame, i, frame->arena + spec->offset);
    } else if (spec->storage == STORAGE_CONSTANT) {
      graft_frame_bind(frame, i, spec->data->data);
    }
  }
}

static void point(Frame *frame, const IndexList *list, DLTensor **pointers) {
  for (int32_t i = 0; i < list->count; i++) {
    pointers[i] = list->items[i] < 0 ? NULL : frame->tensors + list->items[i];
  }
}

static int create_stage(Store *store, const Stage *stage, StageState *state) {
  for (int32_t i = 0; i < GRAFT_KEPT_PLANS; i++) {
    state->plans[i].key = graft_store_allocate(store, (size_t)stage->known.count, sizeof(int64_t));
    state->plans[i].offsets = graft_store_allocate(store, (size_t)stage->arena.count, sizeof(uint64_t));
    if (!state->plans[i].key || !state->plans[i].offsets) {
      return 0;
    }
  }
  return 1;
}

static int create_tensor(Store *store, Frame *frame, int32_t number) {
  const TensorSpec *spec = frame->procedure->tensors + number;
  if (spec->grows >= 0) {
    frame->strides[number] = graft_store_allocate(store, (size_t)spec->ndim, sizeof(int64_t));
    if (!frame->strides[number]) {
      return 0;
    }
  }
  if (spec->dimensions) {
    frame->shapes[number] = graft_store_allocate(store, (size_t)spec->ndim, sizeof(int64_t));
    return frame->shapes[number] != NULL;
  }
  if (spec->storage == STORAGE_EXTENTS) {
    char *data = graft_store_allocate(store, 1, spec->bytes);
    for (int32_t i = 0; data && i < spec->value_count; i++) { /* numbers are not evaluated where nothing is bound */
      int32_t narrow = (int32_t)spec->values[i].number;
      if (spec->dtype.bits == 64) {
        memcpy(data + 8 * i, &spec->values[i].number, 8);
      } else {
        memcpy(data + 4 * i, &narrow, 4);
      }
    }
    graft_frame_bind(frame, number, data);
    return data != NULL;
  }
  return 1;
}

static int create_bindings(Store *store, Frame *frame) {
  const Procedure *procedure = frame->procedure;
  size_t values = (size_t)procedure->symbol_count + (size_t)procedure->operation_count;
  frame->values = graft_store_allocate(store, values, sizeof(int64_t));
  frame->shapes = graft_store_allocate(store, (size_t)procedure->tensor_count, sizeof(int64_t *));
  frame->strides = graft_store_allocate(store, (size_t)procedure->tensor_count, sizeof(int64_t *));
  frame->stages = graft_store_allocate(store, (size_t)procedure->stage_count, sizeof(StageState));
  int complete = frame->values && frame->shapes && frame->strides && frame->stages;
  for (int32_t i = 0; complete && i < procedure->stage_count; i++) {
    complete = create_stage(store, procedure->stages + i, frame->stages + i);
  }
  for (int32_t i = 0; complete && i < procedure->tensor_count; i++) {
    complete = create_tensor(store, frame, i);
  }
  return complete;
}

int graft_create_frame(Store *store, const Procedure *procedure, Frame *frame) {
  frame->procedure = procedure;
  frame->tensors = graft_store_allocate(store, (size_t)procedure->tensor_count, sizeof(DLTensor));
  frame->blocks = graft_store_allocate(store, (size_t)procedure->tensor_count, sizeof(Block));
  frame->pointers = graft_store_allocate(store, procedure->pointer_count, sizeof(DLTensor *));
  frame->arena = graft_aligned_malloc(procedure->arena_bytes);
  if (!frame->tensors || !frame->blocks || !frame->pointers || !frame->arena) {
    return 0;
  }
  if (procedure->arena_bytes >= HUGE_PAGE_BYTES) {
    graft_advise_huge_pages(frame->arena, procedure->arena_bytes);
  }
  for (int32_t i = 0; i < procedure->call_count; i++) {
    const Call *call = procedure->calls + i;
    point(frame, &call->inputs, frame->pointers + call->first_pointer);
    point(frame, &call->outputs, frame->pointers + call->first_pointer + call->inputs.count);
  }
  place_tensors(frame);
  return create_bindings(store, frame);
}

void graft_destroy_frame(Frame *frame) {
  const Procedure *procedure = frame->procedure;
  for (int32_t i = 0; frame->blocks && i < procedure->tensor_count; i++) {
    graft_block_free(frame->blocks + i);
  }
  for (int32_t i = 0; frame->stages && i < procedure->stage_count; i++) {
    free(frame->stages[i].arena);
  }
  free(frame->arena);
}
