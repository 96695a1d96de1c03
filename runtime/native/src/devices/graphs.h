/* Series of calls on a device, recorded and launched as one. */
#ifndef GRAFT_GRAPHS_H
#define GRAFT_GRAPHS_H

#include "state/state.h"

/* A series of calls on one device, from call `first` on: recorded when it comes again with the same addresses and shapes,
 * and launched as one from then on. `run` runs one call. Failures are those of the calls. */
typedef int32_t (*GraftRunCall)(Context *context, Frame *frame, const Call *call);
int32_t graft_run_series(Context *context, Frame *frame, int32_t first, GraftRunCall run);
void graft_drop_series(const GraftProgram *program, int32_t device, Series *series);

#endif
