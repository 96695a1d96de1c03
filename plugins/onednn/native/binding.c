/* Bindings: the primitives of a module, specialised by shape. A static graph has one, built when it is loaded; a
 * dynamic one has an LRU cache of them, keyed by the shapes of a call. Calls may run in several at a time, and build several at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

/* ---- One binding ----------------------------------------------------------------------------------------------- */

static void free_steps(Binding *binding) {
  for (size_t i = 0; i < binding->step_count; i++) {
    for (int32_t j = 0; j < binding->steps[i].arg_count; j++) {
      binding->dnnl->memory_desc_destroy(binding->steps[i].args[j].desc);
    }
    free(binding->steps[i].args);
    if (binding->steps[i].primitive != NULL) {
      binding->dnnl->primitive_destroy(binding->steps[i].primitive);
    }
  }
  free(binding->steps);
}

static void free_values(Binding *binding) {
  for (size_t i = 0; i < binding->stored_count; i++) {
    binding->dnnl->memory_desc_destroy(binding->stored[i].desc);
    binding->dnnl->memory_desc_destroy(binding->stored[i].view);
  }
  for (size_t i = 0; i < binding->buffer_count; i++) {
    if (binding->buffers[i].owned) {
      free(binding->buffers[i].data);
    } else if (binding->buffers[i].packed != NULL) {
      onednn_unpack(binding->module, binding->buffers[i].packed);
    }
  }
  free(binding->stored);
  free(binding->buffers);
}

void onednn_binding_free(Binding *binding) {
  while (binding->idle != NULL) {
    Instance *next = binding->idle->next;
    onednn_instance_free(binding, binding->idle);
    binding->idle = next;
  }
  free_steps(binding);
  free_values(binding);
  free(binding->nodes);
  free(binding->values);
  free(binding);
}

static Binding *new_binding(Module *module, const int64_t *values) {
  const Graph *graph = &module->graph;
  Binding *binding = calloc(1, sizeof *binding);
  if (binding == NULL) {
    return NULL;
  }
  *binding = (Binding){.module = module, .dnnl = &module->dnnl, .engine = module->engine, .users = 1};
  binding->values = calloc((size_t)graph->symbol_count + (size_t)graph->operation_count + 1, sizeof *binding->values);
  binding->nodes = calloc((size_t)graph->node_count, sizeof *binding->nodes);
  if (binding->values == NULL || binding->nodes == NULL) {
    onednn_binding_free(binding);
    return NULL;
  }
  memcpy(binding->values, values, (size_t)graph->symbol_count * sizeof *values);
  memcpy(binding->nodes, graph->nodes, (size_t)graph->node_count * sizeof *binding->nodes);
  return binding;
}

typedef struct Building {
  Binding *binding;
  int32_t code;
} Building;

static void run_build(void *argument) {
  Building *building = argument;
  Module *module = building->binding->module;
  int32_t previous = onednn_enter(&module->dnnl, module->thread_count);
  building->code = onednn_build(building->binding);
  onednn_leave(&module->dnnl, previous);
}

static int32_t build(Binding *binding) {
  Building building = {binding, onednn_evaluate(binding)};
  bool ran = building.code != GRAFT_OK || onednn_with_workers(binding->module->thread_count, run_build, &building);
  if (!ran) {
    snprintf(binding->error, sizeof binding->error, "region '%s': no thread to be had in a forked process",
             binding->module->graph.symbol);
  }
  return ran ? building.code : GRAFT_ERROR_RUN;
}

/* ---- The bindings of a module ---------------------------------------------------------------------------------- */

/* The caller holds the lock. What is found becomes the first, and has one more user. */
static Binding *find(Module *module, const int64_t *values) {
  size_t bytes = (size_t)module->graph.symbol_count * sizeof *values;
  for (Binding **place = &module->bindings; *place != NULL; place = &(*place)->next) {
    Binding *binding = *place;
    if (memcmp(binding->values, values, bytes) == 0) {
      *place = binding->next;
      binding->next = module->bindings;
      module->bindings = binding;
      binding->users++;
      return binding;
    }
  }
  return NULL;
}

/* The caller holds the lock. Takes the least recently used binding from a full list; it is the caller's to free if it is
 * returned, else that of the last call that runs in it. */
static Binding *insert(Module *module, Binding *binding) {
  binding->next = module->bindings;
  binding->listed = true;
  module->bindings = binding;
  int32_t count = 0;
  for (Binding **place = &module->bindings; *place != NULL; place = &(*place)->next) {
    if (count++ == BINDINGS_KEPT) {
      Binding *last = *place;
      *place = NULL;
      last->listed = false;
      return last->users == 0 ? last : NULL;
    }
  }
  return NULL;
}

static Binding *built(Module *module, GraftContext *context, const int64_t *values) {
  Binding *binding = new_binding(module, values);
  if (binding == NULL) {
    context->api->fail(context, "region '%s': memory ran out", module->graph.symbol);
    return NULL;
  }
  if (build(binding) != GRAFT_OK) {
    char at[256] = "";
    onednn_append_values(binding, at, sizeof at);
    context->api->fail(context, "%s (%s)", binding->error, at);
    onednn_binding_free(binding);
    return NULL;
  }
  pthread_mutex_lock(&module->lock);
  Binding *other = find(module, values); /* another call may have been faster */
  Binding *spare = other != NULL ? binding : insert(module, binding);
  pthread_mutex_unlock(&module->lock);
  if (spare != NULL) {
    onednn_binding_free(spare);
  }
  return other != NULL ? other : binding;
}

Binding *onednn_take_binding(Module *module, GraftContext *context, const DLTensor *const *inputs) {
  const Graph *graph = &module->graph;
  int64_t some[16];
  int64_t *values = graph->symbol_count <= 16 ? some : malloc((size_t)graph->symbol_count * sizeof *values);
  if (values == NULL) {
    context->api->fail(context, "region '%s': memory ran out", graph->symbol);
    return NULL;
  }
  Binding *binding = NULL;
  bool valid = true;
  for (int32_t i = 0; i < graph->symbol_count && valid; i++) {
    const DLTensor *tensor = inputs[graph->symbols[i].input];
    valid = tensor != NULL && tensor->ndim > graph->symbols[i].axis;
    values[i] = valid ? tensor->shape[graph->symbols[i].axis] : 0;
  }
  if (valid) {
    pthread_mutex_lock(&module->lock);
    binding = find(module, values);
    pthread_mutex_unlock(&module->lock);
    binding = binding != NULL ? binding : built(module, context, values);
  } else {
    context->api->fail(context, "region '%s': an input has too few axes", graph->symbol);
  }
  if (values != some) {
    free(values);
  }
  return binding;
}

void onednn_give_back_binding(Binding *binding) {
  Module *module = binding->module;
  pthread_mutex_lock(&module->lock);
  bool last = --binding->users == 0 && !binding->listed;
  pthread_mutex_unlock(&module->lock);
  if (last) {
    onednn_binding_free(binding);
  }
}

int32_t onednn_bind_now(Module *module, const GraftLoaderHost *host) {
  int64_t none = 0;
  Binding *binding = new_binding(module, &none);
  if (binding == NULL) {
    return graft_fail_memory(host, module->graph.symbol);
  }
  binding->users = 0;
  if (build(binding) != GRAFT_OK) {
    int32_t code = host->fail(host, "%s", binding->error);
    onednn_binding_free(binding);
    return code;
  }
  (void)insert(module, binding);
  return GRAFT_OK;
}
