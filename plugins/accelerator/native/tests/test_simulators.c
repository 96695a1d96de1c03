/* Random streams, most of them damaged, through both simulators and the walk of proofs: each ends with a message or an
 * answer. What they compute is tested from Python, against the model. */
#include "hazards.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 20000, LENGTH = 12, DRAM_BYTES = 4096, MOST_STEPS = 20000 };

static const AcceleratorConfiguration SMALL = {1, 4, 4, 128, 256, 512, 64, 4, 3, 8, 16, 7, 4, 2, 3};

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

/* Follows a stream whose tensors take up the whole DRAM; returns whether nothing was wrong with it. */
static int walk(const uint8_t *stream, size_t size, uint8_t *dram) {
  static const ProgramTensor TENSORS[] = {
      {0, 512, ROLE_INPUT}, {512, 512, ROLE_MICRO_OPS}, {1024, 1024, ROLE_CONSTANT}, {2048, 2048, ROLE_WORKSPACE}};
  Accelerator machine;
  Conflict conflicts[(LENGTH + 1) * UNITS] = {{0}};
  int64_t sequence[LENGTH + 1];
  for (int64_t i = 0; i <= LENGTH; i++) sequence[i] = i;
  uint64_t contents[DRAM_BYTES / 4 + 1] = {0};
  Hazards hazards = {.sequence = sequence, .tensors = TENSORS, .tensor_count = 4, .conflicts = conflicts,
                     .contents = contents};
  bool good = accelerator_open(&machine, &SMALL, stream, size, dram, DRAM_BYTES, MOST_STEPS);
  assert(!good || accelerator_find_hazards(&machine, &hazards));
  for (int64_t i = 0; good && i < machine.count * UNITS; i++) assert(conflicts[i].other <= machine.count);
  accelerator_close(&machine);
  return good && hazards.fault.kind == FAULT_NONE;
}

/* Half of all streams decode: small numbers in the fields, few tokens, a finish at the end. */
static size_t random_stream(uint64_t *state, uint8_t *stream) {
  size_t count = accelerator_random(state) % LENGTH;
  for (size_t i = 0; i < count * 16; i++) {
    uint64_t random = accelerator_random(state);
    stream[i] = random >> 62 ? 0 : (uint8_t)(random >> 20 & random >> 30);
  }
  static const uint8_t OPCODES[] = {OPCODE_LOAD, OPCODE_STORE, OPCODE_GEMM, OPCODE_ALU};
  for (size_t i = 0; i < count; i++) stream[i * 16] = OPCODES[accelerator_random(state) >> 62];
  memset(stream + count * 16, 0, 16);
  stream[count * 16] = 3;
  return (count + 1) * 16;
}

int main(void) {
  uint64_t state = 1;
  int good = 0, clean = 0;
  for (int round = 0; round < ROUNDS; round++) {
    uint8_t stream[(LENGTH + 1) * 16], dram[DRAM_BYTES] = {0};
    size_t size = random_stream(&state, stream);
    good += run(&SMALL, stream, size, (uint64_t)round, false, dram);
    good += run(&SMALL, stream, size, (uint64_t)round, true, dram);
    clean += walk(stream, size, dram);
  }
  AcceleratorConfiguration wrong = SMALL;
  uint8_t finish[16] = {3}, dram[DRAM_BYTES];
  assert(run(&SMALL, finish, 16, 1, true, dram));
  assert(!run(&SMALL, finish, 15, 1, true, dram));
  wrong.batch = 0;
  assert(!run(&wrong, finish, 16, 1, true, dram));
  wrong = SMALL;
  wrong.weight_bytes = 1 << 30;
  assert(!run(&wrong, finish, 16, 1, true, dram)); /* instructions are too long */
  wrong = SMALL;
  wrong.weight_bytes++;
  assert(!run(&wrong, finish, 16, 1, true, dram));
  uint8_t lanes[32] = {OPCODE_GEMM, 0x21};
  lanes[16] = OPCODE_FINISH;
  assert(run(&SMALL, lanes, 32, 1, true, dram));
  wrong = SMALL;
  wrong.block_out = 2;
  assert(!run(&wrong, lanes, 32, 1, true, dram));
  uint8_t ended[32] = {OPCODE_FINISH};
  ended[16] = OPCODE_FINISH;
  assert(!run(&SMALL, ended, 32, 1, true, dram));
  assert(good && clean);
  printf("%d of %d runs ended with an answer, %d programs have no fault\n", good, 2 * ROUNDS, clean);
  assert(good > 100);
  return 0;
}
