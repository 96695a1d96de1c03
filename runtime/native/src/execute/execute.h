/* Runs of procedures: their calls in order, and those of kinds If, Loop and Scan, whose bodies are procedures, too. So
 * execute.c calls control.c, and control.c and iterate.c call execute.c: the recursion is that of the program. */
#ifndef GRAFT_EXECUTE_H
#define GRAFT_EXECUTE_H

#include "instance/instance.h"

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

/* Control flow (control.c). */
int32_t graft_run_if(Context *context, Frame *frame, const Call *call);
int32_t graft_run_loop(Context *context, Frame *frame, const Call *call);
int32_t graft_run_scan(Context *context, Frame *frame, const Call *call);

#endif
