#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "manifest/manifest_reader.h"

/* ---- Inputs and outputs --------------------------------------------------------------------------------------- */

static int32_t check_interface(const Reader *reader, const Procedure *procedure) {
  for (int32_t i = 0; i < procedure->inputs.count; i++) {
    const TensorSpec *tensor = procedure->tensors + procedure->inputs.items[i];
    if (tensor->storage != STORAGE_INPUT || tensor->index != i) {
      return graft_damaged(reader, "input %" PRId32 " is tensor '%s', whose storage is not that input", i,
                           tensor->name);
    }
  }
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    const TensorSpec *tensor = procedure->tensors + i;
    const IndexList *list = tensor->storage == STORAGE_INPUT ? &procedure->inputs : &procedure->outputs;
    if ((tensor->storage == STORAGE_INPUT || tensor->storage == STORAGE_OUTPUT) &&
        (tensor->index >= list->count || list->items[tensor->index] != i)) {
      return graft_damaged(reader, "tensor '%s' claims to be %s %" PRId32 ", which it is not", tensor->name,
                           tensor->storage == STORAGE_INPUT ? "input" : "output", tensor->index);
    }
  }
  return GRAFT_OK;
}

/* ---- Functions and bodies ------------------------------------------------------------------------------------- */

static int has_function(const ModuleSpec *module, const char *function) {
  for (size_t i = 0; i < graft_json_count(module->functions); i++) {
    if (strcmp(graft_json_string(graft_json_item(module->functions, i), ""), function) == 0) {
      return 1;
    }
  }
  return 0;
}

static int32_t check_calls(Reader *reader, Procedure *procedure) {
  const ModuleSpec *modules = reader->manifest->modules;
  for (int32_t i = 0; i < procedure->call_count; i++) {
    const Call *call = procedure->calls + i;
    const char *fault;
    reader->call = i;
    if (call->kind == CALL_FUNCTION && !has_function(modules + call->module, call->function)) {
      return graft_damaged(reader, "module '%s' has no function '%s'", modules[call->module].name, call->function);
    }
    if (call->kind == CALL_APPEND && (fault = graft_check_append(procedure, call))) {
      return graft_damaged(reader, "the append of '%s': %s", procedure->tensors[call->outputs.items[0]].name, fault);
    }
    if (call->body_count) {
      GRAFT_TRY(graft_check_control(reader, procedure, call));
    }
  }
  reader->call = -1;
  return GRAFT_OK;
}

/* How deep bodies nest below procedure `number`; beyond the limit (as in a cycle) the search stops. */
static int32_t check_nesting(Reader *reader, int32_t *heights, int32_t number, int32_t depth) {
  if (depth > GRAFT_MAXIMUM_NESTING) {
    reader->where[0] = 0;
    return graft_damaged(reader, "bodies are nested more than %d deep, or contain themselves", GRAFT_MAXIMUM_NESTING);
  }
  if (heights[number] > 0) { /* known: only its height matters */
    return depth + heights[number] - 1 <= GRAFT_MAXIMUM_NESTING
               ? GRAFT_OK
               : check_nesting(reader, heights, number, GRAFT_MAXIMUM_NESTING + 1);
  }
  int32_t height = 1;
  const Procedure *procedure = reader->manifest->procedures + number;
  for (int32_t i = 0; i < procedure->call_count; i++) {
    for (int32_t k = 0; k < procedure->calls[i].body_count; k++) {
      int32_t body = procedure->calls[i].bodies[k];
      GRAFT_TRY(check_nesting(reader, heights, body, depth + 1));
      height = heights[body] + 1 > height ? heights[body] + 1 : height;
    }
  }
  heights[number] = height;
  return GRAFT_OK;
}

static int32_t check_procedure(Reader *reader, int32_t number) {
  Procedure *procedure = reader->manifest->procedures + number;
  snprintf(reader->where, sizeof reader->where, "procedure %" PRId32 ": ", number);
  GRAFT_TRY(check_interface(reader, procedure));
  GRAFT_TRY(graft_find_stages(reader, procedure));
  GRAFT_TRY(graft_check_memory(reader, procedure));
  GRAFT_TRY(graft_find_in_place(reader, procedure));
  GRAFT_TRY(check_calls(reader, procedure));
  return graft_check_devices(reader, procedure);
}

int32_t graft_check_procedures(Manifest *manifest, Store *store, GraftError *error) {
  Reader reader = {.manifest = manifest, .store = store, .error = error, .call = -1};
  int32_t *heights = graft_allocate_zeroed(store->allocator, (size_t)manifest->procedure_count, sizeof(int32_t));
  int32_t status = graft_allocated(&reader, heights);
  for (int32_t i = 0; !status && i < manifest->procedure_count; i++) {
    status = check_nesting(&reader, heights, i, 1);
  }
  graft_release(store->allocator, heights);
  for (int32_t i = 0; !status && i < manifest->procedure_count; i++) {
    status = check_procedure(&reader, i);
  }
  return status;
}
