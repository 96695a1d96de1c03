/* Runs of procedures: their calls in order. */
#ifndef GRAFT_EXECUTE_H
#define GRAFT_EXECUTE_H

#include "instance/instance.h"

/* Runs a procedure that was entered. `results` are its outputs. */
int32_t graft_run_procedure(Context *context, Frame *frame, Result *results);

#endif
