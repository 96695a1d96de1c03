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

const char *graft_code_text(int32_t code) {
  static const char *const texts[] = {
      [GRAFT_OK] = "done",
      [GRAFT_ERROR_MEMORY] = "an allocation failed",
      [GRAFT_ERROR_ARTIFACT] = "the artifact is damaged, hostile or of another version",
      [GRAFT_ERROR_LOADER] = "there is no loader for a module, or it failed",
      [GRAFT_ERROR_INPUT] = "an input has the wrong number, type, shape or device",
      [GRAFT_ERROR_RUN] = "a compiled function failed",
      [GRAFT_ERROR_SYSTEM] = "the operating system refused something",
      [GRAFT_ERROR_CANCELLED] = "the run was cancelled",
      [GRAFT_ERROR_DEADLINE] = "the run was not done in its time",
  };
  return code >= 0 && code < (int32_t)(sizeof texts / sizeof *texts) ? texts[code] : "an unknown error code";
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
