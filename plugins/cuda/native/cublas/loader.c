/* The loader of module kind "json:cublas": functions that are one product each, with what stands behind it, by cuBLASLt.
 *
 * y = activation(alpha * op(a) op(b) + beta * c + bias), in row-major order. cuBLASLt has columns first, so that it is
 * asked for the transposed product: y' = op(b)' op(a)', whose matrices are the same memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../loading.h"
#include "base/json.h"
#include "lt.h"
#include "base/store.h"

#define EXPORT __attribute__((visibility("default")))

enum { WORKSPACE = 32 << 20 };

typedef struct Product {
  struct Module *module;
  const char *name;
  int a, b, bias, c; /* numbers of inputs, -1: none */
  int turns_a, turns_b, type, compute, epilogue;
  double alpha, beta;
} Product;

typedef struct Module {
  Store store;
  JsonDocument *document;
  Product *products;
  int32_t product_count;
  CudaDevice *device; /* open; NULL before */
  const Lt *lt;
  LtHandle handle;
} Module;

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

typedef struct Word {
  const char *name;
  int number;
} Word;

static const Word TYPES[] = {{"float32", LT_FLOAT32}, {"float64", LT_FLOAT64}, {"float16", LT_FLOAT16},
                             {"bfloat16", LT_BFLOAT16}, {NULL, 0}};
static const Word PRECISIONS[] = {{"float32", LT_COMPUTE_32}, {"float64", LT_COMPUTE_64}, {"fp16", LT_COMPUTE_FAST_16},
                                  {"bf16", LT_COMPUTE_FAST_BF16}, {"tf32", LT_COMPUTE_FAST_TF32}, {NULL, 0}};
static const Word ACTIVATIONS[] = {{"", LT_PLAIN}, {"relu", LT_RELU}, {"gelu", LT_GELU}, {NULL, 0}};

static int number_of(const Word *words, const JsonValue *value, int *number) {
  const char *name = graft_json_string(value, NULL);
  for (; name && words->name; words++) {
    if (strcmp(words->name, name) == 0) {
      *number = words->number;
      return 1;
    }
  }
  return 0;
}

static int read_product(Module *module, const JsonValue *row, Product *product) {
  product->module = module;
  product->name = graft_json_string(graft_json_member(row, "name"), NULL);
  product->a = (int)graft_json_integer(graft_json_member(row, "a"), -1);
  product->b = (int)graft_json_integer(graft_json_member(row, "b"), -1);
  product->bias = (int)graft_json_integer(graft_json_member(row, "bias"), -1);
  product->c = (int)graft_json_integer(graft_json_member(row, "c"), -1);
  product->turns_a = graft_json_integer(graft_json_member(row, "turns_a"), 0) != 0;
  product->turns_b = graft_json_integer(graft_json_member(row, "turns_b"), 0) != 0;
  product->alpha = graft_json_number(graft_json_member(row, "alpha"), 1);
  product->beta = graft_json_number(graft_json_member(row, "beta"), 1);
  int known = number_of(TYPES, graft_json_member(row, "type"), &product->type) &&
              number_of(PRECISIONS, graft_json_member(row, "precision"), &product->compute) &&
              number_of(ACTIVATIONS, graft_json_member(row, "activation"), &product->epilogue);
  if (product->bias >= 0) product->epilogue = product->epilogue == LT_PLAIN ? LT_WITH_BIAS : product->epilogue | LT_WITH_BIAS;
  return known && product->name && product->a >= 0 && product->b >= 0 && product->a < 8 && product->b < 8 &&
         product->bias < 8 && product->c < 8;
}

static const char *read_module(Module *module, const GraftModuleSource *source) {
  char message[128];
  module->document = graft_json_parse(source->data, source->size, NULL, message, sizeof message);
  const JsonValue *root = module->document ? graft_json_root(module->document) : NULL;
  const JsonValue *rows = graft_json_member(root, "products");
  if (!root || graft_json_integer(graft_json_member(root, "format"), 0) != 1) return "its products are damaged";
  module->products = graft_store_allocate(&module->store, graft_json_count(rows), sizeof(Product));
  if (!module->products) return "out of memory";
  for (size_t i = 0; i < graft_json_count(rows); i++) {
    if (!read_product(module, graft_json_item(rows, i), module->products + i)) return "its products are damaged";
    module->product_count++;
  }
  return NULL;
}

