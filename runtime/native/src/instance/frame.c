#include <string.h>

#include "base/memory.h"
#include "base/platform.h"
#include "devices/device_frames.h"
#include "instance/instance.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

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
    if (spec->storage == STORAGE_ARENA && !spec->device && graft_is_planned(procedure)) {
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

static int create_stage(Store *store, const Stage *stage, int32_t device_count, StageState *state) {
  for (int32_t i = 0; i < GRAFT_KEPT_PLANS; i++) {
    state->plans[i].key = graft_store_allocate(store, (size_t)stage->sizes.count, sizeof(int64_t));
    state->plans[i].offsets = graft_store_allocate(store, (size_t)stage->arena.count, sizeof(uint64_t));
    state->plans[i].device_bytes = graft_store_allocate(store, (size_t)device_count, sizeof(uint64_t));
    if (!state->plans[i].key || !state->plans[i].offsets || !state->plans[i].device_bytes) {
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

static int create_bindings(Store *store, Frame *frame, int32_t device_count) {
  const Procedure *procedure = frame->procedure;
  size_t values = (size_t)procedure->symbol_count + (size_t)procedure->operation_count;
  frame->values = graft_store_allocate(store, values, sizeof(int64_t));
  frame->shapes = graft_store_allocate(store, (size_t)procedure->tensor_count, sizeof(int64_t *));
  frame->strides = graft_store_allocate(store, (size_t)procedure->tensor_count, sizeof(int64_t *));
  frame->stages = graft_store_allocate(store, (size_t)procedure->stage_count, sizeof(StageState));
  int complete = frame->values && frame->shapes && frame->strides && frame->stages;
  for (int32_t i = 0; complete && i < procedure->stage_count; i++) {
    complete = create_stage(store, procedure->stages + i, device_count, frame->stages + i);
  }
  for (int32_t i = 0; complete && i < procedure->tensor_count; i++) {
    complete = create_tensor(store, frame, i);
  }
  return complete;
}

int graft_create_frame(Store *store, const Procedure *procedure, const GraftProgram *program, Frame *frame) {
  frame->procedure = procedure;
  frame->memory = program->source.arenas ? program->source.arenas : program->memory;
  frame->tensors = graft_store_allocate(store, (size_t)procedure->tensor_count, sizeof(DLTensor));
  frame->blocks = graft_store_allocate(store, (size_t)procedure->tensor_count, sizeof(Block));
  frame->pointers = graft_store_allocate(store, procedure->pointer_count, sizeof(DLTensor *));
  frame->arena = graft_allocate(frame->memory, procedure->arena_bytes);
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
  return create_bindings(store, frame, program->device_count) &&
         graft_create_device_frame(store, procedure, program, frame);
}

void graft_destroy_frame(Frame *frame, const GraftProgram *program) {
  const Procedure *procedure = frame->procedure;
  for (int32_t i = 0; frame->blocks && i < procedure->tensor_count; i++) {
    graft_block_free(frame->blocks + i);
  }
  for (int32_t i = 0; frame->stages && i < procedure->stage_count; i++) {
    graft_release(frame->memory, frame->stages[i].arena);
  }
  graft_destroy_device_frame(frame, program); /* devices reach the arena until then */
  graft_release(frame->memory, frame->arena);
}
