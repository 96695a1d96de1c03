/* Extents as texts, for messages. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "manifest/procedure.h"

static const char *const signs[] = {" + ", " - ", " * ", " // ", " % ", "min", "max"};

/* An operand of an infix operator: sums and the like in parentheses. */
static void append_operand(char *text, size_t size, const Procedure *procedure, Dimension dimension) {
  int encloses =
      graft_is_operation(procedure, dimension) && graft_operation_of(procedure, dimension)->operator < EXTENT_MIN;
  graft_append(text, size, encloses ? "(" : "");
  graft_append_extent(text, size, procedure, dimension);
  graft_append(text, size, encloses ? ")" : "");
}

void graft_append_extent(char *text, size_t size, const Procedure *procedure, Dimension dimension) {
  if (dimension.place < 0) {
    graft_append(text, size, "%" PRId64, dimension.number);
  } else if (!graft_is_operation(procedure, dimension)) {
    graft_append(text, size, "%s", procedure->symbols[dimension.place].name);
  } else if (strlen(text) + 1 < size) { /* else there is no room for any of it */
    const ExtentOperation *operation = graft_operation_of(procedure, dimension);
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
