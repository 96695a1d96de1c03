/* Element types by name, and the arithmetic of shapes. */
#ifndef GRAFT_DTYPE_H
#define GRAFT_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "graft/dlpack.h"

enum { GRAFT_MAXIMUM_DIMENSIONS = 32 };

/* 1 if `name` is an element type (the names of runtime/dtypes.py), else 0. */
int graft_dtype_from_name(const char *name, DLDataType *dtype);

/* "?" for a type that Graft has no name for. */
const char *graft_dtype_name(DLDataType dtype);

static inline int graft_dtype_equal(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* The size of a contiguous tensor; 0 and *bytes untouched if a dimension is negative or the size is beyond 2^62. */
int graft_tensor_bytes(DLDataType dtype, int32_t ndim, const int64_t *shape, size_t *bytes);

int graft_shape_equal(int32_t left_ndim, const int64_t *left, int32_t right_ndim, const int64_t *right);

/* 1 if the strides are absent or those of a row-major contiguous tensor. */
int graft_is_contiguous(const DLTensor *tensor);

#endif
