/* The devices of CUDA's driver as the runtime and the loader use them. */
#ifndef GRAFT_CUDA_DEVICE_H
#define GRAFT_CUDA_DEVICE_H

#include <pthread.h>

#include "driver.h"
#include "graft/device.h"
#include "report.h"

enum { CUDA_DEVICES = 64, CUDA_LAST_LAUNCH = 192 };

typedef struct CudaDevice {
  GraftDevice table;
  int number;
  pthread_mutex_t lock; /* guards what follows */
  int users;
  const CudaDriver *driver;
  CudaDeviceId id;
  CudaHandle context;
  CudaHandle pool, memory_stream; /* of memory.h; NULL where the device has no pools */
  pthread_mutex_t capture;        /* held while a stream is captured; recursive */
  char name[128];
  int arch; /* 90 for sm_90 */
  int most_shared, most_threads;
  char last[CUDA_LAST_LAUNCH]; /* the last launch, which an error that comes later may be of */
  CudaReport *reports;
} CudaDevice;

/* The device of a number, closed as yet; NULL for one that no machine has. */
CudaDevice *graft_cuda_device(int number);

/* Opens it for one more user. GRAFT_OK, or an error code with the reason. */
int32_t graft_cuda_open(CudaDevice *device, GraftError *error);
void graft_cuda_close(CudaDevice *device);

/* Makes it current in this thread; returns what the driver says. */
CudaResult graft_cuda_enter(const CudaDevice *device);

/* The code of a result, and its text in `error`. */
int32_t graft_cuda_fail(CudaDevice *device, CudaResult result, const char *doing, GraftError *error);

void graft_cuda_note_launch(CudaDevice *device, const char *text);

#endif
