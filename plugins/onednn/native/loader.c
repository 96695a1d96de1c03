/* The loader of module kind "json:onednn": a JSON graph in, a sequence of oneDNN primitives out.
 *
 * oneDNN chooses the layout of every convolution and of every constant weight; constants are laid out once, here;
 * a value keeps its producer's layout until a consumer needs another. Inputs and outputs of the region are row-major.
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

static int32_t add_input(Module *module, int32_t node, int32_t index) {
  DnnlDesc desc = NULL;
  int32_t buffer = -1;
  int32_t code = onednn_row_major(module, node, &module->graph.nodes[node].shape, &desc);
  if (code == GRAFT_OK) {
    code = onednn_new_buffer(module, BUFFER_INPUT, module->dnnl.memory_desc_get_size(desc), &buffer);
  }
  if (code == GRAFT_OK) {
    module->buffers[buffer].index = index;
    code = onednn_store(module, node, buffer, desc, NULL);
  }
  module->dnnl.memory_desc_destroy(desc);
  return code;
}

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

static int32_t add_constant(Module *module, int32_t node) {
  const Node *self = &module->graph.nodes[node];
  const DLTensor *tensor = find_constant(module->source, self->name);
  DnnlDesc desc = NULL;
  int32_t buffer = -1;
  if (tensor == NULL) {
    return onednn_fail(module, node, "the constant was not handed over", DNNL_SUCCESS);
  }
  if (!fits(tensor, &self->shape)) {
    return onednn_fail(module, node, "the constant has another type or shape than the graph says", DNNL_SUCCESS);
  }
  int32_t code = onednn_row_major(module, node, &self->shape, &desc);
  if (code == GRAFT_OK) {
    code = onednn_new_buffer(module, BUFFER_CONSTANT, module->dnnl.memory_desc_get_size(desc), &buffer);
  }
  if (code == GRAFT_OK) {
    module->buffers[buffer].data = (char *)tensor->data + tensor->byte_offset;
    code = onednn_store(module, node, buffer, desc, NULL);
  }
  module->dnnl.memory_desc_destroy(desc);
  return code;
}

static int32_t copy_to_output(Module *module, int32_t value, int32_t from, DnnlDesc desc, int32_t *buffer) {
  DnnlRecipe recipe = NULL;
  DnnlStatus status =
      module->dnnl.reorder_primitive_desc_create(&recipe, desc, module->engine, desc, module->engine, NULL);
  if (status != DNNL_SUCCESS) {
    return onednn_fail(module, value, "copying an output", status);
  }
  int32_t code = onednn_new_buffer(module, BUFFER_OUTPUT, module->buffers[from].bytes, buffer);
  if (code != GRAFT_OK) {
    module->dnnl.primitive_desc_destroy(recipe);
    return code;
  }
  StepArg args[2] = {{ARG_SRC, from, desc}, {ARG_DST, *buffer, desc}};
  return onednn_add_step(module, value, recipe, args, 2, true);
}

/* An output is row-major in the caller's memory: its last buffer becomes that memory, or it is copied there. */
static int32_t add_output(Module *module, int32_t index) {
  int32_t value = module->graph.heads[index];
  DnnlDesc desc = NULL;
  int32_t buffer = -1;
  int32_t code = onednn_row_major(module, value, &module->graph.nodes[value].shape, &desc);
  if (code == GRAFT_OK) {
    code = onednn_fetch(module, value, value, desc, NULL, &buffer);
  }
  if (code == GRAFT_OK && module->buffers[buffer].kind == BUFFER_WORKSPACE) {
    module->buffers[buffer].kind = BUFFER_OUTPUT;
  } else if (code == GRAFT_OK) {
    code = copy_to_output(module, value, buffer, desc, &buffer);
  }
  if (code == GRAFT_OK) {
    module->buffers[buffer].index = index;
  }
  module->dnnl.memory_desc_destroy(desc);
  return code;
}

