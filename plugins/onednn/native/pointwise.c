/* Elementwise operators, normalisations, softmax and concatenation. */
#include "kernel.h"

int32_t describe_eltwise(Kernel *kernel) {
  const Binding *binding = kernel->binding;
  DnnlEnum algorithm = onednn_eltwise(kernel_text(kernel, "algorithm"));
  if (algorithm == 0) {
    return kernel_fail(kernel, "unknown elementwise algorithm", DNNL_SUCCESS);
  }
  GRAFT_TRY(kernel_unary(kernel, kernel->shape.rank - 1));
  DnnlStatus status = binding->dnnl->eltwise_forward_primitive_desc_create(
      &kernel->recipe, binding->engine, DNNL_INFERENCE, algorithm, kernel->source, kernel->target,
      kernel_number(kernel, "alpha", 0), kernel_number(kernel, "beta", 0), kernel->attr);
  return kernel_described(kernel, status, "describing an elementwise operator");
}

static bool whole(const Kernel *kernel, int32_t input) {
  const Shape *shape = kernel_shape(kernel, input);
  bool equal = shape->rank == kernel->shape.rank;
  for (int32_t i = 0; i < shape->rank && equal; i++) {
    equal = shape->sizes[i] == kernel->shape.sizes[i];
  }
  return equal;
}

/* Adds a source of a binary operator, which the primitive sees as `seen`. A whole one takes the layout `leader`; one
 * that is broadcast gets the layout that oneDNN wants where there is a leader. */
static int32_t add_source(Kernel *kernel, int32_t input, const Shape *seen, DnnlConstDesc leader, DnnlDesc *desc) {
  int32_t arg = input == 0 ? ARG_SRC : ARG_SRC_1;
  Binding *binding = kernel->binding;
  DnnlDesc view = NULL;
  if (leader != NULL && whole(kernel, input)) {
    GRAFT_TRY(kernel_check(kernel, binding->dnnl->memory_desc_clone(desc, leader), "describing a tensor"));
    return kernel_operand(kernel, arg, input, NULL);
  }
  bool failed = (leader != NULL && input == 1 ? onednn_any_layout(binding, kernel->node, seen, desc)
                                              : onednn_row_major(binding, kernel->node, seen, desc)) ||
                onednn_row_major(binding, kernel->node, seen, &view) || kernel_operand(kernel, arg, input, view);
  return failed ? GRAFT_ERROR_RUN : GRAFT_OK;
}

/* One pixel per channel is a matrix: with axes of extent 1 behind, oneDNN cannot tell channels that are innermost from
 * channels in planes, and its kernel of binary operators mixes the two up in broadcasts. */
static void fold_single_pixels(Kernel *kernel) {
  bool single = kernel->shape.rank > 2;
  for (int32_t i = 2; i < kernel->shape.rank; i++) {
    single = single && kernel->shape.sizes[i] == 1;
  }
  if (single) {
    kernel->dropped = kernel->shape.rank - 2;
    kernel->shape.rank = 2;
    kernel->reshaped = true;
  }
}

/* Folds neighbouring axes along which the same sources are broadcast: [a, b, c, d] with [a, b, c, 1] is [abc, d] with
 * [abc, 1]. oneDNN's fast kernel knows few kinds of broadcasts, and all of those with two axes. */
static void fold_alike(Kernel *kernel, Shape *sources) {
  Shape before = kernel->shape;
  Shape folded[3] = {{.rank = 0}, {.rank = 0}, {.rank = 0}};
  int32_t last = -1;
  for (int32_t i = 0; i < before.rank; i++) {
    int32_t kind = (sources[0].sizes[i] != before.sizes[i]) + 2 * (sources[1].sizes[i] != before.sizes[i]);
    const int64_t sizes[3] = {sources[0].sizes[i], sources[1].sizes[i], before.sizes[i]};
    if (before.sizes[i] == 1 && last >= 0) {
      continue;
    }
    for (int32_t j = 0; j < 3; j++) {
      folded[j].rank += kind != last;
      folded[j].sizes[folded[j].rank - 1] = (kind != last ? 1 : folded[j].sizes[folded[j].rank - 1]) * sizes[j];
    }
    last = kind;
  }
  sources[0] = folded[0];
  sources[1] = folded[1];
  kernel->shape = folded[2];
  kernel->reshaped = true;
}

/* How the primitive sees the sources: with ones in front, and with fewer axes where that makes it fast. */
static int32_t source_shapes(Kernel *kernel, Shape *sources) {
  fold_single_pixels(kernel);
  for (int32_t input = 0; input < 2; input++) {
    if (kernel_shape(kernel, input)->rank > kernel->self->shape.rank) {
      return kernel_fail(kernel, "an operand has too many axes", DNNL_SUCCESS);
    }
    kernel_pad_rank(kernel, kernel_shape(kernel, input), &sources[input]);
  }
  if (kernel->copied && !kernel->reshaped && kernel->self->input_count == 2) {
    fold_alike(kernel, sources);
  }
  return GRAFT_OK;
}

