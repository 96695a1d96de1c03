#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

enum { WORDS = 8, MAPPED = 3 /* for all contexts, at the same address on the device */ };

CudaResult graft_cuda_report(CudaDevice *device, CudaHandle stream, const CudaReport *of, int64_t **words) {
  CudaResult result = CUDA_OK;
  pthread_mutex_lock(&device->lock);
  CudaReport *found = device->reports;
  while (found && (found->stream != stream || found->launch != of->launch)) found = found->next;
  if (!found) {
    CudaReport *made = malloc(sizeof *made);
    void *memory = NULL;
    result = made ? device->driver->allocate_host(&memory, WORDS * sizeof(int64_t), MAPPED) : CUDA_OUT_OF_MEMORY;
    if (!result) {
      *made = *of;
      made->stream = stream;
      made->words = memset(memory, 0, WORDS * sizeof(int64_t));
      made->next = device->reports;
      device->reports = found = made;
    } else {
      free(made);
    }
  }
  pthread_mutex_unlock(&device->lock);
  *words = found ? found->words : NULL;
  return result;
}

void graft_cuda_forget(CudaDevice *device, CudaHandle stream, const void *module) {
  pthread_mutex_lock(&device->lock);
  for (CudaReport **at = &device->reports; *at;) {
    CudaReport *one = *at;
    if (module ? one->module == module : one->stream == stream) {
      *at = one->next;
      device->driver->free_host(one->words);
      free(one);
    } else {
      at = &one->next;
    }
  }
  pthread_mutex_unlock(&device->lock);
}

/* The messages are those of plugins/codegen/emit_analysis.py, by their numbers. */
static void say(const CudaReport *report, GraftError *error) {
  long long said[WORDS];
  for (int i = 0; i < WORDS; i++) said[i] = report->words[i];
  int length = snprintf(error->message, sizeof error->message, "kernel '%.64s' (node '%.64s'): ", report->kernel, report->node);
  char *text = error->message + length;
  size_t size = sizeof error->message - (size_t)length;
  error->code = GRAFT_ERROR_RUN;
  if (said[0] == 1) {
    snprintf(text, size, "index %lld is out of range: axis %lld has extent %lld, so that %lld to %lld are legal", said[1],
             said[2], said[3], said[4], said[5]);
  } else {
    snprintf(text, size, "the operands make the extent %lld of axis %lld of the result, but the model states %lld",
             said[1], said[2], said[3]);
  }
}

int32_t graft_cuda_reported(CudaDevice *device, CudaHandle stream, GraftError *error) {
  int32_t status = GRAFT_OK;
  pthread_mutex_lock(&device->lock);
  for (CudaReport *one = device->reports; one; one = one->next) {
    if (one->stream == stream && one->words[0]) {
      status = GRAFT_ERROR_RUN;
      say(one, error); /* the list begins with the last: what was launched first is said */
      memset(one->words, 0, WORDS * sizeof(int64_t));
    }
  }
  pthread_mutex_unlock(&device->lock);
  return status;
}
