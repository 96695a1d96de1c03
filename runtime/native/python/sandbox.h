/* The sandbox that this process is in, if it is in one. */
#ifndef GRAFT_SANDBOX_H
#define GRAFT_SANDBOX_H

#include <stdint.h>

#include "limited.h"

/* graft.runtime._native.enter_sandbox(filter, names): installs a filter of system calls, for good; those that it refuses
 * fail with EPERM, and are noted. */
PyObject *graft_enter_sandbox(PyObject *module, PyObject *arguments);

/* graft.runtime._native.last_refusal(): says which was the last since it was asked before, "" if there was none. */
PyObject *graft_last_refusal(PyObject *module, PyObject *unused);

/* How many system calls were refused so far; and what graft.runtime._native.last_refusal says, behind a text. */
int32_t graft_refusals(void);
void graft_append_refusal(char *text, size_t size);

#endif
