/* Instructions of warps and warpgroups on matrices. */
#ifndef GRAFT_EMULATOR_PRODUCTS_H
#define GRAFT_EMULATOR_PRODUCTS_H

#include "state.h"

#pragma GCC visibility push(hidden) /* each shared object has its own */
void load_matrices(int first);     /* what a warp asked for, all at once */
void exchange(int first);
void multiply_by_warp(int first);
void multiply_by_group(int first);
#pragma GCC visibility pop

/* What the PTX of a kernel becomes; `line` is the instruction's. */
void graft_emulator_load_matrices(uint32_t row, uint32_t *words, uint32_t count, uint32_t is_transposed, uint32_t line);
void graft_emulator_exchange(uint32_t value, uint32_t mask, uint32_t clamp, uint32_t members, uint32_t *word, uint32_t line);
void graft_emulator_multiply(const uint32_t *words, void *sums, const uint32_t *numbers, uint32_t line);
void graft_emulator_multiply_group(uint64_t a, uint64_t b, void *sums, const uint32_t *numbers, uint32_t line);

#endif
