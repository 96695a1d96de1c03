/* Instances: what each of the calls that run in a binding at a time has for itself. An idle one is used again. */
#include <stdlib.h>

#include "module.h"

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

const Buffer *onednn_whole_buffer(const Binding *binding, int32_t index, uint64_t *offset) {
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
      const Buffer *buffer = onednn_whole_buffer(binding, binding->steps[i].args[j].buffer, &offset);
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
      const Buffer *buffer = onednn_whole_buffer(binding, arg->buffer, &offset);
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

bool onednn_take_instance(Binding *binding, Instance **instance, Workspace **workspace) {
  Module *module = binding->module;
  pthread_mutex_lock(&module->lock);
  *instance = binding->idle;
  if (*instance != NULL) {
    binding->idle = (*instance)->next;
  }
  *workspace = module->idle;
  if (*workspace != NULL) {
    module->idle = (*workspace)->next;
  }
  pthread_mutex_unlock(&module->lock);
  *instance = *instance != NULL ? *instance : make_instance(binding);
  *workspace = grown(*workspace, binding->workspace_bytes);
  if (*instance == NULL || *workspace == NULL) {
    return false;
  }
  return (*instance)->workspace == (*workspace)->data ||
         use_workspace(binding, *instance, (*workspace)->data) == DNNL_SUCCESS;
}

void onednn_give_back_instance(Binding *binding, Instance *instance, Workspace *workspace) {
  Module *module = binding->module;
  pthread_mutex_lock(&module->lock);
  if (instance != NULL) {
    instance->next = binding->idle;
    binding->idle = instance;
  }
  if (workspace != NULL) {
    workspace->next = module->idle;
    module->idle = workspace;
  }
  pthread_mutex_unlock(&module->lock);
}
