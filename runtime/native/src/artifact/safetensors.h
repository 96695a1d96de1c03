/* A reader of the safetensors layout: u64 header length, JSON header, tensors back to back. */
#ifndef GRAFT_SAFETENSORS_H
#define GRAFT_SAFETENSORS_H

#include "base/json.h"
#include "graft/runtime.h"

typedef struct TensorStore {
  GraftNamedTensor *tensors; /* sorted by name; "pad.*" entries left out */
  size_t count;
  DLTensor *descriptors;
  int64_t *shapes;
  JsonDocument *header; /* owns the names */
  const GraftAllocator *memory; /* NULL: the heap */
} TensorStore;

/* The number of bytes before the tensors' data: the header and its length. 0 if `bytes` do not begin with one. */
size_t graft_tensor_store_header(const uint8_t *bytes, size_t size);

/* Reads `bytes`, of which it looks at the header and at the padding between tensors; the tensors point into them. Free
 * with graft_tensor_store_free, also after an error. */
int32_t graft_tensor_store_read(const uint8_t *bytes, size_t size, const GraftAllocator *memory, TensorStore *store,
                                GraftError *error);
void graft_tensor_store_free(TensorStore *store);

/* NULL if there is no such tensor. */
const GraftNamedTensor *graft_tensor_store_find(const TensorStore *store, const char *name);

#endif
