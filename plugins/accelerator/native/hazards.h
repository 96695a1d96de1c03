/* A walk along a program's accesses: what may be accessed at all, and which two instructions conflict. */
#ifndef GRAFT_ACCELERATOR_HAZARDS_H
#define GRAFT_ACCELERATOR_HAZARDS_H

#include "contents.h"

/* What is accessed: the memories by their number, and DRAM by granules. */
typedef enum { PLACE_MICRO_OP, PLACE_WEIGHT, PLACE_INPUT, PLACE_ACCUMULATOR, PLACE_DRAM, PLACES } Place;

/* In the order of `Role` in program.py. */
typedef enum { ROLE_INPUT, ROLE_OUTPUT, ROLE_CONSTANT, ROLE_MICRO_OPS, ROLE_WORKSPACE } Role;

typedef struct {
  int64_t offset, size, role;
} ProgramTensor;

/* The last instruction of a unit, counted from 1, that an instruction conflicts with, and at which entry; 0 if none. */
typedef struct {
  int64_t other, place, entry;
} Conflict;

/* Why an access is wrong in any order; what the numbers are, each kind says. */
typedef enum {
  FAULT_NONE,
  FAULT_STEPS,         /* first: the steps, last: the most */
  FAULT_OUTSIDE,       /* first: the entry, last: whether it is written */
  FAULT_DRAM,          /* first, last: the addresses */
  FAULT_ROLE_WRITTEN,  /* first: the tensor */
  FAULT_ROLE_READ,     /* first: the tensor */
  FAULT_UNWRITTEN,     /* first: the entry, last: an instruction that writes it, or -1 */
  FAULT_OUTPUT         /* first: the tensor, last: the entry */
} FaultKind;

typedef struct {
  int64_t kind, index, place, first, last;
} Fault;

typedef struct {
  const int64_t *sequence; /* the instructions in an order in which they can run */
  const ProgramTensor *tensors;
  size_t tensor_count;
  Conflict *conflicts; /* zeros, UNITS for each instruction */
  uint64_t *contents;  /* NULL, or what each granule of DRAM holds: before the program, and then behind it */
  Fault fault;
} Hazards;

/* Returns false with a message where memory is short; what is wrong with the program is in `fault`. */
bool accelerator_find_hazards(Accelerator *machine, Hazards *hazards);

#endif
