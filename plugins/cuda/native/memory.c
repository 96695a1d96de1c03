#include "memory.h"

enum {
  POOL_PINNED = 1,
  POOL_ON_DEVICE = 1,
  POOL_RELEASE_THRESHOLD = 4,
  STREAM_NON_BLOCKING = 1,
  KEPT_SHARE = 8, /* up to an eighth of the device's memory is kept for outputs to come */
};

/* CUmemPoolProps. */
typedef struct PoolProperties {
  int32_t allocation_type, handle_types, location_type, location_id;
  void *security;
  size_t most_bytes;
  char reserved[56];
} PoolProperties;

CudaResult graft_cuda_open_memory(CudaDevice *device) {
  const CudaDriver *driver = device->driver;
  int has_pools = 0;
  size_t total = 0;
  CudaResult result = driver->attribute(&has_pools, CUDA_HAS_MEMORY_POOLS, device->id);
  device->pool = device->memory_stream = NULL;
  if (result || !has_pools) {
    return result;
  }
  PoolProperties properties = {.allocation_type = POOL_PINNED, .location_type = POOL_ON_DEVICE, .location_id = device->id};
  result = driver->total_memory(&total, device->id);
  result = result ? result : driver->set_current(device->context);
  result = result ? result : driver->create_stream(&device->memory_stream, STREAM_NON_BLOCKING);
  result = result ? result : driver->create_pool(&device->pool, &properties);
  uint64_t kept = total / KEPT_SHARE;
  result = result ? result : driver->set_pool_attribute(device->pool, POOL_RELEASE_THRESHOLD, &kept);
  if (result) {
    graft_cuda_close_memory(device);
  }
  return result;
}

void graft_cuda_close_memory(CudaDevice *device) {
  if (device->pool) {
    device->driver->destroy_pool(device->pool);
  }
  if (device->memory_stream) {
    device->driver->destroy_stream(device->memory_stream);
  }
  device->pool = device->memory_stream = NULL;
}

CudaResult graft_cuda_allocate(CudaDevice *device, uint64_t bytes, CudaAddress *address) {
  const CudaDriver *driver = device->driver;
  if (!device->pool) {
    return driver->allocate(address, bytes);
  }
  CudaResult result = driver->allocate_from_pool(address, bytes, device->pool, device->memory_stream);
  return result ? result : driver->synchronize(device->memory_stream);
}

void graft_cuda_release(CudaDevice *device, CudaAddress address) {
  const CudaDriver *driver = device->driver;
  if (!device->pool) {
    driver->free(address);
    return;
  }
  pthread_mutex_lock(&device->capture); /* nothing waits for a device while a stream of it is captured */
  CudaResult result = driver->synchronize_all();
  pthread_mutex_unlock(&device->capture);
  if (!result) { /* otherwise it may be in use yet: it stays allocated, and nobody gets it */
    driver->free_to_pool(address, device->memory_stream);
  }
}
