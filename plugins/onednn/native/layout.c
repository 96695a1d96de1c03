/* Where values lie and in which layout: buffers, stored values, and the reorders between layouts. */
#include <stdio.h>
#include <stdlib.h>

#include "module.h"

void *onednn_grow(void *array, size_t count, size_t *capacity, size_t size) {
  if (count < *capacity) {
    return array;
  }
  size_t larger = *capacity == 0 ? 16 : *capacity * 2;
  void *grown = realloc(array, larger * size);
  if (grown != NULL) {
    *capacity = larger;
  }
  return grown;
}

int32_t onednn_new_buffer(Module *module, BufferKind kind, uint64_t bytes, int32_t *buffer) {
  Buffer *grown = onednn_grow(module->buffers, module->buffer_count, &module->buffer_capacity, sizeof *grown);
  if (grown == NULL) {
    return onednn_fail(module, 0, "memory ran out", DNNL_SUCCESS);
  }
  module->buffers = grown;
  *buffer = (int32_t)module->buffer_count++;
  grown[*buffer] = (Buffer){.kind = kind, .index = -1, .bytes = bytes, .first = INT32_MAX, .last = -1};
  return GRAFT_OK;
}

int32_t onednn_store(Module *module, int32_t value, int32_t buffer, DnnlConstDesc desc, DnnlConstDesc view) {
  Stored *grown = onednn_grow(module->stored, module->stored_count, &module->stored_capacity, sizeof *grown);
  if (grown == NULL) {
    return onednn_fail(module, value, "memory ran out", DNNL_SUCCESS);
  }
  module->stored = grown;
  Stored *stored = &grown[module->stored_count++];
  *stored = (Stored){.value = value, .buffer = buffer};
  int32_t code = onednn_canonical(module, value, desc, &stored->desc);
  return code == GRAFT_OK && view != NULL ? onednn_canonical(module, value, view, &stored->view) : code;
}

const Stored *onednn_current(const Module *module, int32_t value) {
  for (size_t i = 0; i < module->stored_count; i++) {
    if (module->stored[i].value == value) {
      return &module->stored[i];
    }
  }
  return NULL;
}

static bool same(const Module *module, DnnlConstDesc left, DnnlConstDesc right) {
  return left == right || (left != NULL && right != NULL && module->dnnl.memory_desc_equal(left, right) != 0);
}

/* Runs a reorder of a constant now, once: the result is shared by all calls. */
static int32_t reorder_now(Module *module, int32_t node, DnnlConstRecipe recipe, const StepArg *args) {
  const Dnnl *dnnl = &module->dnnl;
  DnnlPrimitive primitive = NULL;
  DnnlStream stream = NULL;
  DnnlArg memories[3] = {{args[0].arg, NULL}, {args[1].arg, NULL}, {args[2].arg, NULL}};
  void *scratchpad = onednn_allocate(module->buffers[args[2].buffer].bytes);
  DnnlStatus status = scratchpad == NULL ? 1 : dnnl->primitive_create(&primitive, recipe);
  if (status == DNNL_SUCCESS) {
    status = dnnl->stream_create(&stream, module->engine, DNNL_IN_ORDER);
  }
  for (int32_t i = 0; i < 3 && status == DNNL_SUCCESS; i++) {
    void *data = i == 2 ? scratchpad : module->buffers[args[i].buffer].data;
    status = dnnl->memory_create(&memories[i].memory, args[i].desc, module->engine, data);
  }
  if (status == DNNL_SUCCESS) {
    status = dnnl->primitive_execute(primitive, stream, 3, memories);
  }
  if (stream != NULL) {
    dnnl->stream_wait(stream);
    dnnl->stream_destroy(stream);
  }
  for (int32_t i = 0; i < 3; i++) {
    if (memories[i].memory != NULL) {
      dnnl->memory_destroy(memories[i].memory);
    }
  }
  if (primitive != NULL) {
    dnnl->primitive_destroy(primitive);
  }
  free(scratchpad);
  return status == DNNL_SUCCESS ? GRAFT_OK : onednn_fail(module, node, "laying out a constant", status);
}

static int32_t reorder_recipe(Module *module, int32_t node, DnnlConstDesc from, DnnlConstDesc to,
                              DnnlRecipe *recipe) {
  const Dnnl *dnnl = &module->dnnl;
  DnnlAttr attr = NULL;
  DnnlStatus status = dnnl->primitive_attr_create(&attr);
  if (status == DNNL_SUCCESS) {
    status = dnnl->primitive_attr_set_scratchpad_mode(attr, DNNL_SCRATCHPAD_USER);
  }
  if (status == DNNL_SUCCESS) {
    status = dnnl->reorder_primitive_desc_create(recipe, from, module->engine, to, module->engine, attr);
  }
  if (attr != NULL) {
    dnnl->primitive_attr_destroy(attr);
  }
  return status == DNNL_SUCCESS ? GRAFT_OK : onednn_fail(module, node, "changing a layout", status);
}

