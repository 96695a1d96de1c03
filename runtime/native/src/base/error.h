/* Error texts. */
#ifndef GRAFT_ERROR_H
#define GRAFT_ERROR_H

#include "graft/runtime.h"

#if defined(__GNUC__)
#define GRAFT_FORMAT(text, first) __attribute__((format(printf, text, first)))
#else
#define GRAFT_FORMAT(text, first)
#endif

/* Returns from the function around it what `call` returns, unless that is GRAFT_OK. */
#define GRAFT_TRY(call)          \
  do {                           \
    const int32_t code = (call); \
    if (code) {                  \
      return code;               \
    }                            \
  } while (0)

/* Fills `error` (which may be NULL) and returns `code`. */
int32_t graft_set_error(GraftError *error, int32_t code, const char *format, ...) GRAFT_FORMAT(3, 4);

/* Appends to a zero-terminated text; what does not fit is cut. */
void graft_append(char *text, size_t size, const char *format, ...) GRAFT_FORMAT(3, 4);

/* Appends "[2,3]". */
void graft_append_shape(char *text, size_t size, int32_t ndim, const int64_t *shape);

#endif
