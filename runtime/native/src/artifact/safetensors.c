/* Reading the safetensors layout: entries in the order of their data, without gaps; sizes agree with dtype and shape. */
#include "artifact/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"

enum { MAX_RANK = 64, MAX_HEADER = 100 << 20, ALIGNMENT = 64 };

typedef struct Name {
  const char *text;
  DLDataType type;
} Name;

static const Name TYPES[] = {
    {"BOOL", {kDLBool, 8, 1}},       {"I8", {kDLInt, 8, 1}},
    {"I16", {kDLInt, 16, 1}},        {"I32", {kDLInt, 32, 1}},
    {"I64", {kDLInt, 64, 1}},        {"U8", {kDLUInt, 8, 1}},
    {"U16", {kDLUInt, 16, 1}},       {"U32", {kDLUInt, 32, 1}},
    {"U64", {kDLUInt, 64, 1}},       {"F16", {kDLFloat, 16, 1}},
    {"BF16", {kDLBfloat, 16, 1}},    {"F32", {kDLFloat, 32, 1}},
    {"F64", {kDLFloat, 64, 1}},      {"C64", {kDLComplex, 64, 1}},
    {"F8_E4M3", {kDLFloat8_e4m3fn, 8, 1}}, {"F8_E4M3FNUZ", {kDLFloat8_e4m3fnuz, 8, 1}},
    {"F8_E5M2", {kDLFloat8_e5m2, 8, 1}},   {"F8_E5M2FNUZ", {kDLFloat8_e5m2fnuz, 8, 1}},
};

static int32_t damaged(GraftError *error, const char *what, const char *name) {
  error->code = GRAFT_ERROR_ARTIFACT;
  snprintf(error->message, sizeof error->message, "artifact is damaged: constants: %s%s%.128s%s; compile it again", what,
           name[0] ? " (tensor '" : "", name, name[0] ? "')" : "");
  return GRAFT_ERROR_ARTIFACT;
}

static int32_t out_of_memory(GraftError *error) {
  error->code = GRAFT_ERROR_MEMORY;
  snprintf(error->message, sizeof error->message, "out of memory while reading the artifact's constants");
  return GRAFT_ERROR_MEMORY;
}

static int find_type(const char *text, DLDataType *type) {
  for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
    if (strcmp(TYPES[i].text, text) == 0) {
      *type = TYPES[i].type;
      return 1;
    }
  }
  return 0;
}

/* Fills one descriptor; `shape` has room for MAX_RANK dimensions and advances by the rank. */
static int32_t read_tensor(const char *name, const JsonValue *entry, const uint8_t *data, uint64_t begin, uint64_t end,
                           DLTensor *tensor, int64_t **shape, GraftError *error) {
  const JsonValue *dimensions = graft_json_member(entry, "shape");
  const char *dtype = graft_json_string(graft_json_member(entry, "dtype"), "");
  if (dimensions == NULL || dimensions->kind != JSON_ARRAY || graft_json_count(dimensions) > MAX_RANK) {
    return damaged(error, "an entry has no shape", name);
  }
  if (!find_type(dtype, &tensor->dtype)) return damaged(error, "unknown dtype", name);
  uint64_t bytes = tensor->dtype.bits / 8u;
  tensor->ndim = (int32_t)graft_json_count(dimensions);
  tensor->shape = *shape;
  int empty = 0;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    int64_t dimension = graft_json_integer(graft_json_item(dimensions, (size_t)i), -1);
    if (dimension < 0) return damaged(error, "a dimension is not a number of elements", name);
    empty |= dimension == 0;
    if (dimension > 0 && bytes > UINT64_MAX / (uint64_t)dimension) return damaged(error, "the shape is too large", name);
    if (dimension > 0) bytes *= (uint64_t)dimension;
    *(*shape)++ = dimension;
  }
  if (empty) bytes = 0;
  if (bytes != end - begin) return damaged(error, "offsets do not fit dtype and shape", name);
  tensor->data = (void *)(uintptr_t)(data + begin);
  tensor->device = (DLDevice){kDLCPU, 0};
  tensor->strides = NULL;
  tensor->byte_offset = 0;
  if ((uintptr_t)tensor->data % ALIGNMENT != 0 && bytes > 0) return damaged(error, "data is not aligned to 64 bytes", name);
  return GRAFT_OK;
}

static int by_name(const void *left, const void *right) {
  return strcmp(((const GraftNamedTensor *)left)->name, ((const GraftNamedTensor *)right)->name);
}

