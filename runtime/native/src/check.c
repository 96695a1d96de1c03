#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "memory.h"
#include "procedure.h"

enum { NEVER = INT32_MAX, AT_START = -1 };

/* When a tensor's memory is written and last read: call numbers. A view has the times of its root. */
typedef struct Life {
  int32_t begin;
  int32_t end;
} Life;

typedef struct Checker {
  const Manifest *manifest;
  const Procedure *procedure;
  Life *lives;
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

static const char *tensor_name(const Checker *checker, int32_t tensor) {
  return checker->procedure->tensors[tensor].name;
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

/* ---- Order of writes and reads -------------------------------------------------------------------------------- */

static int32_t check_read(Checker *checker, int32_t tensor, int32_t call) {
  if (tensor < 0) {
    return GRAFT_OK;
  }
  int32_t number = checker->procedure->tensors[tensor].root;
  const TensorSpec *root = checker->procedure->tensors + number;
  Life *life = checker->lives + number;
  int empty = root->ndim >= 0 && root->bytes == 0; /* there is nothing to write */
  if (life->begin >= call && !empty) {
    return damaged(checker, "tensor '%s' is read before it is written", tensor_name(checker, tensor));
  }
  life->end = call;
  return GRAFT_OK;
}

static int32_t check_reads(Checker *checker, const IndexList *list, int32_t call) {
  int32_t status = GRAFT_OK;
  for (int32_t i = 0; !status && i < list->count; i++) {
    status = check_read(checker, list->items[i], call);
  }
  return status;
}

static int32_t check_write(Checker *checker, int32_t tensor, int32_t call) {
  if (tensor < 0) {
    return GRAFT_OK;
  }
  const TensorSpec *written = checker->procedure->tensors + tensor;
  const TensorSpec *root = checker->procedure->tensors + written->root;
  Life *life = checker->lives + written->root;
  if (root->storage == STORAGE_INPUT || root->storage == STORAGE_CONSTANT) {
    return damaged(checker, "tensor '%s' is written, but its bytes are those of an input or a constant",
                   tensor_name(checker, tensor));
  }
  if (written->storage == STORAGE_VIEW && (root->ndim < 0 || written->bytes != root->bytes)) {
    return damaged(checker, "tensor '%s' is written, but it is a view of a part", tensor_name(checker, tensor));
  }
  if (life->begin != NEVER) {
    return damaged(checker, "tensor '%s' is written twice", tensor_name(checker, tensor));
  }
  *life = (Life){call, call};
  return GRAFT_OK;
}

static int32_t check_order(Checker *checker) {
  const Procedure *procedure = checker->procedure;
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    Storage storage = procedure->tensors[i].storage;
    int32_t begin = storage == STORAGE_INPUT || storage == STORAGE_CONSTANT ? AT_START : NEVER;
    checker->lives[i] = (Life){begin, begin};
  }
  int32_t status = GRAFT_OK, length = (int32_t)strlen(checker->where);
  for (int32_t i = 0; !status && i < procedure->call_count; i++) {
    const Call *call = procedure->calls + i;
    snprintf(checker->where + length, sizeof checker->where - (size_t)length, "call %" PRId32 ": ", i);
    status = check_reads(checker, &call->inputs, i);
    for (int32_t k = 0; !status && k < call->body_count; k++) {
      status = check_reads(checker, &call->arguments[k], i);
    }
    for (int32_t k = 0; !status && k < call->outputs.count; k++) {
      status = check_write(checker, call->outputs.items[k], i);
    }
    if (!status && call->kind == CALL_COPY) {
      const TensorSpec *from = procedure->tensors + call->inputs.items[0];
      const TensorSpec *to = procedure->tensors + call->outputs.items[0];
      if (!graft_dtype_equal(from->dtype, to->dtype) || (from->ndim >= 0 && to->ndim >= 0 && from->bytes != to->bytes)) {
        status = damaged(checker, "a copy between tensors of another type or size");
      }
    }
  }
  if (status) {
    return status;
  }
  checker->where[length] = 0;
  return check_reads(checker, &procedure->outputs, procedure->call_count);
}

/* ---- Overlap in the arena ------------------------------------------------------------------------------------- */

typedef struct Interval {
  uint64_t begin, end;
  int32_t tensor;
} Interval;

/* Live intervals are disjoint, so kept in order of address only the two neighbours of a new one can touch it. */
static int32_t insert_interval(Checker *checker, Interval *live, int32_t *count, Interval added) {
  int32_t low = 0, high = *count;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (live[middle].begin < added.begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const Interval *other = low < *count && live[low].begin < added.end     ? live + low
                          : low > 0 && live[low - 1].end > added.begin ? live + low - 1
                                                                         : NULL;
  if (other) {
    return damaged(checker, "tensors '%s' and '%s' overlap in the arena while both are live",
                   tensor_name(checker, other->tensor), tensor_name(checker, added.tensor));
  }
  memmove(live + low + 1, live + low, (size_t)(*count - low) * sizeof(Interval));
  live[low] = added;
  ++*count;
  return GRAFT_OK;
}

static void drop_dead(const Checker *checker, Interval *live, int32_t *count, int32_t call) {
  int32_t kept = 0;
  for (int32_t i = 0; i < *count; i++) {
    if (checker->lives[live[i].tensor].end >= call) {
      live[kept++] = live[i];
    }
  }
  *count = kept;
}

/* A tensor is live from the call that writes it to the last call that reads it, both included. */
static int32_t check_arena(Checker *checker) {
  const Procedure *procedure = checker->procedure;
  Interval *live = graft_calloc((size_t)procedure->tensor_count + 1, sizeof(Interval));
  if (!live) {
    return graft_set_error(checker->error, GRAFT_ERROR_MEMORY, "out of memory while checking the manifest");
  }
  int32_t count = 0, status = GRAFT_OK;
  for (int32_t i = 0; !status && i < procedure->call_count; i++) {
    const IndexList *outputs = &procedure->calls[i].outputs;
    drop_dead(checker, live, &count, i);
    for (int32_t k = 0; !status && k < outputs->count; k++) {
      int32_t number = outputs->items[k];
      if (number < 0) {
        continue;
      }
      int32_t root = procedure->tensors[number].root;
      const TensorSpec *tensor = procedure->tensors + root;
      if (tensor->storage == STORAGE_ARENA && tensor->bytes) {
        status = insert_interval(checker, live, &count,
                                 (Interval){tensor->offset, tensor->offset + tensor->bytes, root});
      }
    }
  }
  free(live);
  return status;
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
    snprintf(checker->where + length, sizeof checker->where - (size_t)length, "call %" PRId32 ": ", i);
    if (call->kind == CALL_FUNCTION && !has_function(manifest->modules + call->module, call->function)) {
      status = damaged(checker, "module '%s' has no function '%s'", manifest->modules[call->module].name,
                       call->function);
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
  checker->lives = graft_calloc((size_t)checker->procedure->tensor_count, sizeof(Life));
  if (!checker->lives) {
    return graft_set_error(checker->error, GRAFT_ERROR_MEMORY, "out of memory while checking the manifest");
  }
  snprintf(checker->where, sizeof checker->where, "procedure %" PRId32 ": ", number);
  int32_t status = check_interface(checker);
  status = status ? status : check_order(checker);
  status = status ? status : check_arena(checker);
  status = status ? status : check_calls(checker);
  free(checker->lives);
  return status;
}

int32_t graft_check_procedures(const Manifest *manifest, GraftError *error) {
  Checker checker = {.manifest = manifest, .error = error};
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
