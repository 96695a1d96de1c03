#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int32_t graft_set_error(GraftError *error, int32_t code, const char *format, ...) {
  if (error) {
    va_list arguments;
    va_start(arguments, format);
    error->code = code;
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
  }
  return code;
}

void graft_append(char *text, size_t size, const char *format, ...) {
  size_t used = strlen(text);
  if (used + 1 < size) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
  }
}

void graft_append_shape(char *text, size_t size, int32_t ndim, const int64_t *shape) {
  graft_append(text, size, "[");
  for (int32_t i = 0; i < ndim; i++) {
    graft_append(text, size, "%s%" PRId64, i ? "," : "", shape[i]);
  }
  graft_append(text, size, "]");
}
