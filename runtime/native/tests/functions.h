/* A loader of kind "test" whose functions are written in C, and short forms for manifests. */
#ifndef GRAFT_TESTS_FUNCTIONS_H
#define GRAFT_TESTS_FUNCTIONS_H

#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "base/memory.h"
#include "check.h"
#include "program/program.h"

#define UNUSED __attribute__((unused))
/* A function as programs call it; it need not look at everything. */
#define FUNCTION(name)                                                                                        \
  static int32_t name(UNUSED GraftContext *context, UNUSED void *state, UNUSED const DLTensor *const *inputs, \
                      UNUSED DLTensor *const *outputs)

static inline int64_t count_of(const DLTensor *tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    count *= tensor->shape[i];
  }
  return count;
}

typedef struct Add {
  const float *left, *right;
  float *sum;
  int64_t left_step, right_step; /* 0: one element for all */
} Add;

static int32_t add_part(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  Add *add = closure;
  float *scratch = context->api->scratch(context, (uint64_t)(end - begin) * sizeof(float));
  if (!scratch) {
    return GRAFT_ERROR_MEMORY;
  }
  CHECK((uintptr_t)scratch % 64 == 0);
  for (int64_t i = begin; i < end; i++) {
    scratch[i - begin] = add->left[i * add->left_step] + add->right[i * add->right_step];
  }
  for (int64_t i = begin; i < end; i++) {
    add->sum[i] = scratch[i - begin];
  }
  return GRAFT_OK;
}

/* sum = left + right, in parallel; a single element is added to all. */
FUNCTION(function_add) {
  Add add = {inputs[0]->data, inputs[1]->data, outputs[0]->data, count_of(inputs[0]) != 1, count_of(inputs[1]) != 1};
  return context->api->parallel_for(context, count_of(outputs[0]), 1, add_part, &add);
}

static int32_t fail_part(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  (void)closure;
  (void)end;
  return context->api->fail(context, "part from %d", (int)begin);
}

/* Every part fails; the error must be that of the first. */
FUNCTION(function_fail_parts) {
  return context->api->parallel_for(context, 1000, 1, fail_part, NULL);
}

FUNCTION(function_fail) {
  return context->api->fail(context, "no luck with %d", 7);
}

FUNCTION(function_silent) {
  return 42;
}

/* The positions of the elements that are not 0. */
FUNCTION(function_nonzero) {
  const float *data = inputs[0]->data;
  int64_t found = 0, length = count_of(inputs[0]);
  for (int64_t i = 0; i < length; i++) {
    found += data[i] != 0.0f;
  }
  int64_t *positions = context->api->allocate_output(context, 0, 1, &found);
  if (!positions) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < length; i++) {
    if (data[i] != 0.0f) {
      *positions++ = i;
    }
  }
  return GRAFT_OK;
}

FUNCTION(function_twice) {
  int32_t status = function_nonzero(context, state, inputs, outputs);
  return status ? status : function_nonzero(context, state, inputs, outputs);
}

FUNCTION(function_forget) {
  return GRAFT_OK;
}

/* left[0] < right[0] */
FUNCTION(function_less) {
  *(uint8_t *)outputs[0]->data = *(const float *)inputs[0]->data < *(const float *)inputs[1]->data;
  return GRAFT_OK;
}

/* Input and output one element longer: [x..., n] where n is the length of the input. */
FUNCTION(function_append) {
  int64_t length = count_of(inputs[0]), longer = length + 1;
  float *data = context->api->allocate_output(context, 0, 1, &longer);
  if (!data) {
    return GRAFT_ERROR_RUN;
  }
  memcpy(data, inputs[0]->data, (size_t)length * sizeof(float));
  data[length] = (float)length;
  return GRAFT_OK;
}

/* 1 where an optional second input is absent, else 2. */
FUNCTION(function_present) {
  *(float *)outputs[0]->data = inputs[1] ? 2.0f : 1.0f;
  return GRAFT_OK;
}

static const struct {
  const char *name;
  GraftFunction entry;
} functions[] = {
    {"add", function_add},         {"fail", function_fail},     {"fail_parts", function_fail_parts},
    {"silent", function_silent},   {"nonzero", function_nonzero}, {"twice", function_twice},
    {"forget", function_forget},   {"less", function_less},     {"append", function_append},
    {"present", function_present},
};

/* A missing unload shows as a leak. */
typedef struct TestModule {
  const GraftAllocator *memory;
} TestModule;

static int32_t test_load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **module) {
  (void)user;
  if (source->size && memcmp(source->data, "refuse", 6) == 0) {
    return host->fail(host, "I was told to");
  }
  const GraftAllocator *memory = ((const LoadingHost *)host)->memory;
  TestModule *made = graft_allocate(memory, sizeof *made);
  if (!made) {
    (void)host->fail(host, "out of memory");
    return GRAFT_ERROR_MEMORY;
  }
  made->memory = memory;
  *module = made;
  return GRAFT_OK;
}

static int32_t test_lookup(void *user, const GraftLoaderHost *host, void *module, const char *function,
                           GraftFunction *entry, void **state) {
  (void)user;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (strcmp(functions[i].name, function) == 0) {
      *entry = functions[i].entry;
      *state = module;
      return GRAFT_OK;
    }
  }
  return host->fail(host, "there is no '%s'", function);
}

