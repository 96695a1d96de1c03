/* Tensor instructions: the threads of a warp, or of a warpgroup, exchange their words as the PTX ISA lays them. They wait
 * for one another, and order no access of memory. */
#define _GNU_SOURCE
#include "products.h"

#include <math.h>
#include <string.h>

#include "memory.h"

enum { ROWS = 64, COLUMNS = 256, TERMS = 32 }; /* of a product, at the most */

void graft_emulator_load_matrices(uint32_t row, uint32_t *words, uint32_t count, uint32_t is_transposed, uint32_t line) {
  Thread *thread = &emulated.threads[emulated.current];
  thread->operands[0] = row, thread->operands[1] = count | is_transposed << 8, thread->result = words;
  suspend(AT_MATRICES, line);
}

/* ldmatrix: thread t names row t % 8 of matrix t / 8, and gets word t % 4 of row t / 4 of each. Transposed,
 * it gets elements of 16 bits of column t / 4, those of rows 2 * (t % 4) and the next. */
void load_matrices(int first) {
  Thread *warp = &emulated.threads[first];
  const int count = (int)(warp->operands[1] & 255), is_transposed = (int)(warp->operands[1] >> 8);
  uint16_t rows[32][8];
  for (int i = 0; i < 8 * count; ++i) {
    emulated.current = first + i;
    memcpy(rows[i], checked(warp[i].operands[0], sizeof rows[i], SHARED_SPACE, warp->line), sizeof rows[i]);
  }
  for (int lane = 0; lane < WARP; ++lane)
    for (int i = 0; i < count; ++i)
      for (int part = 0; part < 2; ++part) {
        const uint16_t element = is_transposed ? rows[i * 8 + lane % 4 * 2 + part][lane / 4] : rows[i * 8 + lane / 4][lane % 4 * 2 + part];
        memcpy((char *)&((uint32_t *)warp[lane].result)[i] + 2 * part, &element, sizeof element);
      }
}

void graft_emulator_exchange(uint32_t value, uint32_t mask, uint32_t clamp, uint32_t members, uint32_t *word, uint32_t line) {
  Thread *thread = &emulated.threads[emulated.current];
  if (clamp != WARP - 1 || members != UINT32_MAX)
    fail_launch(line, "it exchanges words within %u lanes, of threads %x; the emulator does so within whole warps", clamp + 1, members);
  thread->operands[0] = value, thread->operands[1] = mask, thread->result = word;
  suspend(AT_EXCHANGE, line);
}

