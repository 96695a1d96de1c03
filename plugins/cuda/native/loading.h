/* What loaders of modules that compute on a device have in common. */
#ifndef GRAFT_CUDA_LOADING_H
#define GRAFT_CUDA_LOADING_H

#include "device.h"

/* Opens the device that modules are for; GRAFT_OK, or what the host was told. */
int32_t graft_cuda_open_for(const GraftLoaderHost *host, CudaDevice **device);

/* Makes a module of so many bytes, zeros at first, and prepares it; one that cannot be is unloaded again. */
int32_t graft_cuda_load(const GraftLoaderHost *host, const GraftModuleSource *source, size_t size,
                        int32_t (*prepare)(void *module, const GraftLoaderHost *host, const GraftModuleSource *source),
                        void (*unload)(void *user, void *module), void **loaded);

/* Finds a function among rows of so many bytes that have their name at an offset. */
int32_t graft_cuda_find(const GraftLoaderHost *host, const char *name, void *rows, int32_t count, size_t size,
                        size_t offset, void **state);

/* Refuses a call that has fewer inputs or outputs than a function takes. */
int32_t graft_cuda_takes(const GraftLoaderHost *host, const char *name, int32_t inputs, int32_t outputs);

#endif
