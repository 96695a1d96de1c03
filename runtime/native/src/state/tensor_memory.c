#include "state/tensor_memory.h"

#include <string.h>

#include "base/memory.h"
#include "base/platform.h"
#include "state/extents.h"

/* What stands before the data. */
typedef struct Header {
  _Alignas(64) int64_t shape[GRAFT_MAXIMUM_DIMENSIONS];
  const GraftAllocator *allocator;
} Header;

enum { HEADER_BYTES = sizeof(Header), HUGE_PAGE_BYTES = 2 << 20 };

int graft_block_reserve(const GraftAllocator *allocator, Block *block, DLTensor *tensor, int32_t ndim,
                        const int64_t *shape, size_t bytes) {
  if (!block->start || block->capacity < bytes) {
    Header *start = bytes > SIZE_MAX / 4 ? NULL : graft_allocate(allocator, HEADER_BYTES + bytes);
    if (!start) {
      return 0;
    }
    start->allocator = allocator;
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
  Header *header = block->start;
  if (header) {
    graft_release(header->allocator, header);
  }
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
