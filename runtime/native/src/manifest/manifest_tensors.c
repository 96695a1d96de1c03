#include <inttypes.h>
#include <string.h>

#include "manifest/manifest_reader.h"

/* Dimensions where one is no number; else only the numbers. */
static int32_t read_dimensions(Reader *reader, const Procedure *procedure, const JsonValue *shape, TensorSpec *tensor) {
  Dimension dimensions[GRAFT_MAXIMUM_DIMENSIONS];
  int is_symbolic = 0;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    const JsonValue *extent = graft_json_item(shape, (size_t)i);
    if (!graft_read_dimension(procedure, extent, procedure->operation_count, dimensions + i) ||
        (dimensions[i].place < 0 && dimensions[i].number < 0)) {
      return graft_damaged(reader, "'shape' has a dimension that is not a natural number, or is too large");
    }
    tensor->shape[i] = dimensions[i].place < 0 ? dimensions[i].number : -1;
    is_symbolic |= dimensions[i].place >= 0;
  }
  if (!is_symbolic) {
    return GRAFT_OK;
  }
  tensor->dimensions = graft_store_allocate(reader->store, (size_t)tensor->ndim, sizeof(Dimension));
  GRAFT_TRY(graft_allocated(reader, tensor->dimensions));
  memcpy(tensor->dimensions, dimensions, (size_t)tensor->ndim * sizeof(Dimension));
  return GRAFT_OK;
}

static int32_t read_shape(Reader *reader, const Procedure *procedure, const JsonValue *row, TensorSpec *tensor) {
  const JsonValue *shape = graft_json_member(row, "shape");
  if (shape && shape->kind == JSON_NULL) {
    tensor->ndim = -1;
    return GRAFT_OK;
  }
  if (!shape || shape->kind != JSON_ARRAY || graft_json_count(shape) > GRAFT_MAXIMUM_DIMENSIONS) {
    return graft_damaged(reader, "'shape' is neither null nor an array of at most %d integers",
                         GRAFT_MAXIMUM_DIMENSIONS);
  }
  tensor->ndim = (int32_t)graft_json_count(shape);
  tensor->shape = graft_store_allocate(reader->store, (size_t)tensor->ndim, sizeof(int64_t));
  GRAFT_TRY(graft_allocated(reader, tensor->shape));
  GRAFT_TRY(read_dimensions(reader, procedure, shape, tensor));
  if (!tensor->dimensions &&
      !graft_tensor_bytes(tensor->dtype, tensor->ndim, tensor->shape, &tensor->bytes)) {
    return graft_damaged(reader, "'shape' has a dimension that is not a natural number, or is too large");
  }
  return GRAFT_OK;
}

static int32_t read_arena_offset(Reader *reader, const Procedure *procedure, const JsonValue *row,
                                 TensorSpec *tensor) {
  int64_t offset, room = 0;
  if (!graft_is_planned(procedure)) {
    return GRAFT_OK;
  }
  GRAFT_TRY(graft_read_integer(reader, row, "offset", 0, INT64_MAX, &offset));
  if (!graft_is_static(tensor)) {
    GRAFT_TRY(graft_read_integer(reader, row, "room", 0, INT64_MAX, &room));
  }
  tensor->room = graft_is_static(tensor) ? tensor->bytes : (uint64_t)room;
  tensor->offset = (uint64_t)offset;
  if (tensor->offset % 64) {
    return graft_damaged(reader, "'offset' %" PRIu64 " is not a multiple of 64", tensor->offset);
  }
  uint64_t bytes = tensor->device ? procedure->device_arenas[tensor->device - 1] : procedure->arena_bytes;
  if (tensor->offset > bytes || tensor->room > bytes - tensor->offset) {
    return graft_damaged(reader, "%" PRIu64 " bytes at 'offset' %" PRIu64 " leave the arena of %" PRIu64 " bytes",
                         tensor->room, tensor->offset, bytes);
  }
  return GRAFT_OK;
}

/* Views look at earlier tensors, so a chain of them ends and its root is already known. */
static int32_t read_view(Reader *reader, Procedure *procedure, const JsonValue *row, TensorSpec *tensor) {
  int64_t offset, of, number = tensor - procedure->tensors;
  GRAFT_TRY(graft_read_integer(reader, row, "offset", 0, INT64_MAX / 2, &offset));
  GRAFT_TRY(graft_read_integer(reader, row, "of", 0, number - 1, &of));
  const TensorSpec *viewed = procedure->tensors + of;
  TensorSpec *root = procedure->tensors + viewed->root;
  int is_part = offset || root->ndim < 0 || (viewed->storage == STORAGE_VIEW && viewed->offset);
  if ((graft_is_symbolic(tensor) || graft_is_symbolic(root)) && is_part) {
    return graft_damaged(reader, "a view with symbols, or of a tensor with symbols, is not all of tensor %" PRId64, of);
  }
  viewed = graft_is_symbolic(viewed) ? root : viewed;
  int is_compared = graft_is_static(viewed) && !graft_is_symbolic(tensor);
  if (is_compared && ((uint64_t)offset > viewed->bytes || tensor->bytes > viewed->bytes - (uint64_t)offset)) {
    return graft_damaged(reader, "%zu bytes at 'offset' %" PRId64 " leave the %zu bytes of tensor %" PRId64,
                         tensor->bytes, offset, viewed->bytes, of);
  }
  tensor->root = viewed->root;
  tensor->offset = (uint64_t)offset + (viewed->storage == STORAGE_VIEW ? viewed->offset : 0);
  if (tensor->offset > INT64_MAX / 2 || tensor->offset % (tensor->dtype.bits / 8u)) {
    return graft_damaged(reader, "'offset' %" PRId64 " is not a multiple of the element size", offset);
  }
  tensor->next_view = root->next_view;
  root->next_view = (int32_t)number;
  return GRAFT_OK;
}

