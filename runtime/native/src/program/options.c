#include <inttypes.h>
#include <string.h>

#include "program/program.h"

int32_t graft_take_options(const char *type, const void *given, void *taken, uint32_t size, GraftError *error) {
  uint32_t given_size = 0;
  if (!given) {
    return GRAFT_OK;
  }
  memcpy(&given_size, given, sizeof given_size);
  if (given_size < 2 * sizeof given_size || given_size > UINT16_MAX) {
    return graft_set_error(error, GRAFT_ERROR_INPUT, "the size of options is %" PRIu32 ", not sizeof(%s)", given_size,
                           type);
  }
  for (uint32_t i = size; i < given_size; i++) {
    if (((const char *)given)[i]) {
      return graft_set_error(error, GRAFT_ERROR_INPUT, "options are set that this runtime's %s does not have; upgrade it",
                             type);
    }
  }
  memcpy(taken, given, given_size < size ? given_size : size);
  return GRAFT_OK;
}