/* shfl.sync.bfly: each thread gets the word of the one whose number is its own xor a mask. */
void exchange(int first) {
  Thread *warp = &emulated.threads[first];
  for (int lane = 0; lane < WARP; ++lane)
    *(uint32_t *)warp[lane].result = (uint32_t)warp[lane ^ (int)(warp[lane].operands[1] & (WARP - 1))].operands[0];
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

/* The number that bits are, of an element of a factor: float16, bfloat16, tf32, int8, uint8. */
static double number_of(uint32_t kind, uint32_t bits) {
  switch (kind) {
  case 0: return (double)half_to_float((uint16_t)bits);
  case 1: return (double)of_bits(bits << 16);
  case 2: return (double)of_bits(bits & 0xffffe000u); /* what is behind the ten bits of a tf32 is not looked at */
  case 3: return (double)(int8_t)bits;
  default: return (double)(uint8_t)bits;
  }
}

static int size_of(uint32_t kind) { return kind < 2 ? 2 : kind == 2 ? 4 : 1; }

/* Adds terms to a thread's sum of either kind. */
static void add_to(void *sums, int at, uint32_t kind, double total) {
  if (kind >= 3)
    ((int32_t *)sums)[at] = (int32_t)((uint32_t)((int32_t *)sums)[at] + (uint32_t)(int64_t)total);
  else
    ((float *)sums)[at] = (float)((double)((float *)sums)[at] + total);
}

void graft_emulator_multiply(const uint32_t *words, void *sums, const uint32_t *numbers, uint32_t line) {
  Thread *thread = &emulated.threads[emulated.current];
  thread->given = words, thread->result = sums, thread->numbers = numbers;
  suspend(AT_PRODUCT, line);
}

/* Element `k` of a row (of a) or column (of b) of 32 bytes, of the words of its thread, those from `low` and `high` on. */
static double element(const Thread *warp, uint32_t kind, int row, int k, int low, int high) {
  const int byte = k * size_of(kind);
  const uint32_t *words = warp[row % 8 * 4 + byte % 16 / 4].given;
  return number_of(kind, words[byte >= 16 ? high : low] >> byte % 4 * 8);
}

/* mma.sync: a thread's sums are at the rows t / 4 and t / 4 + 8, and the columns 2 * (t % 4) and the next. */
void multiply_by_warp(int first) {
  Thread *warp = &emulated.threads[first];
  const uint32_t left = warp->numbers[0], right = warp->numbers[1];
  const int depth = 32 / size_of(left);
  double a[16][TERMS], b[8][TERMS];
  for (int k = 0; k < depth; ++k)
    for (int row = 0; row < 16; ++row) {
      a[row][k] = element(warp, left, row, k, row >= 8, (row >= 8) + 2);
      if (row < 8)
        b[row][k] = element(warp, right, row, k, 4, 5);
    }
  for (int lane = 0; lane < WARP; ++lane)
    for (int i = 0; i < 4; ++i) {
      const double *row = a[lane / 4 + 8 * (i / 2)], *column = b[lane % 4 * 2 + i % 2];
      double total = 0;
      for (int k = 0; k < depth; ++k)
        total += row[k] * column[k];
      add_to(warp[lane].result, i, left, total);
    }
}

/* ---- wgmma ---- */

/* The address that a matrix descriptor gives element `k` of row (or column) `row` (PTX ISA, "Matrix Descriptor Format"
 * and canonical layouts with 128-byte swizzle): bits 0-13 are the address, 16-29 the leading offset, 32-45 the stride, all
 * in units of 16 bytes, and 62-63 the swizzle, which exchanges bits 4-6 of an address by bits 7-9 of it. */
static uint32_t described(uint64_t descriptor, int is_transposed, int size, int row, int k) {
  const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4, leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
                 stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
  const uint32_t own = (uint32_t)row, term = (uint32_t)k, wide = LINE / (uint32_t)size;
  const uint32_t place = is_transposed ? own / wide * leading + term / 8 * stride + term % 8 * LINE + own % wide * (uint32_t)size
                                   : own / 8 * stride + own % 8 * LINE + term * (uint32_t)size;
  const uint32_t address = start + place;
  return address ^ (address >> 7 & 7) << 4;
}

/* What was written by a thread is fenced by it, and the fence is ordered before this. */
static void check_fence(const char *at, uint32_t line) {
  const Shadow *shadow = shadow_of(at);
  const Thread *writer = &emulated.threads[shadow->write.thread];
  const int is_own = shadow->write.thread / WARPGROUP == emulated.current / WARPGROUP && shadow->write.thread == emulated.current;
  if (shadow->how == BY_THREAD && (is_own ? writer->fences : writer->settled) == shadow->fence)
    fail_launch(line, "it multiplies byte %lld of shared memory, which thread %u writes at %s without a fence.proxy.async and a barrier for it",
                (long long)(at - emulated.shared), shadow->write.thread, said_line(shadow->write.line));
}

/* Reads what one instruction takes of a factor: it is there, is ordered before it, and was fenced by those who wrote it. */
static void read_factor(uint64_t descriptor, int is_transposed, uint32_t kind, int rows, double (*numbers)[TERMS], uint32_t line) {
  const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4;
  const int size = size_of(kind), depth = 32 / size;
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
    fail_launch(line, "it multiplies what a descriptor gives with another swizzle than of 128 bytes, or with a base offset");
  if (start % PATTERN >= (is_transposed ? 1 : LINE))
    fail_launch(line, "it multiplies what begins at byte %u of shared memory, within a pattern of %d bytes", start, PATTERN);
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < depth; ++k) {
      const uint32_t at = described(descriptor, is_transposed, size, row, k);
      uint32_t bits = 0;
      memcpy(&bits, checked(at, (uint32_t)size, SHARED_SPACE, line), (size_t)size);
      check_fence(emulated.shared + at, line);
      numbers[row][k] = number_of(kind, bits);
    }
}

void graft_emulator_multiply_group(uint64_t a, uint64_t b, void *sums, const uint32_t *numbers, uint32_t line) {
  Thread *thread = &emulated.threads[emulated.current];
  if (emulated.count % WARPGROUP)
    fail_launch(line, "it multiplies by warpgroups in a block of %d threads, which is no multiple of %d", emulated.count, WARPGROUP);
  thread->operands[0] = a, thread->operands[1] = b, thread->result = sums, thread->numbers = numbers;
  suspend(AT_GROUP, line);
}

/* wgmma.mma_async: a warpgroup's sums of 64 rows, of which a warp has 16 as mma.sync lays them, eight columns after the
 * other. `numbers` are the kinds of the factors, the columns, and which factors are transposed. */
void multiply_by_group(int first) {
  static double a[ROWS][TERMS], b[COLUMNS][TERMS];
  Thread *group = &emulated.threads[first];
  const uint32_t *numbers = group->numbers;
  const int depth = 32 / size_of(numbers[0]), columns = (int)numbers[2];
  for (int i = 0; i < WARPGROUP; ++i)
    if (group[i].operands[0] != group->operands[0] || group[i].operands[1] != group->operands[1]) {
      emulated.current = first + i;
      fail_launch(group->line, "it multiplies other factors than thread %d of its warpgroup", first);
    }
  emulated.current = first;
  read_factor(group->operands[0], (int)numbers[3], numbers[0], ROWS, a, group->line);
  read_factor(group->operands[1], (int)numbers[4], numbers[1], columns, b, group->line);
  for (int i = 0; i < WARPGROUP; ++i)
    for (int sum = 0; sum < columns / 2; ++sum) {
      const int row = i / WARP * 16 + i % WARP / 4 + sum % 4 / 2 * 8, column = sum / 4 * 8 + i % 4 * 2 + sum % 2;
      double total = 0;
      for (int k = 0; k < depth; ++k)
        total += a[row][k] * b[column][k];
      add_to(group[i].result, sum, numbers[0], total);
    }
}
