/* The machine: its memories, and its instructions from their bits. The table of fields is that of isa.py. */
#include "accelerator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sums of what these bound fit into 64 bits: addresses, and cycles of as many steps as a run may take. */
enum { MOST_INSTRUCTIONS = 1 << 24, MOST_ENTRY = 1 << 24, MOST_TIME = 1 << 20 };

bool accelerator_fail(Accelerator *self, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(self->message, sizeof self->message, format, arguments);
  va_end(arguments);
  return false;
}

/* xorshift64*: small, and the same everywhere. */
uint64_t accelerator_random(uint64_t *state) {
  uint64_t x = *state;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *state = x;
  return x * UINT64_C(0x2545F4914F6CDD1D);
}

static int index_bits(int64_t entries) {
  int bits = 1;
  while (((entries - 1) >> bits) > 0) bits++;
  return bits;
}

static int larger(int a, int b) { return a > b ? a : b; }

/* The widths of fields, and whether instructions and micro-ops have room for them. */
static bool set_widths(Accelerator *self) {
  self->destination_bits = index_bits(self->accumulator_entries);
  self->source_bits = larger(index_bits(self->input_entries), self->destination_bits);
  self->weight_bits = index_bits(self->weight_entries);
  self->micro_op_bits = index_bits(self->micro_op_entries);
  self->sram_bits = larger(larger(self->source_bits, self->weight_bits), self->micro_op_bits);
  int micro_op = self->destination_bits + self->source_bits + self->weight_bits;
  int loop = 7 + 2 * self->micro_op_bits + 1 + 2 * 14, gemm = loop + 2 + 2 * micro_op;
  int alu = loop + 4 + 1 + 16 + 2 * (self->destination_bits + self->source_bits), load = 114 + self->sram_bits;
  if (micro_op > 32) return accelerator_fail(self, "the configuration's micro-ops have more than 32 bits");
  return larger(larger(gemm, alu), load) <= 8 * ACCELERATOR_INSTRUCTION_BYTES ||
         accelerator_fail(self, "the configuration's instructions have more than 128 bits");
}

static bool set_sizes(Accelerator *self) {
  const AcceleratorConfiguration *c = &self->configuration;
  const int64_t *fields = (const int64_t *)c;
  for (int i = 0; i < ACCELERATOR_CONFIGURATION_FIELDS; i++)
    if (fields[i] < 1 || fields[i] > INT32_MAX)
      return accelerator_fail(self, "field %d of the configuration is %lld", i, (long long)fields[i]);
  if (c->batch > MOST_ENTRY || c->block_in > MOST_ENTRY || c->block_out > MOST_ENTRY / 4 ||
      c->batch * c->block_in > MOST_ENTRY || c->block_in * c->block_out > MOST_ENTRY ||
      c->batch * c->block_out > MOST_ENTRY / 4)
    return accelerator_fail(self, "a block of the configuration is too large");
  if (c->latency > MOST_TIME || c->pipeline > MOST_TIME || c->alu_interval > MOST_TIME ||
      c->accumulator_latency > MOST_TIME)
    return accelerator_fail(self, "a time of the configuration is too long");
  self->input_entries = c->input_bytes / (c->batch * c->block_in);
  self->weight_entries = c->weight_bytes / (c->block_out * c->block_in);
  self->accumulator_entries = c->accumulator_bytes / (c->batch * c->block_out * 4);
  self->micro_op_entries = c->micro_op_bytes / 4;
  if (!self->input_entries || c->input_bytes % (c->batch * c->block_in) || !self->weight_entries ||
      c->weight_bytes % (c->block_out * c->block_in) || !self->accumulator_entries ||
      c->accumulator_bytes % (c->batch * c->block_out * 4) || !self->micro_op_entries || c->micro_op_bytes % 4)
    return accelerator_fail(self, "a memory of the configuration is no whole number of entries");
  return set_widths(self);
}

