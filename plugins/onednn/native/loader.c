/* The loader of module kind "json:onednn": a JSON graph in, a sequence of oneDNN primitives out.
 *
 * oneDNN chooses the layout of every convolution and of every constant weight; constants are laid out once;
 * a value keeps its producer's layout until a consumer needs another. Inputs and outputs of the region are row-major.
 *
 * Primitives are made for numbers. Where the shapes of the graph vary, those for the shapes of a call are made when it
 * comes with them first, and kept for the next ones (binding.c).
 *
 * Threads: an oneDNN built with OpenMP is given the program's thread count for each call and its former count back
 * afterwards, so that both share one budget; its worker threads are its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

#if defined(__GNUC__)
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT
#endif

static const DLTensor *find_constant(const GraftModuleSource *source, const char *name) {
  for (size_t i = 0; i < source->constant_count; i++) {
    if (strcmp(source->constants[i].name, name) == 0) {
      return source->constants[i].tensor;
    }
  }
  return NULL;
}

static bool fits(const DLTensor *tensor, const Shape *shape) {
  bool same = tensor->dtype.code == kDLFloat && tensor->dtype.bits == 32 && tensor->dtype.lanes == 1;
  bool scalar = tensor->ndim == 0 && shape->rank == 1 && shape->sizes[0] == 1;
  same = same && (scalar || tensor->ndim == shape->rank) && tensor->device.device_type == kDLCPU;
  for (int32_t i = 0; i < tensor->ndim && same; i++) {
    same = tensor->shape[i] == shape->sizes[i];
  }
  int64_t step = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0 && same && tensor->strides != NULL; i--) {
    same = tensor->shape[i] == 1 || tensor->strides[i] == step;
    step *= tensor->shape[i];
  }
  return same;
}

/* Finds the contents of the constants; they stay where they are as long as the module lives. */
static int32_t find_constants(Graph *graph, const GraftLoaderHost *host, const GraftModuleSource *source) {
  for (int32_t i = 0; i < graph->node_count; i++) {
    Node *node = &graph->nodes[i];
    if (node->kind != NODE_CONST) {
      continue;
    }
    node->constant = find_constant(source, node->name);
    const char *what = node->constant == NULL ? "the constant was not handed over"
                       : !fits(node->constant, &node->shape)
                           ? "the constant has another type or shape than the graph says"
                           : NULL;
    if (what != NULL) {
      return host->fail(host, "region '%s', %s (node '%s'): %s", graph->symbol, node->name, node->origin, what);
    }
  }
  return GRAFT_OK;
}

static void free_list(Module *module) {
  while (module->bindings != NULL) {
    Binding *next = module->bindings->next;
    onednn_binding_free(module->bindings);
    module->bindings = next;
  }
  while (module->idle != NULL) {
    Workspace *next = module->idle->next;
    onednn_workspace_free(module->idle);
    module->idle = next;
  }
}

static void unload(void *user, void *state) {
  (void)user;
  Module *module = state;
  free_list(module);
  if (module->engine != NULL) {
    module->dnnl.engine_destroy(module->engine);
  }
  onednn_graph_free(&module->graph);
  pthread_mutex_destroy(&module->packing);
  pthread_mutex_destroy(&module->lock);
  free(module->description);
  free(module);
}

static Module *new_module(void) {
  Module *module = calloc(1, sizeof *module);
  if (module == NULL || pthread_mutex_init(&module->lock, NULL) != 0) {
    free(module);
    return NULL;
  }
  if (pthread_mutex_init(&module->packing, NULL) != 0) {
    pthread_mutex_destroy(&module->lock);
    free(module);
    return NULL;
  }
  return module;
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **result) {
  Module *module = new_module();
  if (module == NULL) {
    return graft_fail_memory(host, source->name);
  }
  module->thread_count = source->thread_count > 0 ? source->thread_count : 1;
  int32_t code = onednn_graph_parse(&module->graph, host, source);
  if (code == GRAFT_OK) {
    code = find_constants(&module->graph, host, source);
  }
  if (code == GRAFT_OK) {
    code = onednn_open(&module->dnnl, host, module->graph.symbol);
  }
  if (code == GRAFT_OK && module->dnnl.engine_create(&module->engine, DNNL_CPU, 0) != DNNL_SUCCESS) {
    code = host->fail(host, "region '%s': oneDNN gives no processor engine", module->graph.symbol);
  }
  if (code == GRAFT_OK && module->graph.symbol_count == 0) {
    code = onednn_bind_now(module, host);
  }
  if (code != GRAFT_OK) {
    unload(user, module);
    return code;
  }
  *result = module;
  return GRAFT_OK;
}

static int32_t lookup(void *user, const GraftLoaderHost *host, void *state, const char *function,
                      GraftFunction *entry, void **function_state) {
  (void)user;
  const Module *module = state;
  if (strcmp(function, module->graph.symbol) != 0) {
    return host->fail(host, "module of kind 'json:onednn' has function '%s', not '%s'", module->graph.symbol, function);
  }
  if (host->input_count >= 0 &&
      (host->input_count < module->graph.input_count || host->output_count < module->graph.head_count)) {
    return host->fail(host, "'%s' has %d inputs and %d outputs, and its call has %d and %d", function,
                      (int)module->graph.input_count, (int)module->graph.head_count, (int)host->input_count,
                      (int)host->output_count);
  }
  *entry = onednn_run;
  *function_state = state;
  return GRAFT_OK;
}

EXPORT const GraftLoader *graft_loader(void);
EXPORT const char *graft_onednn_describe(void *module);

const GraftLoader *graft_loader(void) {
  static const GraftLoader LOADER = {GRAFT_ABI_VERSION, "json:onednn", NULL, load, lookup, unload};
  return &LOADER;
}

/* The steps of a loaded module as text, one a line: "kernel name<TAB>node<TAB>implementation"; a change of layout
 * has the kernel name "reorder". Where shapes vary, those for the shapes of the last call. For tests and tools; not
 * thread-safe. NULL when memory runs out. */
const char *graft_onednn_describe(void *state) {
  Module *module = state;
  static const Binding NONE;
  const Binding *binding = module->bindings == NULL ? &NONE : module->bindings;
  size_t size = 64;
  for (size_t i = 0; i < binding->step_count; i++) {
    const Node *node = &binding->nodes[binding->steps[i].node];
    size += strlen(node->name) + strlen(node->origin) + 64;
  }
  free(module->description);
  module->description = malloc(size);
  if (module->description == NULL) {
    return NULL;
  }
  int used = snprintf(module->description, size, "workspace %llu\n", (unsigned long long)binding->workspace_bytes);
  for (size_t i = 0; i < binding->step_count; i++) {
    const Step *step = &binding->steps[i];
    const Node *node = &binding->nodes[step->node];
    used += snprintf(module->description + used, size - (size_t)used, "%s\t%s\t%s\n",
                     step->reorder ? "reorder" : node->name, node->origin, step->implementation);
  }
  return module->description;
}
