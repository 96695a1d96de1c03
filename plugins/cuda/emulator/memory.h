/* Accesses of memory, each checked and remembered. */
#ifndef GRAFT_EMULATOR_MEMORY_H
#define GRAFT_EMULATOR_MEMORY_H

#include "state.h"

#pragma GCC visibility push(hidden) /* each shared object has its own */
/* Checks an access of this thread to an address in a state space, remembers it, and returns where that is. */
char *checked(uint64_t address, uint32_t bytes, uint32_t how, uint32_t line);
/* The same of a place in a buffer. */
void touch(char *at, uint64_t bytes, uint32_t how, uint32_t line);
/* The shadow of a place in shared memory. */
Shadow *shadow_of(const char *at);
#pragma GCC visibility pop

/* What the PTX of a kernel becomes; `line` is the instruction's. */
void graft_emulator_buffer(const char *name, char *begin, int64_t bytes);
uint64_t graft_emulator_shared(void);
char *graft_emulator_access(uint64_t address, uint32_t bytes, uint32_t how, uint32_t line);

#endif
