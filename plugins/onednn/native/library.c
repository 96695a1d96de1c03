/* Finding oneDNN on this machine, and its thread count.
 *
 * The library is opened by its name, so that the artifact holds no path: a copy that the process has already loaded
 * (Graft's Python side opens the one installed beside it) is found first, then the system's search path.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "module.h"

#define INSTALL "pip install 'graft-compiler[onednn]'"

static const struct {
  const char *name;
  size_t offset;
} FUNCTIONS[] = {
#define DNNL_ROW(result, name, parameters) {"dnnl_" #name, offsetof(Dnnl, name)},
    DNNL_FUNCTIONS(DNNL_ROW)
#undef DNNL_ROW
};

/* A function pointer is copied by its bytes: ISO C has no cast from an object pointer. */
static bool resolve(void *library, const char *name, void *target) {
  void *symbol = dlsym(library, name);
  memcpy(target, &symbol, sizeof symbol);
  return symbol != NULL;
}

int32_t onednn_open(Dnnl *dnnl, const GraftLoaderHost *host, const char *region) {
  void *library = dlopen("libdnnl.so.3", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == NULL) {
    char reason[256]; /* a copy: the host may use the dynamic linker before it reads the text */
    snprintf(reason, sizeof reason, "%s", dlerror());
    return host->fail(host, "region '%s' needs oneDNN, and libdnnl.so.3 cannot be opened (%s); " INSTALL, region,
                      reason);
  }
  int32_t code = GRAFT_OK;
  for (size_t i = 0; i < sizeof FUNCTIONS / sizeof FUNCTIONS[0] && code == GRAFT_OK; i++) {
    if (!resolve(library, FUNCTIONS[i].name, (char *)dnnl + FUNCTIONS[i].offset)) {
      code = host->fail(host, "region '%s' needs oneDNN 3, and the libdnnl.so.3 found lacks %s; " INSTALL, region,
                        FUNCTIONS[i].name);
    }
  }
  if (code == GRAFT_OK && dnnl->version()->major != 3) {
    code = host->fail(host, "region '%s' needs oneDNN 3, found version %d.%d; " INSTALL, region,
                      dnnl->version()->major, dnnl->version()->minor);
  }
  if (!resolve(library, "omp_set_num_threads", &dnnl->omp_set_num_threads) ||
      !resolve(library, "omp_get_max_threads", &dnnl->omp_get_max_threads)) {
    dnnl->omp_set_num_threads = NULL;
  }
  dlclose(library); /* RTLD_NODELETE: the code stays */
  return code;
}

int32_t onednn_enter(const Dnnl *dnnl, int32_t threads) {
  if (dnnl->omp_set_num_threads == NULL) {
    return 0;
  }
  int32_t previous = dnnl->omp_get_max_threads();
  if (previous != threads) {
    dnnl->omp_set_num_threads(threads);
  }
  return previous;
}

void onednn_leave(const Dnnl *dnnl, int32_t previous) {
  if (dnnl->omp_set_num_threads != NULL && previous > 0 && dnnl->omp_get_max_threads() != previous) {
    dnnl->omp_set_num_threads(previous);
  }
}
