/* Memory of a device that outputs have and give back, call after call. The driver maps it anew at each cuMemAlloc, which
 * takes longer than a kernel takes to write it; a pool of the driver (since CUDA 11.2) keeps what is given back. As with
 * cuMemFree, memory is given back when all that was begun on the device is done, whichever stream it is on. The device is current in
 * this thread when these are called. */
#ifndef GRAFT_CUDA_MEMORY_H
#define GRAFT_CUDA_MEMORY_H

#include "device.h"

CudaResult graft_cuda_open_memory(CudaDevice *device);
void graft_cuda_close_memory(CudaDevice *device);
CudaResult graft_cuda_allocate(CudaDevice *device, uint64_t bytes, CudaAddress *address);
void graft_cuda_release(CudaDevice *device, CudaAddress address);

#endif
