/* What a frame has on devices: arenas and events, and its copies. */
#ifndef GRAFT_DEVICE_FRAMES_H
#define GRAFT_DEVICE_FRAMES_H

#include "state/state.h"

/* Memory and events of a frame whose procedure uses devices: room for them, the things themselves when it first runs. */
int graft_create_device_frame(Store *store, const Procedure *procedure, const GraftProgram *program, Frame *frame);
int32_t graft_place_device_frame(Context *context, Frame *frame);
void graft_destroy_device_frame(Frame *frame, const GraftProgram *program);

/* A copy call of which one side, or both, are on a device; and what a call waits for. */
int32_t graft_run_transfer(Context *context, Frame *frame, const Call *call);
int32_t graft_wait_transfers(Context *context, const Frame *frame, const Call *call);

#endif
