/* What each slot of each memory holds: an expression of the source, by a number of 64 bits.
 *
 * Two expressions have one number only if they are equal, but for chances of 2^-64: operations are not interpreted, except
 * that sums of products do not depend on the order of their terms, and that a copy is what it copies. */
#ifndef GRAFT_ACCELERATOR_CONTENTS_H
#define GRAFT_ACCELERATOR_CONTENTS_H

#include "accelerator.h"

/* Blocks are 1 x n x n. DRAM and inputs have a number for n bytes, weights for each of n rows, accumulators for each. */
typedef struct {
  uint64_t *dram; /* given, and changed */
  uint64_t *input, *row, *block, *accumulator;
} Contents;

/* Returns false with a message where memory is short, or blocks are not square. */
bool contents_open(Contents *self, Accelerator *machine);
void contents_close(Contents *self);
/* What an instruction does, none of whose accesses is outside of its memory. */
void contents_follow(Contents *self, const Accelerator *machine, const Instruction *i);

/* An operation of two numbers, not commutative. */
uint64_t contents_fold(uint64_t a, uint64_t b);
/* The number of bytes that are known. */
uint64_t contents_constant(const uint8_t *bytes, int64_t count);

#endif