static int32_t build(Module *module) {
  const Graph *graph = &module->graph;
  int32_t code = GRAFT_OK;
  int32_t inputs = 0;
  for (int32_t node = 0; node < graph->node_count && code == GRAFT_OK; node++) {
    switch (graph->nodes[node].kind) {
    case NODE_INPUT:
      code = add_input(module, node, inputs++);
      break;
    case NODE_CONST:
      code = add_constant(module, node);
      break;
    case NODE_KERNEL:
      code = onednn_lower(module, node);
      break;
    }
  }
  for (int32_t i = 0; i < graph->head_count && code == GRAFT_OK; i++) {
    code = add_output(module, i);
  }
  return code == GRAFT_OK ? onednn_plan_workspace(module) : code;
}

typedef struct Building {
  Module *module;
  int32_t code;
} Building;

static void run_build(void *argument) {
  Building *building = argument;
  const Module *module = building->module;
  int32_t previous = onednn_enter(&module->dnnl, module->thread_count);
  building->code = build(building->module);
  onednn_leave(&module->dnnl, previous);
}

static void free_steps(Module *module) {
  for (size_t i = 0; i < module->step_count; i++) {
    for (int32_t j = 0; j < module->steps[i].arg_count; j++) {
      module->dnnl.memory_desc_destroy(module->steps[i].args[j].desc);
    }
    free(module->steps[i].args);
    if (module->steps[i].primitive != NULL) {
      module->dnnl.primitive_destroy(module->steps[i].primitive);
    }
  }
  free(module->steps);
}

static void free_values(Module *module) {
  for (size_t i = 0; i < module->stored_count; i++) {
    module->dnnl.memory_desc_destroy(module->stored[i].desc);
    module->dnnl.memory_desc_destroy(module->stored[i].view);
  }
  for (size_t i = 0; i < module->buffer_count; i++) {
    if (module->buffers[i].owned) {
      free(module->buffers[i].data);
    }
  }
  free(module->stored);
  free(module->buffers);
}

static void unload(void *user, void *state) {
  (void)user;
  Module *module = state;
  while (module->idle != NULL) {
    Instance *next = module->idle->next;
    onednn_instance_free(module, module->idle);
    module->idle = next;
  }
  free_steps(module);
  free_values(module);
  if (module->engine != NULL) {
    module->dnnl.engine_destroy(module->engine);
  }
  onednn_graph_free(&module->graph);
  pthread_mutex_destroy(&module->lock);
  free(module->description);
  free(module);
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **result) {
  Module *module = calloc(1, sizeof *module);
  if (module == NULL || pthread_mutex_init(&module->lock, NULL) != 0) {
    free(module);
    return host->fail(host, "module '%s': memory ran out", source->name);
  }
  module->host = host;
  module->source = source;
  module->thread_count = source->thread_count > 0 ? source->thread_count : 1;
  int32_t code = onednn_graph_parse(&module->graph, host, source);
  if (code == GRAFT_OK) {
    code = onednn_open(&module->dnnl, host, module->graph.symbol);
  }
  if (code == GRAFT_OK && module->dnnl.engine_create(&module->engine, DNNL_CPU, 0) != DNNL_SUCCESS) {
    code = host->fail(host, "region '%s': oneDNN gives no processor engine", module->graph.symbol);
  }
  if (code == GRAFT_OK) {
    Building building = {module, GRAFT_OK};
    bool ran = onednn_with_workers(module->thread_count, run_build, &building);
    code = ran ? building.code
               : host->fail(host, "region '%s': no thread to be had in a forked process", module->graph.symbol);
  }
  module->host = NULL;
  module->source = NULL;
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
 * has the kernel name "reorder". For tests and tools; not thread-safe. NULL when memory runs out. */
const char *graft_onednn_describe(void *state) {
  Module *module = state;
  size_t size = 64;
  for (size_t i = 0; i < module->step_count; i++) {
    const Node *node = &module->graph.nodes[module->steps[i].node];
    size += strlen(node->name) + strlen(node->origin) + 64;
  }
  free(module->description);
  module->description = malloc(size);
  if (module->description == NULL) {
    return NULL;
  }
  int used = snprintf(module->description, size, "workspace %llu\n", (unsigned long long)module->workspace_bytes);
  for (size_t i = 0; i < module->step_count; i++) {
    const Step *step = &module->steps[i];
    const Node *node = &module->graph.nodes[step->node];
    used += snprintf(module->description + used, size - (size_t)used, "%s\t%s\t%s\n",
                     step->reorder ? "reorder" : node->name, node->origin, step->implementation);
  }
  return module->description;
}
