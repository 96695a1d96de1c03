/* The loader with a driver that is none (driver.c): a module runs, and damaged ones are refused without harm. */
#include "host.h"

/* y[i] = x[i] + n for the threads of a block and a constant c; it reports an x[0] beyond 100. */
__attribute__((visibility("default"))) void add_count(const int64_t *grid, const int64_t *block, void **parameters);

void add_count(const int64_t *grid, const int64_t *block, void **parameters) {
  float *x = *(float **)parameters[0], *y = *(float **)parameters[1], *work = *(float **)parameters[2];
  const float *constant = *(float **)parameters[3];
  int32_t count = *(int32_t *)parameters[4];
  int64_t *report = *(int64_t **)parameters[5];
  if (x[0] > 100) memcpy(report, (int64_t[]){1, (int64_t)x[0], 0, 6, -6, 5}, 6 * sizeof *report);
  for (int32_t i = 0; i < count && i < grid[0] * block[0]; i++) {
    work[i] = x[i];
    y[i] = work[i] + (float)count + constant[0];
  }
}

static const char HEADER[] =
    "{\"format\":1,\"images\":[{\"arch\":\"sm_80\",\"form\":\"ptx\",\"offset\":0,\"size\":4}],\"functions\":[{\"name\":"
    "\"f\",\"launches\":[{\"kernel\":\"add_count\",\"node\":\"n\",\"grid\":[\"e1\",1,1],\"block\":[4,1,1],\"shared\":0,"
    "\"cluster\":[1,1,1],\"args\":[{\"input\":0},{\"output\":0},{\"workspace\":0},{\"constant\":\"c\"},{\"extent\":"
    "\"i0.0\",\"bits\":32},{\"report\":0}]}],\"workspaces\":[\"e2\"],\"extents\":[[\"add\",\"i0.0\",3],[\"floordiv\",\"e0\",4],[\"mul\","
    "\"i0.0\",4]]}]}";

static size_t make_module(const char *header, char *bytes) {
  uint64_t length = strlen(header);
  memcpy(bytes, "GRAFTCU1", 8);
  for (int i = 0; i < 8; i++) bytes[8 + i] = (char)(length >> 8 * i);
  memcpy(bytes + 16, header, length);
  size_t first = (16 + length + 63) / 64 * 64;
  memset(bytes + 16 + length, 0, first - 16 - length);
  memcpy(bytes + first, "none", 4);
  return first + 4;
}

