/* Programs from parts in memory, and runs of them. */
#ifndef GRAFT_PROGRAM_H
#define GRAFT_PROGRAM_H

#include "base/error.h"
#include "state/state.h"

int32_t graft_program_create(const GraftProgramSource *source, const GraftLoadOptions *options, GraftProgram **program,
                             GraftError *error);

/* Takes over what a caller gave as options (which may be NULL), as far as it goes by its `size`, which comes first; `taken`
 * has `size` bytes of zeros. What is not known here has to be zero (options.c). */
int32_t graft_take_options(const char *type, const void *given, void *taken, uint32_t size, GraftError *error);

/* Module loading (module.c). */
int32_t graft_load_modules(GraftProgram *program, const GraftLoadOptions *options, GraftError *error);
void graft_unload_modules(GraftProgram *program);
/* What loaders report to while a module is loaded: others see `base`, the built-in ones also whose memory to take. */
typedef struct LoadingHost {
  GraftLoaderHost base;
  char *message;
  size_t size;
  const GraftAllocator *memory;
} LoadingHost;

extern const GraftLoader graft_native_loader;
extern const GraftLoader graft_c_source_loader;

/* More than graft_program_run: the call that failed, and times. */
typedef struct GraftRunDetails {
  const Timing *timing; /* in: NULL, or who is told how long calls take */
  void *user;           /* in: what graft_context_user gives to functions of this run */
  Stop *stop;           /* in: NULL, or what may end the run early */
  const Call *failed;   /* out */
  int32_t procedure;    /* out: the number of the entry that ran */
} GraftRunDetails;

/* A run in two steps, for who makes the outputs when their shapes are known (run.c). The inputs stay valid until the
 * second; between them the instance belongs to the caller, who ends the run or gives the instance back. */
int32_t graft_run_begin(GraftProgram *program, const DLTensor *inputs, Instance **instance, GraftError *error);
int32_t graft_run_end(Instance *instance, DLTensor *outputs, GraftRunDetails *details, GraftError *error);

/* Output `i` with its shape; NULL where that is known only after the run. */
const DLTensor *graft_run_output(const Instance *instance, int32_t i);

#endif
