#include <string.h>

#include "memory.h"
#include "platform.h"
#include "program.h"

enum { HEADER_BYTES = GRAFT_MAXIMUM_DIMENSIONS * sizeof(int64_t), HUGE_PAGE_BYTES = 2 << 20 };

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

/* Tensors of the arena and constants have their place for good, and so have views of them. */
static void place_tensors(Frame *frame) {
  const Procedure *procedure = frame->procedure;
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    const TensorSpec *spec = procedure->tensors + i;
    frame->tensors[i] = (DLTensor){.device = {kDLCPU, 0}, .ndim = spec->ndim, .dtype = spec->dtype, .shape = spec->shape};
  }
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    const TensorSpec *spec = procedure->tensors + i;
    if (spec->storage == STORAGE_ARENA && procedure->stage_count == 0) {
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

static int create_frame(Store *store, const Procedure *procedure, Frame *frame) {
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
  return graft_create_bindings(store, frame);
}

static Instance *create_instance(GraftProgram *program) {
  Instance *instance = graft_calloc(1, sizeof(Instance));
  if (!instance) {
    return NULL;
  }
  int32_t count = program->manifest.procedure_count;
  instance->program = program;
  instance->frames = graft_store_allocate(&instance->store, (size_t)count, sizeof(Frame));
  graft_create_context(&instance->context, program->pool, program->thread_count);
  instance->context.instance = instance;
  for (int32_t i = 0; i < count; i++) {
    if (!instance->frames || !create_frame(&instance->store, program->manifest.procedures + i, instance->frames + i)) {
      graft_destroy_instance(instance);
      return NULL;
    }
  }
  return instance;
}

void graft_destroy_instance(Instance *instance) {
  for (int32_t i = 0; instance->frames && i < instance->program->manifest.procedure_count; i++) {
    Frame *frame = instance->frames + i;
    for (int32_t k = 0; frame->blocks && k < frame->procedure->tensor_count; k++) {
      graft_block_free(frame->blocks + k);
    }
    if (frame->procedure) {
      graft_destroy_bindings(frame);
    }
    free(frame->arena);
  }
  graft_scratch_destroy(&instance->context.scratch);
  graft_store_destroy(&instance->store);
  free(instance);
}

Instance *graft_acquire_instance(GraftProgram *program) {
  pthread_mutex_lock(&program->lock);
  Instance *instance = program->idle;
  if (instance) {
    program->idle = instance->next;
  }
  pthread_mutex_unlock(&program->lock);
  return instance ? instance : create_instance(program);
}

void graft_release_instance(Instance *instance) {
  GraftProgram *program = instance->program;
  pthread_mutex_lock(&program->lock);
  instance->next = program->idle;
  program->idle = instance;
  pthread_mutex_unlock(&program->lock);
}
