/* A host with a driver of its own for Graft's accelerator: a vendor's device behind a table of functions.
 *
 *   accelerator FILE.graft [REPEAT]     as run.c; says how often the device ran
 *
 * The device here is the functional simulator. A vendor's `open` maps DMA memory and hands over the instructions, its
 * `run` starts the device and waits for FINISH.
 */
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"
#include "host.h"

typedef struct {
  const GraftAcceleratorDriver *simulator;
  void *inner;
  long *runs;
} Device;

static int32_t open_device(void *user, const AcceleratorConfiguration *configuration, const uint8_t *stream,
                           size_t stream_bytes, size_t dram_bytes, void **device, uint8_t **dram,
                           GraftAcceleratorMessage *message) {
  Device *self = calloc(1, sizeof *self);
  if (!self) {
    snprintf(message->text, sizeof message->text, "out of memory");
    return 1;
  }
  self->runs = user;
  self->simulator = graft_accelerator_simulator("functional");
  if (self->simulator->open(self->simulator->user, configuration, stream, stream_bytes, dram_bytes, &self->inner, dram,
                            message)) {
    free(self);
    return 1;
  }
  *device = self;
  return 0;
}

static int32_t run_device(void *device, GraftAcceleratorMessage *message) {
  Device *self = device;
  ++*self->runs;
  return self->simulator->run(self->inner, message);
}

static void close_device(void *device) {
  Device *self = device;
  self->simulator->close(self->inner);
  free(self);
}

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: %s FILE.graft [REPEAT]\n", argv[0]);
    return 2;
  }
  long runs = 0;
  /* What the device was built as: a program for another configuration is refused. */
  const AcceleratorConfiguration built = {.batch = 1,
                                          .block_in = 16,
                                          .block_out = 16,
                                          .input_bytes = 32 << 10,
                                          .weight_bytes = 256 << 10,
                                          .accumulator_bytes = 128 << 10,
                                          .micro_op_bytes = 32 << 10,
                                          .queue_depth = 512,
                                          .token_depth = 256};
  const GraftAcceleratorDriver driver = {
      GRAFT_ACCELERATOR_DRIVER_VERSION, "example", &runs, &built, open_device, run_device, close_device};
  const GraftLoader loader = graft_accelerator_loader(&driver);
  const GraftLoader *const loaders[] = {&loader};
  GraftLoadOptions options = {.size = sizeof options, .loaders = loaders, .loader_count = 1};
  GraftProgram *program;
  GraftError error = {0};
  if (graft_program_load(argv[1], &options, &program, &error) != GRAFT_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  int status = run_program(program, NULL, argc == 3 ? atol(argv[2]) : 1);
  graft_program_destroy(program);
  printf("the device ran %ld times\n", runs);
  return status;
}
