#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "procedure.h"

typedef struct Reader {
  Store *store;
  GraftError *error;
  Manifest *manifest;
  char where[192]; /* the place that messages name */
} Reader;

GRAFT_FORMAT(2, 3) static int32_t damaged(Reader *reader, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return graft_set_error(reader->error, GRAFT_ERROR_ARTIFACT, "damaged manifest: %s%s", reader->where, text);
}

static int32_t out_of_memory(Reader *reader) {
  return graft_set_error(reader->error, GRAFT_ERROR_MEMORY, "out of memory while reading the manifest");
}

/* ---- Single fields -------------------------------------------------------------------------------------------- */

static int32_t read_integer(Reader *reader, const JsonValue *object, const char *key, int64_t low, int64_t high,
                            int64_t *result) {
  const JsonValue *value = graft_json_member(object, key);
  if (!value || value->kind != JSON_INTEGER) {
    return damaged(reader, "'%s' is not an integer", key);
  }
  if (value->as.integer < low || value->as.integer > high) {
    return damaged(reader, "'%s' is %" PRId64 ", not between %" PRId64 " and %" PRId64, key, value->as.integer, low,
                   high);
  }
  *result = value->as.integer;
  return GRAFT_OK;
}

static int32_t read_text(Reader *reader, const JsonValue *object, const char *key, const char **result) {
  const JsonValue *value = graft_json_member(object, key);
  if (!value || value->kind != JSON_STRING || strlen(value->as.string.bytes) != value->as.string.length) {
    return damaged(reader, "'%s' is not a text", key);
  }
  *result = value->as.string.bytes;
  return GRAFT_OK;
}

static int32_t read_array(Reader *reader, const JsonValue *object, const char *key, const JsonValue **result) {
  *result = graft_json_member(object, key);
  if (!*result || (*result)->kind != JSON_ARRAY || graft_json_count(*result) > INT32_MAX / 2) {
    return damaged(reader, "'%s' is not an array", key);
  }
  return GRAFT_OK;
}

/* Integers between `low` and `limit` - 1. */
static int32_t read_list(Reader *reader, const JsonValue *array, const char *key, int64_t low, int64_t limit,
                         IndexList *list) {
  list->count = (int32_t)graft_json_count(array);
  list->items = graft_store_allocate(reader->store, (size_t)list->count, sizeof(int32_t));
  if (!list->items) {
    return out_of_memory(reader);
  }
  for (int32_t i = 0; i < list->count; i++) {
    const JsonValue *item = graft_json_item(array, (size_t)i);
    if (item->kind != JSON_INTEGER || item->as.integer < low || item->as.integer >= limit) {
      return damaged(reader, "entry %" PRId32 " of '%s' is not an integer between %" PRId64 " and %" PRId64, i, key,
                     low, limit - 1);
    }
    list->items[i] = (int32_t)item->as.integer;
  }
  return GRAFT_OK;
}

static int32_t read_indices(Reader *reader, const JsonValue *object, const char *key, int64_t low, int64_t limit,
                            IndexList *list) {
  const JsonValue *array;
  int32_t status = read_array(reader, object, key, &array);
  return status ? status : read_list(reader, array, key, low, limit, list);
}

/* ---- Tensors -------------------------------------------------------------------------------------------------- */

static int32_t read_shape(Reader *reader, const JsonValue *row, TensorSpec *tensor) {
  const JsonValue *shape = graft_json_member(row, "shape");
  if (shape && shape->kind == JSON_NULL) {
    tensor->ndim = -1;
    return GRAFT_OK;
  }
  if (!shape || shape->kind != JSON_ARRAY || graft_json_count(shape) > GRAFT_MAXIMUM_DIMENSIONS) {
    return damaged(reader, "'shape' is neither null nor an array of at most %d integers", GRAFT_MAXIMUM_DIMENSIONS);
  }
  tensor->ndim = (int32_t)graft_json_count(shape);
  tensor->shape = graft_store_allocate(reader->store, (size_t)tensor->ndim, sizeof(int64_t));
  if (!tensor->shape) {
    return out_of_memory(reader);
  }
  for (int32_t i = 0; i < tensor->ndim; i++) {
    tensor->shape[i] = graft_json_integer(graft_json_item(shape, (size_t)i), -1);
  }
  if (!graft_tensor_bytes(tensor->dtype, tensor->ndim, tensor->shape, &tensor->bytes)) {
    return damaged(reader, "'shape' has a dimension that is not a natural number, or is too large");
  }
  return GRAFT_OK;
}

