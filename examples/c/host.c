#include "host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static size_t element_count(GraftTensorInfo info) {
  size_t count = 1;
  for (int32_t i = 0; i < info.ndim; i++) {
    count *= (size_t)info.shape[i];
  }
  return count;
}

/* Elements as small numbers: 0, 0.01, 0.02, ... for float32; zeros for what is neither float32 nor an integer. */
static void fill(const DLTensor *tensor, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (tensor->dtype.code == kDLFloat && tensor->dtype.bits == 32) {
      ((float *)tensor->data)[i] = (float)(i % 100) / 100.0f;
    }
  }
}

static int prepare(GraftTensorInfo info, DLTensor *tensor) {
  if (info.ndim < 0) {
    fprintf(stderr, "input '%s' has no fixed shape; this example cannot fill it\n", info.name);
    return 0;
  }
  size_t count = element_count(info);
  *tensor = (DLTensor){.data = calloc(count ? count : 1, info.dtype.bits / 8u),
                       .device = {kDLCPU, 0},
                       .ndim = info.ndim,
                       .dtype = info.dtype,
                       .shape = (int64_t *)info.shape};
  if (!tensor->data) {
    fprintf(stderr, "out of memory\n");
    return 0;
  }
  fill(tensor, count);
  return 1;
}

static void print_output(GraftTensorInfo info, const DLTensor *output) {
  size_t count = 1;
  printf("%s: [", info.name);
  for (int32_t i = 0; i < output->ndim; i++) {
    printf("%s%" PRId64, i ? "," : "", output->shape[i]);
    count *= (size_t)output->shape[i];
  }
  printf("]");
  for (size_t i = 0; i < count && i < 8; i++) {
    if (output->dtype.code == kDLFloat && output->dtype.bits == 32) {
      printf(" %g", (double)((const float *)output->data)[i]);
    } else if (output->dtype.code == kDLInt && output->dtype.bits == 64) {
      printf(" %" PRId64, ((const int64_t *)output->data)[i]);
    }
  }
  printf("\n");
}

static double milliseconds(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int run(GraftProgram *program, const GraftRunOptions *options, const DLTensor *inputs, DLTensor *outputs,
               long repeat) {
  int32_t count = graft_program_output_count(program);
  GraftError error = {0};
  for (long i = 0; i < repeat; i++) {
    double start = milliseconds();
    for (int32_t k = 0; k < count; k++) {
      outputs[k] = (DLTensor){0}; /* the runtime allocates */
    }
    if (graft_program_run_with(program, inputs, outputs, options, &error) != GRAFT_OK) {
      fprintf(stderr, "%s\n", error.message);
      return 1;
    }
    double elapsed = milliseconds() - start;
    if (i + 1 == repeat) {
      for (int32_t k = 0; k < count; k++) {
        print_output(graft_program_output(program, k), outputs + k);
      }
      printf("%.3f ms\n", elapsed);
    }
    for (int32_t k = 0; k < count; k++) {
      graft_free_output(outputs + k);
    }
  }
  return 0;
}

int run_program(GraftProgram *program, const GraftRunOptions *options, long repeat) {
  int32_t inputs_count = graft_program_input_count(program), outputs_count = graft_program_output_count(program);
  DLTensor *inputs = calloc((size_t)inputs_count + 1, sizeof *inputs);
  DLTensor *outputs = calloc((size_t)outputs_count + 1, sizeof *outputs);
  int ready = inputs && outputs;
  for (int32_t i = 0; ready && i < inputs_count; i++) {
    ready = prepare(graft_program_input(program, i), inputs + i);
  }
  int status = ready ? run(program, options, inputs, outputs, repeat) : 1;
  for (int32_t i = 0; inputs && i < inputs_count; i++) {
    free(inputs[i].data);
  }
  free(inputs);
  free(outputs);
  return status;
}
