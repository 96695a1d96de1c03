/* The loom: programs as they lie in a module, checked when they are loaded so that running them checks only places. */
#ifndef LOOM_H
#define LOOM_H

#include <stddef.h>
#include <stdint.h>

#include "graft/runtime.h"

enum { LOOM_VERSION = 1, LOOM_LANES = 8, LOOM_STACK = 256, LOOM_SAVED = 64, LOOM_MOST = 1 << 16 };

typedef enum LoomOpcode {
#define EACH(name, operands, field, value) LOOM_##name,
#define CONTROL(name, operands, results, p, q) LOOM_##name,
#include "instructions.def"
#undef EACH
#undef CONTROL
  LOOM_OPCODES
} LoomOpcode;

typedef struct LoomInstruction {
  int64_t opcode, p, q;
} LoomInstruction;

/* Buffers are the parameters, then what is allocated. */
typedef struct LoomFunction {
  const char *name; /* `name_size` bytes, the last ones zero */
  int64_t name_size, inputs, parameters, buffers, locals, count;
  const LoomInstruction *code;
} LoomFunction;

typedef struct LoomProgram {
  int64_t count;
  int64_t *words; /* the module's, whose names and code the functions point to */
  LoomFunction functions[];
} LoomProgram;

/* NULL for a function that is safe to run, else what is wrong with it. */
const char *loom_fault(const LoomFunction *function);

/* A GraftFunction whose state is a LoomFunction. */
int32_t loom_run(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs);

#endif