static int32_t read_values(Reader *reader, const Procedure *procedure, const JsonValue *row, TensorSpec *tensor) {
  const JsonValue *values;
  GRAFT_TRY(graft_read_array(reader, row, "values", &values));
  tensor->value_count = (int32_t)graft_json_count(values);
  if (tensor->dtype.code != kDLInt || tensor->dtype.bits < 32 ||
      tensor->bytes != (size_t)tensor->value_count * (tensor->dtype.bits / 8)) {
    return graft_damaged(reader, "%" PRId32 " 'values' are not the elements of an int64 or int32 tensor of this shape",
                         tensor->value_count);
  }
  tensor->values = graft_store_allocate(reader->store, (size_t)tensor->value_count, sizeof(Dimension));
  GRAFT_TRY(graft_allocated(reader, tensor->values));
  for (int32_t i = 0; i < tensor->value_count; i++) {
    if (!graft_read_dimension(procedure, graft_json_item(values, (size_t)i), procedure->operation_count,
                              tensor->values + i) ||
        (tensor->dtype.bits == 32 && tensor->values[i].number != (int32_t)tensor->values[i].number)) {
      return graft_damaged(reader, "entry %" PRId32 " of 'values' is no number of the type, symbol or extent", i);
    }
  }
  return GRAFT_OK;
}

static int32_t read_storage(Reader *reader, Procedure *procedure, const JsonValue *row, TensorSpec *tensor) {
  static const char *const names[] = {"input", "output", "constant", "arena", "view", "dynamic", "extents"};
  const char *name;
  int64_t index;
  GRAFT_TRY(graft_read_text(reader, row, "storage", &name));
  int32_t storage = graft_find_name(names, 7, name);
  if (storage < 0) {
    return graft_damaged(reader, "unknown 'storage' \"%s\"", name);
  }
  tensor->storage = (Storage)storage;
  if (tensor->ndim < 0 && tensor->storage != STORAGE_DYNAMIC && tensor->storage != STORAGE_INPUT &&
      tensor->storage != STORAGE_OUTPUT) {
    return graft_damaged(reader, "a tensor of storage %s needs a shape", name);
  }
  if (graft_is_static(tensor) && tensor->storage == STORAGE_DYNAMIC) {
    return graft_damaged(reader, "a tensor of storage dynamic cannot have a shape of numbers");
  }
  if (graft_is_symbolic(tensor) && (tensor->storage == STORAGE_CONSTANT || tensor->storage == STORAGE_EXTENTS)) {
    return graft_damaged(reader, "a tensor of storage %s needs a shape of numbers", name);
  }
  switch (tensor->storage) {
    case STORAGE_INPUT:
    case STORAGE_OUTPUT:
      GRAFT_TRY(graft_read_integer(reader, row, "index", 0, INT32_MAX, &index));
      tensor->index = (int32_t)index;
      return GRAFT_OK;
    case STORAGE_CONSTANT:
      return graft_read_text(reader, row, "constant", &tensor->constant);
    case STORAGE_ARENA:
      return read_arena_offset(reader, procedure, row, tensor);
    case STORAGE_VIEW:
      return read_view(reader, procedure, row, tensor);
    case STORAGE_DYNAMIC:
      return GRAFT_OK;
    case STORAGE_EXTENTS:
      return read_values(reader, procedure, row, tensor);
  }
  return GRAFT_OK;
}

int32_t graft_read_tensor(Reader *reader, Procedure *procedure, const JsonValue *row, TensorSpec *tensor) {
  const char *dtype;
  GRAFT_TRY(graft_read_text(reader, row, "name", &tensor->name));
  GRAFT_TRY(graft_read_text(reader, row, "dtype", &dtype));
  if (!graft_dtype_from_name(dtype, &tensor->dtype)) {
    return graft_damaged(reader, "unknown 'dtype' \"%s\"", dtype);
  }
  tensor->root = (int32_t)(tensor - procedure->tensors);
  tensor->next_view = -1;
  tensor->index = -1;
  tensor->grows = -1;
  tensor->first = tensor->last = GRAFT_NEVER;
  int64_t device = 0;
  if (graft_json_member(row, "device")) {
    GRAFT_TRY(graft_read_integer(reader, row, "device", 1, reader->manifest->device_count, &device));
  }
  tensor->device = (int32_t)device;
  GRAFT_TRY(read_shape(reader, procedure, row, tensor));
  return read_storage(reader, procedure, row, tensor);
}
