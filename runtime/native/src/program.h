/* Programs from parts in memory, and the calls of them. */
#ifndef GRAFT_PROGRAM_H
#define GRAFT_PROGRAM_H

#include <stdarg.h>

#include "error.h"
#include "state.h"
#include "tensor_memory.h"

int32_t graft_program_create(const GraftProgramSource *source, const GraftLoadOptions *options, GraftProgram **program,
                             GraftError *error);

/* Module loading (module.c). */
int32_t graft_load_modules(GraftProgram *program, const GraftLoadOptions *options, GraftError *error);
void graft_unload_modules(GraftProgram *program);
extern const GraftLoader graft_native_loader;
extern const GraftLoader graft_c_source_loader;

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
void graft_create_context(Context *context, Pool *pool, int32_t thread_count);

/* Both record a message (if none is recorded yet) and return `status` (failure.c). */
int32_t graft_context_fail(Context *context, int32_t status, const char *format, ...) GRAFT_FORMAT(3, 4);
int32_t graft_context_record(Context *context, int32_t status, const char *format, va_list arguments)
    GRAFT_FORMAT(3, 0);

/* Whether output `i` has a shape that is known when the procedure begins, and is written straight to where it is
 * wanted: then the result needs data before the procedure runs. */
int graft_writes_in_place(const Procedure *procedure, int32_t i);

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

/* Runs a procedure that was entered (execute.c). `results` are its outputs. */
int32_t graft_run_procedure(Context *context, Frame *frame, Result *results);

/* Binds input `i` of the frame to a value whose type is known to be right; checks the shape, but for symbols in it. */
int32_t graft_bind_input(Context *context, Frame *frame, int32_t i, const DLTensor *value);

/* Before and after a body runs: lets its output `i` become `tensor` of the calling frame (-1: nobody wants it). */
int32_t graft_prepare_result(Context *context, Frame *frame, int32_t tensor, const Frame *body, int32_t i,
                             Result *result);
int32_t graft_deliver_result(Context *context, Frame *frame, int32_t tensor, Result *result);

/* Copies a value to a tensor of the frame, which gets its shape if that is unknown. */
int32_t graft_store_value(Context *context, Frame *frame, int32_t tensor, const DLTensor *value);

/* Memory for `count` items until the running call ends; NULL, with the message set, when it runs out. */
void *graft_call_memory(Context *context, size_t count, size_t bytes);

/* Control flow (control.c). */
int32_t graft_run_if(Context *context, Frame *frame, const Call *call);
int32_t graft_run_loop(Context *context, Frame *frame, const Call *call);
int32_t graft_run_scan(Context *context, Frame *frame, const Call *call);

/* More than graft_program_run: the call that failed, and times. */
typedef struct GraftRunDetails {
  int64_t *nanoseconds; /* in: NULL, or room for one time per call of procedure 0 and of any variant */
  void *user;           /* in: what graft_context_user gives to functions of this run */
  Stop *stop;           /* in: NULL, or what may end the run early */
  const Call *failed;   /* out */
  int32_t procedure;    /* out: the number of the entry that ran */
} GraftRunDetails;

/* A run in two steps, for who makes the outputs when their shapes are known (run.c). The inputs stay valid until the
 * second; between them the instance belongs to the caller, who ends the run or gives the instance back. */
int32_t graft_run_begin(GraftProgram *program, const DLTensor *inputs, Instance **instance, GraftError *error);
int32_t graft_run_end(Instance *instance, DLTensor *outputs, GraftRunDetails *details, GraftError *error);

/* Output `i` with its shape; NULL where that is known only after the run. */
const DLTensor *graft_run_output(const Instance *instance, int32_t i);

#endif
