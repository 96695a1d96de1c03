/* Asynchronous copies and the mbarriers that count them. */
#ifndef GRAFT_EMULATOR_COPIES_H
#define GRAFT_EMULATOR_COPIES_H

#include "state.h"

#pragma GCC visibility push(hidden) /* each shared object has its own */
int is_over(const Thread *thread); /* whether the phase of the mbarrier that it waits for is, or can be at once */
void end_phase(Thread *thread);    /* lands its copies, late as they may be, and lets the thread know of it */
#pragma GCC visibility pop

/* What the PTX of a kernel becomes; `line` is the instruction's. */
void graft_emulator_fence_async(void);
void graft_emulator_copy(uint32_t target, uint64_t source, uint32_t bytes, uint32_t line);
void graft_emulator_commit(uint32_t line);
void graft_emulator_wait(uint32_t pending, uint32_t line);
void graft_emulator_open_barrier(uint32_t at, uint32_t arrivals, uint32_t line);
void graft_emulator_expect(uint32_t at, uint32_t bytes, uint32_t line);
void graft_emulator_copy_bulk(uint32_t target, uint64_t source, uint32_t bytes, uint32_t at, uint32_t line);
void graft_emulator_wait_barrier(uint32_t at, uint32_t parity, uint32_t line);

#endif
