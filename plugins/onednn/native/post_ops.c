/* Post-operations: what a primitive does to its result before it stores it. */
#include <string.h>

#include "kernel.h"

static const NamedValue ELTWISE[] = {
    {"relu", 32},       {"tanh", 33},     {"elu", 34},        {"square", 35},    {"abs", 36},
    {"sqrt", 37},       {"linear", 38},   {"soft_relu", 39},  {"hardsigmoid", 40}, {"logistic", 41},
    {"exp", 42},        {"gelu_tanh", 43}, {"swish", 44},     {"log", 45},       {"clip", 46},
    {"pow", 48},        {"gelu_erf", 49}, {"round", 50},      {"mish", 51},      {"hardswish", 52},
};

static const NamedValue BINARY[] = {
    {"add", 131056}, {"mul", 131057}, {"max", 131058}, {"min", 131059}, {"div", 131060}, {"sub", 131061},
};

DnnlEnum onednn_eltwise(const char *name) { return onednn_named(ELTWISE, sizeof ELTWISE / sizeof ELTWISE[0], name); }

DnnlEnum onednn_binary(const char *name) { return onednn_named(BINARY, sizeof BINARY / sizeof BINARY[0], name); }

static bool equal_shapes(const Shape *left, const Shape *right) {
  return left->rank == right->rank &&
         memcmp(left->sizes, right->sizes, (size_t)left->rank * sizeof left->sizes[0]) == 0;
}

/* "sum" overwrites the operand: it must be ours, have its last reader here and be read nowhere else by this node. */
static bool may_replace(const Kernel *kernel, int32_t input) {
  const Binding *binding = kernel->binding;
  int32_t value = kernel->self->inputs[input];
  const Node *node = &binding->nodes[value];
  const Buffer *buffer = &binding->buffers[onednn_current(binding, value)->buffer];
  bool ours = buffer->kind == BUFFER_WORKSPACE && !buffer->shared && node->last_use == kernel->node;
  for (int32_t i = 0; i < kernel->self->input_count; i++) {
    ours = ours && (i == input || kernel->self->inputs[i] != value);
  }
  return ours && kernel->replaced < 0 && onednn_elements(&node->shape) == onednn_elements(&kernel->shape);
}

/* The operand's shape under the rank of the destination: the same, or with ones for the axes that it lacks. */
static int32_t operand_shape(const Kernel *kernel, const Shape *shape, Shape *result) {
  if (onednn_elements(shape) == onednn_elements(&kernel->shape)) {
    *result = kernel->shape;
    return GRAFT_OK;
  }
  kernel_pad_rank(kernel, shape, result);
  return onednn_elements(result) == onednn_elements(shape)
             ? GRAFT_OK
             : kernel_fail(kernel, "an operand of a post-operation does not fit the result", DNNL_SUCCESS);
}

static int32_t append_operand(Kernel *kernel, DnnlPostOps post_ops, DnnlEnum algorithm, int32_t index, int32_t input) {
  Binding *binding = kernel->binding;
  const Shape *shape = kernel_shape(kernel, input);
  Shape seen;
  GRAFT_TRY(operand_shape(kernel, shape, &seen));
  DnnlDesc view = NULL;
  DnnlDesc wanted = NULL;
  if (!equal_shapes(shape, &seen)) {
    GRAFT_TRY(onednn_row_major(binding, kernel->node, &seen, &view));
  }
  if (algorithm == DNNL_BINARY_ADD && equal_shapes(&seen, &kernel->shape) &&
      may_replace(kernel, input)) {
    kernel->replaced = kernel->self->inputs[input];
    kernel->replaced_view = view;
    return kernel_check(kernel, binding->dnnl->post_ops_append_sum(post_ops, 1.0f, 0, DNNL_F32), "appending a sum");
  }
  int32_t code = kernel->reshaped ? onednn_row_major(binding, kernel->node, &seen, &wanted)
                                  : onednn_any_layout(binding, kernel->node, &seen, &wanted);
  if (code != GRAFT_OK) {
    binding->dnnl->memory_desc_destroy(view);
    return code;
  }
  DnnlStatus status = binding->dnnl->post_ops_append_binary(post_ops, algorithm, wanted);
  binding->dnnl->memory_desc_destroy(wanted);
  code = kernel_operand(kernel, (ARG_POST_OP * (index + 1)) | ARG_SRC_1, input, view);
  return code == GRAFT_OK ? kernel_check(kernel, status, "appending a post-operation") : code;
}

static int32_t append(Kernel *kernel, DnnlPostOps post_ops, const JsonValue *row, int32_t index) {
  const char *name = graft_json_string(graft_json_member(row, "algorithm"), "");
  int64_t input = graft_json_integer(graft_json_member(row, "input"), -1);
  DnnlEnum algorithm = onednn_binary(name);
  if (algorithm != 0 && input >= 1 && input < kernel->self->input_count) {
    return append_operand(kernel, post_ops, algorithm, index, (int32_t)input);
  }
  algorithm = onednn_eltwise(name);
  if (algorithm == 0) {
    return kernel_fail(kernel, "unknown post-operation", DNNL_SUCCESS);
  }
  float alpha = (float)graft_json_number(graft_json_member(row, "alpha"), 0);
  float beta = (float)graft_json_number(graft_json_member(row, "beta"), 0);
  DnnlStatus status = kernel->binding->dnnl->post_ops_append_eltwise(post_ops, algorithm, alpha, beta);
  return kernel_check(kernel, status, "appending a post-operation");
}

int32_t kernel_attributes(Kernel *kernel) {
  const Dnnl *dnnl = kernel->binding->dnnl;
  const JsonValue *rows = graft_json_member(kernel->self->attributes, "post_ops");
  int32_t count = (int32_t)graft_json_count(rows);
  DnnlPostOps post_ops = NULL;
  if (count > MAX_POST_OPS) {
    return kernel_fail(kernel, "too many post-operations", DNNL_SUCCESS);
  }
  DnnlStatus status = dnnl->primitive_attr_create(&kernel->attr);
  if (status == DNNL_SUCCESS) {
    status = dnnl->primitive_attr_set_scratchpad_mode(kernel->attr, DNNL_SCRATCHPAD_USER);
  }
  if (status == DNNL_SUCCESS) {
    status = dnnl->post_ops_create(&post_ops);
  }
  int32_t code = kernel_check(kernel, status, "creating attributes");
  for (int32_t i = 0; i < count && code == GRAFT_OK; i++) {
    code = append(kernel, post_ops, graft_json_item(rows, (size_t)i), i);
  }
  if (code == GRAFT_OK) {
    status = dnnl->primitive_attr_set_post_ops(kernel->attr, post_ops);
    code = kernel_check(kernel, status, "setting post-operations");
  }
  if (post_ops != NULL) {
    dnnl->post_ops_destroy(post_ops);
  }
  return code;
}

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
