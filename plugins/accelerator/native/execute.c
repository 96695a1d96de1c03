/* What each instruction does to the memories. Every index is checked: a damaged program ends with a message. */
#include "accelerator.h"

#include <math.h>
#include <string.h>

static bool check_dram(Accelerator *self, int64_t index, int64_t first, int64_t size) {
  if (first >= 0 && size <= self->dram_bytes && first <= self->dram_bytes - size) return true;
  return accelerator_fail(self, "instruction %lld accesses DRAM from %lld to %lld, and there are %lld bytes",
                          (long long)index, (long long)first, (long long)(first + size), (long long)self->dram_bytes);
}

static bool check_entries(Accelerator *self, int64_t index, int64_t last, int64_t entries) {
  if (last <= entries) return true;
  return accelerator_fail(self, "instruction %lld accesses entry %lld of a memory, and there are %lld",
                          (long long)index, (long long)last - 1, (long long)entries);
}

/* ---- Transfers --------------------------------------------------------------------------------------------------- */

static void fill(Accelerator *self, MemoryKind memory, int64_t place, int64_t count, int8_t value) {
  int64_t lanes = self->configuration.batch * self->configuration.block_out;
  if (memory == MEMORY_ACCUMULATOR || memory == MEMORY_ACCUMULATOR_8)
    for (int64_t i = 0; i < count * lanes; i++) self->accumulator[place * lanes + i] = value;
  else if (memory != MEMORY_MICRO_OP) {
    int64_t size = accelerator_dram_entry(self, memory);
    memset((memory == MEMORY_INPUT ? self->input : self->weight) + place * size, value, (size_t)(count * size));
  }
}