static bool decode_all(Accelerator *self, const uint8_t *stream, size_t size) {
  if (size % ACCELERATOR_INSTRUCTION_BYTES)
    return accelerator_fail(self, "a stream of %zu bytes is no whole number of %d-byte instructions", size,
                            ACCELERATOR_INSTRUCTION_BYTES);
  if (size / ACCELERATOR_INSTRUCTION_BYTES > MOST_INSTRUCTIONS)
    return accelerator_fail(self, "there are %zu instructions, and at most %d are allowed",
                            size / ACCELERATOR_INSTRUCTION_BYTES, MOST_INSTRUCTIONS);
  self->count = (int64_t)(size / ACCELERATOR_INSTRUCTION_BYTES);
  self->instructions = calloc((size_t)self->count + 1, sizeof *self->instructions);
  if (!self->instructions) return accelerator_fail(self, "out of memory");
  for (int64_t i = 0; i < self->count; i++)
    if (!accelerator_decode(self, stream + i * ACCELERATOR_INSTRUCTION_BYTES, &self->instructions[i]))
      return accelerator_fail(self, "instruction %lld is damaged", (long long)i);
  for (int64_t i = 0; i < self->count - 1; i++)
    if (self->instructions[i].opcode == OPCODE_FINISH)
      return accelerator_fail(self, "instruction %lld is 'finish', and %lld are behind it", (long long)i,
                              (long long)(self->count - 1 - i));
  if (!self->count || self->instructions[self->count - 1].opcode != OPCODE_FINISH)
    return accelerator_fail(self, "the program does not end with 'finish'");
  return true;
}

bool accelerator_open(Accelerator *self, const AcceleratorConfiguration *configuration, const uint8_t *stream,
                      size_t size, uint8_t *dram, int64_t dram_bytes, int64_t most_steps) {
  *self = (Accelerator){.configuration = *configuration, .dram = dram, .dram_bytes = dram_bytes};
  self->steps_left = most_steps;
  if (!set_sizes(self) || !decode_all(self, stream, size)) return false;
  self->input = calloc(1, (size_t)configuration->input_bytes);
  self->weight = calloc(1, (size_t)configuration->weight_bytes);
  self->accumulator = calloc(1, (size_t)configuration->accumulator_bytes);
  self->micro_op = calloc(1, (size_t)configuration->micro_op_bytes);
  if (!self->input || !self->weight || !self->accumulator || !self->micro_op)
    return accelerator_fail(self, "out of memory");
  return true;
}

void accelerator_close(Accelerator *self) {
  free(self->input);
  free(self->weight);
  free(self->accumulator);
  free(self->micro_op);
  free(self->instructions);
}

static void poison(void *memory, int64_t size, uint64_t *state) {
  uint8_t *bytes = memory;
  for (int64_t i = 0; i < size; i++) bytes[i] = (uint8_t)(accelerator_random(state) >> 56);
}

void accelerator_poison(Accelerator *self, uint64_t seed) {
  const AcceleratorConfiguration *c = &self->configuration;
  uint64_t state = seed * 2 + 1;
  poison(self->input, c->input_bytes, &state);
  poison(self->weight, c->weight_bytes, &state);
  poison(self->accumulator, c->accumulator_bytes, &state);
  /* Poisoned micro-ops could make every index invalid: all ones are the least likely to be meant. */
  memset(self->micro_op, 0xff, (size_t)c->micro_op_bytes);
}

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t low, high;
} Word;

static int64_t take(Word *word, int width) {
  int64_t value = (int64_t)(word->low & ((UINT64_C(1) << width) - 1));
  word->low = word->low >> width | word->high << (64 - width);
  word->high >>= width;
  return value;
}

static int64_t take_signed(Word *word, int width) {
  int64_t value = take(word, width);
  return value >> (width - 1) ? value - (INT64_C(1) << width) : value;
}

static void decode_transfer(const Accelerator *self, Word *word, Instruction *i) {
  i->memory = (MemoryKind)take(word, 3);
  i->sram = take(word, self->sram_bits);
  i->dram = take(word, 32);
  i->rows = take(word, 16);
  i->columns = take(word, 16);
  i->stride = take(word, 16);
  if (i->opcode == OPCODE_STORE) return;
  i->pad_top = take(word, 4);
  i->pad_bottom = take(word, 4);
  i->pad_left = take(word, 4);
  i->pad_right = take(word, 4);
  i->pad_value = take_signed(word, 8);
}

