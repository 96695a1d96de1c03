/* From a kernel node to a step: describe the primitive, let oneDNN choose, fetch the operands in the layouts it wants. */
#include <stdio.h>
#include <string.h>

#include "kernel.h"

/* Frees what the kernel owns and starts anew with its binding and node. */
static void reset(Kernel *kernel, bool copied) {
  const Dnnl *dnnl = kernel->binding->dnnl;
  for (int32_t i = 0; i < kernel->operand_count; i++) {
    dnnl->memory_desc_destroy(kernel->operands[i].view);
  }
  dnnl->memory_desc_destroy(kernel->replaced_view);
  dnnl->memory_desc_destroy(kernel->source);
  dnnl->memory_desc_destroy(kernel->target);
  if (kernel->attr != NULL) {
    dnnl->primitive_attr_destroy(kernel->attr);
  }
  if (kernel->recipe != NULL) {
    dnnl->primitive_desc_destroy(kernel->recipe);
  }
  const Node *self = &kernel->binding->nodes[kernel->node];
  *kernel = (Kernel){.binding = kernel->binding, .node = kernel->node, .self = self, .shape = self->shape,
                     .copied = copied, .replaced = -1};
}

/* The buffer of the destination: a new one, or that of the value which the post-operation "sum" adds to. */
static int32_t destination(Kernel *kernel, DnnlConstDesc desc, int32_t *buffer) {
  Binding *binding = kernel->binding;
  if (kernel->replaced < 0) {
    return onednn_new_buffer(binding, BUFFER_WORKSPACE, binding->dnnl->memory_desc_get_size(desc), buffer);
  }
  return onednn_fetch(binding, kernel->node, kernel->replaced, desc, kernel->replaced_view, buffer);
}

static int32_t collect_args(Kernel *kernel, StepArg *args, int32_t *count) {
  Binding *binding = kernel->binding;
  for (int32_t i = 0; i < kernel->operand_count; i++) {
    const Operand *operand = &kernel->operands[i];
    DnnlConstDesc desc = binding->dnnl->primitive_desc_query_md(kernel->recipe, DNNL_QUERY_ARG_DESC, operand->arg);
    if (desc == NULL || binding->dnnl->memory_desc_get_size(desc) == 0) {
      return kernel_fail(kernel, "oneDNN does not know an operand", DNNL_SUCCESS);
    }
    args[*count] = (StepArg){operand->arg, -1, (DnnlDesc)desc};
    GRAFT_TRY(onednn_fetch(binding, kernel->node, operand->value, desc, operand->view, &args[*count].buffer));
    (*count)++;
  }
  return GRAFT_OK;
}

static int32_t emit(Kernel *kernel) {
  Binding *binding = kernel->binding;
  const Dnnl *dnnl = binding->dnnl;
  StepArg args[MAX_OPERANDS + 2];
  int32_t count = 0;
  GRAFT_TRY(collect_args(kernel, args, &count));
  StepArg *target = &args[count++];
  *target = (StepArg){ARG_DST, -1, (DnnlDesc)dnnl->primitive_desc_query_md(kernel->recipe, DNNL_QUERY_ARG_DESC, ARG_DST)};
  GRAFT_TRY(destination(kernel, target->desc, &target->buffer));
  DnnlConstDesc scratchpad = dnnl->primitive_desc_query_md(kernel->recipe, DNNL_QUERY_ARG_DESC, ARG_SCRATCHPAD);
  uint64_t bytes = scratchpad == NULL ? 0 : dnnl->memory_desc_get_size(scratchpad);
  if (bytes > 0) {
    args[count] = (StepArg){ARG_SCRATCHPAD, -1, (DnnlDesc)scratchpad};
    GRAFT_TRY(onednn_new_buffer(binding, BUFFER_WORKSPACE, bytes, &args[count++].buffer));
  }
  DnnlDesc desc = NULL;
  if (kernel->reshaped) {
    GRAFT_TRY(onednn_row_major(binding, kernel->node, &kernel->self->shape, &desc));
  }
  int32_t code = onednn_store(binding, kernel->node, target->buffer, desc != NULL ? desc : target->desc, NULL);
  dnnl->memory_desc_destroy(desc);
  if (code != GRAFT_OK) {
    return code;
  }
  DnnlRecipe recipe = kernel->recipe;
  kernel->recipe = NULL;
  return onednn_add_step(binding, kernel->node, recipe, args, count, false);
}

