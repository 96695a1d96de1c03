/* Memories other than the host's: those that a program opens, and its constants there. */
#ifndef GRAFT_DEVICES_H
#define GRAFT_DEVICES_H

#include "state/state.h"

/* The table of a device, by a tensor's or a call's number of it, which is not 0. */
static inline const GraftDevice *graft_device_of(const GraftProgram *program, int32_t device) {
  return program->devices[device - 1];
}

/* 0: main memory; -1: no device of the program. */
int32_t graft_device_number(const GraftProgram *program, DLDevice device);

/* Opens what the manifest names, and puts there the constants that calls read there; their specifications then have
 * them. Closing gives all of it back. */
int32_t graft_open_devices(GraftProgram *program, GraftError *error);
int32_t graft_upload_constants(GraftProgram *program, GraftError *error);
void graft_close_devices(GraftProgram *program);

static inline int graft_is_main_memory(DLDevice device) {
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost || device.device_type == 0;
}

#endif
