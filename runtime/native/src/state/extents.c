#include "state/extents.h"

#include <inttypes.h>
#include <string.h>

static int uses(const Procedure *procedure, Dimension dimension, int32_t symbol) {
  if (!graft_is_operation(procedure, dimension)) {
    return dimension.place == symbol;
  }
  const ExtentOperation *operation = graft_operation_of(procedure, dimension);
  return uses(procedure, operation->left, symbol) || uses(procedure, operation->right, symbol);
}

void graft_append_bindings(char *text, size_t size, const Frame *frame, Dimension dimension) {
  const Procedure *procedure = frame->procedure;
  int found = 0;
  for (int32_t i = 0; graft_is_operation(procedure, dimension) && i < procedure->symbol_count; i++) {
    if (uses(procedure, dimension, i)) {
      graft_append(text, size, "%s%s = %" PRId64, found ? ", " : " (", procedure->symbols[i].name, frame->values[i]);
      found = 1;
    }
  }
  graft_append(text, size, found ? ")" : "");
}

/* ---- Values --------------------------------------------------------------------------------------------------- */

static int32_t fail_operation(Context *context, const Frame *frame, int32_t number) {
  const ExtentOperation *operation = frame->procedure->operations + number;
  Dimension whole = {frame->procedure->symbol_count + number, 0};
  char text[384] = "", bindings[192] = "";
  graft_append_extent(text, sizeof text, frame->procedure, whole);
  graft_append_bindings(bindings, sizeof bindings, frame, whole);
  int divides = operation->operator == EXTENT_FLOORDIV || operation->operator == EXTENT_MOD;
  return graft_context_fail(context, GRAFT_ERROR_RUN, "extent '%s' %s%s", text,
                            divides ? "divides by zero" : "is beyond 2**62", bindings);
}

int32_t graft_evaluate(Context *context, Frame *frame, const Stage *stage) {
  const Procedure *procedure = frame->procedure;
  int64_t *results = frame->values + procedure->symbol_count;
  for (int32_t i = 0; i < stage->operations.count; i++) {
    int32_t number = stage->operations.items[i];
    const ExtentOperation *operation = procedure->operations + number;
    if (!graft_extent_apply(operation->operator, graft_value(frame, operation->left),
                            graft_value(frame, operation->right), results + number)) {
      return fail_operation(context, frame, number);
    }
  }
  return GRAFT_OK;
}
