/* Growing caches: calls of kind append, and the memory of what they append to. */
#ifndef GRAFT_APPEND_H
#define GRAFT_APPEND_H

#include "state/state.h"

/* How many elements it is from one block of rows along `axis` to the next, where the axes before it count the blocks; -1
 * if the tensor's strides are not those of a part of the rows of a contiguous buffer. The tensor has the axis. */
int64_t graft_block_pitch(const DLTensor *tensor, int32_t axis);

/* The strides of a tensor whose blocks of rows are so far apart. */
void graft_grow_strides(const DLTensor *tensor, int32_t axis, int64_t pitch, int64_t *strides);

/* Whether the rows of `past` are already where `present` has them. */
int graft_appends_in_place(const DLTensor *past, const DLTensor *present, int32_t axis);

int32_t graft_run_append(Context *context, Frame *frame, const Call *call);

#endif
