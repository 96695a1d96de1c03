#include "loading.h"

#include <stdlib.h>
#include <string.h>

int32_t graft_cuda_open_for(const GraftLoaderHost *host, CudaDevice **device) {
  CudaDevice *found = graft_cuda_device(0);
  GraftError error = {0};
  if (!found || graft_cuda_open(found, &error)) return host->fail(host, "%s", error.message);
  *device = found;
  return GRAFT_OK;
}

int32_t graft_cuda_load(const GraftLoaderHost *host, const GraftModuleSource *source, size_t size,
                        int32_t (*prepare)(void *module, const GraftLoaderHost *host, const GraftModuleSource *source),
                        void (*unload)(void *user, void *module), void **loaded) {
  void *module = calloc(1, size);
  if (!module) return graft_fail_memory(host, source->name);
  int32_t status = prepare(module, host, source);
  if (status) {
    unload(NULL, module);
  } else {
    *loaded = module;
  }
  return status;
}

int32_t graft_cuda_find(const GraftLoaderHost *host, const char *name, void *rows, int32_t count, size_t size,
                        size_t offset, void **state) {
  for (int32_t i = 0; i < count; i++) {
    char *row = (char *)rows + (size_t)i * size;
    const char *own;
    memcpy(&own, row + offset, sizeof own);
    if (strcmp(own, name) == 0) {
      *state = row;
      return GRAFT_OK;
    }
  }
  return host->fail(host, "it has no function '%s'", name);
}

int32_t graft_cuda_takes(const GraftLoaderHost *host, const char *name, int32_t inputs, int32_t outputs) {
  if (host->input_count < 0 || (host->input_count >= inputs && host->output_count >= outputs)) return GRAFT_OK;
  return host->fail(host, "function '%s' takes %d inputs and %d outputs, and its call has %d and %d; compile the model again",
                    name, (int)inputs, (int)outputs, (int)host->input_count, (int)host->output_count);
}
