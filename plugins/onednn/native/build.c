/* A binding being built: its nodes in order, then what the caller gets. */
#include "module.h"

/* Keeps what the caller gives as the node's value, row-major. */
static int32_t add_given(Binding *binding, int32_t node, BufferKind kind, int32_t *buffer) {
  DnnlDesc desc = NULL;
  GRAFT_TRY(onednn_row_major(binding, node, &binding->nodes[node].shape, &desc));
  int32_t code = onednn_new_buffer(binding, kind, binding->dnnl->memory_desc_get_size(desc), buffer);
  if (code == GRAFT_OK) {
    code = onednn_store(binding, node, *buffer, desc, NULL);
  }
  binding->dnnl->memory_desc_destroy(desc);
  return code;
}

static int32_t add_input(Binding *binding, int32_t node, int32_t index) {
  int32_t buffer = -1;
  GRAFT_TRY(add_given(binding, node, BUFFER_INPUT, &buffer));
  binding->buffers[buffer].index = index;
  return GRAFT_OK;
}

static int32_t add_constant(Binding *binding, int32_t node) {
  const DLTensor *tensor = binding->nodes[node].constant;
  int32_t buffer = -1;
  GRAFT_TRY(add_given(binding, node, BUFFER_CONSTANT, &buffer));
  binding->buffers[buffer].data = (char *)tensor->data + tensor->byte_offset;
  return GRAFT_OK;
}

static int32_t copy_to_output(Binding *binding, int32_t value, int32_t from, DnnlDesc desc, int32_t *buffer) {
  DnnlRecipe recipe = NULL;
  DnnlStatus status =
      binding->dnnl->reorder_primitive_desc_create(&recipe, desc, binding->engine, desc, binding->engine, NULL);
  if (status != DNNL_SUCCESS) {
    return onednn_fail(binding, value, "copying an output", status);
  }
  int32_t code = onednn_new_buffer(binding, BUFFER_OUTPUT, binding->buffers[from].bytes, buffer);
  if (code != GRAFT_OK) {
    binding->dnnl->primitive_desc_destroy(recipe);
    return code;
  }
  StepArg args[2] = {{ARG_SRC, from, desc}, {ARG_DST, *buffer, desc}};
  return onednn_add_step(binding, value, recipe, args, 2, true);
}

/* An output is row-major in the caller's memory: its last buffer becomes that memory, or it is copied there. */
static int32_t add_output(Binding *binding, int32_t index) {
  int32_t value = binding->module->graph.heads[index];
  DnnlDesc desc = NULL;
  int32_t buffer = -1;
  GRAFT_TRY(onednn_row_major(binding, value, &binding->nodes[value].shape, &desc));
  int32_t code = onednn_fetch(binding, value, value, desc, NULL, &buffer);
  if (code == GRAFT_OK && binding->buffers[buffer].kind == BUFFER_WORKSPACE) {
    binding->buffers[buffer].kind = BUFFER_OUTPUT;
  } else if (code == GRAFT_OK) {
    code = copy_to_output(binding, value, buffer, desc, &buffer);
  }
  if (code == GRAFT_OK) {
    binding->buffers[buffer].index = index;
  }
  binding->dnnl->memory_desc_destroy(desc);
  return code;
}

/* What has no elements is not computed, and not stored either. */
int32_t onednn_build(Binding *binding) {
  const Graph *graph = &binding->module->graph;
  int32_t code = GRAFT_OK;
  int32_t inputs = 0;
  for (int32_t node = 0; node < graph->node_count && code == GRAFT_OK; node++) {
    bool empty = binding->nodes[node].empty;
    switch (graph->nodes[node].kind) {
    case NODE_INPUT:
      code = empty ? GRAFT_OK : add_input(binding, node, inputs);
      inputs++;
      break;
    case NODE_CONST:
      code = empty ? GRAFT_OK : add_constant(binding, node);
      break;
    case NODE_KERNEL:
      code = empty ? GRAFT_OK : onednn_lower(binding, node);
      break;
    }
  }
  for (int32_t i = 0; i < graph->head_count && code == GRAFT_OK; i++) {
    code = binding->nodes[graph->heads[i]].empty ? GRAFT_OK : add_output(binding, i);
  }
  return code == GRAFT_OK ? onednn_plan_workspace(binding) : code;
}