/* Reads where an entry's data ends; they must start at `begin`. */
static int read_end(const JsonValue *entry, uint64_t begin, uint64_t size, uint64_t *end) {
  const JsonValue *offsets = graft_json_member(entry, "data_offsets");
  if (offsets == NULL || offsets->kind != JSON_ARRAY || graft_json_count(offsets) != 2) return 0;
  int64_t first = graft_json_integer(graft_json_item(offsets, 0), -1);
  int64_t last = graft_json_integer(graft_json_item(offsets, 1), -1);
  if (first < 0 || (uint64_t)first != begin || last < first || (uint64_t)last > size) return 0;
  *end = (uint64_t)last;
  return 1;
}

static int is_padding(const uint8_t *bytes, uint64_t size) {
  uint8_t any = 0;
  for (uint64_t i = 0; size < ALIGNMENT && i < size; i++) any |= bytes[i];
  return size < ALIGNMENT && any == 0;
}

static int32_t read_entries(const JsonValue *root, const uint8_t *data, uint64_t size, TensorStore *store,
                            GraftError *error) {
  size_t entries = root->as.list.count, rank_sum = 0;
  for (size_t i = 0; i < entries; i++) {
    rank_sum += graft_json_count(graft_json_member(&root->as.list.items[i], "shape"));
  }
  store->tensors = graft_allocate_zeroed(store->memory, entries, sizeof *store->tensors);
  store->descriptors = graft_allocate_zeroed(store->memory, entries, sizeof *store->descriptors);
  store->shapes = graft_allocate_zeroed(store->memory, rank_sum, sizeof *store->shapes);
  if (store->tensors == NULL || store->descriptors == NULL || store->shapes == NULL) return out_of_memory(error);
  int64_t *shape = store->shapes;
  uint64_t begin = 0, end = 0;
  for (size_t i = 0; i < entries; i++, begin = end) {
    const JsonValue *key = &root->as.list.keys[i];
    const char *name = key->as.string.bytes;
    if (strcmp(name, "__metadata__") == 0) continue;
    if (!read_end(&root->as.list.items[i], begin, size, &end)) return damaged(error, "offsets do not follow", name);
    if (strncmp(name, "pad.", 4) == 0) {
      if (!is_padding(data + begin, end - begin)) return damaged(error, "padding is not zero, or too long", name);
      continue;
    }
    if (strlen(name) != key->as.string.length) return damaged(error, "a name holds a zero byte", name);
    DLTensor *tensor = &store->descriptors[store->count];
    int32_t code = read_tensor(name, &root->as.list.items[i], data, begin, end, tensor, &shape, error);
    if (code != GRAFT_OK) return code;
    store->tensors[store->count++] = (GraftNamedTensor){name, tensor};
  }
  if (begin != size) return damaged(error, "there are bytes that belong to no tensor", "");
  graft_sort(store->tensors, store->count, sizeof *store->tensors, by_name);
  return GRAFT_OK;
}

size_t graft_tensor_store_header(const uint8_t *bytes, size_t size) {
  uint64_t length = 0;
  if (size < 8) return 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
  return length > size - 8 || length > MAX_HEADER || length == 0 || bytes[8] != '{' ? 0 : 8 + (size_t)length;
}

int32_t graft_tensor_store_read(const uint8_t *bytes, size_t size, const GraftAllocator *memory, TensorStore *store,
                                GraftError *error) {
  *store = (TensorStore){.memory = memory};
  size_t begin = graft_tensor_store_header(bytes, size);
  if (begin == 0) return damaged(error, "the header is cut off", "");
  char message[256];
  store->header = graft_json_parse((const char *)bytes + 8, begin - 8, memory, message, sizeof message);
  if (store->header == NULL) {
    return graft_json_lacked_memory(message) ? out_of_memory(error) : damaged(error, message, "");
  }
  return read_entries(graft_json_root(store->header), bytes + begin, size - begin, store, error);
}

void graft_tensor_store_free(TensorStore *store) {
  graft_release(store->memory, store->tensors);
  graft_release(store->memory, store->descriptors);
  graft_release(store->memory, store->shapes);
  graft_json_free(store->header);
  memset(store, 0, sizeof *store);
}

const GraftNamedTensor *graft_tensor_store_find(const TensorStore *store, const char *name) {
  GraftNamedTensor key = {name, NULL};
  if (store->count == 0) return NULL;
  return bsearch(&key, store->tensors, store->count, sizeof key, by_name);
}