static int32_t reorder(Module *module, int32_t node, int32_t source, DnnlConstDesc from, DnnlConstDesc to,
                       int32_t *buffer) {
  bool constant = module->buffers[source].kind == BUFFER_CONSTANT;
  uint64_t bytes = module->dnnl.memory_desc_get_size(to);
  int32_t scratchpad = -1;
  DnnlRecipe recipe = NULL;
  int32_t code = reorder_recipe(module, node, from, to, &recipe);
  if (code != GRAFT_OK) {
    return code;
  }
  DnnlConstDesc scratch = module->dnnl.primitive_desc_query_md(recipe, DNNL_QUERY_ARG_DESC, ARG_SCRATCHPAD);
  code = onednn_new_buffer(module, constant ? BUFFER_CONSTANT : BUFFER_WORKSPACE, bytes, buffer);
  if (code == GRAFT_OK) {
    code = onednn_new_buffer(module, BUFFER_WORKSPACE, module->dnnl.memory_desc_get_size(scratch), &scratchpad);
  }
  StepArg args[3] = {{ARG_SRC, source, (DnnlDesc)from}, {ARG_DST, *buffer, (DnnlDesc)to},
                     {ARG_SCRATCHPAD, scratchpad, (DnnlDesc)scratch}};
  if (code == GRAFT_OK && !constant) {
    return onednn_add_step(module, node, recipe, args, 3, true);
  }
  if (code == GRAFT_OK) {
    Buffer *packed = &module->buffers[*buffer];
    packed->data = onednn_allocate(bytes);
    packed->owned = true;
    code = packed->data == NULL ? onednn_fail(module, node, "memory ran out for a constant", DNNL_SUCCESS)
                                : reorder_now(module, node, recipe, args);
  }
  module->dnnl.primitive_desc_destroy(recipe);
  return code;
}

int32_t onednn_fetch_row_major(Module *module, int32_t node, int32_t value, int32_t *buffer) {
  DnnlDesc plain = NULL;
  int32_t code = onednn_row_major(module, node, &module->graph.nodes[value].shape, &plain);
  if (code == GRAFT_OK) {
    code = onednn_fetch(module, node, value, plain, NULL, buffer);
    module->dnnl.memory_desc_destroy(plain);
  }
  return code;
}

int32_t onednn_fetch(Module *module, int32_t node, int32_t value, DnnlConstDesc desc, DnnlConstDesc view,
                     int32_t *buffer) {
  for (size_t i = 0; i < module->stored_count; i++) {
    const Stored *stored = &module->stored[i];
    if (stored->value == value && same(module, stored->view, view) && same(module, stored->desc, desc)) {
      *buffer = stored->buffer;
      return GRAFT_OK;
    }
  }
  const Stored *current = onednn_current(module, value);
  int32_t source = current->buffer;
  DnnlConstDesc from = current->desc;
  if (view != NULL) {
    int32_t code = onednn_fetch_row_major(module, node, value, &source);
    if (code != GRAFT_OK) {
      return code;
    }
    from = view;
  }
  *buffer = source;
  DnnlDesc to = NULL;
  int32_t code = onednn_canonical(module, node, desc, &to);
  if (code == GRAFT_OK && !same(module, from, desc)) {
    code = reorder(module, node, source, from, to, buffer);
  }
  module->dnnl.memory_desc_destroy(to);
  return code == GRAFT_OK ? onednn_store(module, value, *buffer, desc, view) : code;
}

static int32_t fill_step(Module *module, Step *step, DnnlRecipe recipe, const StepArg *args, int32_t count) {
  const Dnnl *dnnl = &module->dnnl;
  DnnlStatus status = dnnl->primitive_create(&step->primitive, recipe);
  if (status != DNNL_SUCCESS) {
    return onednn_fail(module, step->node, "building a primitive", status);
  }
  const char *implementation = NULL;
  dnnl->primitive_desc_query(recipe, DNNL_QUERY_IMPLEMENTATION, 0, (void *)&implementation);
  snprintf(step->implementation, sizeof step->implementation, "%s", implementation != NULL ? implementation : "");
  step->args = calloc((size_t)count, sizeof *step->args);
  if (step->args == NULL) {
    return onednn_fail(module, step->node, "memory ran out", DNNL_SUCCESS);
  }
  int32_t position = (int32_t)module->step_count - 1;
  for (int32_t i = 0; i < count; i++) {
    StepArg *arg = &step->args[step->arg_count];
    if (dnnl->memory_desc_clone(&arg->desc, args[i].desc) != DNNL_SUCCESS) {
      return onednn_fail(module, step->node, "describing a tensor", DNNL_SUCCESS);
    }
    arg->arg = args[i].arg;
    arg->buffer = args[i].buffer;
    step->arg_count++;
    module->arg_count++;
    Buffer *used = &module->buffers[arg->buffer];
    used = used->kind == BUFFER_PART ? &module->buffers[used->index] : used;
    used->first = position < used->first ? position : used->first;
    used->last = position > used->last ? position : used->last;
  }
  return GRAFT_OK;
}

int32_t onednn_add_step(Module *module, int32_t node, DnnlRecipe recipe, const StepArg *args, int32_t count,
                        bool reorder) {
  Step *grown = onednn_grow(module->steps, module->step_count, &module->step_capacity, sizeof *grown);
  int32_t code = GRAFT_OK;
  if (grown == NULL) {
    code = onednn_fail(module, node, "memory ran out", DNNL_SUCCESS);
  } else {
    module->steps = grown;
    Step *step = &grown[module->step_count++];
    *step = (Step){.node = node, .reorder = reorder};
    code = fill_step(module, step, recipe, args, count);
  }
  module->dnnl.primitive_desc_destroy(recipe);
  return code;
}
