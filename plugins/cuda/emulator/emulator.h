/* Launches of kernels. */
#ifndef GRAFT_EMULATOR_H
#define GRAFT_EMULATOR_H

#include "state.h"

void graft_emulator_run(Kernel kernel, const int64_t *grid, const int64_t *block, void **args, int64_t shared);
void graft_emulator_barrier(uint32_t line);
void graft_emulator_warp_barrier(uint32_t line);

#endif
