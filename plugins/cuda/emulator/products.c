/* Tensor instructions: the threads of a warp, or of a warpgroup, exchange their words as the PTX ISA lays them. */
#define _GNU_SOURCE
#include "emulator.h"

#include <math.h>
#include <string.h>

/* ldmatrix: thread t names row t % 8 of matrix t / 8, and gets word t % 4 of row t / 4 of each. Turned,
 * it gets elements of 16 bits of column t / 4, those of rows 2 * (t % 4) and the next. */
void graft_emulator_load_matrices(char *row, uint32_t *words, uint32_t count, uint32_t is_turned) {
  const int self = emulated.current, first = self / WARP * WARP, lane = self % WARP;
  emulated.rows[self] = row;
  graft_emulator_barrier(1);
  for (uint32_t i = 0; i < count && is_turned; ++i)
    for (int part = 0; part < 2; ++part) {
      char *at = emulated.rows[first + (int)i * 8 + lane % 4 * 2 + part] + lane / 4 * 2;
      graft_emulator_access(at, 2, 0);
      memcpy((char *)&words[i] + 2 * part, at, 2);
    }
  for (uint32_t i = 0; i < count && !is_turned; ++i) {
    char *at = emulated.rows[first + (int)i * 8 + lane / 4] + lane % 4 * 4;
    graft_emulator_access(at, 4, 0);
    memcpy(&words[i], at, 4);
  }
  graft_emulator_barrier(1);
}

static float half_to_float(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float magnitude = exponent == 0    ? ldexpf((float)mantissa, -24)
                          : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                           : ldexpf((float)(mantissa + 1024), exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

static float of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The number that bits are, of the left or the right factor. */
static double number_of(uint32_t kind, int is_left, uint32_t bits) {
  switch (kind) {
  case 0: return (double)half_to_float((uint16_t)bits);
  case 1: return (double)of_bits(bits << 16);
  case 2: return (double)of_bits(bits & 0xffffe000u); /* what is behind the ten bits of a tf32 is not looked at */
  case 3: return (double)(int8_t)bits;
  case 4: return is_left ? (double)(uint8_t)bits : (double)(int8_t)bits;
  default: return is_left ? (double)(int8_t)bits : (double)(uint8_t)bits;
  }
}

static int size_of(uint32_t kind) { return kind < 2 ? 2 : kind == 2 ? 4 : 1; }

/* Element `k` of a row (of a) or column (of b) of 32 bytes. `words` are those of its thread, `low` and `high` of them. */
static double element(uint32_t kind, int is_left, int row, int k) {
  const int byte = k * size_of(kind), is_high = byte >= 16, lane = row % 8 * 4 + byte % 16 / 4;
  const int first = emulated.current / WARP * WARP;
  const uint32_t *words = emulated.words[first + lane];
  const uint32_t word = is_left ? words[(row >= 8) + 2 * is_high] : words[4 + is_high];
  return number_of(kind, is_left, word >> byte % 4 * 8);
}

/* mma.sync: this thread's sums are at the rows t / 4 and t / 4 + 8, and the columns 2 * (t % 4) and the next. */
void graft_emulator_multiply(uint32_t kind, const uint32_t *words, void *sums) {
  const int self = emulated.current, lane = self % WARP, depth = kind < 2 ? 16 : kind == 2 ? 8 : 32;
  memcpy(emulated.words[self], words, sizeof emulated.words[self]);
  graft_emulator_barrier(1);
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
    double total = 0;
    for (int k = 0; k < depth; ++k)
      total += element(kind, 1, row, k) * element(kind, 0, column, k);
    if (kind >= 3)
      ((int32_t *)sums)[i] = (int32_t)((uint32_t)((int32_t *)sums)[i] + (uint32_t)(int64_t)total);
    else
      ((float *)sums)[i] = (float)((double)((float *)sums)[i] + total);
  }
  graft_emulator_barrier(1);
}

/* ---- wgmma ---- */

uint32_t graft_emulator_shared_address(const char *at) { return (uint32_t)(at - emulated.shared); }

void graft_emulator_fence_async(void) { emulated.threads[emulated.current].fences++; }

/* The address that a matrix descriptor gives element `k` of row (or column) `row` (PTX ISA, "Matrix Descriptor Format"
 * and canonical layouts with 128-byte swizzle): bits 0-13 are the address, 16-29 the leading offset, 32-45 the stride, all
 * in units of 16 bytes, and 62-63 the swizzle, which exchanges bits 4-6 of an address by bits 7-9 of it. */
static uint32_t described(uint64_t descriptor, int is_turned, int size, int row, int k) {
  const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4, leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
                 stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
  const uint32_t own = (uint32_t)row, term = (uint32_t)k, wide = LINE / (uint32_t)size;
  const uint32_t place = is_turned ? own / wide * leading + term / 8 * stride + term % 8 * LINE + own % wide * (uint32_t)size
                                   : own / 8 * stride + own % 8 * LINE + term * (uint32_t)size;
  const uint32_t address = start + place;
  return address ^ (address >> 7 & 7) << 4;
}

/* What one instruction reads of a factor is there, is ordered before it, and was fenced by those who wrote it. */
static void read_factor(uint64_t descriptor, int is_turned, int size, int rows, int depth) {
  const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4;
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
    fail_launch("it multiplies what a descriptor gives with another swizzle than of 128 bytes, or with a base offset");
  if (start % PATTERN >= (is_turned ? 1 : LINE))
    fail_launch("it multiplies what begins at byte %u of shared memory, within a pattern of %d bytes", start, PATTERN);
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < depth; ++k) {
      const uint32_t at = described(descriptor, is_turned, size, row, k);
      graft_emulator_access(emulated.shared + at, size, 0);
      const Shadow *shadow = &emulated.shared_shadow[at];
      if (shadow->write_epoch >= emulated.block_epoch && emulated.threads[shadow->write_thread].fences == shadow->write_fence)
        fail_launch("it multiplies byte %u of shared memory, which thread %u writes without a fence for it", at,
                    shadow->write_thread);
    }
}

