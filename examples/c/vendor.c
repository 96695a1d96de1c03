/* A host with a vendor's loader: it runs artifacts that hold modules of the vendor's kind, "example:affine".
 *
 *   vendor FILE.graft [REPEAT]     as run.c, with the loader registered
 *
 * Such a module computes y = scale * x + shift for float32 tensors: its bytes are the scale, as a little-endian float32,
 * its one constant is the shift, a float32 per element of the last axis. A real vendor's loader hands the bytes to the
 * vendor's library here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

typedef struct Affine {
  float scale;
  const float *shift; /* the runtime keeps constants as long as the program lives */
  int64_t width;
  char function[128];
} Affine;

/* What one parallel part needs; it lives on the caller's stack until the loop is done. */
typedef struct Rows {
  const Affine *affine;
  const float *x;
  float *y;
} Rows;

static int32_t compute_rows(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  (void)context;
  const Rows *rows = closure;
  int64_t width = rows->affine->width;
  for (int64_t row = begin; row < end; row++) {
    for (int64_t i = 0; i < width; i++) {
      rows->y[row * width + i] = rows->affine->scale * rows->x[row * width + i] + rows->affine->shift[i];
    }
  }
  return GRAFT_OK;
}

static int is_float32(const DLTensor *tensor) {
  return tensor->dtype.code == kDLFloat && tensor->dtype.bits == 32 && tensor->dtype.lanes == 1;
}

/* The module's function: one input, one output of the same shape, whose last extent is the shift's. */
static int32_t compute(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  const Affine *affine = state;
  const DLTensor *x = inputs[0];
  if (!x || !is_float32(x) || x->ndim < 1 || x->shape[x->ndim - 1] != affine->width) {
    return context->api->fail(context, "affine: the input must be float32 with a last extent of %lld",
                              (long long)affine->width);
  }
  int64_t count = 1;
  for (int32_t i = 0; i + 1 < x->ndim; i++) {
    count *= x->shape[i];
  }
  Rows rows = {affine, (const float *)((const char *)x->data + x->byte_offset),
               (float *)((char *)outputs[0]->data + outputs[0]->byte_offset)};
  return context->api->parallel_for(context, count, 64, compute_rows, &rows);
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **module) {
  (void)user;
  if (source->size != sizeof(float)) {
    return host->fail(host, "its scale has %zu bytes, expected %zu", source->size, sizeof(float));
  }
  if (source->constant_count != 1 || !is_float32(source->constants[0].tensor) ||
      source->constants[0].tensor->ndim != 1) {
    return host->fail(host, "it needs one constant, the shift: a float32 vector");
  }
  Affine *affine = calloc(1, sizeof *affine);
  if (!affine) {
    return host->fail(host, "out of memory");
  }
  const DLTensor *shift = source->constants[0].tensor;
  memcpy(&affine->scale, source->data, sizeof affine->scale);
  affine->shift = (const float *)((const char *)shift->data + shift->byte_offset);
  affine->width = shift->shape[0];
  snprintf(affine->function, sizeof affine->function, "%s", source->name);
  *module = affine;
  return GRAFT_OK;
}

static int32_t lookup(void *user, const GraftLoaderHost *host, void *module, const char *function, GraftFunction *entry,
                      void **state) {
  (void)user;
  Affine *affine = module;
  if (strcmp(function, affine->function) != 0) {
    return host->fail(host, "it has no function '%s', only '%s'", function, affine->function);
  }
  *entry = compute;
  *state = affine;
  return GRAFT_OK;
}

static void unload(void *user, void *module) {
  (void)user;
  free(module);
}

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: %s FILE.graft [REPEAT]\n", argv[0]);
    return 2;
  }
  const GraftLoader affine_loader = {.abi_version = GRAFT_ABI_VERSION,
                                     .kind = "example:affine",
                                     .load = load,
                                     .lookup = lookup,
                                     .unload = unload};
  const GraftLoader *const loaders[] = {&affine_loader};
  GraftLoadOptions options = {.size = sizeof options, .loaders = loaders, .loader_count = sizeof loaders / sizeof *loaders};
  GraftProgram *program;
  GraftError error = {0};
  if (graft_program_load(argv[1], &options, &program, &error) != GRAFT_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  int status = run_program(program, NULL, argc == 3 ? atol(argv[2]) : 1);
  graft_program_destroy(program); /* calls unload: the loader must live until then */
  return status;
}