static void copy_in(Accelerator *self, MemoryKind memory, int64_t place, const uint8_t *from, int64_t count) {
  int64_t size = accelerator_dram_entry(self, memory);
  switch (memory) {
    case MEMORY_MICRO_OP:
      for (int64_t i = 0; i < count; i++, from += 4)
        self->micro_op[place + i] =
            (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
      return;
    case MEMORY_INPUT:
      memcpy(self->input + place * size, from, (size_t)(count * size));
      return;
    case MEMORY_WEIGHT:
      memcpy(self->weight + place * size, from, (size_t)(count * size));
      return;
    case MEMORY_ACCUMULATOR:
      memcpy((uint8_t *)self->accumulator + place * size, from, (size_t)(count * size));
      return;
    default:
      for (int64_t i = 0; i < count * size; i++) self->accumulator[place * size + i] = (int8_t)from[i];
  }
}

static bool load(Accelerator *self, int64_t index, const Instruction *i) {
  int64_t size = accelerator_dram_entry(self, i->memory), width = i->pad_left + i->columns + i->pad_right;
  int64_t place = i->sram;
  if (!width) return true;
  for (int64_t row = -i->pad_top; row < i->rows + i->pad_bottom; row++, place += width) {
    if (row < 0 || row >= i->rows || !i->columns) {
      fill(self, i->memory, place, width, (int8_t)i->pad_value);
      continue;
    }
    int64_t first = (i->dram + row * i->stride) * size;
    if (!check_dram(self, index, first, i->columns * size)) return false;
    fill(self, i->memory, place, i->pad_left, (int8_t)i->pad_value);
    copy_in(self, i->memory, place + i->pad_left, self->dram + first, i->columns);
    fill(self, i->memory, place + i->pad_left + i->columns, i->pad_right, (int8_t)i->pad_value);
  }
  return true;
}

static bool store(Accelerator *self, int64_t index, const Instruction *i) {
  int64_t size = accelerator_dram_entry(self, i->memory), lanes = self->configuration.batch * self->configuration.block_out;
  for (int64_t row = 0; row < i->rows && i->columns; row++) {
    int64_t first = (i->dram + row * i->stride) * size, count = i->columns * lanes;
    if (!check_dram(self, index, first, i->columns * size)) return false;
    const int32_t *from = self->accumulator + (i->sram + row * i->columns) * lanes;
    uint8_t *to = self->dram + first;
    if (i->memory == MEMORY_ACCUMULATOR) memcpy(to, from, (size_t)count * 4);
    else
      for (int64_t k = 0; k < count; k++) to[k] = (uint8_t)from[k];
  }
  return true;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

/* Sums wrap, as in the model: the arithmetic is unsigned. */
static inline void add_product(int32_t *restrict to, const int8_t *restrict x, const int8_t *restrict w, int64_t columns,
                               int64_t rows) {
  for (int64_t row = 0; row < rows; row++, w += columns) {
    int32_t sum = 0;
    for (int64_t k = 0; k < columns; k++) sum += x[k] * w[k];
    to[row] = (int32_t)((uint32_t)to[row] + (uint32_t)sum);
  }
}

static void multiply(Accelerator *self, const Instruction *i, Step step) {
  const AcceleratorConfiguration *c = &self->configuration;
  int64_t lanes = c->batch * c->block_out;
  int32_t *to = self->accumulator + step.destination * lanes;
  if (i->reset) memset(to, 0, (size_t)lanes * sizeof *to);
  for (int64_t b = 0; b < c->batch; b++, to += c->block_out) {
    const int8_t *x = self->input + (step.source * c->batch + b) * c->block_in;
    if (i->lanes) {
      const int8_t *w = self->weight + step.weight * c->block_in;
      for (int64_t k = 0; k < c->block_in; k++) to[k] = (int32_t)((uint32_t)to[k] + (uint32_t)(x[k] * w[k]));
    } else {
      const int8_t *w = self->weight + step.weight * c->block_in * c->block_out;
      if (c->block_in == 16 && c->block_out == 16) add_product(to, x, w, 16, 16);
      else add_product(to, x, w, c->block_in, c->block_out);
    }
  }
}

static float as_float(int32_t bits) {
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

static int32_t as_bits(float number) {
  int32_t bits;
  if (isnan(number)) return 0x7fc00000;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

static int64_t zero_point(int64_t immediate) { return ((immediate & 255) ^ 128) - 128; }

static int32_t bounded(double number, int64_t immediate, bool add_point) {
  int64_t point = zero_point(immediate), least = immediate >> 8 & 1 ? point : -128;
  double whole = isnan(number) ? 0 : rint(number);
  int64_t value = whole <= INT32_MIN ? INT32_MIN : whole >= INT32_MAX ? INT32_MAX : (int64_t)whole;
  if (add_point) value += point;
  return (int32_t)(value < least ? least : value > 127 ? 127 : value);
}

static int32_t shifted(int32_t x, int64_t by) {
  if (by < 0) return (int32_t)((uint32_t)x << (by < -31 ? 31 : -by));
  return x >> (by > 31 ? 31 : by);
}

static int32_t operate(const Instruction *i, int32_t x, int32_t y, int32_t divisor, int32_t bias) {
  switch (i->operation) {
    case OPERATION_MIN:
      return x < y ? x : y;
    case OPERATION_MAX:
      return x > y ? x : y;
    case OPERATION_ADD:
      return (int32_t)((uint32_t)x + (uint32_t)y);
    case OPERATION_SHIFT_RIGHT:
      return shifted(x, y);
    case OPERATION_MULTIPLY:
      return (int32_t)((uint32_t)x * (uint32_t)y);
    case OPERATION_COPY:
      return y;
    case OPERATION_SCALE:
      x = (int32_t)((uint32_t)x - (uint32_t)zero_point(i->immediate));
      return as_bits((float)x * as_float(y));
    case OPERATION_FLOAT_ADD:
      return as_bits(as_float(x) + as_float(y));
    case OPERATION_QUANTIZE:
      return bounded(as_float(x) / as_float(y), i->immediate, true);
    case OPERATION_REQUANTIZE:
      x = (int32_t)((uint32_t)x + (uint32_t)bias);
      if (i->immediate >> 9 & 1)
        return bounded((double)x * (double)as_float(y) + (double)zero_point(i->immediate), i->immediate, false);
      return bounded((float)x * as_float(y) / as_float(divisor), i->immediate, true);
    default:
      return 0;
  }
}

static bool check_step(Accelerator *self, int64_t index, const Instruction *i, Step step) {
  int64_t rows = i->lanes ? self->configuration.block_out : 1;
  bool good = step.destination < self->accumulator_entries;
  if (i->opcode == OPCODE_GEMM)
    good = good && step.source < self->input_entries && step.weight < self->weight_entries * rows;
  else
    good = good && (i->use_immediate ||
                    step.source + 2 * (i->operation == OPERATION_REQUANTIZE) < self->accumulator_entries);
  if (good) return true;
  return accelerator_fail(self, "instruction %lld takes a step outside of its memories: %lld, %lld, %lld",
                          (long long)index, (long long)step.destination, (long long)step.source,
                          (long long)step.weight);
}

static bool take_steps(Accelerator *self, int64_t index, const Instruction *i) {
  int64_t lanes = self->configuration.batch * self->configuration.block_out;
  if (accelerator_steps(i) && !check_entries(self, index, i->end, self->micro_op_entries)) return false;
  for (int64_t outer = 0; outer < i->outer; outer++)
    for (int64_t inner = 0; inner < i->inner; inner++)
      for (int64_t k = i->begin; k < i->end; k++) {
        Step step = accelerator_step(self, i, outer, inner, k);
        if (!check_step(self, index, i, step)) return false;
        if (i->opcode == OPCODE_GEMM) {
          multiply(self, i, step);
          continue;
        }
        int32_t *x = self->accumulator + step.destination * lanes;
        int64_t wide = i->operation == OPERATION_REQUANTIZE ? lanes : 0;
        for (int64_t lane = 0; lane < lanes; lane++) {
          const int32_t *y = self->accumulator + (i->use_immediate ? 0 : step.source * lanes + lane);
          x[lane] = operate(i, x[lane], i->use_immediate ? (int32_t)i->immediate : *y, y[wide], y[2 * wide]);
        }
      }
  return true;
}

bool accelerator_begin(Accelerator *self, int64_t index) {
  const Instruction *i = &self->instructions[index];
  if (i->opcode == OPCODE_LOAD || i->opcode == OPCODE_STORE) {
    int64_t width = i->pad_left + i->columns + i->pad_right, height = i->pad_top + i->rows + i->pad_bottom;
    int64_t entries = i->memory == MEMORY_INPUT      ? self->input_entries
                      : i->memory == MEMORY_WEIGHT   ? self->weight_entries
                      : i->memory == MEMORY_MICRO_OP ? self->micro_op_entries
                                                     : self->accumulator_entries;
    int64_t count = width * height;
    return !count || check_entries(self, index, i->sram + count, entries);
  }
  int64_t steps = accelerator_steps(i);
  if (steps > self->steps_left)
    return accelerator_fail(self, "instruction %lld takes %lld steps, and %lld are left", (long long)index,
                            (long long)steps, (long long)self->steps_left);
  self->steps_left -= steps;
  return true;
}

bool accelerator_execute(Accelerator *self, int64_t index) {
  const Instruction *i = &self->instructions[index];
  switch (i->opcode) {
    case OPCODE_LOAD:
      return load(self, index, i);
    case OPCODE_STORE:
      return store(self, index, i);
    case OPCODE_GEMM:
    case OPCODE_ALU:
      return take_steps(self, index, i);
    case OPCODE_FINISH:
      break;
  }
  return true;
}
