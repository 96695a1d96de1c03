/* Memory of tensors: blocks that grow, arenas, and where a frame's tensors lie. */
#ifndef GRAFT_TENSOR_MEMORY_H
#define GRAFT_TENSOR_MEMORY_H

#include "state/state.h"

/* Gives the tensor memory for this shape; 0 when memory runs out. The data hold nothing definite. A block that has memory
 * already is of the same allocator, which stays where it is until the block is free. */
int graft_block_reserve(const GraftAllocator *allocator, Block *block, DLTensor *tensor, int32_t ndim,
                        const int64_t *shape, size_t bytes);
void graft_block_free(Block *block);

/* Sets the data of a tensor that is not fixed, and of the views of it. Returns 0 if a view would leave it. */
int graft_frame_bind(Frame *frame, int32_t tensor, void *data);

/* The bytes of a tensor whose shape is known. */
size_t graft_frame_bytes(const Frame *frame, int32_t tensor);

/* An extent of a tensor whose rank is known; 0 where it depends on symbols that are not bound yet. */
int64_t graft_known_extent(const Frame *frame, int32_t tensor, int32_t axis);

#endif