static int32_t read_arena_offset(Reader *reader, const Procedure *procedure, const JsonValue *row,
                                 TensorSpec *tensor) {
  int64_t offset;
  int32_t status = read_integer(reader, row, "offset", 0, INT64_MAX, &offset);
  if (status) {
    return status;
  }
  tensor->offset = (uint64_t)offset;
  if (tensor->offset % 64) {
    return damaged(reader, "'offset' %" PRIu64 " is not a multiple of 64", tensor->offset);
  }
  if (tensor->offset > procedure->arena_bytes || tensor->bytes > procedure->arena_bytes - tensor->offset) {
    return damaged(reader, "%zu bytes at 'offset' %" PRIu64 " leave the arena of %" PRIu64 " bytes", tensor->bytes,
                   tensor->offset, procedure->arena_bytes);
  }
  return GRAFT_OK;
}

/* Views look at earlier tensors, so a chain of them ends and its root is already known. */
static int32_t read_view(Reader *reader, Procedure *procedure, const JsonValue *row, TensorSpec *tensor) {
  int64_t offset, of, number = tensor - procedure->tensors;
  int32_t status = read_integer(reader, row, "offset", 0, INT64_MAX / 2, &offset);
  status = status ? status : read_integer(reader, row, "of", 0, number - 1, &of);
  if (status) {
    return status;
  }
  const TensorSpec *viewed = procedure->tensors + of;
  TensorSpec *root = procedure->tensors + viewed->root;
  if (viewed->ndim >= 0 && ((uint64_t)offset > viewed->bytes || tensor->bytes > viewed->bytes - (uint64_t)offset)) {
    return damaged(reader, "%zu bytes at 'offset' %" PRId64 " leave the %zu bytes of tensor %" PRId64, tensor->bytes,
                   offset, viewed->bytes, of);
  }
  tensor->root = viewed->root;
  tensor->offset = (uint64_t)offset + (viewed->storage == STORAGE_VIEW ? viewed->offset : 0);
  if (tensor->offset > INT64_MAX / 2 || tensor->offset % (tensor->dtype.bits / 8u)) {
    return damaged(reader, "'offset' %" PRId64 " is not a multiple of the element size", offset);
  }
  tensor->next_view = root->next_view;
  root->next_view = (int32_t)number;
  return GRAFT_OK;
}

static int32_t read_storage(Reader *reader, Procedure *procedure, const JsonValue *row, TensorSpec *tensor) {
  static const char *const names[] = {"input", "output", "constant", "arena", "view", "dynamic"};
  const char *name;
  int64_t index;
  int32_t status = read_text(reader, row, "storage", &name);
  if (status) {
    return status;
  }
  int32_t storage = 0;
  while (storage < 6 && strcmp(names[storage], name) != 0) {
    storage++;
  }
  if (storage == 6) {
    return damaged(reader, "unknown 'storage' \"%s\"", name);
  }
  tensor->storage = (Storage)storage;
  if (tensor->ndim < 0 && tensor->storage != STORAGE_DYNAMIC && tensor->storage != STORAGE_INPUT &&
      tensor->storage != STORAGE_OUTPUT) {
    return damaged(reader, "a tensor of storage %s needs a shape", name);
  }
  if (tensor->ndim >= 0 && tensor->storage == STORAGE_DYNAMIC) {
    return damaged(reader, "a tensor of storage dynamic cannot have a shape");
  }
  switch (tensor->storage) {
    case STORAGE_INPUT:
    case STORAGE_OUTPUT:
      status = read_integer(reader, row, "index", 0, INT32_MAX, &index);
      tensor->index = status ? -1 : (int32_t)index;
      return status;
    case STORAGE_CONSTANT:
      return read_text(reader, row, "constant", &tensor->constant);
    case STORAGE_ARENA:
      return read_arena_offset(reader, procedure, row, tensor);
    case STORAGE_VIEW:
      return read_view(reader, procedure, row, tensor);
    case STORAGE_DYNAMIC:
      return GRAFT_OK;
  }
  return GRAFT_OK;
}

