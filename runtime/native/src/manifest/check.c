#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "manifest/procedure.h"

typedef struct Checker {
  const Manifest *manifest;
  Procedure *procedure;
  Store *store;
  GraftError *error;
  char where[192];
} Checker;

GRAFT_FORMAT(2, 3) static int32_t damaged(Checker *checker, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return graft_set_error(checker->error, GRAFT_ERROR_ARTIFACT, "damaged manifest: %s%s", checker->where, text);
}

/* ---- Inputs and outputs --------------------------------------------------------------------------------------- */

static int32_t check_interface(Checker *checker) {
  const Procedure *procedure = checker->procedure;
  for (int32_t i = 0; i < procedure->inputs.count; i++) {
    const TensorSpec *tensor = procedure->tensors + procedure->inputs.items[i];
    if (tensor->storage != STORAGE_INPUT || tensor->index != i) {
      return damaged(checker, "input %" PRId32 " is tensor '%s', whose storage is not that input", i, tensor->name);
    }
  }
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    const TensorSpec *tensor = procedure->tensors + i;
    const IndexList *list = tensor->storage == STORAGE_INPUT ? &procedure->inputs : &procedure->outputs;
    if ((tensor->storage == STORAGE_INPUT || tensor->storage == STORAGE_OUTPUT) &&
        (tensor->index >= list->count || list->items[tensor->index] != i)) {
      return damaged(checker, "tensor '%s' claims to be %s %" PRId32 ", which it is not", tensor->name,
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

static int32_t check_calls(Checker *checker) {
  const Manifest *manifest = checker->manifest;
  int32_t status = GRAFT_OK, length = (int32_t)strlen(checker->where);
  for (int32_t i = 0; !status && i < checker->procedure->call_count; i++) {
    const Call *call = checker->procedure->calls + i;
    const char *fault;
    snprintf(checker->where + length, sizeof checker->where - (size_t)length, "call %" PRId32 ": ", i);
    if (call->kind == CALL_FUNCTION && !has_function(manifest->modules + call->module, call->function)) {
      status = damaged(checker, "module '%s' has no function '%s'", manifest->modules[call->module].name,
                       call->function);
    } else if (call->kind == CALL_APPEND && (fault = graft_check_append(checker->procedure, call))) {
      status = damaged(checker, "the append of '%s': %s",
                       checker->procedure->tensors[call->outputs.items[0]].name, fault);
    } else if (call->body_count) {
      status = graft_check_control(manifest, checker->procedure, call, checker->where, checker->error);
    }
  }
  return status;
}

/* How deep bodies nest below procedure `number`; beyond the limit (as in a cycle) the search stops. */
static int32_t check_nesting(Checker *checker, int32_t *heights, int32_t number, int32_t depth) {
  if (depth > GRAFT_MAXIMUM_NESTING) {
    checker->where[0] = 0;
    return damaged(checker, "bodies are nested more than %d deep, or contain themselves", GRAFT_MAXIMUM_NESTING);
  }
  if (heights[number] > 0) { /* known: only its height matters */
    return depth + heights[number] - 1 <= GRAFT_MAXIMUM_NESTING
               ? GRAFT_OK
               : check_nesting(checker, heights, number, GRAFT_MAXIMUM_NESTING + 1);
  }
  int32_t height = 1;
  const Procedure *procedure = checker->manifest->procedures + number;
  for (int32_t i = 0; i < procedure->call_count; i++) {
    for (int32_t k = 0; k < procedure->calls[i].body_count; k++) {
      int32_t body = procedure->calls[i].bodies[k];
      int32_t status = check_nesting(checker, heights, body, depth + 1);
      if (status) {
        return status;
      }
      height = heights[body] + 1 > height ? heights[body] + 1 : height;
    }
  }
  heights[number] = height;
  return GRAFT_OK;
}

static int32_t check_procedure(Checker *checker, int32_t number) {
  checker->procedure = checker->manifest->procedures + number;
  snprintf(checker->where, sizeof checker->where, "procedure %" PRId32 ": ", number);
  int32_t status = check_interface(checker);
  status = status ? status : graft_find_stages(checker->procedure, checker->store, checker->where, checker->error);
  status = status ? status
                  : graft_check_memory(checker->procedure, checker->manifest->device_count, checker->where, checker->error);
  status = status ? status : graft_find_in_place(checker->procedure, checker->store, checker->error);
  status = status ? status : check_calls(checker);
  return status ? status : graft_check_devices(checker->manifest, number, checker->store, checker->error);
}

int32_t graft_check_procedures(Manifest *manifest, Store *store, GraftError *error) {
  Checker checker = {.manifest = manifest, .store = store, .error = error};
  int32_t *heights = graft_calloc((size_t)manifest->procedure_count, sizeof(int32_t));
  if (!heights) {
    return graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory while checking the manifest");
  }
  int32_t status = GRAFT_OK;
  for (int32_t i = 0; !status && i < manifest->procedure_count; i++) {
    status = check_nesting(&checker, heights, i, 1);
  }
  free(heights);
  for (int32_t i = 0; !status && i < manifest->procedure_count; i++) {
    status = check_procedure(&checker, i);
  }
  return status;
}
