/* Running a binding: every concurrent call has an instance of its own; an idle one is used again. */
#include <stdlib.h>
#include <sys/mman.h>

#include "module.h"

#define HUGE_PAGE ((uint64_t)2 << 20)

/* 64-byte aligned, never NULL for 0 bytes; free with free(). Large blocks ask for huge pages. */
void *onednn_allocate(uint64_t bytes) {
  uint64_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
  if (bytes > SIZE_MAX - alignment) {
    return NULL;
  }
  uint64_t rounded = (bytes + alignment) / alignment * alignment;
  void *data = aligned_alloc((size_t)alignment, (size_t)rounded);
#ifdef MADV_HUGEPAGE
  if (data != NULL && bytes >= HUGE_PAGE) {
    (void)madvise(data, (size_t)rounded, MADV_HUGEPAGE); /* a wish: refusal costs speed only */
  }
#endif
  return data;
}

void onednn_instance_free(Binding *binding, Instance *instance) {
  for (size_t i = 0; instance->args != NULL && i < binding->arg_count; i++) {
    if (instance->args[i].memory != NULL) {
      binding->dnnl->memory_destroy(instance->args[i].memory);
    }
  }
  if (instance->stream != NULL) {
    binding->dnnl->stream_destroy(instance->stream);
  }
  free(instance->args);
  free(instance);
}

static const Buffer *whole_buffer(const Binding *binding, int32_t index, uint64_t *offset) {
  const Buffer *buffer = &binding->buffers[index];
  bool part = buffer->kind == BUFFER_PART;
  *offset = part ? buffer->offset : 0;
  return part ? &binding->buffers[buffer->index] : buffer;
}

/* Points the memory objects of intermediate values at a workspace. */
static DnnlStatus use_workspace(const Binding *binding, Instance *instance, void *workspace) {
  DnnlStatus status = DNNL_SUCCESS;
  const DnnlArg *args = instance->args;
  for (size_t i = 0; i < binding->step_count; args += binding->steps[i++].arg_count) {
    for (int32_t j = 0; j < binding->steps[i].arg_count && status == DNNL_SUCCESS; j++) {
      uint64_t offset = 0;
      const Buffer *buffer = whole_buffer(binding, binding->steps[i].args[j].buffer, &offset);
      if (buffer->kind == BUFFER_WORKSPACE) {
        status = binding->dnnl->memory_set_data_handle(args[j].memory, (char *)workspace + buffer->offset + offset);
      }
    }
  }
  instance->workspace = workspace;
  return status;
}

static DnnlStatus bind(const Binding *binding, Instance *instance) {
  const Dnnl *dnnl = binding->dnnl;
  DnnlStatus status = dnnl->stream_create(&instance->stream, binding->engine, DNNL_IN_ORDER);
  size_t position = 0;
  for (size_t i = 0; i < binding->step_count; i++) {
    for (int32_t j = 0; j < binding->steps[i].arg_count && status == DNNL_SUCCESS; j++) {
      const StepArg *arg = &binding->steps[i].args[j];
      uint64_t offset = 0;
      const Buffer *buffer = whole_buffer(binding, arg->buffer, &offset);
      /* inputs, outputs and workspaces are set by each call */
      void *data = buffer->kind == BUFFER_CONSTANT ? (char *)buffer->data + offset : NULL;
      instance->args[position].arg = arg->arg;
      status = dnnl->memory_create(&instance->args[position++].memory, arg->desc, binding->engine, data);
    }
  }
  return status;
}

static Instance *make_instance(Binding *binding) {
  Instance *instance = calloc(1, sizeof *instance);
  if (instance == NULL) {
    return NULL;
  }
  instance->args = calloc(binding->arg_count + 1, sizeof *instance->args);
  if (instance->args == NULL || bind(binding, instance) != DNNL_SUCCESS) {
    onednn_instance_free(binding, instance);
    return NULL;
  }
  return instance;
}

void onednn_workspace_free(Workspace *workspace) {
  free(workspace->data);
  free(workspace);
}

/* A workspace of at least so many bytes: the idle one that was used last, if it is large enough. */
static Workspace *grown(Workspace *workspace, uint64_t bytes) {
  if (workspace != NULL && workspace->bytes >= bytes) {
    return workspace;
  }
  if (workspace != NULL) {
    onednn_workspace_free(workspace);
  }
  workspace = calloc(1, sizeof *workspace);
  if (workspace != NULL) {
    *workspace = (Workspace){.data = onednn_allocate(bytes), .bytes = bytes};
    if (workspace->data == NULL) {
      free(workspace);
      return NULL;
    }
  }
  return workspace;
}

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

/* False when memory runs out. */
static bool take(Call *call) {
  Binding *binding = call->binding;
  Module *module = binding->module;
  pthread_mutex_lock(&module->lock);
  call->instance = binding->idle;
  if (call->instance != NULL) {
    binding->idle = call->instance->next;
  }
  call->workspace = module->idle;
  if (call->workspace != NULL) {
    module->idle = call->workspace->next;
  }
  pthread_mutex_unlock(&module->lock);
  call->instance = call->instance != NULL ? call->instance : make_instance(binding);
  call->workspace = grown(call->workspace, binding->workspace_bytes);
  if (call->instance == NULL || call->workspace == NULL) {
    return false;
  }
  return call->instance->workspace == call->workspace->data ||
         use_workspace(binding, call->instance, call->workspace->data) == DNNL_SUCCESS;
}

static void give_back(const Call *call) {
  Binding *binding = call->binding;
  Module *module = binding->module;
  pthread_mutex_lock(&module->lock);
  if (call->instance != NULL) {
    call->instance->next = binding->idle;
    binding->idle = call->instance;
  }
  if (call->workspace != NULL) {
    call->workspace->next = module->idle;
    module->idle = call->workspace;
  }
  pthread_mutex_unlock(&module->lock);
}

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
      const Buffer *buffer = whole_buffer(binding, step->args[j].buffer, &offset);
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
    if (!take(&call)) {
      call.code = context->api->fail(context, "region '%s': memory ran out for %llu bytes of workspace",
                                     module->graph.symbol, (unsigned long long)binding->workspace_bytes);
    } else if (!onednn_with_workers(module->thread_count, run_call, &call)) {
      call.code = context->api->fail(context, "region '%s': no thread to be had in a forked process",
                                     module->graph.symbol);
    }
    give_back(&call);
  }
  onednn_give_back_binding(binding);
  return call.code;
}
