/* Running a binding: every concurrent call has an instance of its own. */
#include "module.h"

/* What a call holds while it runs. */
typedef struct Call {
  GraftContext *context;
  Binding *binding;
  Instance *instance;
  Workspace *workspace;
  const DLTensor *const *inputs;
  DLTensor *const *outputs;
  int32_t code;
} Call;

/* Whether a tensor is what the graph says: a binding and its program may come from different files. */
static bool agrees(const DLTensor *tensor, const Shape *shape) {
  bool same = tensor != NULL && tensor->dtype.code == kDLFloat && tensor->dtype.bits == 32;
  if (same && tensor->ndim == 0) {
    return shape->rank == 1 && shape->sizes[0] == 1;
  }
  same = same && tensor->ndim == shape->rank;
  for (int32_t i = 0; same && i < shape->rank; i++) {
    same = tensor->shape[i] == shape->sizes[i];
  }
  return same;
}

static int32_t check_tensors(GraftContext *context, const Binding *binding, const DLTensor *const *inputs,
                             DLTensor *const *outputs) {
  const Graph *graph = &binding->module->graph;
  for (int32_t i = 0; i < graph->input_count; i++) {
    const Node *node = &binding->nodes[graph->inputs[i]];
    if (!agrees(inputs[i], &node->shape)) {
      return context->api->fail(context, "region '%s': input '%s' has another type or shape than it was compiled for",
                                graph->symbol, node->name);
    }
  }
  for (int32_t i = 0; i < graph->head_count; i++) {
    const Node *node = &binding->nodes[graph->heads[i]];
    bool lacks_memory = outputs[i] != NULL && outputs[i]->data == NULL; /* of a shape that the program does not know */
    if (lacks_memory && !node->empty &&
        !context->api->allocate_output(context, i, (int32_t)graft_json_count(node->sizes), node->shape.sizes)) {
      return GRAFT_ERROR_RUN;
    }
    if (!agrees(outputs[i], &node->shape)) {
      return context->api->fail(context, "region '%s': output %d has another type or shape than it was compiled for",
                                graph->symbol, i);
    }
  }
  return GRAFT_OK;
}

static char *data_of(const DLTensor *tensor) { return (char *)tensor->data + tensor->byte_offset; }

static int32_t run_steps(GraftContext *context, const Binding *binding, const Instance *instance,
                         const DLTensor *const *inputs, DLTensor *const *outputs) {
  const Dnnl *dnnl = binding->dnnl;
  const DnnlArg *args = instance->args;
  for (size_t i = 0; i < binding->step_count; i++) {
    const Step *step = &binding->steps[i];
    DnnlStatus status = DNNL_SUCCESS;
    for (int32_t j = 0; j < step->arg_count && status == DNNL_SUCCESS; j++) {
      uint64_t offset = 0;
      const Buffer *buffer = onednn_whole_buffer(binding, step->args[j].buffer, &offset);
      if (buffer->kind == BUFFER_INPUT) {
        status = dnnl->memory_set_data_handle(args[j].memory, data_of(inputs[buffer->index]) + offset);
      } else if (buffer->kind == BUFFER_OUTPUT) {
        status = dnnl->memory_set_data_handle(args[j].memory, data_of(outputs[buffer->index]) + offset);
      }
    }
    if (status == DNNL_SUCCESS) {
      status = dnnl->primitive_execute(step->primitive, instance->stream, step->arg_count, args);
    }
    if (status != DNNL_SUCCESS) {
      return context->api->fail(context, "region '%s': oneDNN failed in node '%s' with status %d",
                                binding->module->graph.symbol, binding->nodes[step->node].origin, (int)status);
    }
    args += step->arg_count;
  }
  DnnlStatus status = dnnl->stream_wait(instance->stream);
  return status == DNNL_SUCCESS ? GRAFT_OK
                                : context->api->fail(context, "region '%s': oneDNN failed with status %d",
                                                     binding->module->graph.symbol, (int)status);
}

static void run_call(void *argument) {
  Call *call = argument;
  const Module *module = call->binding->module;
  int32_t previous = onednn_enter(&module->dnnl, module->thread_count);
  call->code = run_steps(call->context, call->binding, call->instance, call->inputs, call->outputs);
  onednn_leave(&module->dnnl, previous);
}

int32_t onednn_run(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  Module *module = state;
  Binding *binding = onednn_take_binding(module, context, inputs);
  if (binding == NULL) {
    return GRAFT_ERROR_RUN;
  }
  Call call = {.context = context, .binding = binding, .inputs = inputs, .outputs = outputs};
  call.code = check_tensors(context, binding, inputs, outputs);
  if (call.code == GRAFT_OK && binding->step_count > 0) {
    if (!onednn_take_instance(binding, &call.instance, &call.workspace)) {
      call.code = context->api->fail(context, "region '%s': memory ran out for %llu bytes of workspace",
                                     module->graph.symbol, (unsigned long long)binding->workspace_bytes);
    } else if (!onednn_with_workers(module->thread_count, run_call, &call)) {
      call.code = context->api->fail(context, "region '%s': no thread to be had in a forked process",
                                     module->graph.symbol);
    }
    onednn_give_back_instance(binding, call.instance, call.workspace);
  }
  onednn_give_back_binding(binding);
  return call.code;
}
