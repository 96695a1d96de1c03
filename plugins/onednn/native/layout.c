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

int32_t onednn_new_buffer(Binding *binding, BufferKind kind, uint64_t bytes, int32_t *buffer) {
  Buffer *grown = onednn_grow(binding->buffers, binding->buffer_count, &binding->buffer_capacity, sizeof *grown);
  if (grown == NULL) {
    return onednn_fail(binding, 0, "memory ran out", DNNL_SUCCESS);
  }
  binding->buffers = grown;
  *buffer = (int32_t)binding->buffer_count++;
  grown[*buffer] = (Buffer){.kind = kind, .index = -1, .bytes = bytes, .first = INT32_MAX, .last = -1};
  return GRAFT_OK;
}

int32_t onednn_store(Binding *binding, int32_t value, int32_t buffer, DnnlConstDesc desc, DnnlConstDesc view) {
  Stored *grown = onednn_grow(binding->stored, binding->stored_count, &binding->stored_capacity, sizeof *grown);
  if (grown == NULL) {
    return onednn_fail(binding, value, "memory ran out", DNNL_SUCCESS);
  }
  binding->stored = grown;
  Stored *stored = &grown[binding->stored_count++];
  *stored = (Stored){.value = value, .buffer = buffer};
  int32_t code = onednn_canonical(binding, value, desc, &stored->desc);
  return code == GRAFT_OK && view != NULL ? onednn_canonical(binding, value, view, &stored->view) : code;
}

const Stored *onednn_current(const Binding *binding, int32_t value) {
  for (size_t i = 0; i < binding->stored_count; i++) {
    if (binding->stored[i].value == value) {
      return &binding->stored[i];
    }
  }
  return NULL;
}

static bool same(const Binding *binding, DnnlConstDesc left, DnnlConstDesc right) {
  return left == right || (left != NULL && right != NULL && binding->dnnl->memory_desc_equal(left, right) != 0);
}

static int32_t reorder_recipe(Binding *binding, int32_t node, DnnlConstDesc from, DnnlConstDesc to,
                              DnnlRecipe *recipe) {
  const Dnnl *dnnl = binding->dnnl;
  DnnlAttr attr = NULL;
  DnnlStatus status = dnnl->primitive_attr_create(&attr);
  if (status == DNNL_SUCCESS) {
    status = dnnl->primitive_attr_set_scratchpad_mode(attr, DNNL_SCRATCHPAD_USER);
  }
  if (status == DNNL_SUCCESS) {
    status = dnnl->reorder_primitive_desc_create(recipe, from, binding->engine, to, binding->engine, attr);
  }
  if (attr != NULL) {
    dnnl->primitive_attr_destroy(attr);
  }
  return status == DNNL_SUCCESS ? GRAFT_OK : onednn_fail(binding, node, "changing a layout", status);
}

static int32_t reorder(Binding *binding, int32_t node, int32_t source, DnnlConstDesc from, DnnlConstDesc to,
                       int32_t *buffer) {
  bool constant = binding->buffers[source].kind == BUFFER_CONSTANT;
  uint64_t bytes = binding->dnnl->memory_desc_get_size(to);
  int32_t scratchpad = -1;
  DnnlRecipe recipe = NULL;
  GRAFT_TRY(reorder_recipe(binding, node, from, to, &recipe));
  DnnlConstDesc scratch = binding->dnnl->primitive_desc_query_md(recipe, DNNL_QUERY_ARG_DESC, ARG_SCRATCHPAD);
  int32_t code = onednn_new_buffer(binding, constant ? BUFFER_CONSTANT : BUFFER_WORKSPACE, bytes, buffer);
  if (code == GRAFT_OK) {
    code = onednn_new_buffer(binding, BUFFER_WORKSPACE, binding->dnnl->memory_desc_get_size(scratch), &scratchpad);
  }
  StepArg args[3] = {{ARG_SRC, source, (DnnlDesc)from}, {ARG_DST, *buffer, (DnnlDesc)to},
                     {ARG_SCRATCHPAD, scratchpad, (DnnlDesc)scratch}};
  if (code == GRAFT_OK && !constant) {
    return onednn_add_step(binding, node, recipe, args, 3, true);
  }
  if (code == GRAFT_OK) {
    code = onednn_pack(binding, node, recipe, args);
  }
  binding->dnnl->primitive_desc_destroy(recipe);
  return code;
}