static int32_t read_tensor(Reader *reader, Procedure *procedure, const JsonValue *row, TensorSpec *tensor) {
  const char *dtype;
  int32_t status = read_text(reader, row, "name", &tensor->name);
  status = status ? status : read_text(reader, row, "dtype", &dtype);
  if (status) {
    return status;
  }
  if (!graft_dtype_from_name(dtype, &tensor->dtype)) {
    return damaged(reader, "unknown 'dtype' \"%s\"", dtype);
  }
  tensor->root = (int32_t)(tensor - procedure->tensors);
  tensor->next_view = -1;
  status = read_shape(reader, row, tensor);
  return status ? status : read_storage(reader, procedure, row, tensor);
}

/* ---- Calls ---------------------------------------------------------------------------------------------------- */

static int32_t read_axes(Reader *reader, const JsonValue *attributes, const char *axes, const char *directions,
                         ScanAxis **result, int32_t *count) {
  IndexList axis, direction;
  int32_t status = read_indices(reader, attributes, axes, -GRAFT_MAXIMUM_DIMENSIONS, GRAFT_MAXIMUM_DIMENSIONS, &axis);
  status = status ? status : read_indices(reader, attributes, directions, 0, 2, &direction);
  if (status) {
    return status;
  }
  if (axis.count != direction.count) {
    return damaged(reader, "'%s' has %" PRId32 " entries, '%s' has %" PRId32, axes, axis.count, directions,
                   direction.count);
  }
  *count = axis.count;
  *result = graft_store_allocate(reader->store, (size_t)axis.count, sizeof(ScanAxis));
  if (!*result) {
    return out_of_memory(reader);
  }
  for (int32_t i = 0; i < axis.count; i++) {
    (*result)[i] = (ScanAxis){axis.items[i], direction.items[i]};
  }
  return GRAFT_OK;
}

static int32_t read_scan(Reader *reader, const JsonValue *row, Call *call) {
  const JsonValue *attributes = graft_json_member(row, "attributes");
  int64_t count;
  int32_t axes, output_axes;
  int32_t status = read_integer(reader, attributes, "scan_inputs", 1, INT32_MAX, &count);
  status = status ? status
                  : read_axes(reader, attributes, "input_axes", "input_directions", &call->scan_inputs, &axes);
  status = status ? status
                  : read_axes(reader, attributes, "output_axes", "output_directions", &call->scan_outputs,
                              &output_axes);
  if (status) {
    return status;
  }
  if (count > call->inputs.count || axes != count || output_axes > call->outputs.count ||
      call->inputs.count - count != call->outputs.count - output_axes) {
    return damaged(reader, "a scan of %" PRId32 " inputs and %" PRId32 " outputs cannot have %" PRId64
                   " scan inputs, %" PRId32 " input axes and %" PRId32 " output axes",
                   call->inputs.count, call->outputs.count, count, axes, output_axes);
  }
  call->scan_input_count = (int32_t)count;
  return GRAFT_OK;
}

static int32_t read_bodies(Reader *reader, const Procedure *procedure, const JsonValue *row, Call *call) {
  IndexList bodies;
  const JsonValue *arguments;
  call->body_count = call->kind == CALL_IF ? 2 : 1;
  int32_t status = read_indices(reader, row, "bodies", 0, reader->manifest->procedure_count, &bodies);
  status = status ? status : read_array(reader, row, "arguments", &arguments);
  if (status) {
    return status;
  }
  if (bodies.count != call->body_count || graft_json_count(arguments) != (size_t)call->body_count) {
    return damaged(reader, "%" PRId32 " bodies and %zu lists of arguments, not %" PRId32 " each", bodies.count,
                   graft_json_count(arguments), call->body_count);
  }
  for (int32_t i = 0; i < call->body_count; i++) {
    const JsonValue *list = graft_json_item(arguments, (size_t)i);
    call->bodies[i] = bodies.items[i];
    if (list->kind != JSON_ARRAY || graft_json_count(list) > INT32_MAX / 2) {
      return damaged(reader, "entry %" PRId32 " of 'arguments' is not an array", i);
    }
    status = read_list(reader, list, "arguments", 0, procedure->tensor_count, &call->arguments[i]);
    if (status) {
      return status;
    }
  }
  return call->kind == CALL_SCAN ? read_scan(reader, row, call) : GRAFT_OK;
}

