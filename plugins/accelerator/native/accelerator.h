/* The accelerator: configuration, instructions, and the machine whose memories they change. */
#ifndef GRAFT_ACCELERATOR_H
#define GRAFT_ACCELERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

enum { ACCELERATOR_INSTRUCTION_BYTES = 16 };

typedef enum { OPCODE_LOAD, OPCODE_STORE, OPCODE_GEMM, OPCODE_FINISH, OPCODE_ALU } Opcode;
typedef enum {
  MEMORY_MICRO_OP,
  MEMORY_WEIGHT,
  MEMORY_INPUT,
  MEMORY_ACCUMULATOR,
  MEMORY_OUTPUT,
  MEMORY_ACCUMULATOR_8,
  MEMORY_KINDS
} MemoryKind;
typedef enum {
  OPERATION_MIN,
  OPERATION_MAX,
  OPERATION_ADD,
  OPERATION_SHIFT_RIGHT,
  OPERATION_MULTIPLY,
  OPERATION_COPY,
  OPERATION_SCALE,
  OPERATION_FLOAT_ADD,
  OPERATION_QUANTIZE,
  OPERATION_REQUANTIZE,
  OPERATIONS
} Operation;
typedef enum { UNIT_LOAD, UNIT_GEMM, UNIT_ALU, UNIT_STORE, UNITS } Unit;
/* Queues of tokens between neighbours: 2 * u from unit u to the next, 2 * u + 1 back. */
typedef int Queue;
enum { QUEUES = 2 * (UNITS - 1), NO_QUEUE };

typedef struct {
  Opcode opcode;
  Unit unit;
  bool pop_previous, pop_next, push_previous, push_next;
  MemoryKind memory;
  int64_t sram, dram, rows, columns, stride;
  int64_t pad_top, pad_bottom, pad_left, pad_right, pad_value;
  bool reset, lanes, use_immediate;
  Operation operation;
  int64_t begin, end, outer, inner;
  int64_t destination_outer, destination_inner, source_outer, source_inner, weight_outer, weight_inner;
  int64_t immediate;
} Instruction;

typedef struct {
  AcceleratorConfiguration configuration;
  int64_t input_entries, weight_entries, accumulator_entries, micro_op_entries;
  int destination_bits, source_bits, weight_bits, micro_op_bits, sram_bits;
  uint8_t *dram;
  int64_t dram_bytes;
  int8_t *input, *weight;
  int32_t *accumulator;
  uint32_t *micro_op;
  Instruction *instructions;
  int64_t count;
  int64_t steps_left;
  bool without_data; /* the time of a run does not depend on what it computes */
  char message[256];
} Accelerator;

/* What a unit does with its time. */
typedef enum {
  TIME_BUSY,
  TIME_DRAM,
  TIME_TOKEN_PREVIOUS,
  TIME_TOKEN_NEXT,
  TIME_ROOM,
  TIME_INSTRUCTIONS,
  TIMES
} TimeKind;

typedef struct {
  int64_t cycles, gemm_steps, alu_steps, port_cycles, fetch_bytes;
  int64_t bytes[MEMORY_KINDS];
  int64_t times[UNITS][TIMES];
} AcceleratorCounters;

/* Functions that return false left a message. */
bool accelerator_open(Accelerator *self, const AcceleratorConfiguration *configuration, const uint8_t *stream,
                      size_t size, uint8_t *dram, int64_t dram_bytes, int64_t most_steps);
void accelerator_close(Accelerator *self);
/* Fills the memories with numbers that depend on the seed, so that nothing relies on what it did not write. */
void accelerator_poison(Accelerator *self, uint64_t seed);
bool accelerator_decode(Accelerator *self, const uint8_t *bytes, Instruction *instruction);
/* Checks that a transfer fits into its memory, and takes an instruction's steps from those that are left. */
bool accelerator_begin(Accelerator *self, int64_t index);
/* Carries out one instruction that has begun. */
bool accelerator_execute(Accelerator *self, int64_t index);
/* Runs the program with its queues interleaved in an order that the seed chooses, as unfair as it likes. */
bool accelerator_run_functional(Accelerator *self, uint64_t seed, AcceleratorCounters *counters);
/* Runs the program with its time; `starts` and `ends` have a place for every instruction. */
bool accelerator_run_cycles(Accelerator *self, AcceleratorCounters *counters, int64_t *starts, int64_t *ends);

bool accelerator_fail(Accelerator *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t accelerator_random(uint64_t *state);
int64_t accelerator_steps(const Instruction *instruction);
int64_t accelerator_dram_entry(const Accelerator *self, MemoryKind memory);

/* What one step reads and writes: an accumulator, an input or another accumulator, and weights. */
typedef struct {
  int64_t destination, source, weight;
} Step;

static inline Step accelerator_step(const Accelerator *self, const Instruction *i, int64_t outer, int64_t inner,
                                    int64_t k) {
  uint32_t word = self->micro_op[k];
  int64_t destination = word & ((1u << self->destination_bits) - 1);
  int64_t source = word >> self->destination_bits & ((1u << self->source_bits) - 1);
  int64_t weight = (int64_t)((uint64_t)word >> (self->destination_bits + self->source_bits)) &
                   ((INT64_C(1) << self->weight_bits) - 1);
  return (Step){destination + outer * i->destination_outer + inner * i->destination_inner,
                source + outer * i->source_outer + inner * i->source_inner,
                weight + outer * i->weight_outer + inner * i->weight_inner};
}

static inline Queue pop_queue(const Instruction *instruction, bool next) {
  if (!(next ? instruction->pop_next : instruction->pop_previous)) return NO_QUEUE;
  return next ? 2 * (Queue)instruction->unit + 1 : 2 * ((Queue)instruction->unit - 1);
}

static inline Queue push_queue(const Instruction *instruction, bool next) {
  if (!(next ? instruction->push_next : instruction->push_previous)) return NO_QUEUE;
  return next ? 2 * (Queue)instruction->unit : 2 * ((Queue)instruction->unit - 1) + 1;
}

/* Returns the queue whose token, or else whose room, an instruction lacks; NO_QUEUE where it may go on. */
static inline Queue accelerator_lacking(const Accelerator *self, const int64_t *tokens, const Instruction *i,
                                        bool token) {
  for (int next = 0; next < 2; next++) {
    Queue queue = token ? pop_queue(i, next) : push_queue(i, next);
    if (queue == NO_QUEUE) continue;
    if (token ? !tokens[queue] : tokens[queue] >= self->configuration.token_depth) return queue;
  }
  return NO_QUEUE;
}

/* Takes an instruction's tokens, or gives those behind it. */
static inline void accelerator_exchange(int64_t *tokens, const Instruction *i, bool take) {
  for (int next = 0; next < 2; next++) {
    Queue queue = take ? pop_queue(i, next) : push_queue(i, next);
    if (queue != NO_QUEUE) tokens[queue] += take ? -1 : 1;
  }
}

#endif
