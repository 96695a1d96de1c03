/* The functional simulator: the queues interleaved by a seed, one actor favoured for a while and then another. */
#include "accelerator.h"

#include <stdlib.h>

enum { FETCH = UNITS, ACTORS, LONGEST_PHASE = 64 };

typedef struct {
  Accelerator *machine;
  uint64_t random;
  int64_t *waiting[UNITS]; /* by unit, its instructions in order */
  int64_t fetched, given[UNITS], taken[UNITS];
  int64_t pending[UNITS]; /* started and not done, or -1 */
  bool late[UNITS];       /* whether what is pending has yet to change the memories */
  int64_t tokens[QUEUES];
} Functional;

/* Each returns 1 if it did something, 0 if it cannot, -1 for an error. */
static int fetch(Functional *self) {
  if (self->fetched == self->machine->count) return 0;
  Unit unit = self->machine->instructions[self->fetched].unit;
  if (self->given[unit] - self->taken[unit] >= self->machine->configuration.queue_depth) return 0;
  self->waiting[unit][self->given[unit]++] = self->fetched++;
  return 1;
}

static int start(Functional *self, Unit unit) {
  if (self->taken[unit] == self->given[unit]) return 0;
  int64_t index = self->waiting[unit][self->taken[unit]];
  const Instruction *i = &self->machine->instructions[index];
  if (accelerator_lacking(self->machine, self->tokens, i, true) != NO_QUEUE) return 0;
  accelerator_exchange(self->tokens, i, true);
  self->taken[unit]++;
  self->pending[unit] = index;
  if (!accelerator_begin(self->machine, index)) return -1;
  self->late[unit] = accelerator_random(&self->random) >> 63;
  return self->late[unit] || accelerator_execute(self->machine, index) ? 1 : -1;
}

static int finish(Functional *self, Unit unit) {
  int64_t index = self->pending[unit];
  const Instruction *i = &self->machine->instructions[index];
  if (accelerator_lacking(self->machine, self->tokens, i, false) != NO_QUEUE) return 0;
  if (self->late[unit] && !accelerator_execute(self->machine, index)) return -1;
  accelerator_exchange(self->tokens, i, false);
  self->pending[unit] = -1;
  return 1;
}

static int act(Functional *self, int actor) {
  if (actor == FETCH) return fetch(self);
  return self->pending[actor] >= 0 ? finish(self, (Unit)actor) : start(self, (Unit)actor);
}

static void shuffle(Functional *self, int *order) {
  for (int i = 0; i < ACTORS; i++) order[i] = i;
  for (int i = ACTORS - 1; i > 0; i--) {
    int other = (int)(accelerator_random(&self->random) >> 33) % (i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
}

static bool is_done(const Functional *self) {
  for (int unit = 0; unit < UNITS; unit++)
    if (self->pending[unit] >= 0 || self->taken[unit] < self->given[unit]) return false;
  return self->fetched == self->machine->count;
}

static bool run(Functional *self) {
  int order[ACTORS], left = 0;
  while (!is_done(self)) {
    if (!left--) {
      shuffle(self, order);
      left = (int)(accelerator_random(&self->random) >> 33) % LONGEST_PHASE;
    }
    int moved = 0;
    for (int i = 0; i < ACTORS && !moved; i++) moved = act(self, order[i]);
    if (moved < 0) return false;
    if (moved) continue;
    for (int unit = 0; unit < UNITS; unit++) {
      int64_t stuck = self->pending[unit] >= 0                 ? self->pending[unit]
                      : self->taken[unit] < self->given[unit] ? self->waiting[unit][self->taken[unit]]
                                                               : -1;
      if (stuck >= 0)
        return accelerator_fail(self->machine, "deadlock: instruction %lld waits for a token forever", (long long)stuck);
    }
    return accelerator_fail(self->machine, "deadlock: no instruction can be fetched");
  }
  return true;
}

static void count(const Accelerator *machine, AcceleratorCounters *counters) {
  for (int64_t k = 0; k < machine->count; k++) {
    const Instruction *i = &machine->instructions[k];
    if (i->opcode == OPCODE_GEMM) counters->gemm_steps += accelerator_steps(i);
    if (i->opcode == OPCODE_ALU) counters->alu_steps += accelerator_steps(i);
    if (i->opcode == OPCODE_LOAD || i->opcode == OPCODE_STORE)
      counters->bytes[i->memory] += i->rows * i->columns * accelerator_dram_entry(machine, i->memory);
  }
  counters->fetch_bytes = machine->count * ACCELERATOR_INSTRUCTION_BYTES;
}

bool accelerator_run_functional(Accelerator *machine, uint64_t seed, AcceleratorCounters *counters) {
  Functional self = {.machine = machine, .random = (seed ^ UINT64_C(0x9E3779B97F4A7C15)) | 1};
  *counters = (AcceleratorCounters){0};
  bool good = true;
  for (int unit = 0; unit < UNITS; unit++) {
    self.pending[unit] = -1;
    self.waiting[unit] = malloc(((size_t)machine->count + 1) * sizeof(int64_t));
    good = good && self.waiting[unit];
  }
  good = good ? run(&self) : accelerator_fail(machine, "out of memory");
  for (int unit = 0; unit < UNITS; unit++) free(self.waiting[unit]);
  if (good) count(machine, counters);
  return good;
}
