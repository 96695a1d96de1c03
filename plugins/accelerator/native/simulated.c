/* The simulators as devices. */
#include "accelerator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST_STEPS = INT64_C(1) << 40;

typedef struct {
  Accelerator machine;
  uint8_t *dram;
  int64_t *times;
  uint64_t seed;
  bool with_time;
} Simulated;

static int32_t failed(const Simulated *self, GraftAcceleratorMessage *message) {
  snprintf(message->text, sizeof message->text, "%s", self->machine.message);
  return 1;
}

static void close_simulated(void *device) {
  Simulated *self = device;
  accelerator_close(&self->machine);
  free(self->times);
  free(self->dram);
  free(self);
}

static int32_t open_simulated(void *user, const AcceleratorConfiguration *configuration, const uint8_t *stream,
                              size_t stream_bytes, size_t dram_bytes, void **device, uint8_t **dram,
                              GraftAcceleratorMessage *message) {
  Simulated *self = calloc(1, sizeof *self);
  if (!self) {
    snprintf(message->text, sizeof message->text, "out of memory");
    return 1;
  }
  const char *seed = getenv("GRAFT_ACCELERATOR_SEED");
  self->seed = seed ? strtoull(seed, NULL, 10) : 0;
  self->with_time = user != NULL;
  self->dram = calloc(dram_bytes / 64 + 1, 64);
  bool good = self->dram || accelerator_fail(&self->machine, "out of memory");
  good = good && accelerator_open(&self->machine, configuration, stream, stream_bytes, self->dram, (int64_t)dram_bytes,
                                  MOST_STEPS);
  if (good && self->with_time) {
    self->times = calloc((size_t)self->machine.count * 2 + 1, sizeof *self->times);
    good = self->times || accelerator_fail(&self->machine, "out of memory");
  }
  if (!good) {
    failed(self, message);
    close_simulated(self);
    return 1;
  }
  *device = self;
  *dram = self->dram;
  return 0;
}

static int32_t run_simulated(void *device, GraftAcceleratorMessage *message) {
  Simulated *self = device;
  AcceleratorCounters counters;
  self->machine.steps_left = MOST_STEPS;
  accelerator_poison(&self->machine, self->seed);
  bool good = self->with_time ? accelerator_run_cycles(&self->machine, &counters, self->times,
                                                       self->times + self->machine.count)
                              : accelerator_run_functional(&self->machine, self->seed, &counters);
  return good ? 0 : failed(self, message);
}

const GraftAcceleratorDriver *graft_accelerator_simulator(const char *name) {
  static char with_time;
  static const GraftAcceleratorDriver FUNCTIONAL = {
      GRAFT_ACCELERATOR_DRIVER_VERSION, "functional", NULL, NULL, open_simulated, run_simulated, close_simulated};
  static const GraftAcceleratorDriver CYCLES = {
      GRAFT_ACCELERATOR_DRIVER_VERSION, "cycles", &with_time, NULL, open_simulated, run_simulated, close_simulated};
  if (!strcmp(name, "functional")) return &FUNCTIONAL;
  return strcmp(name, "cycles") ? NULL : &CYCLES;
}
