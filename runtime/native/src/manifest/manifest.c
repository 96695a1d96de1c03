#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "manifest/manifest_reader.h"

/* ---- Calls ---------------------------------------------------------------------------------------------------- */

static int32_t read_axes(Reader *reader, const JsonValue *attributes, const char *axes, const char *directions,
                         ScanAxis **result, int32_t *count) {
  IndexList axis, direction;
  const int32_t most = GRAFT_MAXIMUM_DIMENSIONS;
  GRAFT_TRY(graft_read_indices(reader, attributes, axes, -most, most, &axis));
  GRAFT_TRY(graft_read_indices(reader, attributes, directions, 0, 2, &direction));
  if (axis.count != direction.count) {
    return graft_damaged(reader, "'%s' has %" PRId32 " entries, '%s' has %" PRId32, axes, axis.count, directions,
                         direction.count);
  }
  *count = axis.count;
  *result = graft_store_allocate(reader->store, (size_t)axis.count, sizeof(ScanAxis));
  GRAFT_TRY(graft_allocated(reader, *result));
  for (int32_t i = 0; i < axis.count; i++) {
    (*result)[i] = (ScanAxis){axis.items[i], direction.items[i]};
  }
  return GRAFT_OK;
}

static int32_t read_scan(Reader *reader, const JsonValue *row, Call *call) {
  const JsonValue *attributes = graft_json_member(row, "attributes");
  int64_t count;
  int32_t axes, output_axes;
  GRAFT_TRY(graft_read_integer(reader, attributes, "scan_inputs", 1, INT32_MAX, &count));
  GRAFT_TRY(read_axes(reader, attributes, "input_axes", "input_directions", &call->scan_inputs, &axes));
  GRAFT_TRY(read_axes(reader, attributes, "output_axes", "output_directions", &call->scan_outputs, &output_axes));
  if (count > call->inputs.count || axes != count || output_axes > call->outputs.count ||
      call->inputs.count - count != call->outputs.count - output_axes) {
    return graft_damaged(reader, "a scan of %" PRId32 " inputs and %" PRId32 " outputs cannot have %" PRId64
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
  GRAFT_TRY(graft_read_indices(reader, row, "bodies", 0, reader->manifest->procedure_count, &bodies));
  GRAFT_TRY(graft_read_array(reader, row, "arguments", &arguments));
  if (bodies.count != call->body_count || graft_json_count(arguments) != (size_t)call->body_count) {
    return graft_damaged(reader, "%" PRId32 " bodies and %zu lists of arguments, not %" PRId32 " each", bodies.count,
                         graft_json_count(arguments), call->body_count);
  }
  for (int32_t i = 0; i < call->body_count; i++) {
    const JsonValue *list = graft_json_item(arguments, (size_t)i);
    call->bodies[i] = bodies.items[i];
    if (list->kind != JSON_ARRAY || graft_json_count(list) > INT32_MAX / 2) {
      return graft_damaged(reader, "entry %" PRId32 " of 'arguments' is not an array", i);
    }
    GRAFT_TRY(graft_read_list(reader, list, "arguments", 0, procedure->tensor_count, &call->arguments[i]));
  }
  return call->kind == CALL_SCAN ? read_scan(reader, row, call) : GRAFT_OK;
}

static int32_t read_origin(Reader *reader, const JsonValue *row, Call *call) {
  const JsonValue *origin = graft_json_member(row, "origin");
  call->origin_count = (int32_t)graft_json_count(origin);
  call->origin = graft_store_allocate(reader->store, (size_t)call->origin_count, sizeof(char *));
  GRAFT_TRY(graft_allocated(reader, call->origin));
  for (int32_t i = 0; i < call->origin_count; i++) {
    call->origin[i] = graft_json_string(graft_json_item(origin, (size_t)i), NULL);
    if (!call->origin[i]) {
      return graft_damaged(reader, "'origin' is not an array of texts");
    }
  }
  return GRAFT_OK;
}

static int32_t read_function(Reader *reader, const JsonValue *row, Call *call) {
  int64_t module;
  GRAFT_TRY(graft_read_integer(reader, row, "module", 0, (int64_t)reader->manifest->module_count - 1, &module));
  call->module = (int32_t)module;
  GRAFT_TRY(graft_read_text(reader, row, "function", &call->function));
  return graft_json_member(row, "in_place")
             ? graft_read_indices(reader, row, "in_place", 0, call->inputs.count, &call->in_place)
             : GRAFT_OK;
}

static int32_t read_append(Reader *reader, const JsonValue *row, Call *call) {
  int64_t axis;
  if (call->inputs.count != 2 || call->outputs.count != 1) {
    return graft_damaged(reader, "an append has two inputs and one output");
  }
  GRAFT_TRY(graft_read_integer(reader, row, "axis", 0, GRAFT_MAXIMUM_DIMENSIONS - 1, &axis));
  call->axis = (int32_t)axis;
  return GRAFT_OK;
}

static int32_t read_call(Reader *reader, const Procedure *procedure, const JsonValue *row, Call *call) {
  static const char *const names[] = {"call", "copy", "append", "if", "loop", "scan"};
  const char *name;
  int64_t tensors = procedure->tensor_count;
  GRAFT_TRY(graft_read_text(reader, row, "kind", &name));
  int32_t kind = graft_find_name(names, 6, name);
  if (kind < 0) {
    return graft_damaged(reader, "unknown 'kind' \"%s\"", name);
  }
  call->kind = (CallKind)kind;
  int absent_input = call->kind == CALL_FUNCTION || call->kind == CALL_LOOP, absent_output = call->kind >= CALL_IF;
  GRAFT_TRY(graft_read_indices(reader, row, "inputs", absent_input ? -1 : 0, tensors, &call->inputs));
  GRAFT_TRY(graft_read_indices(reader, row, "outputs", absent_output ? -1 : 0, tensors, &call->outputs));
  GRAFT_TRY(read_origin(reader, row, call));
  switch (call->kind) {
    case CALL_FUNCTION:
      return read_function(reader, row, call);
    case CALL_COPY:
      return call->inputs.count == 1 && call->outputs.count == 1
                 ? GRAFT_OK
                 : graft_damaged(reader, "a copy has one input and one output");
    case CALL_APPEND:
      return read_append(reader, row, call);
    default:
      return read_bodies(reader, procedure, row, call);
  }
}

/* ---- Procedures and modules ----------------------------------------------------------------------------------- */

static int32_t read_calls(Reader *reader, const JsonValue *calls, int32_t number, Procedure *procedure) {
  for (int32_t i = 0; i < procedure->call_count; i++) {
    snprintf(reader->where, sizeof reader->where, "procedure %" PRId32 ", call %" PRId32 ": ", number, i);
    Call *call = procedure->calls + i;
    GRAFT_TRY(read_call(reader, procedure, graft_json_item(calls, (size_t)i), call));
    call->first_pointer = procedure->pointer_count;
    procedure->pointer_count += (size_t)call->inputs.count + (size_t)call->outputs.count;
  }
  return GRAFT_OK;
}

/* The bytes of the arenas on devices, where they were planned once. */
static int32_t read_device_arenas(Reader *reader, const JsonValue *data, Procedure *procedure) {
  int32_t count = reader->manifest->device_count;
  const JsonValue *listed = graft_json_member(data, "device_arenas");
  procedure->device_arenas = graft_store_allocate(reader->store, (size_t)count, sizeof(uint64_t));
  GRAFT_TRY(graft_allocated(reader, procedure->device_arenas));
  if (listed && (listed->kind != JSON_ARRAY || graft_json_count(listed) != (size_t)count)) {
    return graft_damaged(reader, "'device_arenas' is not an array of %" PRId32 " integers", count);
  }
  for (int32_t i = 0; listed && i < count; i++) {
    const JsonValue *bytes = graft_json_item(listed, (size_t)i);
    if (bytes->kind != JSON_INTEGER || bytes->as.integer < 0 || bytes->as.integer > INT64_MAX / 4) {
      return graft_damaged(reader, "entry %" PRId32 " of 'device_arenas' is not a number of bytes", i);
    }
    procedure->device_arenas[i] = (uint64_t)bytes->as.integer;
    procedure->is_planned |= bytes->as.integer > 0;
  }
  procedure->is_planned |= procedure->symbol_count == 0 || procedure->arena_bytes > 0;
  return GRAFT_OK;
}

static int32_t read_procedure(Reader *reader, const JsonValue *data, int32_t number, Procedure *procedure) {
  const JsonValue *tensors, *calls;
  int64_t bytes = 0, bound = 0;
  snprintf(reader->where, sizeof reader->where, "procedure %" PRId32 ": ", number);
  GRAFT_TRY(graft_read_text(reader, data, "name", &procedure->name));
  GRAFT_TRY(graft_read_array(reader, data, "tensors", &tensors));
  GRAFT_TRY(graft_read_array(reader, data, "calls", &calls));
  procedure->tensor_count = (int32_t)graft_json_count(tensors);
  GRAFT_TRY(graft_read_extents(reader, data, procedure));
  if (!procedure->symbol_count || graft_json_member(data, "arena_bytes")) {
    GRAFT_TRY(graft_read_integer(reader, data, "arena_bytes", 0, INT64_MAX / 4, &bytes));
    GRAFT_TRY(graft_read_integer(reader, data, "arena_bound", 0, INT64_MAX / 4, &bound));
  }
  procedure->arena_bytes = (uint64_t)bytes;
  procedure->arena_bound = (uint64_t)bound;
  GRAFT_TRY(read_device_arenas(reader, data, procedure));
  procedure->call_count = (int32_t)graft_json_count(calls);
  procedure->tensors = graft_store_allocate(reader->store, (size_t)procedure->tensor_count, sizeof(TensorSpec));
  procedure->calls = graft_store_allocate(reader->store, (size_t)procedure->call_count, sizeof(Call));
  GRAFT_TRY(graft_allocated(reader, procedure->tensors));
  GRAFT_TRY(graft_allocated(reader, procedure->calls));
  GRAFT_TRY(graft_read_indices(reader, data, "inputs", 0, procedure->tensor_count, &procedure->inputs));
  GRAFT_TRY(graft_read_indices(reader, data, "outputs", 0, procedure->tensor_count, &procedure->outputs));
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    snprintf(reader->where, sizeof reader->where, "procedure %" PRId32 ", tensor %" PRId32 ": ", number, i);
    GRAFT_TRY(graft_read_tensor(reader, procedure, graft_json_item(tensors, (size_t)i), procedure->tensors + i));
  }
  return read_calls(reader, calls, number, procedure);
}

static int32_t read_module(Reader *reader, const JsonValue *data, int32_t number, ModuleSpec *module) {
  snprintf(reader->where, sizeof reader->where, "module %" PRId32 ": ", number);
  GRAFT_TRY(graft_read_text(reader, data, "name", &module->name));
  GRAFT_TRY(graft_read_text(reader, data, "kind", &module->kind));
  GRAFT_TRY(graft_read_array(reader, data, "functions", &module->functions));
  module->plugin = graft_json_string(graft_json_member(data, "plugin"), "");
  module->install = graft_json_string(graft_json_member(data, "install"), "");
  module->constants = graft_json_member(data, "constants");
  if (module->constants && module->constants->kind != JSON_OBJECT) {
    return graft_damaged(reader, "'constants' is not an object");
  }
  return GRAFT_OK;
}

static int32_t read_devices(Reader *reader, const JsonValue *root) {
  const JsonValue *devices;
  Manifest *manifest = reader->manifest;
  GRAFT_TRY(graft_read_rows(reader, root, "devices", &devices));
  manifest->device_count = (int32_t)graft_json_count(devices);
  manifest->devices = graft_store_allocate(reader->store, (size_t)manifest->device_count, sizeof(DeviceSpec));
  GRAFT_TRY(graft_allocated(reader, manifest->devices));
  for (int32_t i = 0; i < manifest->device_count; i++) {
    const JsonValue *row = graft_json_item(devices, (size_t)i);
    DeviceSpec *device = manifest->devices + i;
    snprintf(reader->where, sizeof reader->where, "device %" PRId32 ": ", i + 1);
    GRAFT_TRY(graft_read_text(reader, row, "name", &device->name));
    device->plugin = graft_json_string(graft_json_member(row, "plugin"), "");
    device->install = graft_json_string(graft_json_member(row, "install"), "");
    for (int32_t k = 0; k < i; k++) {
      if (strcmp(manifest->devices[k].name, device->name) == 0) {
        return graft_damaged(reader, "'name' \"%s\" is that of device %" PRId32 " too", device->name, k + 1);
      }
    }
  }
  return GRAFT_OK;
}

static int32_t read_abi(Reader *reader, const JsonValue *root) {
  int64_t abi;
  GRAFT_TRY(graft_read_integer(reader, root, "abi", 0, INT32_MAX, &abi));
  return abi == GRAFT_ABI_VERSION
             ? GRAFT_OK
             : graft_set_error(reader->error, GRAFT_ERROR_ARTIFACT,
                               "the program was compiled for ABI version %" PRId64
                               " of Graft's runtime, and this runtime has version %d; compile it again, or install the "
                               "runtime that belongs to it",
                               abi, GRAFT_ABI_VERSION);
}

int32_t graft_read_manifest(const JsonValue *root, Store *store, Manifest *manifest, GraftError *error) {
  Reader reader = {.store = store, .error = error, .manifest = manifest, .call = -1};
  const JsonValue *procedures, *modules;
  GRAFT_TRY(read_abi(&reader, root));
  GRAFT_TRY(graft_read_array(&reader, root, "procedures", &procedures));
  GRAFT_TRY(graft_read_array(&reader, root, "modules", &modules));
  manifest->procedure_count = (int32_t)graft_json_count(procedures);
  manifest->module_count = (int32_t)graft_json_count(modules);
  manifest->targets = graft_json_member(root, "targets");
  GRAFT_TRY(read_devices(&reader, root));
  reader.where[0] = 0;
  if (manifest->procedure_count == 0) {
    return graft_damaged(&reader, "no procedure");
  }
  manifest->procedures = graft_store_allocate(store, (size_t)manifest->procedure_count, sizeof(Procedure));
  manifest->modules = graft_store_allocate(store, (size_t)manifest->module_count, sizeof(ModuleSpec));
  GRAFT_TRY(graft_allocated(&reader, manifest->procedures));
  GRAFT_TRY(graft_allocated(&reader, manifest->modules));
  for (int32_t i = 0; i < manifest->module_count; i++) {
    GRAFT_TRY(read_module(&reader, graft_json_item(modules, (size_t)i), i, manifest->modules + i));
  }
  for (int32_t i = 0; i < manifest->procedure_count; i++) {
    GRAFT_TRY(read_procedure(&reader, graft_json_item(procedures, (size_t)i), i, manifest->procedures + i));
  }
  reader.where[0] = 0;
  if (graft_json_member(root, "variants")) {
    GRAFT_TRY(graft_read_indices(&reader, root, "variants", 1, manifest->procedure_count, &manifest->variants));
  }
  return GRAFT_OK;
}
