#include "stencil.h"

int stencil_relu(const float *x, int64_t count, float *y) {
  for (int64_t i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : 0;
  return STENCIL_DONE;
}

int stencil_matmul(const float *a, const float *b, float *y, int rows, int columns, int depth, int activation) {
  if (depth > 4096) return STENCIL_REFUSED;
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < columns; j++) {
      float sum = 0;
      for (int k = 0; k < depth; k++) sum += a[i * depth + k] * b[k * columns + j];
      y[i * columns + j] = activation == STENCIL_RELU && sum < 0 ? 0 : sum;
    }
  }
  return STENCIL_DONE;
}