static void test_unload(void *user, void *module) {
  (void)user;
  graft_release(((TestModule *)module)->memory, module);
}

static const GraftLoader test_loader = {
    .abi_version = GRAFT_ABI_VERSION,
    .kind = "test",
    .load = test_load,
    .lookup = test_lookup,
    .unload = test_unload,
};

#define MODULES                                                                                                     \
  "\"modules\":[{\"name\":\"m\",\"kind\":\"test\",\"functions\":[\"add\",\"fail\",\"fail_parts\",\"silent\","      \
  "\"nonzero\",\"twice\",\"forget\",\"less\",\"append\",\"present\",\"unknown\"],"                                 \
  "\"plugin\":\"tester\",\"install\":\"pip install tester\"}]"

/* A whole manifest around the procedures. */
#define MANIFEST(procedures) "{\"abi\":2,\"procedures\":[" procedures "]," MODULES "}"

#define TENSOR(name, dtype, shape, rest) "{\"name\":\"" name "\",\"dtype\":\"" dtype "\",\"shape\":" shape "," rest "}"
#define INPUT(i) "\"storage\":\"input\",\"index\":" #i
#define OUTPUT(i) "\"storage\":\"output\",\"index\":" #i
#define ARENA(offset) "\"storage\":\"arena\",\"offset\":" #offset
#define VIEW(of, offset) "\"storage\":\"view\",\"of\":" #of ",\"offset\":" #offset
#define CONSTANT(key) "\"storage\":\"constant\",\"constant\":\"" key "\""
#define DYNAMIC "\"storage\":\"dynamic\""
#define CALL(function, inputs, outputs)                                                                          \
  "{\"kind\":\"call\",\"module\":0,\"function\":\"" function "\",\"inputs\":" inputs ",\"outputs\":" outputs \
  ",\"origin\":[\"node_" function "\"]}"
#define COPY(input, output) "{\"kind\":\"copy\",\"inputs\":[" #input "],\"outputs\":[" #output "]}"
#define PROCEDURE(name, arena, inputs, outputs, tensors, calls)                                                  \
  "{\"name\":\"" name "\",\"arena_bytes\":" #arena ",\"arena_bound\":0,\"inputs\":" inputs ",\"outputs\":" outputs \
  ",\"tensors\":[" tensors "],\"calls\":[" calls "]}"

static int64_t one_shape[] = {1};
static float one_value[] = {1.0f};
static const DLTensor one_tensor = {one_value, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, one_shape, NULL, 0};
static const GraftNamedTensor constants[] = {{"one", &one_tensor}};

/* Creates a program of the manifest, with the constant "one" (float32[1]); its loader is added to the options. */
static inline int32_t create_with(const char *manifest, GraftLoadOptions options, GraftProgram **program,
                                  GraftError *error) {
  const GraftLoader *loaders[] = {&test_loader};
  GraftModuleSource module = {.name = "m", .kind = "test"};
  GraftProgramSource source = {.manifest = manifest,
                               .manifest_size = strlen(manifest),
                               .modules = &module,
                               .module_count = 1,
                               .constants = constants,
                               .constant_count = 1};
  options.size = sizeof options;
  options.loaders = loaders;
  options.loader_count = 1;
  return graft_program_create(&source, &options, program, error);
}

static inline int32_t create_program(const char *manifest, int32_t threads, GraftProgram **program,
                                     GraftError *error) {
  return create_with(manifest, (GraftLoadOptions){.threads = threads}, program, error);
}

static inline GraftProgram *must_create(const char *manifest, int32_t threads) {
  GraftProgram *program;
  GraftError error = {0};
  if (create_program(manifest, threads, &program, &error) != GRAFT_OK) {
    fprintf(stderr, "%s\n", error.message);
    abort();
  }
  return program;
}

static inline DLTensor floats(float *data, int64_t *shape, int32_t ndim) {
  return (DLTensor){data, {kDLCPU, 0}, ndim, {kDLFloat, 32, 1}, shape, NULL, 0};
}

static inline DLTensor integers(int64_t *data, int64_t *shape, int32_t ndim) {
  return (DLTensor){data, {kDLCPU, 0}, ndim, {kDLInt, 64, 1}, shape, NULL, 0};
}

static inline void must_run(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs) {
  GraftError error = {0};
  if (graft_program_run(program, inputs, outputs, &error) != GRAFT_OK) {
    fprintf(stderr, "%s\n", error.message);
    abort();
  }
}

/* The output is float32 of these elements. */
static inline void check_floats(const DLTensor *tensor, const float *expected, int64_t count) {
  CHECK(count_of(tensor) == count);
  for (int64_t i = 0; i < count; i++) {
    CHECK(fabsf(((const float *)tensor->data)[i] - expected[i]) < 1e-6f);
  }
}

/* Runs a program on several threads at a time, at most 4, and destroys it. */
static UNUSED void run_on_threads(GraftProgram *program, int count, void *(*run)(void *program)) {
  pthread_t threads[4];
  for (int i = 0; i < count; i++) {
    CHECK(pthread_create(threads + i, NULL, run, program) == 0);
  }
  for (int i = 0; i < count; i++) {
    pthread_join(threads[i], NULL);
  }
  graft_program_destroy(program);
}

#endif