static int32_t read_origin(Reader *reader, const JsonValue *row, Call *call) {
  const JsonValue *origin = graft_json_member(row, "origin");
  call->origin_count = (int32_t)graft_json_count(origin);
  call->origin = graft_store_allocate(reader->store, (size_t)call->origin_count, sizeof(char *));
  if (!call->origin) {
    return out_of_memory(reader);
  }
  for (int32_t i = 0; i < call->origin_count; i++) {
    call->origin[i] = graft_json_string(graft_json_item(origin, (size_t)i), NULL);
    if (!call->origin[i]) {
      return damaged(reader, "'origin' is not an array of texts");
    }
  }
  return GRAFT_OK;
}

static int32_t read_call(Reader *reader, const Procedure *procedure, const JsonValue *row, Call *call) {
  static const char *const names[] = {"call", "copy", "if", "loop", "scan"};
  const char *name;
  int64_t module, tensors = procedure->tensor_count;
  int32_t status = read_text(reader, row, "kind", &name);
  if (status) {
    return status;
  }
  int32_t kind = 0;
  while (kind < 5 && strcmp(names[kind], name) != 0) {
    kind++;
  }
  if (kind == 5) {
    return damaged(reader, "unknown 'kind' \"%s\"", name);
  }
  call->kind = (CallKind)kind;
  int absent_input = call->kind == CALL_FUNCTION || call->kind == CALL_LOOP, absent_output = call->kind >= CALL_IF;
  status = read_indices(reader, row, "inputs", absent_input ? -1 : 0, tensors, &call->inputs);
  status = status ? status : read_indices(reader, row, "outputs", absent_output ? -1 : 0, tensors, &call->outputs);
  status = status ? status : read_origin(reader, row, call);
  if (status == GRAFT_OK && call->kind == CALL_FUNCTION) {
    status = read_integer(reader, row, "module", 0, (int64_t)reader->manifest->module_count - 1, &module);
    status = status ? status : read_text(reader, row, "function", &call->function);
    call->module = status ? -1 : (int32_t)module;
    if (status == GRAFT_OK && graft_json_member(row, "in_place")) {
      status = read_indices(reader, row, "in_place", 0, call->inputs.count, &call->in_place);
    }
  } else if (status == GRAFT_OK && call->kind == CALL_COPY && (call->inputs.count != 1 || call->outputs.count != 1)) {
    status = damaged(reader, "a copy has one input and one output");
  } else if (status == GRAFT_OK && call->kind >= CALL_IF) {
    status = read_bodies(reader, procedure, row, call);
  }
  return status;
}

/* ---- Procedures and modules ----------------------------------------------------------------------------------- */

static int32_t read_calls(Reader *reader, const JsonValue *calls, int32_t number, Procedure *procedure) {
  for (int32_t i = 0; i < procedure->call_count; i++) {
    snprintf(reader->where, sizeof reader->where, "procedure %" PRId32 ", call %" PRId32 ": ", number, i);
    Call *call = procedure->calls + i;
    int32_t status = read_call(reader, procedure, graft_json_item(calls, (size_t)i), call);
    if (status) {
      return status;
    }
    call->first_pointer = procedure->pointer_count;
    procedure->pointer_count += (size_t)call->inputs.count + (size_t)call->outputs.count;
    for (int32_t k = 0; k < call->outputs.count; k++) {
      int32_t output = call->outputs.items[k];
      call->has_unknown_output |= output >= 0 && procedure->tensors[output].ndim < 0;
    }
  }
  return GRAFT_OK;
}

