/* CUDA's driver as this plugin calls it: a table of functions that are looked up in libcuda.so.1 when they are first
 * needed, so that nothing is linked and a machine without a driver gets a text that says so. */
#ifndef GRAFT_CUDA_DRIVER_H
#define GRAFT_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CudaResult;
typedef int CudaDeviceId;
typedef uint64_t CudaAddress;
typedef void *CudaHandle; /* contexts, streams, events, pools, modules, functions, graphs */

enum {
  CUDA_OK = 0,
  CUDA_OUT_OF_MEMORY = 2,
  CUDA_NO_BINARY = 209,
  CUDA_LEAST_VERSION = 11040, /* what the functions below need */

  /* Attributes of devices and of functions. */
  CUDA_MOST_THREADS = 1,
  CUDA_MAJOR = 75,
  CUDA_MINOR = 76,
  CUDA_MOST_SHARED = 97,
  CUDA_HAS_MEMORY_POOLS = 115,
  CUDA_FUNCTION_DYNAMIC_SHARED = 8,

  CUDA_JIT_ERROR_LOG = 5,
  CUDA_JIT_ERROR_LOG_SIZE = 6,
  CUDA_ATTRIBUTE_CLUSTER = 4,
  CUDA_EVENT_WITHOUT_TIME = 2,
  CUDA_CAPTURE_THREAD = 1,
  CUDA_PIN_FOR_ALL = 1,
};

/* CUlaunchConfig and its attributes. */
typedef struct CudaLaunchAttribute {
  int32_t id, padding;
  union {
    char bytes[64];
    uint32_t cluster[3];
  } value;
} CudaLaunchAttribute;

typedef struct CudaLaunchConfig {
  uint32_t grid[3], block[3], shared;
  CudaHandle stream;
  CudaLaunchAttribute *attributes;
  uint32_t attribute_count;
} CudaLaunchConfig;

typedef struct CudaDriver {
  CudaResult (*init)(unsigned flags);
  CudaResult (*version)(int *version);
  CudaResult (*device_count)(int *count);
  CudaResult (*device)(CudaDeviceId *device, int number);
  CudaResult (*device_name)(char *name, int size, CudaDeviceId device);
  CudaResult (*attribute)(int *value, int attribute, CudaDeviceId device);
  CudaResult (*retain)(CudaHandle *context, CudaDeviceId device);
  CudaResult (*total_memory)(size_t *bytes, CudaDeviceId device);
  CudaResult (*release)(CudaDeviceId device);
  CudaResult (*set_current)(CudaHandle context);
  CudaResult (*synchronize_all)(void);
  CudaResult (*error_name)(CudaResult error, const char **text);
  CudaResult (*error_text)(CudaResult error, const char **text);
  CudaResult (*allocate)(CudaAddress *memory, size_t bytes);
  CudaResult (*free)(CudaAddress memory);
  CudaResult (*create_pool)(CudaHandle *pool, const void *properties);
  CudaResult (*destroy_pool)(CudaHandle pool);
  CudaResult (*set_pool_attribute)(CudaHandle pool, int attribute, void *value);
  CudaResult (*allocate_from_pool)(CudaAddress *memory, size_t bytes, CudaHandle pool, CudaHandle stream);
  CudaResult (*free_to_pool)(CudaAddress memory, CudaHandle stream);
  CudaResult (*allocate_host)(void **memory, size_t bytes, unsigned flags);
  CudaResult (*free_host)(void *memory);
  CudaResult (*to_device)(CudaAddress target, const void *source, size_t bytes, CudaHandle stream);
  CudaResult (*to_host)(void *target, CudaAddress source, size_t bytes, CudaHandle stream);
  CudaResult (*within)(CudaAddress target, CudaAddress source, size_t bytes, CudaHandle stream);
  CudaResult (*create_stream)(CudaHandle *stream, unsigned flags);
  CudaResult (*destroy_stream)(CudaHandle stream);
  CudaResult (*synchronize)(CudaHandle stream);
  CudaResult (*create_event)(CudaHandle *event, unsigned flags);
  CudaResult (*destroy_event)(CudaHandle event);
  CudaResult (*record)(CudaHandle event, CudaHandle stream);
  CudaResult (*wait)(CudaHandle event);
  CudaResult (*load_module)(CudaHandle *module, const void *image, unsigned count, int *options, void **values);
  CudaResult (*unload_module)(CudaHandle module);
  CudaResult (*function)(CudaHandle *function, CudaHandle module, const char *name);
  CudaResult (*set_attribute)(CudaHandle function, int attribute, int value);
  CudaResult (*launch)(CudaHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared, CudaHandle stream, void **parameters,
                       void **extra);
  CudaResult (*begin_capture)(CudaHandle stream, int mode);
  CudaResult (*end_capture)(CudaHandle stream, CudaHandle *graph);
  CudaResult (*instantiate)(CudaHandle *executable, CudaHandle graph, unsigned long long flags);
  CudaResult (*launch_graph)(CudaHandle executable, CudaHandle stream);
  CudaResult (*destroy_executable)(CudaHandle executable);
  CudaResult (*destroy_graph)(CudaHandle graph);
  CudaResult (*pin)(void *memory, size_t bytes, unsigned flags);
  CudaResult (*unpin)(void *memory);
  /* May be NULL: drivers before 12.0 have no clusters. */
  CudaResult (*launch_clusters)(const CudaLaunchConfig *config, CudaHandle function, void **parameters, void **extra);
} CudaDriver;

/* The driver of this process, initialised, opened once; NULL with the reason in `message`. GRAFT_CUDA_DRIVER is the path
 * of a library for those who have it elsewhere than the dynamic linker looks. */
const CudaDriver *graft_cuda_driver(char *message, size_t size);

/* Whether all that follows on the device fails too, until the process ends. */
int graft_cuda_is_sticky(CudaResult result);

/* "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory". */
void graft_cuda_describe(const CudaDriver *driver, CudaResult result, const char *doing, char *text, size_t size);

#endif
