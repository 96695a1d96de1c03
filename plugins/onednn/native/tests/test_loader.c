/* The loader under sanitizers: a convolution and a product by constants, for shapes that vary, and graphs that are damaged. */
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graft/runtime.h"
#include "../../../../runtime/native/tests/lacking_memory.h"

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                 \
    }                                                                          \
  } while (0)
#define SHAPES 20 /* more than the bindings that a module keeps */
#define CHANNELS 4

const GraftLoader *graft_loader(void);

static const char GRAPH[] =
    "{\"symbol\":\"region\",\"nodes\":["
    "{\"op\":\"input\",\"name\":\"x\",\"attrs\":{\"dtype\":[\"float32\"],\"shape\":[[\"s0\",3,\"s1\",\"s2\"]]}},"
    "{\"op\":\"const\",\"name\":\"k\",\"attrs\":{\"dtype\":[\"float32\"],\"shape\":[[4,3,3,3]]}},"
    "{\"op\":\"kernel\",\"name\":\"onednn.conv_relu\",\"inputs\":[[0,0,0],[1,0,0]],\"attrs\":{\"dtype\":[\"float32\"],"
    "\"shape\":[[\"s0\",4,\"s1\",\"s2\"]],\"attributes\":{\"primitive\":\"convolution\",\"strides\":[1,1],"
    "\"dilates\":[0,0],\"padding_l\":[1,1],\"padding_r\":[1,1],\"groups\":1,\"bias\":0,"
    "\"post_ops\":[{\"algorithm\":\"relu\",\"alpha\":0.0,\"beta\":0.0}]},\"origin\":[\"c\"],\"body\":[],"
    "\"results\":[]}}],\"arg_nodes\":[0,1],\"heads\":[[2,0,0]],\"node_row_ptr\":[0,1,2,3],\"symbols\":["
    "{\"name\":\"batch\",\"input\":0,\"axis\":0},{\"name\":\"h\",\"input\":0,\"axis\":2},"
    "{\"name\":\"w\",\"input\":0,\"axis\":3}],\"extents\":[]}";

static char message[1024];

static int32_t host_fail(const GraftLoaderHost *host, const char *format, ...) {
  (void)host;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return GRAFT_ERROR_LOADER;
}

static int32_t run_fail(GraftContext *context, const char *format, ...) {
  (void)context;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  return GRAFT_ERROR_RUN;
}

static const GraftLoaderHost HOST = {GRAFT_ABI_VERSION, host_fail, -1, -1};
static const GraftApi API = {.abi_version = GRAFT_ABI_VERSION, .size = sizeof(GraftApi), .fail = run_fail};

static DLTensor tensor(float *data, int64_t *shape) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

static int32_t load(const char *graph, size_t size, void **module) {
  static float ones[CHANNELS * 3 * 3 * 3];
  static int64_t shape[] = {CHANNELS, 3, 3, 3};
  for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) {
    ones[i] = 1.0f;
  }
  static DLTensor weights;
  weights = tensor(ones, shape);
  static GraftNamedTensor constants[1];
  constants[0] = (GraftNamedTensor){"k", &weights};
  const GraftModuleSource source = {"region", "json:onednn", graph, size, constants, 1, 1};
  return graft_loader()->load(NULL, &HOST, &source, module);
}

/* All ones in, so a pixel in the middle is 27, and one in a corner 12. */
static void run(GraftFunction function, void *state, int64_t batch, int64_t height, int64_t width) {
  int64_t given[] = {batch, 3, height, width}, made[] = {batch, CHANNELS, height, width};
  size_t count = (size_t)(batch * height * width);
  float *x = calloc(count * 3 + 1, sizeof *x), *y = calloc(count * CHANNELS + 1, sizeof *y);
  CHECK(x != NULL && y != NULL);
  for (size_t i = 0; i < count * 3; i++) {
    x[i] = 1.0f;
  }
  DLTensor input = tensor(x, given), output = tensor(y, made);
  const DLTensor *inputs[] = {&input};
  DLTensor *outputs[] = {&output};
  GraftContext context = {&API};
  CHECK(function(&context, state, inputs, outputs) == GRAFT_OK);
  if (count > 0 && height > 2 && width > 2) {
    CHECK(y[0] == 12.0f && y[width + 1] == 27.0f && y[count * CHANNELS - 1] == 12.0f);
  }
  free(x);
  free(y);
}

static GraftFunction entry;
static void *entry_state;

static void *caller(void *argument) {
  int64_t first = *(const int64_t *)argument;
  for (int64_t i = 0; i < SHAPES; i++) {
    run(entry, entry_state, 1 + (first + i) % 3, 3 + i % 5, 3 + (first + i) % 7);
  }
  return NULL;
}

static void test_shapes_come_and_go(void) {
  for (int64_t i = 0; i < SHAPES; i++) {
    run(entry, entry_state, i % 3, 3 + i, 4);
  }
  run(entry, entry_state, 0, 3, 3);
}

static void test_calls_at_a_time(void) {
  pthread_t threads[3];
  int64_t first[] = {0, 1, 2};
  for (int i = 0; i < 3; i++) {
    CHECK(pthread_create(&threads[i], NULL, caller, &first[i]) == 0);
  }
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], NULL);
  }
}

/* What is cut off or changed somewhere is refused, or is a graph of another kind; nothing is read beside it. */
static void test_damaged_graphs(void) {
  size_t size = strlen(GRAPH);
  for (size_t place = 0; place < size; place++) {
    char *damaged = malloc(size);
    CHECK(damaged != NULL);
    memcpy(damaged, GRAPH, size);
    damaged[place] = damaged[place] == '9' ? '"' : '9';
    void *module = NULL;
    if (load(damaged, size, &module) == GRAFT_OK) {
      graft_loader()->unload(NULL, module);
    }
    free(damaged);
    CHECK(load(GRAPH, place, &module) != GRAFT_OK);
  }
}

/* Each allocation of a load fails in turn. */
static void test_lack_of_memory_has_its_code(void) {
  int32_t status = GRAFT_ERROR_MEMORY;
  int64_t failed = -1;
  for (; status == GRAFT_ERROR_MEMORY; failed++) {
    void *module = NULL;
    allocations_left = failed + 1;
    status = load(GRAPH, strlen(GRAPH), &module);
    allocations_left = ENOUGH;
    if (status == GRAFT_OK) {
      graft_loader()->unload(NULL, module);
    }
  }
  CHECK(status == GRAFT_OK && failed > 5);
}

int main(void) {
  void *module = NULL;
  if (load(GRAPH, strlen(GRAPH), &module) != GRAFT_OK) {
    bool missing = strstr(message, "cannot be opened") != NULL;
    fprintf(stderr, "%s%s\n", missing ? "skipped: " : "", message);
    return missing ? 0 : 1;
  }
  CHECK(graft_loader()->lookup(NULL, &HOST, module, "nothing", &entry, &entry_state) != GRAFT_OK);
  const GraftLoaderHost fewer = {GRAFT_ABI_VERSION, host_fail, 0, 1};
  CHECK(graft_loader()->lookup(NULL, &fewer, module, "region", &entry, &entry_state) != GRAFT_OK);
  CHECK(strstr(message, "and its call has 0 and 1") != NULL);
  CHECK(graft_loader()->lookup(NULL, &HOST, module, "region", &entry, &entry_state) == GRAFT_OK);
  test_shapes_come_and_go();
  test_calls_at_a_time();
  graft_loader()->unload(NULL, module);
  test_damaged_graphs();
  test_lack_of_memory_has_its_code();
  return 0;
}
