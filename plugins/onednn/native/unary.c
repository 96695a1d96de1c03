/* What the descriptions of primitives with one source have in common. */
#include "kernel.h"

int32_t kernel_unary(Kernel *kernel, int32_t axis) {
  const Binding *binding = kernel->binding;
  DnnlConstDesc current = onednn_current(binding, kernel->self->inputs[0])->desc;
  if (kernel->copied) {
    GRAFT_TRY(onednn_innermost(kernel->binding, kernel->node, kernel_shape(kernel, 0), axis, &kernel->source));
  } else {
    GRAFT_TRY(kernel_check(kernel, binding->dnnl->memory_desc_clone(&kernel->source, current), "describing a tensor"));
  }
  GRAFT_TRY(onednn_any_layout(kernel->binding, kernel->node, &kernel->self->shape, &kernel->target));
  return kernel_attributes(kernel);
}

int32_t kernel_described(Kernel *kernel, DnnlStatus status, const char *what) {
  GRAFT_TRY(kernel_check(kernel, status, what));
  return kernel_operand(kernel, ARG_SRC, 0, NULL);
}
