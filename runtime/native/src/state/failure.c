#include <stdio.h>

#include "state/state.h"

int32_t graft_context_record(Context *context, int32_t status, const char *format, va_list arguments) {
  if (!context->message[0]) {
    vsnprintf(context->message, sizeof context->message, format, arguments);
    context->lacked_memory = status == GRAFT_ERROR_MEMORY;
  }
  return status;
}

int32_t graft_context_status(const Context *context, int32_t status) {
  return status && context->lacked_memory ? GRAFT_ERROR_MEMORY : status;
}

int32_t graft_context_fail(Context *context, int32_t status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  graft_context_record(context, status, format, arguments);
  va_end(arguments);
  return status;
}
