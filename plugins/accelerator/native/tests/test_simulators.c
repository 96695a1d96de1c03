/* Random streams, most of them damaged, through both simulators: each ends with a message or an answer, and the two
 * agree on which. What they compute is tested from Python, against the model. */
#include "accelerator.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 20000, LENGTH = 12, DRAM_BYTES = 4096, MOST_STEPS = 20000 };

static const AcceleratorConfiguration SMALL = {1, 4, 4, 128, 256, 512, 64, 4, 3, 8, 16, 7, 2, 2};

static int run(const AcceleratorConfiguration *configuration, const uint8_t *stream, size_t size, uint64_t seed,
               bool with_time, uint8_t *dram) {
  Accelerator machine;
  AcceleratorCounters counters;
  int64_t starts[LENGTH + 1], ends[LENGTH + 1];
  bool good = accelerator_open(&machine, configuration, stream, size, dram, DRAM_BYTES, MOST_STEPS);
  if (good) {
    accelerator_poison(&machine, seed);
    good = with_time ? accelerator_run_cycles(&machine, &counters, starts, ends)
                     : accelerator_run_functional(&machine, seed, &counters);
  }
  assert(good || machine.message[0]);
  accelerator_close(&machine);
  return good;
}

/* Half of all streams decode: small numbers in the fields, few tokens, a finish at the end. */
static size_t random_stream(uint64_t *state, uint8_t *stream) {
  size_t count = accelerator_random(state) % LENGTH;
  for (size_t i = 0; i < count * 16; i++) {
    uint64_t random = accelerator_random(state);
    stream[i] = random >> 62 ? 0 : (uint8_t)(random >> 20 & random >> 30);
  }
  for (size_t i = 0; i < count; i++) stream[i * 16] = (uint8_t)(accelerator_random(state) % 5);
  memset(stream + count * 16, 0, 16);
  stream[count * 16] = 3;
  return (count + 1) * 16;
}

int main(void) {
  uint64_t state = 1;
  int good = 0;
  for (int round = 0; round < ROUNDS; round++) {
    uint8_t stream[(LENGTH + 1) * 16], dram[DRAM_BYTES] = {0};
    size_t size = random_stream(&state, stream);
    good += run(&SMALL, stream, size, (uint64_t)round, false, dram);
    good += run(&SMALL, stream, size, (uint64_t)round, true, dram);
  }
  AcceleratorConfiguration wrong = SMALL;
  uint8_t finish[16] = {3}, dram[DRAM_BYTES];
  assert(run(&SMALL, finish, 16, 1, true, dram));
  assert(!run(&SMALL, finish, 15, 1, true, dram));
  wrong.batch = 0;
  assert(!run(&wrong, finish, 16, 1, true, dram));
  wrong = SMALL;
  wrong.weight_bytes = 1 << 30;
  assert(!run(&wrong, finish, 16, 1, true, dram));
  printf("%d of %d runs ended with an answer\n", good, 2 * ROUNDS);
  assert(good > 100);
  return 0;
}
