/* Convolution and pooling. */
#include <string.h>

#include "kernel.h"

typedef struct Window {
  int64_t strides[DNNL_MAX_RANK], dilates[DNNL_MAX_RANK], left[DNNL_MAX_RANK], right[DNNL_MAX_RANK];
} Window;

static int32_t read_window(const Kernel *kernel, Window *window) {
  int32_t spatial = kernel->self->shape.rank - 2;
  if (spatial < 1 || spatial > 3 || kernel_shape(kernel, 0)->rank != kernel->self->shape.rank) {
    return kernel_fail(kernel, "one to three spatial axes are needed", DNNL_SUCCESS);
  }
  GRAFT_TRY(kernel_integers(kernel, "strides", spatial, 1, window->strides));
  GRAFT_TRY(kernel_integers(kernel, "dilates", spatial, 0, window->dilates));
  GRAFT_TRY(kernel_integers(kernel, "padding_l", spatial, 0, window->left));
  return kernel_integers(kernel, "padding_r", spatial, 0, window->right);
}

/* ONNX's weights [m, c / groups, ...] as oneDNN's [groups, m / groups, c / groups, ...]: the same bytes. */
static int32_t weight_shape(const Kernel *kernel, Shape *shape) {
  const Shape *given = kernel_shape(kernel, 1);
  int64_t groups = graft_json_integer(graft_json_member(kernel->self->attributes, "groups"), 1);
  *shape = *given;
  if (groups == 1) {
    return GRAFT_OK;
  }
  if (groups < 1 || given->rank >= DNNL_MAX_RANK || given->sizes[0] % groups != 0) {
    return kernel_fail(kernel, "'groups' does not divide the output channels", DNNL_SUCCESS);
  }
  shape->rank = given->rank + 1;
  memcpy(shape->sizes + 1, given->sizes, (size_t)given->rank * sizeof given->sizes[0]);
  shape->sizes[0] = groups;
  shape->sizes[1] = given->sizes[0] / groups;
  return GRAFT_OK;
}

/* Adds the operands, and describes source and target: oneDNN may choose their layouts. */
static int32_t add_operands(Kernel *kernel, const Shape *weights, bool biased) {
  Binding *binding = kernel->binding;
  DnnlDesc view = NULL;
  if (biased && kernel->self->input_count < 3) {
    return kernel_fail(kernel, "the bias is missing", DNNL_SUCCESS);
  }
  bool grouped = weights->rank != kernel_shape(kernel, 1)->rank;
  bool failed = kernel_operand(kernel, ARG_SRC, 0, NULL) ||
                (grouped && onednn_row_major(binding, kernel->node, weights, &view)) ||
                kernel_operand(kernel, ARG_WEIGHTS, 1, view) ||
                (biased && kernel_operand(kernel, ARG_BIAS, 2, NULL)) ||
                onednn_any_layout(binding, kernel->node, kernel_shape(kernel, 0), &kernel->source) ||
                onednn_any_layout(binding, kernel->node, &kernel->shape, &kernel->target);
  return failed ? GRAFT_ERROR_RUN : GRAFT_OK;
}

int32_t describe_convolution(Kernel *kernel) {
  Binding *binding = kernel->binding;
  Window window;
  Shape weights;
  DnnlDesc weight_desc = NULL;
  DnnlDesc bias_desc = NULL;
  bool biased = kernel_flag(kernel, "bias");
  bool failed = read_window(kernel, &window) || weight_shape(kernel, &weights) ||
                add_operands(kernel, &weights, biased) ||
                onednn_any_layout(binding, kernel->node, &weights, &weight_desc) ||
                (biased && onednn_row_major(binding, kernel->node, kernel_shape(kernel, 2), &bias_desc)) ||
                kernel_attributes(kernel);
  if (!failed) {
    DnnlStatus status = binding->dnnl->convolution_forward_primitive_desc_create(
        &kernel->recipe, binding->engine, DNNL_INFERENCE, DNNL_CONVOLUTION_DIRECT, kernel->source, weight_desc, bias_desc,
        kernel->target, window.strides, window.dilates, window.left, window.right, kernel->attr);
    failed = kernel_check(kernel, status, "describing a convolution");
  }
  binding->dnnl->memory_desc_destroy(weight_desc);
  binding->dnnl->memory_desc_destroy(bias_desc);
  return failed ? GRAFT_ERROR_RUN : GRAFT_OK;
}

static const NamedValue POOLING[] = {{"max", 511}, {"average", 767}, {"average_exclude_padding", 1023}};

int32_t describe_pooling(Kernel *kernel) {
  Binding *binding = kernel->binding;
  Window window;
  int64_t size[DNNL_MAX_RANK];
  DnnlEnum algorithm = onednn_named(POOLING, sizeof POOLING / sizeof POOLING[0], kernel_text(kernel, "algorithm"));
  if (algorithm == 0) {
    return kernel_fail(kernel, "unknown pooling algorithm", DNNL_SUCCESS);
  }
  GRAFT_TRY(read_window(kernel, &window));
  GRAFT_TRY(kernel_integers(kernel, "kernel", kernel->self->shape.rank - 2, 1, size));
  GRAFT_TRY(kernel_unary(kernel, kernel_shape(kernel, 0)->rank - 1));
  DnnlStatus status = binding->dnnl->pooling_forward_primitive_desc_create(
      &kernel->recipe, binding->engine, DNNL_INFERENCE, algorithm, kernel->source, kernel->target, window.strides, size,
      window.dilates, window.left, window.right, kernel->attr);
  return kernel_described(kernel, status, "describing a pooling");
}
