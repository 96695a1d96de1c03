/* What a kernel node says of itself, and what its description takes: attributes, shapes, operands. */
#include <stdio.h>
#include <string.h>

#include "kernel.h"

int32_t kernel_fail(const Kernel *kernel, const char *what, DnnlStatus status) {
  return onednn_fail(kernel->binding, kernel->node, what, status);
}

int32_t kernel_check(const Kernel *kernel, DnnlStatus status, const char *what) {
  return status == DNNL_SUCCESS ? GRAFT_OK : kernel_fail(kernel, what, status);
}

const Shape *kernel_shape(const Kernel *kernel, int32_t input) {
  return &kernel->binding->nodes[kernel->self->inputs[input]].shape;
}

int32_t kernel_operand(Kernel *kernel, int32_t arg, int32_t input, DnnlDesc view) {
  if (kernel->operand_count == MAX_OPERANDS) {
    kernel->binding->dnnl->memory_desc_destroy(view);
    return kernel_fail(kernel, "too many operands", DNNL_SUCCESS);
  }
  kernel->operands[kernel->operand_count++] = (Operand){arg, kernel->self->inputs[input], view};
  return GRAFT_OK;
}

void kernel_pad_rank(const Kernel *kernel, const Shape *shape, Shape *result) {
  *result = (Shape){.rank = kernel->shape.rank};
  for (int32_t i = 0; i < result->rank; i++) {
    int32_t from = i - (result->rank + kernel->dropped - shape->rank);
    result->sizes[i] = from >= 0 ? shape->sizes[from] : 1;
  }
}

int32_t kernel_integers(const Kernel *kernel, const char *name, int32_t count, int64_t least, int64_t *values) {
  const JsonValue *list = graft_json_member(kernel->self->attributes, name);
  bool valid = graft_json_count(list) == (size_t)count;
  for (int32_t i = 0; i < count && valid; i++) {
    values[i] = onednn_integer(kernel->binding, graft_json_item(list, (size_t)i), -1);
    valid = values[i] >= least && values[i] < INT32_MAX;
  }
  char what[80];
  snprintf(what, sizeof what, "'%s' has the wrong length or a value out of range", name);
  return valid ? GRAFT_OK : kernel_fail(kernel, what, DNNL_SUCCESS);
}

float kernel_number(const Kernel *kernel, const char *name, double fallback) {
  return (float)graft_json_number(graft_json_member(kernel->self->attributes, name), fallback);
}

const char *kernel_text(const Kernel *kernel, const char *name) {
  return graft_json_string(graft_json_member(kernel->self->attributes, name), "");
}

bool kernel_flag(const Kernel *kernel, const char *name) {
  return graft_json_integer(graft_json_member(kernel->self->attributes, name), 0) != 0;
}

DnnlEnum onednn_named(const NamedValue *table, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(table[i].name, name) == 0) {
      return table[i].value;
    }
  }
  return 0;
}