int32_t onednn_fetch_row_major(Binding *binding, int32_t node, int32_t value, int32_t *buffer) {
  DnnlDesc plain = NULL;
  GRAFT_TRY(onednn_row_major(binding, node, &binding->nodes[value].shape, &plain));
  int32_t code = onednn_fetch(binding, node, value, plain, NULL, buffer);
  binding->dnnl->memory_desc_destroy(plain);
  return code;
}

int32_t onednn_fetch(Binding *binding, int32_t node, int32_t value, DnnlConstDesc desc, DnnlConstDesc view,
                     int32_t *buffer) {
  for (size_t i = 0; i < binding->stored_count; i++) {
    const Stored *stored = &binding->stored[i];
    if (stored->value == value && same(binding, stored->view, view) && same(binding, stored->desc, desc)) {
      *buffer = stored->buffer;
      return GRAFT_OK;
    }
  }
  const Stored *current = onednn_current(binding, value);
  int32_t source = current->buffer;
  DnnlConstDesc from = current->desc;
  if (view != NULL) {
    GRAFT_TRY(onednn_fetch_row_major(binding, node, value, &source));
    from = view;
  }
  *buffer = source;
  DnnlDesc to = NULL;
  int32_t code = onednn_canonical(binding, node, desc, &to);
  if (code == GRAFT_OK && !same(binding, from, desc)) {
    code = reorder(binding, node, source, from, to, buffer);
  }
  binding->dnnl->memory_desc_destroy(to);
  return code == GRAFT_OK ? onednn_store(binding, value, *buffer, desc, view) : code;
}

static int32_t fill_step(Binding *binding, Step *step, DnnlRecipe recipe, const StepArg *args, int32_t count) {
  const Dnnl *dnnl = binding->dnnl;
  DnnlStatus status = dnnl->primitive_create(&step->primitive, recipe);
  if (status != DNNL_SUCCESS) {
    return onednn_fail(binding, step->node, "building a primitive", status);
  }
  const char *implementation = NULL;
  dnnl->primitive_desc_query(recipe, DNNL_QUERY_IMPLEMENTATION, 0, (void *)&implementation);
  snprintf(step->implementation, sizeof step->implementation, "%s", implementation != NULL ? implementation : "");
  step->args = calloc((size_t)count, sizeof *step->args);
  if (step->args == NULL) {
    return onednn_fail(binding, step->node, "memory ran out", DNNL_SUCCESS);
  }
  int32_t position = (int32_t)binding->step_count - 1;
  for (int32_t i = 0; i < count; i++) {
    StepArg *arg = &step->args[step->arg_count];
    if (dnnl->memory_desc_clone(&arg->desc, args[i].desc) != DNNL_SUCCESS) {
      return onednn_fail(binding, step->node, "describing a tensor", DNNL_SUCCESS);
    }
    arg->arg = args[i].arg;
    arg->buffer = args[i].buffer;
    step->arg_count++;
    binding->arg_count++;
    Buffer *used = &binding->buffers[arg->buffer];
    used = used->kind == BUFFER_PART ? &binding->buffers[used->index] : used;
    used->first = position < used->first ? position : used->first;
    used->last = position > used->last ? position : used->last;
  }
  return GRAFT_OK;
}

int32_t onednn_add_step(Binding *binding, int32_t node, DnnlRecipe recipe, const StepArg *args, int32_t count,
                        bool reorder) {
  Step *grown = onednn_grow(binding->steps, binding->step_count, &binding->step_capacity, sizeof *grown);
  int32_t code = GRAFT_OK;
  if (grown == NULL) {
    code = onednn_fail(binding, node, "memory ran out", DNNL_SUCCESS);
  } else {
    binding->steps = grown;
    Step *step = &grown[binding->step_count++];
    *step = (Step){.node = node, .reorder = reorder};
    code = fill_step(binding, step, recipe, args, count);
  }
  binding->dnnl->primitive_desc_destroy(recipe);
  return code;
}