/* wgmma.mma_async, as often as there are steps, and the wait for it: a warpgroup's sums of 64 rows, of which a warp has 16
 * as mma.sync lays them, eight columns after the other. */
void graft_emulator_multiply_group(uint64_t a, uint64_t b, void *sums, uint32_t kind, uint32_t columns, uint32_t steps,
                                   uint32_t a_turned, uint32_t b_turned, uint32_t a_ahead, uint32_t b_ahead) {
  const int self = emulated.current, lane = self % WARP, size = size_of(kind), depth = 32 / size;
  if (emulated.count % WARPGROUP || (size != 2 && (a_turned || b_turned)))
    fail_launch("it multiplies with %d threads, or with factors that lie so only of 16 bits", emulated.count);
  graft_emulator_barrier(1);
  for (uint32_t step = 0; step < steps; ++step, a += a_ahead >> 4, b += b_ahead >> 4) {
    if (self % WARPGROUP == 0) {
      read_factor(a, (int)a_turned, size, 64, depth);
      read_factor(b, (int)b_turned, size, (int)columns, depth);
    }
    for (int i = 0; i < (int)columns / 2; ++i) {
      const int row = self % WARPGROUP / WARP * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      double total = 0;
      for (int k = 0; k < depth; ++k) {
        uint32_t left = 0, right = 0;
        memcpy(&left, emulated.shared + described(a, (int)a_turned, size, row, k), (size_t)size);
        memcpy(&right, emulated.shared + described(b, (int)b_turned, size, column, k), (size_t)size);
        total += number_of(kind, 1, left) * number_of(kind, 0, right);
      }
      if (kind >= 3)
        ((int32_t *)sums)[i] = (int32_t)((uint32_t)((int32_t *)sums)[i] + (uint32_t)(int64_t)total);
      else
        ((float *)sums)[i] = (float)((double)((float *)sums)[i] + total);
    }
  }
  graft_emulator_barrier(1);
}
