/* Running a module: every concurrent call has an instance of its own; an idle one is used again. */
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

void onednn_instance_free(Module *module, Instance *instance) {
  for (size_t i = 0; instance->args != NULL && i < module->arg_count; i++) {
    if (instance->args[i].memory != NULL) {
      module->dnnl.memory_destroy(instance->args[i].memory);
    }
  }
  if (instance->stream != NULL) {
    module->dnnl.stream_destroy(instance->stream);
  }
  free(instance->args);
  free(instance->workspace);
  free(instance);
}

static const Buffer *whole_buffer(const Module *module, int32_t index, uint64_t *offset) {
  const Buffer *buffer = &module->buffers[index];
  bool part = buffer->kind == BUFFER_PART;
  *offset = part ? buffer->offset : 0;
  return part ? &module->buffers[buffer->index] : buffer;
}

static DnnlStatus bind(const Module *module, Instance *instance) {
  const Dnnl *dnnl = &module->dnnl;
  DnnlStatus status = dnnl->stream_create(&instance->stream, module->engine, DNNL_IN_ORDER);
  size_t position = 0;
  for (size_t i = 0; i < module->step_count; i++) {
    for (int32_t j = 0; j < module->steps[i].arg_count && status == DNNL_SUCCESS; j++) {
      const StepArg *arg = &module->steps[i].args[j];
      uint64_t offset = 0;
      const Buffer *buffer = whole_buffer(module, arg->buffer, &offset);
      void *data = NULL; /* inputs and outputs are set by each call */
      if (buffer->kind == BUFFER_CONSTANT) {
        data = (char *)buffer->data + offset;
      } else if (buffer->kind == BUFFER_WORKSPACE) {
        data = (char *)instance->workspace + buffer->offset + offset;
      }
      instance->args[position].arg = arg->arg;
      status = dnnl->memory_create(&instance->args[position++].memory, arg->desc, module->engine, data);
    }
  }
  return status;
}

static Instance *make_instance(Module *module) {
  Instance *instance = calloc(1, sizeof *instance);
  if (instance == NULL) {
    return NULL;
  }
  instance->args = calloc(module->arg_count + 1, sizeof *instance->args);
  instance->workspace = onednn_allocate(module->workspace_bytes);
  if (instance->args == NULL || instance->workspace == NULL || bind(module, instance) != DNNL_SUCCESS) {
    onednn_instance_free(module, instance);
    return NULL;
  }
  return instance;
}

static Instance *take_instance(Module *module) {
  pthread_mutex_lock(&module->lock);
  Instance *instance = module->idle;
  if (instance != NULL) {
    module->idle = instance->next;
  }
  pthread_mutex_unlock(&module->lock);
  return instance != NULL ? instance : make_instance(module);
}

static void give_back(Module *module, Instance *instance) {
  pthread_mutex_lock(&module->lock);
  instance->next = module->idle;
  module->idle = instance;
  pthread_mutex_unlock(&module->lock);
}

/* Whether a tensor is what the graph says: a module and its program may come from different files. */
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

static int32_t check_tensors(GraftContext *context, const Graph *graph, const DLTensor *const *inputs,
                             DLTensor *const *outputs) {
  for (int32_t i = 0; i < graph->input_count; i++) {
    const Node *node = &graph->nodes[graph->inputs[i]];
    if (!agrees(inputs[i], &node->shape)) {
      return context->api->fail(context, "region '%s': input '%s' has another type or shape than it was compiled for",
                                graph->symbol, node->name);
    }
  }
  for (int32_t i = 0; i < graph->head_count; i++) {
    if (!agrees(outputs[i], &graph->nodes[graph->heads[i]].shape)) {
      return context->api->fail(context, "region '%s': output %d has another type or shape than it was compiled for",
                                graph->symbol, i);
    }
  }
  return GRAFT_OK;
}

static char *data_of(const DLTensor *tensor) { return (char *)tensor->data + tensor->byte_offset; }

static int32_t run_steps(GraftContext *context, const Module *module, const Instance *instance,
                         const DLTensor *const *inputs, DLTensor *const *outputs) {
  const Dnnl *dnnl = &module->dnnl;
  const DnnlArg *args = instance->args;
  for (size_t i = 0; i < module->step_count; i++) {
    const Step *step = &module->steps[i];
    DnnlStatus status = DNNL_SUCCESS;
    for (int32_t j = 0; j < step->arg_count && status == DNNL_SUCCESS; j++) {
      uint64_t offset = 0;
      const Buffer *buffer = whole_buffer(module, step->args[j].buffer, &offset);
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
                                module->graph.symbol, module->graph.nodes[step->node].origin, (int)status);
    }
    args += step->arg_count;
  }
  DnnlStatus status = dnnl->stream_wait(instance->stream);
  return status == DNNL_SUCCESS ? GRAFT_OK
                                : context->api->fail(context, "region '%s': oneDNN failed with status %d",
                                                     module->graph.symbol, (int)status);
}

typedef struct Call {
  GraftContext *context;
  const Module *module;
  const Instance *instance;
  const DLTensor *const *inputs;
  DLTensor *const *outputs;
  int32_t code;
} Call;

static void run_call(void *argument) {
  Call *call = argument;
  const Module *module = call->module;
  int32_t previous = onednn_enter(&module->dnnl, module->thread_count);
  call->code = run_steps(call->context, module, call->instance, call->inputs, call->outputs);
  onednn_leave(&module->dnnl, previous);
}

int32_t onednn_run(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  Module *module = state;
  int32_t checked = check_tensors(context, &module->graph, inputs, outputs);
  if (checked != GRAFT_OK) {
    return checked;
  }
  Instance *instance = take_instance(module);
  if (instance == NULL) {
    return context->api->fail(context, "region '%s': memory ran out for %llu bytes of workspace",
                              module->graph.symbol, (unsigned long long)module->workspace_bytes);
  }
  Call call = {context, module, instance, inputs, outputs, GRAFT_OK};
  bool ran = onednn_with_workers(module->thread_count, run_call, &call);
  give_back(module, instance);
  return ran ? call.code : context->api->fail(context, "region '%s': no thread to be had in a forked process",
                                              module->graph.symbol);
}
