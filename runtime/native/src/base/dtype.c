#include "base/dtype.h"

#include <string.h>

static const struct {
  const char *name;
  DLDataType dtype;
} element_types[] = {
    {"bool", {kDLBool, 8, 1}},
    {"int8", {kDLInt, 8, 1}},
    {"int16", {kDLInt, 16, 1}},
    {"int32", {kDLInt, 32, 1}},
    {"int64", {kDLInt, 64, 1}},
    {"uint8", {kDLUInt, 8, 1}},
    {"uint16", {kDLUInt, 16, 1}},
    {"uint32", {kDLUInt, 32, 1}},
    {"uint64", {kDLUInt, 64, 1}},
    {"float16", {kDLFloat, 16, 1}},
    {"bfloat16", {kDLBfloat, 16, 1}},
    {"float32", {kDLFloat, 32, 1}},
    {"float64", {kDLFloat, 64, 1}},
    {"float8e4m3fn", {kDLFloat8_e4m3fn, 8, 1}},
    {"float8e4m3fnuz", {kDLFloat8_e4m3fnuz, 8, 1}},
    {"float8e5m2", {kDLFloat8_e5m2, 8, 1}},
    {"float8e5m2fnuz", {kDLFloat8_e5m2fnuz, 8, 1}},
    {"complex64", {kDLComplex, 64, 1}},
};

enum { ELEMENT_TYPE_COUNT = sizeof element_types / sizeof element_types[0] };

int graft_dtype_from_name(const char *name, DLDataType *dtype) {
  for (size_t i = 0; i < ELEMENT_TYPE_COUNT; i++) {
    if (strcmp(element_types[i].name, name) == 0) {
      *dtype = element_types[i].dtype;
      return 1;
    }
  }
  return 0;
}

const char *graft_dtype_name(DLDataType dtype) {
  for (size_t i = 0; i < ELEMENT_TYPE_COUNT; i++) {
    if (graft_dtype_equal(element_types[i].dtype, dtype)) {
      return element_types[i].name;
    }
  }
  return "?";
}

int graft_tensor_bytes(DLDataType dtype, int32_t ndim, const int64_t *shape, size_t *bytes) {
  const uint64_t limit = (uint64_t)1 << 62;
  uint64_t total = (uint64_t)dtype.bits / 8 * dtype.lanes;
  int empty = 0;
  for (int32_t i = 0; i < ndim; i++) {
    if (shape[i] < 0) {
      return 0;
    }
    if (shape[i] == 0) {
      empty = 1;
    } else if (total > limit / (uint64_t)shape[i]) {
      return 0;
    } else {
      total *= (uint64_t)shape[i];
    }
  }
  if (total > SIZE_MAX / 2) {
    return 0;
  }
  *bytes = empty ? 0 : (size_t)total;
  return 1;
}

int graft_shape_equal(int32_t left_ndim, const int64_t *left, int32_t right_ndim, const int64_t *right) {
  if (left_ndim != right_ndim) {
    return 0;
  }
  for (int32_t i = 0; i < left_ndim; i++) {
    if (left[i] != right[i]) {
      return 0;
    }
  }
  return 1;
}

int graft_is_contiguous(const DLTensor *tensor) {
  if (!tensor->strides) {
    return 1;
  }
  int64_t expected = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
    if (tensor->shape[i] == 0) {
      return 1;
    }
    if (tensor->shape[i] != 1 && tensor->strides[i] != expected) {
      return 0;
    }
    expected *= tensor->shape[i];
  }
  return 1;
}
