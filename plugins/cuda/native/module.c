#include "module.h"

#include <stdlib.h>
#include <string.h>

static const char MAGIC[8] = {'G', 'R', 'A', 'F', 'T', 'C', 'U', '1'};
static const char DAMAGED[] = "its header is damaged";
static const char MEMORY[] = "out of memory";

/* ---- Extents ----------------------------------------------------------------------------------------------------- */

static void take_argument(CudaFunction *function, int is_output, int64_t number) {
  int32_t *count = is_output ? &function->output_count : &function->input_count;
  *count = number < *count ? *count : (int32_t)number + 1;
}

/* "e3", "i0.1", "o0.1": an operation before, an axis of an input or output. */
static int read_name(const char *text, CudaFunction *function, CudaExtent *extent) {
  char *end;
  if (!text || (*text != 'e' && *text != 'i' && *text != 'o') || text[1] < '0' || text[1] > '9') return 0;
  extent->number = strtoll(text + 1, &end, 10);
  extent->kind = *text == 'e' ? EXTENT_OPERATION : *text == 'i' ? EXTENT_INPUT : EXTENT_OUTPUT;
  if (*text == 'e') return !*end && extent->number < function->operation_count;
  if (*end != '.' || end[1] < '0' || end[1] > '9' || extent->number >= CUDA_MOST_ARGUMENTS) return 0;
  take_argument(function, *text == 'o', extent->number);
  extent->axis = (int32_t)strtol(end + 1, &end, 10);
  return !*end && extent->axis < 64;
}

static int read_extent(const JsonValue *value, CudaFunction *function, CudaExtent *extent) {
  *extent = (CudaExtent){.kind = EXTENT_NUMBER};
  if (value && value->kind == JSON_INTEGER) {
    extent->number = value->as.integer;
    return graft_extent_magnitude(extent->number) <= GRAFT_MAXIMUM_EXTENT;
  }
  return read_name(graft_json_string(value, NULL), function, extent);
}

int graft_cuda_value(const CudaExtent *extent, const DLTensor *const *inputs, DLTensor *const *outputs,
                     const int64_t *values, int64_t *value) {
  const DLTensor *tensor = NULL;
  switch (extent->kind) {
    case EXTENT_NUMBER:
      *value = extent->number;
      return 1;
    case EXTENT_OPERATION:
      *value = values[extent->number];
      return 1;
    case EXTENT_INPUT:
      tensor = inputs[extent->number];
      break;
    case EXTENT_OUTPUT:
      tensor = outputs[extent->number];
      break;
  }
  *value = tensor && extent->axis < tensor->ndim ? tensor->shape[extent->axis] : 0;
  return tensor && extent->axis < tensor->ndim;
}

int graft_cuda_evaluate(const CudaFunction *function, const DLTensor *const *inputs, DLTensor *const *outputs,
                        int64_t *values) {
  for (int32_t i = 0; i < function->operation_count; i++) {
    const CudaOperation *one = function->operations + i;
    int64_t left, right;
    if (!graft_cuda_value(&one->left, inputs, outputs, values, &left) ||
        !graft_cuda_value(&one->right, inputs, outputs, values, &right) ||
        !graft_extent_apply(one->operator, left, right, values + i)) {
      return 0;
    }
  }
  return 1;
}

/* ---- Functions --------------------------------------------------------------------------------------------------- */

static const char *read_operations(CudaModule *module, const JsonValue *rows, CudaFunction *function) {
  size_t count = graft_json_count(rows);
  if (count > CUDA_MOST_EXTENTS) return DAMAGED;
  function->operations = graft_store_allocate(&module->store, count, sizeof(CudaOperation));
  if (!function->operations) return MEMORY;
  for (size_t i = 0; i < count; i++) {
    const JsonValue *row = graft_json_item(rows, i);
    CudaOperation *one = function->operations + i;
    const char *name = graft_json_string(graft_json_item(row, 0), "");
    if (!graft_extent_operator(name, &one->operator) ||
        !read_extent(graft_json_item(row, 1), function, &one->left) ||
        !read_extent(graft_json_item(row, 2), function, &one->right)) {
      return DAMAGED;
    }
    function->operation_count++;
  }
  return NULL;
}

static int read_argument(const JsonValue *row, CudaFunction *function, CudaArgument *argument) {
  static const char *const KINDS[] = {"input", "output", "workspace", "constant", "report", "extent"};
  for (int kind = 0; kind <= ARGUMENT_EXTENT; kind++) {
    const JsonValue *value = graft_json_member(row, KINDS[kind]);
    if (!value) continue;
    argument->kind = kind;
    argument->number = -1;
    if (kind == ARGUMENT_EXTENT) {
      return graft_json_integer(graft_json_member(row, "bits"), 32) == 32 &&
             read_extent(value, function, &argument->extent);
    }
    if (kind == ARGUMENT_CONSTANT) return (argument->name = graft_json_string(value, NULL)) != NULL;
    int64_t number = graft_json_integer(value, -1);
    int64_t limit = kind == ARGUMENT_WORKSPACE ? function->workspace_count : CUDA_MOST_ARGUMENTS;
    if (number < 0 || number >= limit) return 0;
    argument->number = (int32_t)number;
    if (kind == ARGUMENT_INPUT || kind == ARGUMENT_OUTPUT) take_argument(function, kind == ARGUMENT_OUTPUT, number);
    return 1;
  }
  return 0;
}

static int read_geometry(const JsonValue *list, uint32_t *numbers) {
  if (graft_json_count(list) != 3) return 0;
  for (size_t i = 0; i < 3; i++) {
    int64_t number = graft_json_integer(graft_json_item(list, i), -1);
    if (number < 1 || number > 65535) return 0;
    numbers[i] = (uint32_t)number;
  }
  return 1;
}

