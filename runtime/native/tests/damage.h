/* Manifests with something changed: they are refused with a message, or make a program that keeps to its memory. */
#ifndef GRAFT_TESTS_DAMAGE_H
#define GRAFT_TESTS_DAMAGE_H

#include "functions.h"

/* What asks for too much memory is to be refused, as malloc does, and not to end the test. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=64"; }
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=64"; }

static int calls_left; /* a changed loop may have no end */

/* Reads all inputs and writes all outputs, whatever they are: what lies outside its memory, the sanitizer sees. */
static int32_t function_touch(GraftContext *base, void *state, const DLTensor *const *inputs,
                              DLTensor *const *outputs) {
  const Call *call = ((Context *)base)->call;
  const int64_t twos[GRAFT_MAXIMUM_DIMENSIONS] = {2, 2, 2, 2};
  unsigned sum = 0;
  (void)state;
  if (calls_left-- <= 0) {
    return base->api->fail(base, "enough");
  }
  for (int32_t i = 0; i < call->inputs.count; i++) {
    size_t bytes = 0;
    if (inputs[i] && graft_tensor_bytes(inputs[i]->dtype, inputs[i]->ndim, inputs[i]->shape, &bytes)) {
      for (size_t k = 0; k < bytes; k++) {
        sum += ((const uint8_t *)inputs[i]->data)[k];
      }
    }
  }
  for (int32_t i = 0; i < call->outputs.count; i++) {
    size_t bytes = 0;
    if (!outputs[i]->data &&
        !base->api->allocate_output(base, i, outputs[i]->ndim < 0 ? 1 : outputs[i]->ndim, twos)) {
      return GRAFT_ERROR_RUN;
    }
    graft_tensor_bytes(outputs[i]->dtype, outputs[i]->ndim, outputs[i]->shape, &bytes);
    memset(outputs[i]->data, (int)(sum & 1), bytes);
  }
  return GRAFT_OK;
}

static int32_t touch_lookup(void *user, const GraftLoaderHost *host, void *module, const char *function,
                            GraftFunction *entry, void **state) {
  (void)user;
  (void)host;
  (void)function;
  *entry = function_touch;
  *state = module;
  return GRAFT_OK;
}

/* A changed manifest that is still valid must also run. */
static inline void try_changed(const char *text, const DLTensor *inputs, int32_t count) {
  GraftLoader loader = test_loader;
  loader.lookup = touch_lookup;
  const GraftLoader *loaders[] = {&loader};
  GraftModuleSource module = {0};
  GraftProgramSource source = {.manifest = text,
                               .manifest_size = strlen(text),
                               .modules = &module,
                               .module_count = 1,
                               .constants = constants,
                               .constant_count = 1};
  GraftLoadOptions options = {.size = sizeof options, .threads = 1, .loaders = loaders, .loader_count = 1};
  GraftProgram *program;
  GraftError error = {0};
  if (graft_program_create(&source, &options, &program, &error) != GRAFT_OK) {
    CHECK(error.message[0]);
    return;
  }
  calls_left = 50;
  DLTensor outputs[8] = {{0}};
  if (graft_program_input_count(program) <= count && graft_program_output_count(program) <= 8 &&
      graft_program_run(program, inputs, outputs, &error) == GRAFT_OK) {
    for (int32_t i = 0; i < graft_program_output_count(program); i++) {
      graft_free_output(outputs + i);
    }
  }
  graft_program_destroy(program);
}

static inline void survive_changed_bytes(const char *good, const DLTensor *inputs, int32_t count) {
  static const char others[] = "0123456789-\"[]{},:xse ";
  char text[8192];
  size_t size = strlen(good);
  CHECK(size < sizeof text);
  memcpy(text, good, size + 1);
  try_changed(text, inputs, count);
  for (size_t at = 0; at < size; at++) {
    for (size_t i = 0; i < sizeof others - 1; i++) {
      text[at] = others[i];
      try_changed(text, inputs, count);
    }
    text[at] = good[at];
  }
}

/* Every number replaced by extreme ones. */
static inline void survive_extreme_numbers(const char *good, const DLTensor *inputs, int32_t count) {
  static const char *const numbers[] = {"-1", "0", "1", "63", "64", "2147483648", "4294967295", "4611686018427387904",
                                        "9223372036854775807", "-9223372036854775808", "1e300", "null", "[]",
                                        "\"s0\"", "\"e0\"", "\"e1\""};
  char text[8192];
  CHECK(strlen(good) + 32 < sizeof text);
  for (size_t at = 1; good[at]; at++) {
    int starts = good[at] >= '0' && good[at] <= '9' && strchr(":,[", good[at - 1]);
    size_t length = strspn(good + at, "0123456789");
    for (size_t i = 0; starts && i < sizeof numbers / sizeof *numbers; i++) {
      snprintf(text, sizeof text, "%.*s%s%s", (int)at, good, numbers[i], good + at + length);
      try_changed(text, inputs, count);
    }
  }
}

#endif
