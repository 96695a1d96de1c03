#include "extents.h"

#include <inttypes.h>
#include <string.h>

#include "program.h"

/* ---- Text ----------------------------------------------------------------------------------------------------- */

static const char *const signs[] = {" + ", " - ", " * ", " // ", " % ", "min", "max"};

static int is_operation(const Procedure *procedure, Dimension dimension) {
  return dimension.place >= procedure->symbol_count;
}

static const ExtentOperation *operation_of(const Procedure *procedure, Dimension dimension) {
  return procedure->operations + (dimension.place - procedure->symbol_count);
}

/* An operand of an infix operator: sums and the like in parentheses. */
static void append_operand(char *text, size_t size, const Procedure *procedure, Dimension dimension) {
  int encloses = is_operation(procedure, dimension) && operation_of(procedure, dimension)->operator < EXTENT_MIN;
  graft_append(text, size, encloses ? "(" : "");
  graft_append_extent(text, size, procedure, dimension);
  graft_append(text, size, encloses ? ")" : "");
}

void graft_append_extent(char *text, size_t size, const Procedure *procedure, Dimension dimension) {
  if (dimension.place < 0) {
    graft_append(text, size, "%" PRId64, dimension.number);
  } else if (!is_operation(procedure, dimension)) {
    graft_append(text, size, "%s", procedure->symbols[dimension.place].name);
  } else if (strlen(text) + 1 < size) { /* else there is no room for any of it */
    const ExtentOperation *operation = operation_of(procedure, dimension);
    if (operation->operator < EXTENT_MIN) {
      append_operand(text, size, procedure, operation->left);
      graft_append(text, size, "%s", signs[operation->operator]);
      append_operand(text, size, procedure, operation->right);
    } else {
      graft_append(text, size, "%s(", signs[operation->operator]);
      graft_append_extent(text, size, procedure, operation->left);
      graft_append(text, size, ", ");
      graft_append_extent(text, size, procedure, operation->right);
      graft_append(text, size, ")");
    }
  }
}

void graft_append_dimensions(char *text, size_t size, const Procedure *procedure, const TensorSpec *tensor) {
  if (!tensor->dimensions) {
    graft_append_shape(text, size, tensor->ndim < 0 ? 0 : tensor->ndim, tensor->shape);
    return;
  }
  graft_append(text, size, "[");
  for (int32_t i = 0; i < tensor->ndim; i++) {
    graft_append(text, size, i ? "," : "");
    graft_append_extent(text, size, procedure, tensor->dimensions[i]);
  }
  graft_append(text, size, "]");
}

static int uses(const Procedure *procedure, Dimension dimension, int32_t symbol) {
  if (!is_operation(procedure, dimension)) {
    return dimension.place == symbol;
  }
  const ExtentOperation *operation = operation_of(procedure, dimension);
  return uses(procedure, operation->left, symbol) || uses(procedure, operation->right, symbol);
}

void graft_append_bindings(char *text, size_t size, const Frame *frame, Dimension dimension) {
  const Procedure *procedure = frame->procedure;
  int found = 0;
  for (int32_t i = 0; is_operation(procedure, dimension) && i < procedure->symbol_count; i++) {
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