static void decode_loop(const Accelerator *self, Word *word, Instruction *i) {
  i->begin = take(word, self->micro_op_bits);
  i->end = take(word, self->micro_op_bits + 1);
  i->outer = take(word, 14);
  i->inner = take(word, 14);
  i->destination_outer = take(word, self->destination_bits);
  i->destination_inner = take(word, self->destination_bits);
  i->source_outer = take(word, self->source_bits);
  i->source_inner = take(word, self->source_bits);
}

static bool has_meaning(const AcceleratorConfiguration *c, const Instruction *i) {
  if (i->unit == UNIT_LOAD && (i->pop_previous || i->push_previous)) return false;
  if (i->unit == UNIT_STORE && (i->pop_next || i->push_next)) return false;
  switch (i->opcode) {
    case OPCODE_LOAD:
      if (i->memory == MEMORY_MICRO_OP) return !(i->pad_top || i->pad_bottom || i->pad_left || i->pad_right);
      return i->memory != MEMORY_OUTPUT && i->memory < MEMORY_KINDS;
    case OPCODE_STORE:
      return i->memory == MEMORY_OUTPUT || i->memory == MEMORY_ACCUMULATOR;
    case OPCODE_ALU:
      if (i->operation >= OPERATIONS || (i->operation >= OPERATION_SCALE && i->use_immediate)) return false;
      if (i->operation == OPERATION_SCALE && (i->immediate < 0 || i->immediate >> 8)) return false;
      if (i->operation >= OPERATION_QUANTIZE && (i->immediate < 0 || i->immediate >> 8 > 3)) return false;
      return i->begin < i->end;
    case OPCODE_GEMM:
      return i->begin < i->end && (!i->lanes || c->block_in == c->block_out);
    case OPCODE_FINISH:
      return true;
  }
  return false;
}

bool accelerator_decode(Accelerator *self, const uint8_t *bytes, Instruction *instruction) {
  Word word = {0, 0};
  for (int i = 7; i >= 0; i--) {
    word.low = word.low << 8 | bytes[i];
    word.high = word.high << 8 | bytes[i + 8];
  }
  Instruction i = {.opcode = (Opcode)take(&word, 3), .unit = UNIT_ALU};
  i.pop_previous = take(&word, 1);
  i.pop_next = take(&word, 1);
  i.push_previous = take(&word, 1);
  i.push_next = take(&word, 1);
  switch (i.opcode) {
    case OPCODE_LOAD:
    case OPCODE_STORE:
      decode_transfer(self, &word, &i);
      i.unit = i.opcode == OPCODE_STORE ? UNIT_STORE : UNIT_LOAD;
      break;
    case OPCODE_GEMM:
      i.unit = UNIT_GEMM;
      i.reset = take(&word, 1);
      i.lanes = take(&word, 1);
      decode_loop(self, &word, &i);
      i.weight_outer = take(&word, self->weight_bits);
      i.weight_inner = take(&word, self->weight_bits);
      break;
    case OPCODE_ALU:
      i.operation = (Operation)take(&word, 4);
      decode_loop(self, &word, &i);
      i.use_immediate = take(&word, 1);
      i.immediate = take_signed(&word, 16);
      break;
    case OPCODE_FINISH:
      break;
  }
  *instruction = i;
  return !word.low && !word.high && i.opcode <= OPCODE_ALU && has_meaning(&self->configuration, &i);
}

int64_t accelerator_steps(const Instruction *i) {
  bool steps = i->opcode == OPCODE_GEMM || i->opcode == OPCODE_ALU;
  return steps ? i->outer * i->inner * (i->end - i->begin) : 0;
}

int64_t accelerator_dram_entry(const Accelerator *self, MemoryKind memory) {
  const AcceleratorConfiguration *c = &self->configuration;
  switch (memory) {
    case MEMORY_MICRO_OP:
      return 4;
    case MEMORY_WEIGHT:
      return c->block_in * c->block_out;
    case MEMORY_INPUT:
      return c->batch * c->block_in;
    case MEMORY_ACCUMULATOR:
      return c->batch * c->block_out * 4;
    default:
      return c->batch * c->block_out;
  }
}
