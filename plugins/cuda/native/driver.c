#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

typedef struct Symbol {
  size_t offset; /* in CudaDriver */
  const char *name;
  int is_optional;
} Symbol;

static const Symbol SYMBOLS[] = {
    {offsetof(CudaDriver, init), "cuInit", 0},
    {offsetof(CudaDriver, version), "cuDriverGetVersion", 0},
    {offsetof(CudaDriver, device_count), "cuDeviceGetCount", 0},
    {offsetof(CudaDriver, device), "cuDeviceGet", 0},
    {offsetof(CudaDriver, device_name), "cuDeviceGetName", 0},
    {offsetof(CudaDriver, attribute), "cuDeviceGetAttribute", 0},
    {offsetof(CudaDriver, total_memory), "cuDeviceTotalMem_v2", 0},
    {offsetof(CudaDriver, retain), "cuDevicePrimaryCtxRetain", 0},
    {offsetof(CudaDriver, release), "cuDevicePrimaryCtxRelease_v2", 0},
    {offsetof(CudaDriver, set_current), "cuCtxSetCurrent", 0},
    {offsetof(CudaDriver, synchronize_all), "cuCtxSynchronize", 0},
    {offsetof(CudaDriver, error_name), "cuGetErrorName", 0},
    {offsetof(CudaDriver, error_text), "cuGetErrorString", 0},
    {offsetof(CudaDriver, allocate), "cuMemAlloc_v2", 0},
    {offsetof(CudaDriver, free), "cuMemFree_v2", 0},
    {offsetof(CudaDriver, create_pool), "cuMemPoolCreate", 0},
    {offsetof(CudaDriver, destroy_pool), "cuMemPoolDestroy", 0},
    {offsetof(CudaDriver, set_pool_attribute), "cuMemPoolSetAttribute", 0},
    {offsetof(CudaDriver, allocate_from_pool), "cuMemAllocFromPoolAsync", 0},
    {offsetof(CudaDriver, free_to_pool), "cuMemFreeAsync", 0},
    {offsetof(CudaDriver, allocate_host), "cuMemHostAlloc", 0},
    {offsetof(CudaDriver, free_host), "cuMemFreeHost", 0},
    {offsetof(CudaDriver, to_device), "cuMemcpyHtoDAsync_v2", 0},
    {offsetof(CudaDriver, to_host), "cuMemcpyDtoHAsync_v2", 0},
    {offsetof(CudaDriver, within), "cuMemcpyDtoDAsync_v2", 0},
    {offsetof(CudaDriver, create_stream), "cuStreamCreate", 0},
    {offsetof(CudaDriver, destroy_stream), "cuStreamDestroy_v2", 0},
    {offsetof(CudaDriver, synchronize), "cuStreamSynchronize", 0},
    {offsetof(CudaDriver, create_event), "cuEventCreate", 0},
    {offsetof(CudaDriver, destroy_event), "cuEventDestroy_v2", 0},
    {offsetof(CudaDriver, record), "cuEventRecord", 0},
    {offsetof(CudaDriver, wait), "cuEventSynchronize", 0},
    {offsetof(CudaDriver, load_module), "cuModuleLoadDataEx", 0},
    {offsetof(CudaDriver, unload_module), "cuModuleUnload", 0},
    {offsetof(CudaDriver, function), "cuModuleGetFunction", 0},
    {offsetof(CudaDriver, set_attribute), "cuFuncSetAttribute", 0},
    {offsetof(CudaDriver, launch), "cuLaunchKernel", 0},
    {offsetof(CudaDriver, begin_capture), "cuStreamBeginCapture_v2", 0},
    {offsetof(CudaDriver, end_capture), "cuStreamEndCapture", 0},
    {offsetof(CudaDriver, instantiate), "cuGraphInstantiateWithFlags", 0},
    {offsetof(CudaDriver, launch_graph), "cuGraphLaunch", 0},
    {offsetof(CudaDriver, destroy_executable), "cuGraphExecDestroy", 0},
    {offsetof(CudaDriver, destroy_graph), "cuGraphDestroy", 0},
    {offsetof(CudaDriver, pin), "cuMemHostRegister_v2", 0},
    {offsetof(CudaDriver, unpin), "cuMemHostUnregister", 0},
    {offsetof(CudaDriver, launch_clusters), "cuLaunchKernelEx", 1},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CudaDriver table;
static int is_open;

int graft_cuda_is_sticky(CudaResult result) {
  return (result >= 709 && result <= 710) || (result >= 714 && result <= 719) || result == 700 || result == 702 ||
         result == 214;
}

void graft_cuda_describe(const CudaDriver *driver, CudaResult result, const char *doing, char *text, size_t size) {
  const char *name = NULL, *meaning = NULL;
  if (driver->error_name(result, &name) || !name) name = "an unknown error";
  if (driver->error_text(result, &meaning) || !meaning) meaning = "no text";
  snprintf(text, size, "%s: %s (%d): %s%s", doing, name, result, meaning,
           graft_cuda_is_sticky(result) ? "; the device is unusable for this process, start it anew" : "");
}

static int look_up(void *library, const char *path, CudaDriver *driver, char *message, size_t size) {
  for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++) {
    void *symbol = dlsym(library, SYMBOLS[i].name);
    if (!symbol && !SYMBOLS[i].is_optional) {
      snprintf(message, size, "the NVIDIA driver ('%s') has no %s, which drivers since CUDA %d.%d have; update it", path,
               SYMBOLS[i].name, CUDA_LEAST_VERSION / 1000, CUDA_LEAST_VERSION % 1000 / 10);
      return 0;
    }
    memcpy((char *)driver + SYMBOLS[i].offset, &symbol, sizeof symbol);
  }
  return 1;
}

static int start(const CudaDriver *driver, char *message, size_t size) {
  int version = 0;
  CudaResult result = driver->version(&version);
  if (!result && version < CUDA_LEAST_VERSION) {
    snprintf(message, size, "the NVIDIA driver is one of CUDA %d.%d, and at least %d.%d is needed; update it",
             version / 1000, version % 1000 / 10, CUDA_LEAST_VERSION / 1000, CUDA_LEAST_VERSION % 1000 / 10);
    return 0;
  }
  result = result ? result : driver->init(0);
  if (result) {
    graft_cuda_describe(driver, result, "the NVIDIA driver does not start: cuInit", message, size);
    return 0;
  }
  return 1;
}

static int open_driver(char *message, size_t size) {
  const char *wanted = getenv("GRAFT_CUDA_DRIVER"), *path = wanted && *wanted ? wanted : LIBRARY;
  CudaDriver found = {0};
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(message, size, "there is no NVIDIA driver: %s", dlerror());
    return 0;
  }
  if (!look_up(library, path, &found, message, size) || !start(&found, message, size)) {
    dlclose(library);
    return 0;
  }
  table = found; /* the library stays open: a driver is not closed and opened again */
  return 1;
}

const CudaDriver *graft_cuda_driver(char *message, size_t size) {
  pthread_mutex_lock(&lock);
  is_open = is_open || open_driver(message, size);
  pthread_mutex_unlock(&lock);
  return is_open ? &table : NULL;
}
