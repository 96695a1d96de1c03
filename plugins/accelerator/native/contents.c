/* Instructions on numbers of expressions. `contents.py` builds the same numbers from the source. */
#include "contents.h"

#include <stdlib.h>

/* In the order of `Tag` in contents.py. */
enum { TAG_CONSTANT = 1, TAG_INPUT, TAG_WIDE, TAG_WIDENED, TAG_NARROW, TAG_PRODUCT, TAG_LANES, TAG_OPERATION };

/* The end of splitmix64: each bit of the result depends on each of the argument. */
static uint64_t mixed(uint64_t z) {
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

uint64_t contents_fold(uint64_t a, uint64_t b) { return mixed(mixed(a + UINT64_C(0x9E3779B97F4A7C15)) + b); }

uint64_t contents_constant(const uint8_t *bytes, int64_t count) {
  uint64_t found = TAG_CONSTANT;
  for (int64_t i = 0; i < count; i++) found = contents_fold(found, bytes[i]);
  return found;
}

bool contents_open(Contents *self, Accelerator *machine) {
  const AcceleratorConfiguration *c = &machine->configuration;
  if (c->batch != 1 || c->block_in != c->block_out)
    return accelerator_fail(machine, "contents are known of blocks of 1 x n x n alone");
  self->input = calloc((size_t)machine->input_entries, sizeof *self->input);
  self->row = calloc((size_t)(machine->weight_entries * c->block_out), sizeof *self->row);
  self->block = calloc((size_t)machine->weight_entries, sizeof *self->block);
  self->accumulator = calloc((size_t)machine->accumulator_entries, sizeof *self->accumulator);
  return (self->input && self->row && self->block && self->accumulator) || accelerator_fail(machine, "out of memory");
}

void contents_close(Contents *self) {
  free(self->input);
  free(self->row);
  free(self->block);
  free(self->accumulator);
}

/* ---- Transfers --------------------------------------------------------------------------------------------------- */

/* Puts granules into an entry: those of DRAM, or, for padding, one that is repeated. */
static void put(Contents *self, int64_t lanes, MemoryKind memory, int64_t entry, const uint64_t *granules, int64_t step) {
  if (memory == MEMORY_INPUT) self->input[entry] = *granules;
  else if (memory == MEMORY_WEIGHT) {
    uint64_t all = TAG_WIDE;
    for (int64_t row = 0; row < lanes; row++) {
      self->row[entry * lanes + row] = granules[row * step];
      all = contents_fold(all, granules[row * step]);
    }
    self->block[entry] = all;
  } else if (memory == MEMORY_ACCUMULATOR) {
    uint64_t all = TAG_WIDE;
    for (int64_t part = 0; part < 4; part++) all = contents_fold(all, granules[part * step]);
    self->accumulator[entry] = all;
  } else if (memory == MEMORY_ACCUMULATOR_8) self->accumulator[entry] = contents_fold(TAG_WIDENED, *granules);
}

static uint64_t padding(const Instruction *i, int64_t lanes) {
  uint64_t found = TAG_CONSTANT;
  for (int64_t byte = 0; byte < lanes; byte++) {
    bool is_sign = i->memory == MEMORY_ACCUMULATOR && byte % 4;
    found = contents_fold(found, is_sign ? (i->pad_value < 0 ? 255 : 0) : (uint64_t)i->pad_value & 255);
  }
  return found;
}

static void load(Contents *self, const Accelerator *machine, const Instruction *i) {
  int64_t lanes = machine->configuration.block_out, size = accelerator_dram_entry(machine, i->memory);
  int64_t width = i->pad_left + i->columns + i->pad_right, entry = i->sram;
  uint64_t pad = padding(i, lanes);
  for (int64_t row = -i->pad_top; row < i->rows + i->pad_bottom; row++)
    for (int64_t column = -i->pad_left; column < width - i->pad_left; column++, entry++) {
      bool inside = row >= 0 && row < i->rows && column >= 0 && column < i->columns;
      int64_t place = inside ? (i->dram + row * i->stride + column) * (size / lanes) : 0;
      put(self, lanes, i->memory, entry, inside ? self->dram + place : &pad, inside);
    }
}

static void store(Contents *self, const Instruction *i) {
  int64_t entry = i->sram;
  for (int64_t row = 0; row < i->rows; row++)
    for (int64_t column = 0; column < i->columns; column++, entry++) {
      int64_t place = i->dram + row * i->stride + column;
      uint64_t value = self->accumulator[entry];
      if (i->memory == MEMORY_OUTPUT) self->dram[place] = contents_fold(TAG_NARROW, value);
      else
        for (int64_t part = 0; part < 4; part++)
          self->dram[place * 4 + part] = contents_fold(contents_fold(TAG_WIDE, value), (uint64_t)part);
    }
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static void multiply(Contents *self, const Instruction *i, Step step) {
  uint64_t x = self->input[step.source];
  uint64_t term = i->lanes ? contents_fold(x, self->row[step.weight] ^ TAG_LANES)
                           : contents_fold(x, self->block[step.weight] ^ TAG_PRODUCT);
  uint64_t *to = &self->accumulator[step.destination];
  *to = i->reset ? term : *to + term;
}

static void operate(Contents *self, const Instruction *i, Step step) {
  uint64_t *to = &self->accumulator[step.destination], y = self->accumulator[i->use_immediate ? 0 : step.source];
  uint64_t key = (uint64_t)TAG_OPERATION << 32 | (uint64_t)i->operation << 16 | ((uint64_t)i->immediate & 0xffff);
  if (i->operation == OPERATION_COPY) {
    *to = i->use_immediate ? contents_fold(TAG_CONSTANT, key) : y;
    return;
  }
  uint64_t found = contents_fold(*to, key);
  int64_t operands = i->use_immediate ? 0 : i->operation == OPERATION_REQUANTIZE ? 3 : 1;
  for (int64_t k = 0; k < operands; k++) found = contents_fold(found, self->accumulator[step.source + k]);
  *to = found;
}

void contents_follow(Contents *self, const Accelerator *machine, const Instruction *i) {
  if (i->opcode == OPCODE_STORE) store(self, i);
  if (i->opcode == OPCODE_LOAD && i->memory != MEMORY_MICRO_OP) load(self, machine, i);
  if (i->opcode != OPCODE_GEMM && i->opcode != OPCODE_ALU) return;
  for (int64_t outer = 0; outer < i->outer; outer++)
    for (int64_t inner = 0; inner < i->inner; inner++)
      for (int64_t k = i->begin; k < i->end; k++) {
        Step step = accelerator_step(machine, i, outer, inner, k);
        if (i->opcode == OPCODE_GEMM) multiply(self, i, step);
        else operate(self, i, step);
      }
}
