/* What runs a program: instances, their frames and contexts, and the values and the memory that a call gives them. */
#ifndef GRAFT_INSTANCE_H
#define GRAFT_INSTANCE_H

#include "base/error.h"
#include "state/state.h"
#include "state/tensor_memory.h"

/* Instances (instance.c). */
Instance *graft_acquire_instance(GraftProgram *program);
void graft_release_instance(Instance *instance);
void graft_destroy_instance(Instance *instance);

/* Frames (frame.c). Creation returns 0 when memory runs out; then there may be parts to
 * destroy. */
int graft_create_frame(Store *store, const Procedure *procedure, const GraftProgram *program, Frame *frame);
void graft_destroy_frame(Frame *frame, const GraftProgram *program);

/* Whether the run is to stop: GRAFT_OK or why; once it is, it stays so. `stop` may be NULL (context.c). */
int32_t graft_stop_status(Stop *stop);

/* The function table (context.c). */
extern const GraftApi graft_api;
void graft_create_context(Context *context, const GraftAllocator *memory, GraftThreadPool *pool, int32_t thread_count);

/* Memory for `count` items until the running call ends; NULL, with the message set, when it runs out. */
void *graft_call_memory(Context *context, size_t count, size_t bytes);

/* Symbols (binding.c). Binds those of a stage to the shapes that came, and evaluates, checks and places what is known
 * then; if nothing changed since the last time, it only compares. Stage 0 comes when all inputs are bound, and before
 * the results are prepared. */
int32_t graft_bind_stage(Context *context, Frame *frame, int32_t number);
static inline int32_t graft_enter(Context *context, Frame *frame) {
  return frame->procedure->stage_count ? graft_bind_stage(context, frame, 0) : GRAFT_OK;
}

/* Binds the symbols that a call's outputs tell, and compares the shapes of those whose memory it asked for. */
int32_t graft_accept_outputs(Context *context, Frame *frame, const Call *call);

/* Says that an input or output has another number of dimensions than its specification. */
int32_t graft_fail_rank(Context *context, const Frame *frame, const TensorSpec *spec, const DLTensor *tensor);

/* Memory for a stage whose shapes are known (placement.c): for the tensors of its arena by a plan, kept or new; and for
 * outputs, which are handed over when the procedure is done and so get theirs each time. */
int32_t graft_place_arena(Context *context, Frame *frame, int32_t number);
int32_t graft_place_late_outputs(Context *context, Frame *frame, const Stage *stage);

#endif
