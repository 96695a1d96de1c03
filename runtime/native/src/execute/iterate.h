/* What Loop and Scan have in common: values that go round, and outputs stacked slice by slice. */
#ifndef GRAFT_ITERATE_H
#define GRAFT_ITERATE_H

#include "state/state.h"

/* A value that an iteration takes and gives. Of known shape it alternates between two buffers, or blocks where symbols
 * may have other values in the next iteration. */
typedef struct State {
  DLTensor value;
  Block owned; /* its memory, where the body made it */
  void *buffers[2];
  Block blocks[2];
  int32_t next;
} State;

/* An output that grows by one slice along `axis` with each iteration. */
typedef struct Stack {
  int32_t tensor; /* of the calling frame, or -1: nobody wants it */
  int32_t axis;
  int32_t backward;
  int32_t ndim; /* of a slice; -1: not known before the first */
  int64_t shape[GRAFT_MAXIMUM_DIMENSIONS];
  int64_t capacity; /* in slices */
  size_t slice_bytes;
  size_t rows; /* the slice lies in the stack as so many rows */
  char *data;
  Block block;     /* where the calling frame does not know the shape */
  void *temporary; /* a slice that cannot be written in place */
} Stack;

/* Runs a procedure that was entered; `results` are its outputs. */
typedef int32_t RunProcedure(Context *context, Frame *frame, Result *results);

typedef struct Iteration {
  Context *context;
  Frame *frame; /* of the caller */
  Frame *body;
  const Call *call;
  RunProcedure *run; /* of bodies */
  int32_t first_input;        /* of the states among the call's inputs */
  int32_t first_body_input;   /* of the states among the body's inputs */
  int32_t first_body_output;  /* likewise its outputs; the stacks follow */
  int32_t state_count, stack_count;
  int64_t trips; /* how many there will be at most; -1: not known */
  int64_t done;
  State *states;
  Stack *stacks;
  Result *results; /* of the body */
} Iteration;

/* Fills states and stacks; what comes before is set. `axes` may be NULL (axis 0, forward). */
int32_t graft_iteration_begin(Iteration *iteration, const ScanAxis *axes);

/* Runs the body once; its other inputs are bound, its results before `first_body_output` are prepared. */
int32_t graft_iteration_step(Iteration *iteration);

/* Delivers the outputs of the call, unless `status` says that it failed; frees. Returns the final status. */
int32_t graft_iteration_end(Iteration *iteration, int32_t status);

/* The place of `axis` among `ndim`; -1 if there is none. */
int32_t graft_normal_axis(int32_t axis, int32_t ndim);

#endif