static const char *read_launch(CudaModule *module, const JsonValue *row, CudaFunction *function, CudaLaunch *launch) {
  const JsonValue *grid = graft_json_member(row, "grid"), *arguments = graft_json_member(row, "args");
  const JsonValue *cluster = graft_json_member(row, "cluster");
  int64_t shared = graft_json_integer(graft_json_member(row, "shared"), -1);
  size_t count = graft_json_count(arguments);
  launch->kernel = graft_json_string(graft_json_member(row, "kernel"), NULL);
  launch->node = graft_json_string(graft_json_member(row, "node"), "");
  launch->cluster[0] = launch->cluster[1] = launch->cluster[2] = 1;
  if (!launch->kernel || shared < 0 || shared > INT32_MAX || count > CUDA_MOST_ARGUMENTS ||
      graft_json_count(grid) != 3 || !read_geometry(graft_json_member(row, "block"), launch->block) ||
      (cluster && !read_geometry(cluster, launch->cluster))) {
    return DAMAGED;
  }
  launch->shared = (uint32_t)shared;
  for (size_t i = 0; i < 3; i++) {
    if (!read_extent(graft_json_item(grid, i), function, launch->grid + i)) return DAMAGED;
  }
  launch->arguments = graft_store_allocate(&module->store, count, sizeof(CudaArgument));
  if (!launch->arguments) return MEMORY;
  for (size_t i = 0; i < count; i++) {
    if (!read_argument(graft_json_item(arguments, i), function, launch->arguments + i)) return DAMAGED;
    launch->argument_count++;
  }
  return NULL;
}

static const char *read_function(CudaModule *module, const JsonValue *row, CudaFunction *function) {
  const JsonValue *launches = graft_json_member(row, "launches"), *sizes = graft_json_member(row, "workspaces");
  function->module = module;
  function->name = graft_json_string(graft_json_member(row, "name"), NULL);
  const char *fault = read_operations(module, graft_json_member(row, "extents"), function);
  if (fault || !function->name || graft_json_count(sizes) > CUDA_MOST_WORKSPACES) return fault ? fault : DAMAGED;
  function->workspaces = graft_store_allocate(&module->store, graft_json_count(sizes), sizeof(CudaExtent));
  function->launches = graft_store_allocate(&module->store, graft_json_count(launches), sizeof(CudaLaunch));
  if (!function->workspaces || !function->launches) return MEMORY;
  for (size_t i = 0; i < graft_json_count(sizes); i++) {
    if (!read_extent(graft_json_item(sizes, i), function, function->workspaces + i)) return DAMAGED;
    function->workspace_count++;
  }
  for (size_t i = 0; i < graft_json_count(launches); i++) {
    fault = read_launch(module, graft_json_item(launches, i), function, function->launches + i);
    if (fault) return fault;
    function->launch_count++;
  }
  return NULL;
}

/* ---- The module -------------------------------------------------------------------------------------------------- */

static int read_image(const JsonValue *row, const char *data, size_t size, CudaImage *image) {
  int64_t offset = graft_json_integer(graft_json_member(row, "offset"), -1);
  int64_t bytes = graft_json_integer(graft_json_member(row, "size"), -1);
  char *end;
  image->form = graft_json_string(graft_json_member(row, "form"), "");
  image->arch = graft_json_string(graft_json_member(row, "arch"), "");
  if (offset < 0 || bytes < 0 || (uint64_t)offset > size || (uint64_t)bytes > size - (uint64_t)offset) return 0;
  if (strncmp(image->arch, "sm_", 3) != 0) return 0;
  image->number = (int)strtol(image->arch + 3, &end, 10);
  image->is_exact = *end != 0;
  image->data = data + offset;
  image->size = (size_t)bytes;
  return end != image->arch + 3;
}

const char *graft_cuda_read(CudaModule *module, const char *bytes, size_t size) {
  uint64_t length = 0;
  char message[128];
  if (size < 16 || memcmp(bytes, MAGIC, sizeof MAGIC) != 0) return "its bytes are none of kind 'cuda'";
  for (int i = 7; i >= 0; i--) length = length << 8 | (unsigned char)bytes[8 + i];
  if (length > size - 16) return DAMAGED;
  module->document = graft_json_parse(bytes + 16, (size_t)length, NULL, message, sizeof message);
  if (!module->document) return DAMAGED;
  const JsonValue *root = graft_json_root(module->document);
  if (graft_json_integer(graft_json_member(root, "format"), 0) != 1) {
    return "it is of another version of Graft; compile the model again";
  }
  const JsonValue *images = graft_json_member(root, "images"), *functions = graft_json_member(root, "functions");
  size_t first = (16 + (size_t)length + 63) / 64 * 64;
  module->images = graft_store_allocate(&module->store, graft_json_count(images), sizeof(CudaImage));
  module->functions = graft_store_allocate(&module->store, graft_json_count(functions), sizeof(CudaFunction));
  if (!module->images || !module->functions) return MEMORY;
  for (size_t i = 0; i < graft_json_count(images); i++) {
    if (first > size || !read_image(graft_json_item(images, i), bytes + first, size - first, module->images + i)) {
      return DAMAGED;
    }
    module->image_count++;
  }
  for (size_t i = 0; i < graft_json_count(functions); i++) {
    const char *fault = read_function(module, graft_json_item(functions, i), module->functions + i);
    if (fault) return fault;
    module->function_count++;
  }
  return NULL;
}