/* The layout that both whole sources take: that of a value made in this region, where there is one. */
static DnnlConstDesc leading_layout(const Kernel *kernel) {
  DnnlConstDesc leader = NULL;
  if (kernel->reshaped || kernel->copied) {
    return NULL;
  }
  for (int32_t input = 1; input >= 0; input--) {
    const Stored *stored = onednn_current(kernel->binding, kernel->self->inputs[input]);
    bool made_here = kernel->binding->buffers[stored->buffer].kind == BUFFER_WORKSPACE;
    if (whole(kernel, input) && (leader == NULL || made_here)) {
      leader = stored->desc;
    }
  }
  return leader;
}

int32_t describe_binary(Kernel *kernel) {
  Binding *binding = kernel->binding;
  DnnlDesc second = NULL;
  DnnlEnum algorithm = onednn_binary(kernel_text(kernel, "algorithm"));
  Shape sources[2];
  if (algorithm == 0) {
    return kernel_fail(kernel, "unknown binary algorithm", DNNL_SUCCESS);
  }
  GRAFT_TRY(source_shapes(kernel, sources));
  DnnlConstDesc leader = leading_layout(kernel);
  bool failed = add_source(kernel, 0, &sources[0], leader, &kernel->source) ||
                add_source(kernel, 1, &sources[1], leader, &second) ||
                (leader == NULL ? onednn_row_major(binding, kernel->node, &kernel->shape, &kernel->target)
                                : onednn_any_layout(binding, kernel->node, &kernel->shape, &kernel->target)) ||
                kernel_attributes(kernel);
  if (!failed) {
    DnnlStatus status = binding->dnnl->binary_primitive_desc_create(&kernel->recipe, binding->engine, algorithm,
                                                                  kernel->source, second, kernel->target, kernel->attr);
    failed = kernel_check(kernel, status, "describing a binary operator");
  }
  binding->dnnl->memory_desc_destroy(second);
  return failed ? GRAFT_ERROR_RUN : GRAFT_OK;
}

int32_t describe_softmax(Kernel *kernel) {
  static const NamedValue ALGORITHMS[] = {{"softmax", 196608}, {"log_softmax", 196609}};
  const Binding *binding = kernel->binding;
  int64_t axis = graft_json_integer(graft_json_member(kernel->self->attributes, "axis"), -1);
  DnnlEnum algorithm = onednn_named(ALGORITHMS, 2, kernel_text(kernel, "algorithm"));
  if (algorithm == 0 || axis < 0 || axis >= kernel->shape.rank) {
    return kernel_fail(kernel, "'algorithm' or 'axis' is out of range", DNNL_SUCCESS);
  }
  GRAFT_TRY(kernel_unary(kernel, (int32_t)axis));
  DnnlStatus status =
      binding->dnnl->softmax_forward_primitive_desc_create(&kernel->recipe, binding->engine, DNNL_INFERENCE, algorithm,
                                                         kernel->source, kernel->target, (int)axis, kernel->attr);
  return kernel_described(kernel, status, "describing a softmax");
}

/* Rows are folded into one axis. */
int32_t describe_layer_normalization(Kernel *kernel) {
  Binding *binding = kernel->binding;
  bool shifted = kernel->self->input_count == 3;
  unsigned flags = shifted ? DNNL_USE_SCALE | DNNL_USE_SHIFT : DNNL_USE_SCALE;
  DnnlDesc view = NULL;
  kernel->shape = onednn_fold_rows(&kernel->self->shape);
  kernel->reshaped = true;
  bool failed = onednn_row_major(binding, kernel->node, &kernel->shape, &kernel->source) ||
                onednn_row_major(binding, kernel->node, &kernel->shape, &kernel->target) ||
                onednn_row_major(binding, kernel->node, &kernel->shape, &view) ||
                kernel_operand(kernel, ARG_SRC, 0, view) || kernel_attributes(kernel) ||
                kernel_operand(kernel, ARG_SCALE, 1, NULL) ||
                (shifted && kernel_operand(kernel, ARG_SHIFT, 2, NULL));
  if (failed) {
    return GRAFT_ERROR_RUN;
  }
  DnnlStatus status = binding->dnnl->layer_normalization_forward_primitive_desc_create(
      &kernel->recipe, binding->engine, DNNL_INFERENCE, kernel->source, kernel->target, NULL,
      kernel_number(kernel, "epsilon", 1e-5), flags, kernel->attr);
  return kernel_check(kernel, status, "describing a layer normalization");
}

