/* Runs an artifact on raw bytes:  exchange FILE.graft INPUTS OUTPUTS [THREADS]
 *
 * INPUTS holds the contents of all inputs one after another, OUTPUTS gets those of all outputs.
 */
#include <stdio.h>
#include <stdlib.h>

#include "graft/runtime.h"

static size_t byte_count(int32_t ndim, const int64_t *shape, DLDataType dtype) {
  size_t count = (size_t)dtype.bits * dtype.lanes / 8;
  for (int32_t i = 0; i < ndim; i++) {
    count *= (size_t)shape[i];
  }
  return count;
}

static int refuse(const char *text) {
  fprintf(stderr, "%s\n", text);
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    return refuse("usage: exchange FILE.graft INPUTS OUTPUTS [THREADS]");
  }
  GraftProgram *program;
  GraftError error = {0};
  GraftLoadOptions options = {.size = sizeof options, .threads = argc > 4 ? atoi(argv[4]) : 1};
  if (graft_program_load(argv[1], &options, &program, &error) != GRAFT_OK) {
    return refuse(error.message);
  }
  DLTensor inputs[16] = {0}, outputs[16] = {0};
  FILE *file = fopen(argv[2], "rb");
  for (int32_t i = 0; i < graft_program_input_count(program); i++) {
    GraftTensorInfo info = graft_program_input(program, i);
    size_t count = byte_count(info.ndim, info.shape, info.dtype);
    inputs[i] = (DLTensor){.data = malloc(count + 1),
                           .device = {kDLCPU, 0},
                           .ndim = info.ndim,
                           .dtype = info.dtype,
                           .shape = (int64_t *)info.shape};
    if (!file || !inputs[i].data || fread(inputs[i].data, 1, count, file) != count) {
      return refuse("the inputs are too short");
    }
  }
  fclose(file);
  if (graft_program_run(program, inputs, outputs, &error) != GRAFT_OK) {
    return refuse(error.message);
  }
  file = fopen(argv[3], "wb");
  for (int32_t i = 0; i < graft_program_output_count(program); i++) {
    size_t count = byte_count(outputs[i].ndim, outputs[i].shape, outputs[i].dtype);
    if (!file || fwrite(outputs[i].data, 1, count, file) != count) {
      return refuse("the outputs cannot be written");
    }
    graft_free_output(outputs + i);
  }
  return fclose(file) ? 1 : 0;
}