static const PrimitiveRow PRIMITIVES[] = {
    {"convolution", 2, 3 + MAX_POST_OPS, describe_convolution, false},
    {"matmul", 2, 3 + MAX_POST_OPS, describe_matmul, true},
    {"pooling", 1, 1 + MAX_POST_OPS, describe_pooling, false},
    {"eltwise", 1, 1 + MAX_POST_OPS, describe_eltwise, false},
    {"binary", 2, 2 + MAX_POST_OPS, describe_binary, false},
    {"softmax", 1, 1, describe_softmax, false},
    {"layer_normalization", 2, 3, describe_layer_normalization, false},
    {"lrn", 1, 1, describe_lrn, false},
    {"batch_normalization", 5, 5, describe_batch_normalization, false},
    {"concat", 1, MAX_OPERANDS, describe_concat, true},
};

static const struct {
  const char *name;
  int32_t (*lower)(Binding *binding, int32_t node);
} VIEWS[] = {{"reshape", onednn_reshape}, {"transpose", onednn_transpose}, {"slice", onednn_slice}};

/* Whether oneDNN fell back from its own kernels, as it does for strides that it does not know: its reference
 * implementations take up to a thousand times as long, a copy of the operands is nothing beside them. */
static bool is_fallback(const Kernel *kernel) {
  const char *name = NULL;
  kernel->binding->dnnl->primitive_desc_query(kernel->recipe, DNNL_QUERY_IMPLEMENTATION, 0, (void *)&name);
  return name != NULL && (strncmp(name, "gemm", 4) == 0 || strncmp(name, "ref", 3) == 0);
}

/* Some sum over no elements; `row` is a primitive that knows none. */
static int32_t check_elements(Binding *binding, int32_t node, const PrimitiveRow *row) {
  const Node *self = &binding->nodes[node];
  for (int32_t i = 0; i < self->input_count && !row->empty; i++) {
    const Node *input = &binding->nodes[self->inputs[i]];
    if (input->empty) {
      char what[192];
      int used = snprintf(what, sizeof what, "it computes nothing from '%.64s', which is of shape [", input->name);
      for (int32_t axis = 0; axis < input->shape.rank && used < (int)sizeof what - 24; axis++) {
        used += snprintf(what + used, sizeof what - (size_t)used, "%s%lld", axis ? "," : "",
                         (long long)input->shape.sizes[axis]);
      }
      snprintf(what + used, sizeof what - (size_t)used, "]");
      return onednn_fail(binding, node, what, DNNL_SUCCESS);
    }
  }
  return GRAFT_OK;
}

static int32_t lower_primitive(Binding *binding, int32_t node, const PrimitiveRow *row) {
  const Node *self = &binding->nodes[node];
  if (self->input_count < row->least || self->input_count > row->most) {
    return onednn_fail(binding, node, "wrong number of inputs", DNNL_SUCCESS);
  }
  Kernel kernel = {.binding = binding, .node = node};
  reset(&kernel, false);
  int32_t code = check_elements(binding, node, row);
  code = code == GRAFT_OK ? row->describe(&kernel) : code;
  if (code == GRAFT_OK && is_fallback(&kernel)) {
    reset(&kernel, true);
    code = row->describe(&kernel);
  }
  if (code == GRAFT_OK) {
    code = emit(&kernel);
  }
  reset(&kernel, false);
  return code;
}

int32_t onednn_lower(Binding *binding, int32_t node) {
  const Node *self = &binding->nodes[node];
  const char *primitive = graft_json_string(graft_json_member(self->attributes, "primitive"), "");
  for (size_t i = 0; i < sizeof VIEWS / sizeof VIEWS[0]; i++) {
    if (self->input_count == 1 && strcmp(primitive, VIEWS[i].name) == 0) {
      return binding->nodes[self->inputs[0]].empty
                 ? onednn_fail(binding, node, "the shapes before and after have different sizes", DNNL_SUCCESS)
                 : VIEWS[i].lower(binding, node);
    }
  }
  for (size_t i = 0; i < sizeof PRIMITIVES / sizeof PRIMITIVES[0]; i++) {
    if (strcmp(primitive, PRIMITIVES[i].name) == 0) {
      return lower_primitive(binding, node, &PRIMITIVES[i]);
    }
  }
  return onednn_fail(binding, node, "unknown primitive", DNNL_SUCCESS);
}
