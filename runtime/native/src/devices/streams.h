/* Memory of devices, the streams of an instance there, and copies on them. */
#ifndef GRAFT_STREAMS_H
#define GRAFT_STREAMS_H

#include "state/state.h"

/* Says what a device could not do; returns `status`. */
int32_t graft_fail_device(Context *context, const GraftDevice *device, int32_t status, const char *doing,
                          const char *reason);

/* Memory for so many bytes; what it held is gone if it was too small. Nothing that runs uses it. */
int32_t graft_device_reserve(Context *context, int32_t device, DeviceBlock *block, uint64_t bytes, const char *what);
void graft_device_block_free(const GraftProgram *program, int32_t device, DeviceBlock *block);

/* The stream of the running instance; NULL with a message if it cannot be made. */
DeviceStream *graft_device_stream(Context *context, int32_t device);
void graft_destroy_streams(Instance *instance);

/* Puts a copy on the stream of the running instance. */
int32_t graft_device_copy(Context *context, int32_t device, GraftCopyDirection direction, void *target,
                          const void *source, uint64_t bytes);

/* Waits for all that the instance put on any stream. After a failure, what streams have to say of it is not heard. */
int32_t graft_finish_devices(Context *context);

#endif
