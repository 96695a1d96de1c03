#include "lt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  size_t offset; /* in Lt */
  const char *name;
} SYMBOLS[] = {
    {offsetof(Lt, create), "cublasLtCreate"},
    {offsetof(Lt, destroy), "cublasLtDestroy"},
    {offsetof(Lt, create_product), "cublasLtMatmulDescCreate"},
    {offsetof(Lt, destroy_product), "cublasLtMatmulDescDestroy"},
    {offsetof(Lt, set_product), "cublasLtMatmulDescSetAttribute"},
    {offsetof(Lt, create_layout), "cublasLtMatrixLayoutCreate"},
    {offsetof(Lt, destroy_layout), "cublasLtMatrixLayoutDestroy"},
    {offsetof(Lt, set_layout), "cublasLtMatrixLayoutSetAttribute"},
    {offsetof(Lt, create_preference), "cublasLtMatmulPreferenceCreate"},
    {offsetof(Lt, destroy_preference), "cublasLtMatmulPreferenceDestroy"},
    {offsetof(Lt, set_preference), "cublasLtMatmulPreferenceSetAttribute"},
    {offsetof(Lt, choose), "cublasLtMatmulAlgoGetHeuristic"},
    {offsetof(Lt, multiply), "cublasLtMatmul"},
};
static const char *const NAMES[] = {"libcublasLt.so.12", "libcublasLt.so.13", "libcublasLt.so.11", "libcublasLt.so"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Lt table;
static int is_open;

static void *open_library(void) {
  const char *wanted = getenv("GRAFT_CUBLASLT");
  if (wanted && *wanted) return dlopen(wanted, RTLD_NOW | RTLD_LOCAL);
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
    void *found = dlopen(NAMES[i], RTLD_NOW | RTLD_LOCAL);
    if (found) return found;
  }
  return NULL;
}

static int look_up(char *message, size_t size) {
  Lt found;
  void *library = open_library();
  if (!library) {
    snprintf(message, size, "there is no cuBLASLt: %s; pip install nvidia-cublas-cu12", dlerror());
    return 0;
  }
  for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++) {
    void *symbol = dlsym(library, SYMBOLS[i].name);
    if (!symbol) {
      snprintf(message, size, "cuBLASLt has no %s, which versions since 11.4 have; update it", SYMBOLS[i].name);
      dlclose(library);
      return 0;
    }
    memcpy((char *)&found + SYMBOLS[i].offset, &symbol, sizeof symbol);
  }
  table = found;
  return 1;
}

const Lt *graft_lt(char *message, size_t size) {
  pthread_mutex_lock(&lock);
  is_open = is_open || look_up(message, size);
  pthread_mutex_unlock(&lock);
  return is_open ? &table : NULL;
}
