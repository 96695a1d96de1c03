/* Callers' inputs and outputs on devices. */
#ifndef GRAFT_BORDER_H
#define GRAFT_BORDER_H

#include "state/state.h"

/* Where the callers' inputs and outputs are not where the procedure has them: copies, before and after. */
int32_t graft_stage_inputs(Context *context, Frame *entry);
int32_t graft_prepare_border(Context *context, Frame *entry, int32_t i, const DLTensor *output, Result *result);
int32_t graft_deliver_border(Context *context, Frame *entry, int32_t i, const DLTensor *output, Result *result);

/* Gives the caller what was delivered or, where the run failed, frees it. */
void graft_settle_border(int32_t status, DLTensor *output, Result *result);

/* Frees what the runtime allocated for an output on a device. */
void graft_free_device_output(DLTensor *output);

#endif
