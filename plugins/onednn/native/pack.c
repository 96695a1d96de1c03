/* Constants in the layouts that oneDNN wants. One that several bindings want alike is laid out once, and freed with the
 * last of them. */
#include <stdlib.h>

#include "module.h"

static DnnlStatus reorder(Binding *binding, DnnlConstRecipe recipe, const StepArg *args, void *target) {
  const Dnnl *dnnl = binding->dnnl;
  DnnlPrimitive primitive = NULL;
  DnnlStream stream = NULL;
  DnnlArg memories[3] = {{args[0].arg, NULL}, {args[1].arg, NULL}, {args[2].arg, NULL}};
  void *scratchpad = onednn_allocate(binding->buffers[args[2].buffer].bytes);
  void *data[3] = {binding->buffers[args[0].buffer].data, target, scratchpad};
  DnnlStatus status = scratchpad == NULL ? 1 : dnnl->primitive_create(&primitive, recipe);
  if (status == DNNL_SUCCESS) {
    status = dnnl->stream_create(&stream, binding->engine, DNNL_IN_ORDER);
  }
  for (int32_t i = 0; i < 3 && status == DNNL_SUCCESS; i++) {
    status = dnnl->memory_create(&memories[i].memory, args[i].desc, binding->engine, data[i]);
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
  return status;
}

static Packed *find(const Binding *binding, const StepArg *args) {
  const void *source = binding->buffers[args[0].buffer].data;
  Packed *packed = binding->module->packed;
  while (packed != NULL && !(packed->source == source && binding->dnnl->memory_desc_equal(packed->from, args[0].desc) &&
                             binding->dnnl->memory_desc_equal(packed->to, args[1].desc))) {
    packed = packed->next;
  }
  return packed;
}

static void destroy(const Module *module, Packed *packed) {
  module->dnnl.memory_desc_destroy(packed->from);
  module->dnnl.memory_desc_destroy(packed->to);
  free(packed->data);
  free(packed);
}

static int32_t make(Binding *binding, int32_t node, DnnlConstRecipe recipe, const StepArg *args, Packed **made) {
  const Dnnl *dnnl = binding->dnnl;
  Packed *packed = calloc(1, sizeof *packed);
  if (packed == NULL) {
    return onednn_fail(binding, node, "memory ran out for a constant", DNNL_SUCCESS);
  }
  packed->source = binding->buffers[args[0].buffer].data;
  packed->data = onednn_allocate(binding->buffers[args[1].buffer].bytes);
  DnnlStatus status = packed->data == NULL ? 1 : dnnl->memory_desc_clone(&packed->from, args[0].desc);
  if (status == DNNL_SUCCESS) {
    status = dnnl->memory_desc_clone(&packed->to, args[1].desc);
  }
  if (status == DNNL_SUCCESS) {
    status = reorder(binding, recipe, args, packed->data);
  }
  if (status != DNNL_SUCCESS) {
    bool lacking = packed->data == NULL;
    destroy(binding->module, packed);
    return lacking ? onednn_fail(binding, node, "memory ran out for a constant", DNNL_SUCCESS)
                   : onednn_fail(binding, node, "laying out a constant", status);
  }
  packed->next = binding->module->packed;
  binding->module->packed = packed;
  *made = packed;
  return GRAFT_OK;
}

int32_t onednn_pack(Binding *binding, int32_t node, DnnlConstRecipe recipe, const StepArg *args) {
  Module *module = binding->module;
  pthread_mutex_lock(&module->packing);
  Packed *packed = find(binding, args);
  int32_t code = packed != NULL ? GRAFT_OK : make(binding, node, recipe, args, &packed);
  if (code == GRAFT_OK) {
    packed->users++;
    binding->buffers[args[1].buffer].packed = packed;
    binding->buffers[args[1].buffer].data = packed->data;
  }
  pthread_mutex_unlock(&module->packing);
  return code;
}

void onednn_unpack(Module *module, Packed *packed) {
  pthread_mutex_lock(&module->packing);
  if (--packed->users == 0) {
    Packed **place = &module->packed;
    while (*place != packed) {
      place = &(*place)->next;
    }
    *place = packed->next;
    destroy(module, packed);
  }
  pthread_mutex_unlock(&module->packing);
}
