/* Whether the constants of an artifact are the bytes that were written, looked at when they are first needed. */
#ifndef GRAFT_CONSTANT_CHECK_H
#define GRAFT_CONSTANT_CHECK_H

#include <pthread.h>
#include <stdatomic.h>

#include "artifact/safetensors.h"
#include "graft/runtime.h"

/* Several programs may share the constants, and threads may call them at once. */
typedef struct ConstantCheck {
  const TensorStore *store;
  atomic_int done;
  pthread_mutex_t lock;
} ConstantCheck;

/* Whether every constant is named by the hash of its content: `<32 digits>-...`. */
int graft_constants_name_content(const TensorStore *store);

/* 0 when memory runs out. With `done` there is nothing left to check. */
int graft_constant_check_create(ConstantCheck *check, const TensorStore *store, int done);
void graft_constant_check_destroy(ConstantCheck *check);

/* Hashes all constants, once, in the threads of the context (NULL: in this one), and compares them with their names. */
int32_t graft_constant_check_run(ConstantCheck *check, GraftContext *context, GraftError *error);

#endif
