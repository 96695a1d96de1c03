/* What goes into a procedure and comes out of it: its inputs and outputs are bound to values of the caller. */
#ifndef GRAFT_VALUES_H
#define GRAFT_VALUES_H

#include "instance/instance.h"

/* Binds input `i` of the frame to a value whose type is known to be right; checks the shape, but for symbols in it. */
int32_t graft_bind_input(Context *context, Frame *frame, int32_t i, const DLTensor *value);

/* Binds the outputs that are written in place to the memory of `results`, whose shapes are compared. */
int32_t graft_bind_outputs(Context *context, Frame *frame, const Result *results);

/* Outputs that are not written in place: first the copies, then what can be handed over. */
int32_t graft_collect_results(Context *context, Frame *frame, Result *results);

/* Before and after a body runs: lets its output `i` become `tensor` of the calling frame (-1: nobody wants it). */
int32_t graft_prepare_result(Context *context, Frame *frame, int32_t tensor, const Frame *body, int32_t i,
                             Result *result);
int32_t graft_deliver_result(Context *context, Frame *frame, int32_t tensor, Result *result);

/* Copies a value to a tensor of the frame, which gets its shape if that is unknown. */
int32_t graft_store_value(Context *context, Frame *frame, int32_t tensor, const DLTensor *value);

#endif
