/* Control flow: calls of kinds If, Loop and Scan, whose bodies are procedures. `run` is how these are run. */
#ifndef GRAFT_CONTROL_H
#define GRAFT_CONTROL_H

#include "execute/iterate.h"

int32_t graft_run_if(Context *context, Frame *frame, const Call *call, RunProcedure *run);
int32_t graft_run_loop(Context *context, Frame *frame, const Call *call, RunProcedure *run);
int32_t graft_run_scan(Context *context, Frame *frame, const Call *call, RunProcedure *run);

#endif