static int32_t prepare(void *made, const GraftLoaderHost *host, const GraftModuleSource *source) {
  Module *module = made;
  char message[512];
  const char *fault = read_module(module, source);
  if (fault) return graft_json_lacked_memory(fault) ? graft_fail_memory(host, source->name) : host->fail(host, "%s", fault);
  module->lt = graft_lt(message, sizeof message);
  if (!module->lt) return host->fail(host, "%s", message);
  int32_t opened = graft_cuda_open_for(host, &module->device);
  if (opened) return opened;
  const CudaDevice *device = module->device;
  LtStatus status = graft_cuda_enter(device) ? -1 : module->lt->create(&module->handle);
  return status ? host->fail(host, "cublasLtCreate fails with status %d on device %d, '%s'", status, device->number,
                             device->name)
                : GRAFT_OK;
}

static void unload(void *user, void *loaded) {
  (void)user;
  Module *module = loaded;
  if (module->handle && !graft_cuda_enter(module->device)) module->lt->destroy(module->handle);
  if (module->device) graft_cuda_close(module->device);
  graft_json_free(module->document);
  graft_store_destroy(&module->store);
  free(module);
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **loaded) {
  (void)user;
  return graft_cuda_load(host, source, sizeof(Module), prepare, unload, loaded);
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

/* A product as ONNX has it: rows of a, columns of b, and how far the next of each lies. */
typedef struct Extents {
  int64_t m, n, k, a_columns, b_columns;
  int32_t count;
  int64_t a_step, b_step;
} Extents;

/* The description and the layouts of b', a', c' and y'. */
typedef struct Call {
  const Lt *lt;
  LtHandle product, preference, b, a, c, y;
  LtChoice choice;
} Call;

static int64_t product_of(const DLTensor *tensor, int32_t axes) {
  int64_t product = 1;
  for (int32_t i = 0; i < axes; i++) product *= tensor->shape[i];
  return product;
}

static Extents extents_of(const Product *one, const DLTensor *a, const DLTensor *b) {
  const int64_t *rows = a->shape + a->ndim - 2, *columns = b->shape + b->ndim - 2;
  Extents e = {.m = rows[one->turns_a], .k = rows[!one->turns_a], .n = columns[!one->turns_b], .count = 1};
  e.a_columns = rows[1];
  e.b_columns = columns[1];
  if (b->ndim > 2) {
    e.count = (int32_t)product_of(b, b->ndim - 2);
    e.b_step = rows[0] && columns[0] ? columns[0] * columns[1] : 0;
    e.a_step = a->ndim > 2 ? rows[0] * rows[1] : 0;
  } else {
    e.m *= product_of(a, a->ndim - 2); /* all rows, one after the other */
  }
  return e;
}

static LtStatus lay_out(const Call *call, LtHandle *layout, const Product *one, const Extents *e, int64_t rows,
                        int64_t columns, int64_t step) {
  LtStatus status = call->lt->create_layout(layout, one->type, (uint64_t)rows, (uint64_t)columns, rows > 0 ? rows : 1);
  if (status || e->count == 1) return status;
  status = call->lt->set_layout(*layout, LT_BATCH, &e->count, sizeof e->count);
  return status ? status : call->lt->set_layout(*layout, LT_BATCH_STEP, &step, sizeof step);
}

static LtStatus describe(Call *call, const Product *one, const Extents *e, const void *bias) {
  const Lt *lt = call->lt;
  int32_t turns_b = one->turns_b, turns_a = one->turns_a, epilogue = one->epilogue;
  uint64_t most = WORKSPACE;
  LtStatus status = lt->create_product(&call->product, one->compute, one->type == LT_FLOAT64 ? LT_FLOAT64 : LT_FLOAT32);
  status = status ? status : lt->set_product(call->product, LT_TURN_A, &turns_b, sizeof turns_b);
  status = status ? status : lt->set_product(call->product, LT_TURN_B, &turns_a, sizeof turns_a);
  status = status ? status : lt->set_product(call->product, LT_EPILOGUE, &epilogue, sizeof epilogue);
  if (!status && bias) status = lt->set_product(call->product, LT_BIAS, &bias, sizeof bias);
  int64_t b_rows = one->turns_b ? e->n : e->k, a_rows = one->turns_a ? e->k : e->m;
  status = status ? status : lay_out(call, &call->b, one, e, e->b_columns, b_rows, e->b_step);
  status = status ? status : lay_out(call, &call->a, one, e, e->a_columns, a_rows, e->a_step);
  status = status ? status : lay_out(call, &call->c, one, e, e->n, e->m, e->m * e->n);
  status = status ? status : lay_out(call, &call->y, one, e, e->n, e->m, e->m * e->n);
  status = status ? status : lt->create_preference(&call->preference);
  return status ? status : lt->set_preference(call->preference, LT_WORKSPACE, &most, sizeof most);
}

static void end(const Call *call) {
  if (call->preference) call->lt->destroy_preference(call->preference);
  LtHandle layouts[] = {call->b, call->a, call->c, call->y};
  for (int i = 0; i < 4; i++) {
    if (layouts[i]) call->lt->destroy_layout(layouts[i]);
  }
  if (call->product) call->lt->destroy_product(call->product);
}

static char *data_of(const DLTensor *tensor) { return (char *)tensor->data + tensor->byte_offset; }

static int32_t multiply(GraftContext *context, Call *call, const Product *one, const Extents *e,
                        const DLTensor *const *inputs, DLTensor *y) {
  const Module *module = one->module;
  DLDevice place = {kDLCUDA, module->device->number};
  void *stream = context->api->stream(context, place), *workspace = NULL;
  const void *c = one->c < 0 ? data_of(y) : data_of(inputs[one->c]);
  float alpha = (float)one->alpha, beta = one->c < 0 ? 0 : (float)one->beta;
  double wide_alpha = one->alpha, wide_beta = one->c < 0 ? 0 : one->beta;
  int is_wide = one->type == LT_FLOAT64, found = 0;
  const char *doing = "cublasLtMatmulDescCreate";
  LtStatus status = describe(call, one, e, one->bias < 0 ? NULL : data_of(inputs[one->bias]));
  if (!status) {
    doing = "cublasLtMatmulAlgoGetHeuristic";
    status = call->lt->choose(module->handle, call->product, call->b, call->a, call->c, call->y, call->preference, 1,
                              &call->choice, &found);
    status = status || found ? status : LT_NOT_SUPPORTED;
  }
  if (!status && call->choice.workspace) {
    workspace = context->api->device_scratch(context, place, call->choice.workspace);
    if (!workspace) return GRAFT_ERROR_MEMORY;
  }
  if (!status) {
    doing = "cublasLtMatmul";
    status = call->lt->multiply(module->handle, call->product, is_wide ? (void *)&wide_alpha : (void *)&alpha,
                                data_of(inputs[one->b]), call->b, data_of(inputs[one->a]), call->a,
                                is_wide ? (void *)&wide_beta : (void *)&beta, c, call->c, data_of(y), call->y,
                                call->choice.algorithm, workspace, call->choice.workspace, stream);
  }
  if (!status) return GRAFT_OK;
  return context->api->fail(context, "%s fails with status %d%s for a product of [%lld,%lld] and [%lld,%lld], %d at a time",
                            doing, status, status == LT_NOT_SUPPORTED ? " (not supported)" : "", (long long)e->m,
                            (long long)e->k, (long long)e->k, (long long)e->n, e->count);
}

static int32_t run(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  const Product *one = state;
  const Extents e = extents_of(one, inputs[one->a], inputs[one->b]);
  if (!e.m || !e.n || !e.count) return GRAFT_OK;
  if (graft_cuda_enter(one->module->device)) {
    return context->api->fail(context, "device %d cannot be made current", one->module->device->number);
  }
  Call call = {.lt = one->module->lt};
  int32_t status = multiply(context, &call, one, &e, inputs, outputs[0]);
  end(&call);
  return status;
}

static int32_t inputs_of(const Product *product) {
  const int numbers[] = {product->a, product->b, product->bias, product->c};
  int32_t count = 0;
  for (int i = 0; i < 4; i++) count = numbers[i] < count ? count : numbers[i] + 1;
  return count;
}

static int32_t lookup(void *user, const GraftLoaderHost *host, void *loaded, const char *name, GraftFunction *entry,
                      void **state) {
  (void)user;
  Module *module = loaded;
  *entry = run;
  int32_t status = graft_cuda_find(host, name, module->products, module->product_count, sizeof(Product),
                                   offsetof(Product, name), state);
  return status ? status : graft_cuda_takes(host, name, inputs_of(*state), 1);
}

EXPORT const GraftLoader *graft_loader(void);

const GraftLoader *graft_loader(void) {
  static const GraftLoader LOADER = {GRAFT_ABI_VERSION, "json:cublas", NULL, load, lookup, unload};
  return &LOADER;
}
