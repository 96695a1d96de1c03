/* What kernels report of what they read: words in the host's memory that the device writes, which are looked at when a
 * stream is done. */
#ifndef GRAFT_CUDA_REPORT_H
#define GRAFT_CUDA_REPORT_H

#include "driver.h"
#include "graft/runtime.h"

struct CudaDevice;

/* Of one launch on one stream. */
typedef struct CudaReport {
  struct CudaReport *next;
  CudaHandle stream;
  const void *module, *launch;
  const char *kernel, *node; /* of the module */
  int64_t *words;            /* what is wrong, 0 for nothing, and its numbers */
} CudaReport;

/* Words for a launch of a module: those it has on this stream, or new ones. */
CudaResult graft_cuda_report(struct CudaDevice *device, CudaHandle stream, const CudaReport *of, int64_t **words);

/* Frees those of a stream, or of a module where it is not NULL. */
void graft_cuda_forget(struct CudaDevice *device, CudaHandle stream, const void *module);

/* GRAFT_OK, or what a kernel on the stream reported; it is forgotten then. Nothing runs on the stream meanwhile. */
int32_t graft_cuda_reported(struct CudaDevice *device, CudaHandle stream, GraftError *error);

#endif