int32_t describe_lrn(Kernel *kernel) {
  const Binding *binding = kernel->binding;
  int64_t size = graft_json_integer(graft_json_member(kernel->self->attributes, "size"), 0);
  if (size < 1 || size > INT32_MAX || kernel->shape.rank < 2) {
    return kernel_fail(kernel, "'size' is out of range", DNNL_SUCCESS);
  }
  GRAFT_TRY(kernel_unary(kernel, 1));
  DnnlStatus status = binding->dnnl->lrn_forward_primitive_desc_create(
      &kernel->recipe, binding->engine, DNNL_INFERENCE, DNNL_LRN_ACROSS_CHANNELS, kernel->source, kernel->target, size,
      kernel_number(kernel, "alpha", 1e-4), kernel_number(kernel, "beta", 0.75), kernel_number(kernel, "k", 1),
      kernel->attr);
  return kernel_described(kernel, status, "describing a local response normalization");
}

int32_t describe_batch_normalization(Kernel *kernel) {
  static const int32_t ARGS[] = {ARG_SCALE, ARG_SHIFT, ARG_MEAN, ARG_VARIANCE};
  const Binding *binding = kernel->binding;
  int32_t code = kernel_unary(kernel, kernel->shape.rank - 1);
  for (int32_t i = 0; i < 4 && code == GRAFT_OK; i++) {
    code = kernel_operand(kernel, ARGS[i], i + 1, NULL);
  }
  if (code != GRAFT_OK) {
    return code;
  }
  DnnlStatus status = binding->dnnl->batch_normalization_forward_primitive_desc_create(
      &kernel->recipe, binding->engine, DNNL_INFERENCE, kernel->source, kernel->target,
      kernel_number(kernel, "epsilon", 1e-5), DNNL_USE_GLOBAL_STATS | DNNL_USE_SCALE | DNNL_USE_SHIFT, kernel->attr);
  return kernel_described(kernel, status, "describing a batch normalization");
}

/* Whether a value lies with its channels innermost. */
static bool is_channels_last(Kernel *kernel, int32_t value) {
  Binding *binding = kernel->binding;
  const Shape *shape = &binding->nodes[value].shape;
  DnnlDesc desc = NULL;
  if (shape->rank < 3 || onednn_innermost(binding, kernel->node, shape, 1, &desc) != GRAFT_OK) {
    return false;
  }
  bool equal = binding->dnnl->memory_desc_equal(desc, onednn_current(binding, value)->desc) != 0;
  binding->dnnl->memory_desc_destroy(desc);
  return equal;
}

/* Sources in several layouts are brought to channels-last where one of them has it: it is what convolutions prefer,
 * and the concatenation of equal layouts is a copy. Those without elements are left out. Fills `owned` with the
 * descriptions and returns how many there are in `count`. */
static int32_t concat_sources(Kernel *kernel, DnnlDesc *owned, int *count) {
  Binding *binding = kernel->binding;
  bool channels_last = false;
  for (int32_t i = 0; i < kernel->self->input_count; i++) {
    int32_t value = kernel->self->inputs[i];
    channels_last = channels_last || (!binding->nodes[value].empty && is_channels_last(kernel, value));
  }
  int32_t code = GRAFT_OK;
  for (int32_t i = 0; i < kernel->self->input_count && code == GRAFT_OK; i++) {
    int32_t value = kernel->self->inputs[i];
    const Shape *shape = &binding->nodes[value].shape;
    DnnlDesc *desc = &owned[*count];
    if (binding->nodes[value].empty) {
      continue;
    }
    if (channels_last && shape->rank == kernel->shape.rank) {
      code = onednn_innermost(binding, kernel->node, shape, 1, desc);
    } else if (kernel->copied) {
      code = onednn_row_major(binding, kernel->node, shape, desc);
    } else if (binding->dnnl->memory_desc_clone(desc, onednn_current(binding, value)->desc) != DNNL_SUCCESS) {
      code = kernel_fail(kernel, "describing a tensor", DNNL_SUCCESS);
    }
    if (code == GRAFT_OK) {
      code = kernel_operand(kernel, ARG_MULTIPLE_SRC + (*count)++, i, NULL);
    }
  }
  return code;
}

int32_t describe_concat(Kernel *kernel) {
  const Binding *binding = kernel->binding;
  DnnlDesc sources[MAX_OPERANDS] = {NULL};
  int count = 0;
  int64_t axis = graft_json_integer(graft_json_member(kernel->self->attributes, "axis"), -1);
  if (axis < 0 || axis >= kernel->shape.rank) {
    return kernel_fail(kernel, "'axis' is out of range", DNNL_SUCCESS);
  }
  bool failed = onednn_any_layout(kernel->binding, kernel->node, &kernel->shape, &kernel->target) ||
                kernel_attributes(kernel) || concat_sources(kernel, sources, &count);
  if (!failed) {
    DnnlStatus status = binding->dnnl->concat_primitive_desc_create(
        &kernel->recipe, binding->engine, kernel->target, count, (int)axis,
        (DnnlConstDesc const *)sources, kernel->attr);
    failed = kernel_check(kernel, status, "describing a concatenation");
  }
  for (int32_t i = 0; i < kernel->self->input_count; i++) {
    binding->dnnl->memory_desc_destroy(sources[i]);
  }
  return failed ? GRAFT_ERROR_RUN : GRAFT_OK;
}