static int32_t read_procedure(Reader *reader, const JsonValue *data, int32_t number, Procedure *procedure) {
  const JsonValue *tensors, *calls;
  int64_t bytes, bound;
  snprintf(reader->where, sizeof reader->where, "procedure %" PRId32 ": ", number);
  int32_t status = read_text(reader, data, "name", &procedure->name);
  status = status ? status : read_integer(reader, data, "arena_bytes", 0, INT64_MAX / 4, &bytes);
  status = status ? status : read_integer(reader, data, "arena_bound", 0, INT64_MAX / 4, &bound);
  status = status ? status : read_array(reader, data, "tensors", &tensors);
  status = status ? status : read_array(reader, data, "calls", &calls);
  if (status) {
    return status;
  }
  procedure->arena_bytes = (uint64_t)bytes;
  procedure->arena_bound = (uint64_t)bound;
  procedure->tensor_count = (int32_t)graft_json_count(tensors);
  procedure->call_count = (int32_t)graft_json_count(calls);
  procedure->tensors = graft_store_allocate(reader->store, (size_t)procedure->tensor_count, sizeof(TensorSpec));
  procedure->calls = graft_store_allocate(reader->store, (size_t)procedure->call_count, sizeof(Call));
  if (!procedure->tensors || !procedure->calls) {
    return out_of_memory(reader);
  }
  status = read_indices(reader, data, "inputs", 0, procedure->tensor_count, &procedure->inputs);
  status = status ? status : read_indices(reader, data, "outputs", 0, procedure->tensor_count, &procedure->outputs);
  for (int32_t i = 0; !status && i < procedure->tensor_count; i++) {
    snprintf(reader->where, sizeof reader->where, "procedure %" PRId32 ", tensor %" PRId32 ": ", number, i);
    status = read_tensor(reader, procedure, graft_json_item(tensors, (size_t)i), procedure->tensors + i);
  }
  return status ? status : read_calls(reader, calls, number, procedure);
}

static int32_t read_module(Reader *reader, const JsonValue *data, int32_t number, ModuleSpec *module) {
  snprintf(reader->where, sizeof reader->where, "module %" PRId32 ": ", number);
  int32_t status = read_text(reader, data, "name", &module->name);
  status = status ? status : read_text(reader, data, "kind", &module->kind);
  status = status ? status : read_array(reader, data, "functions", &module->functions);
  if (status) {
    return status;
  }
  module->plugin = graft_json_string(graft_json_member(data, "plugin"), "");
  module->install = graft_json_string(graft_json_member(data, "install"), "");
  module->constants = graft_json_member(data, "constants");
  if (module->constants && module->constants->kind != JSON_OBJECT) {
    return damaged(reader, "'constants' is not an object");
  }
  return GRAFT_OK;
}

static int32_t read_abi(Reader *reader, const JsonValue *root) {
  int64_t abi;
  int32_t status = read_integer(reader, root, "abi", 0, INT32_MAX, &abi);
  if (status == GRAFT_OK && abi != GRAFT_ABI_VERSION) {
    status = graft_set_error(reader->error, GRAFT_ERROR_ARTIFACT,
                             "the program was compiled for ABI version %" PRId64
                             " of Graft's runtime, and this runtime has version %d; compile it again, or install the "
                             "runtime that belongs to it",
                             abi, GRAFT_ABI_VERSION);
  }
  return status;
}

int32_t graft_read_manifest(const JsonValue *root, Store *store, Manifest *manifest, GraftError *error) {
  Reader reader = {.store = store, .error = error, .manifest = manifest};
  const JsonValue *procedures, *modules;
  int32_t status = read_abi(&reader, root);
  status = status ? status : read_array(&reader, root, "procedures", &procedures);
  status = status ? status : read_array(&reader, root, "modules", &modules);
  if (status) {
    return status;
  }
  manifest->procedure_count = (int32_t)graft_json_count(procedures);
  manifest->module_count = (int32_t)graft_json_count(modules);
  manifest->targets = graft_json_member(root, "targets");
  if (manifest->procedure_count == 0) {
    return damaged(&reader, "no procedure");
  }
  manifest->procedures = graft_store_allocate(store, (size_t)manifest->procedure_count, sizeof(Procedure));
  manifest->modules = graft_store_allocate(store, (size_t)manifest->module_count, sizeof(ModuleSpec));
  if (!manifest->procedures || !manifest->modules) {
    return out_of_memory(&reader);
  }
  for (int32_t i = 0; !status && i < manifest->module_count; i++) {
    status = read_module(&reader, graft_json_item(modules, (size_t)i), i, manifest->modules + i);
  }
  for (int32_t i = 0; !status && i < manifest->procedure_count; i++) {
    status = read_procedure(&reader, graft_json_item(procedures, (size_t)i), i, manifest->procedures + i);
  }
  return status;
}