static int32_t load(const char *bytes, size_t size, void **module) {
  static float seven = 7;
  static int64_t shape[] = {1};
  static DLTensor constant = {.data = &seven, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  GraftNamedTensor named = {"c", &constant};
  char *copy = malloc(size ? size : 1); /* its end is the end of what may be read */
  memcpy(copy, bytes, size);
  GraftModuleSource source = {.name = "m", .kind = "cuda", .data = copy, .size = size, .constants = &named, .constant_count = 1};
  message[0] = 0;
  int32_t status = graft_loader()->load(NULL, &HOST, &source, module);
  free(copy);
  return status;
}

static void test_a_function_runs(void) {
  char bytes[4096];
  void *module, *state;
  GraftFunction entry;
  GraftError error;
  CHECK(load(bytes, make_module(HEADER, bytes), &module) == GRAFT_OK);
  CHECK(graft_loader()->lookup(NULL, &HOST, module, "g", &entry, &state) != GRAFT_OK);
  GraftLoaderHost fewer = HOST;
  fewer.input_count = 1;
  fewer.output_count = 0;
  CHECK(graft_loader()->lookup(NULL, &fewer, module, "f", &entry, &state) != GRAFT_OK);
  CHECK(strcmp(message, "function 'f' takes 1 inputs and 1 outputs, and its call has 1 and 0; compile the model again") == 0);
  CHECK(graft_loader()->lookup(NULL, &HOST, module, "f", &entry, &state) == GRAFT_OK);
  const GraftDevice *table = graft_device(0);
  float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
  int64_t shape[] = {6};
  DLTensor input = {.device = table->device, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape}, output = input;
  input.data = on_device(table, x, sizeof x);
  output.data = on_device(table, NULL, sizeof y);
  const DLTensor *inputs[] = {&input};
  DLTensor *outputs[] = {&output};
  GraftContext context = {&API};
  CHECK(entry(&context, state, inputs, outputs) == GRAFT_OK);
  CHECK(table->copy(table->user, GRAFT_TO_HOST, y, output.data, sizeof y, stream, &error) == GRAFT_OK);
  CHECK(y[0] == 0); /* nothing is done yet */
  CHECK(table->synchronize(table->user, stream, &error) == GRAFT_OK);
  CHECK(y[0] == 14 && y[5] == 19);
  x[0] = 200;
  CHECK(table->copy(table->user, GRAFT_TO_DEVICE, input.data, x, sizeof x, stream, &error) == GRAFT_OK);
  CHECK(entry(&context, state, inputs, outputs) == GRAFT_OK);
  CHECK(table->synchronize(table->user, stream, &error) == GRAFT_ERROR_RUN);
  CHECK(strcmp(error.message, "kernel 'add_count' (node 'n'): index 200 is out of range: axis 0 has extent 6, so that -6 to "
                              "5 are legal") == 0);
  CHECK(table->synchronize(table->user, stream, &error) == GRAFT_OK);
  table->release(table->user, input.data);
  table->release(table->user, output.data);
  graft_loader()->unload(NULL, module);
}

static void test_damage_is_refused(void) {
  char bytes[4096], damaged[4096];
  void *module;
  size_t size = make_module(HEADER, bytes);
  for (size_t i = 0; i < size; i++) {
    CHECK(load(bytes, i, &module) != GRAFT_OK && message[0]);
  }
  for (size_t i = 0; i < size; i++) {
    for (int bit = 0; bit < 8; bit++) {
      memcpy(damaged, bytes, size);
      damaged[i] = (char)(damaged[i] ^ 1 << bit);
      if (load(damaged, size, &module) == GRAFT_OK) graft_loader()->unload(NULL, module); /* a name, or another number */
    }
  }
}

/* The second device of the driver has no pools. */
static void test_memory_is_had_with_pools_and_without(void) {
  for (int number = 0; number < 2; number++) {
    const GraftDevice *table = graft_device(number);
    GraftError error;
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
    void *memory = NULL, *second = NULL;
    CHECK(table->open(table->user, &error) == GRAFT_OK);
    CHECK(table->allocate(table->user, sizeof x, &memory, &error) == GRAFT_OK);
    CHECK(table->copy(table->user, GRAFT_TO_DEVICE, memory, x, sizeof x, NULL, &error) == GRAFT_OK);
    CHECK(table->copy(table->user, GRAFT_TO_HOST, y, memory, sizeof x, NULL, &error) == GRAFT_OK);
    CHECK(table->synchronize(table->user, NULL, &error) == GRAFT_OK && y[5] == 6);
    CHECK(table->create_stream(table->user, &second, &error) == GRAFT_OK);
    CHECK(table->begin_capture(table->user, second, &error) == GRAFT_OK);
    table->release(table->user, memory); /* by the thread that captures: it does not wait for itself */
    void *graph = NULL;
    CHECK(table->end_capture(table->user, second, &graph, &error) == GRAFT_OK);
    table->destroy_graph(table->user, graph);
    table->destroy_stream(table->user, second);
    table->close(table->user);
  }
}

int main(void) {
  static void (*const TESTS[])(void) = {test_a_function_runs, test_damage_is_refused, test_memory_is_had_with_pools_and_without};
  CHECK(graft_device(-1) == NULL && graft_device(1000) == NULL);
  with_device(TESTS, 3);
  return 0;
}
