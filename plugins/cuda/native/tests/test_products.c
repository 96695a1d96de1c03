/* The loader of products with a driver and a library that are none (driver.c, lt.c): a product runs, and damaged modules
 * are refused without harm. */
#include "host.h"

static const char MODULE[] =
    "{\"format\":1,\"products\":[{\"name\":\"f\",\"a\":0,\"b\":1,\"bias\":2,\"c\":-1,\"turns_a\":0,\"turns_b\":1,\"alpha\":2.0,"
    "\"beta\":1.0,\"activation\":\"relu\",\"type\":\"float32\",\"precision\":\"float32\"}]}";

static int32_t load(const char *bytes, size_t size, void **module) {
  char *copy = malloc(size ? size : 1); /* its end is the end of what may be read */
  memcpy(copy, bytes, size);
  GraftModuleSource source = {.name = "m", .kind = "json:cublas", .data = copy, .size = size};
  message[0] = 0;
  int32_t status = graft_loader()->load(NULL, &HOST, &source, module);
  free(copy);
  return status;
}

static DLTensor matrix(const float *values, int64_t *shape, int32_t axes) {
  size_t count = 1;
  for (int32_t i = 0; i < axes; i++) count *= (size_t)shape[i];
  const GraftDevice *table = graft_device(0);
  return (DLTensor){.data = on_device(table, values, count * sizeof *values), .device = table->device, .ndim = axes,
                    .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

/* y = relu(2 a b' + bias). */
static void test_a_product_runs(void) {
  static const float A[] = {1, 2, 3, 4}, B[] = {1, 0, 0, 1, 1, -1}, BIAS[] = {0.5f, 0, 1}, WANTED[] = {2.5f, 4, 0, 6.5f, 8, 0};
  void *module, *state;
  GraftFunction entry;
  GraftError error;
  CHECK(load(MODULE, strlen(MODULE), &module) == GRAFT_OK);
  CHECK(graft_loader()->lookup(NULL, &HOST, module, "g", &entry, &state) != GRAFT_OK);
  GraftLoaderHost fewer = HOST;
  fewer.input_count = 2;
  fewer.output_count = 1;
  CHECK(graft_loader()->lookup(NULL, &fewer, module, "f", &entry, &state) != GRAFT_OK);
  CHECK(strcmp(message, "function 'f' takes 3 inputs and 1 outputs, and its call has 2 and 1; compile the model again") == 0);
  CHECK(graft_loader()->lookup(NULL, &HOST, module, "f", &entry, &state) == GRAFT_OK);
  const GraftDevice *table = graft_device(0);
  DLTensor a = matrix(A, (int64_t[]){2, 2}, 2), b = matrix(B, (int64_t[]){3, 2}, 2), bias = matrix(BIAS, (int64_t[]){3}, 1);
  DLTensor y = matrix(NULL, (int64_t[]){2, 3}, 2);
  const DLTensor *inputs[] = {&a, &b, &bias};
  DLTensor *outputs[] = {&y};
  GraftContext context = {&API};
  float got[6] = {0};
  CHECK(entry(&context, state, inputs, outputs) == GRAFT_OK);
  CHECK(table->copy(table->user, GRAFT_TO_HOST, got, y.data, sizeof got, stream, &error) == GRAFT_OK);
  CHECK(table->synchronize(table->user, stream, &error) == GRAFT_OK);
  CHECK(memcmp(got, WANTED, sizeof got) == 0);
  DLTensor *all[] = {&a, &b, &bias, &y};
  for (int i = 0; i < 4; i++) table->release(table->user, all[i]->data);
  graft_loader()->unload(NULL, module);
}

static void test_damage_is_refused(void) {
  char damaged[sizeof MODULE];
  void *module;
  for (size_t i = 0; i < strlen(MODULE); i++) {
    CHECK(load(MODULE, i, &module) != GRAFT_OK && message[0]);
    for (int bit = 0; bit < 8; bit++) {
      memcpy(damaged, MODULE, sizeof MODULE);
      damaged[i] = (char)(damaged[i] ^ 1 << bit);
      if (load(damaged, strlen(MODULE), &module) == GRAFT_OK) graft_loader()->unload(NULL, module);
    }
  }
}

int main(void) {
  static void (*const TESTS[])(void) = {test_a_product_runs, test_damage_is_refused};
  with_device(TESTS, 2);
  return 0;
}
