#include "pebble.h"

#include <math.h>

/* NaN is not less than zero, so it stays; "x > 0 ? x : 0" would lose it. */
static float relu(float x) { return x < 0.0f ? 0.0f : x; }

int pebble_relu(const float *x, size_t count, float *y) {
  for (size_t i = 0; i < count; ++i) y[i] = relu(x[i]);
  return PEBBLE_OK;
}

int pebble_add(const float *a, const float *b, size_t count, float *y) {
  for (size_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
  return PEBBLE_OK;
}

int pebble_softmax(const float *x, size_t count, size_t columns, float *y) {
  if (columns == 0 ? count != 0 : count % columns != 0) return PEBBLE_BAD_SIZE;
  for (const float *end = x + count; x < end; x += columns, y += columns) {
    float most = x[0], sum = 0.0f;
    for (size_t j = 1; j < columns; ++j) most = x[j] > most ? x[j] : most;
    for (size_t j = 0; j < columns; ++j) sum += y[j] = expf(x[j] - most);
    for (size_t j = 0; j < columns; ++j) y[j] /= sum;
  }
  return PEBBLE_OK;
}

int pebble_normalize(const float *x, const float *scale, const float *bias, float epsilon, size_t count, size_t columns,
                     float *y) {
  if (columns == 0 ? count != 0 : count % columns != 0) return PEBBLE_BAD_SIZE;
  for (const float *end = x + count; x < end; x += columns, y += columns) {
    double mean = 0.0, variance = 0.0;
    for (size_t j = 0; j < columns; ++j) mean += x[j];
    mean /= (double)columns;
    for (size_t j = 0; j < columns; ++j) variance += (x[j] - mean) * (x[j] - mean);
    const double factor = 1.0 / sqrt(variance / (double)columns + epsilon);
    for (size_t j = 0; j < columns; ++j) {
      y[j] = (float)((x[j] - mean) * factor) * scale[j] + (bias == NULL ? 0.0f : bias[j]);
    }
  }
  return PEBBLE_OK;
}

int pebble_dense(const float *x, const float *w, const float *bias, size_t count, size_t depth, size_t columns,
                 int activation, float *y) {
  if (columns == 0 ? count != 0 : count % columns != 0) return PEBBLE_BAD_SIZE;
  for (float *end = y + count; y < end; x += depth, y += columns) {
    const float *panel = w;
    for (size_t first = 0; first < columns; first += PEBBLE_PANEL, panel += depth * PEBBLE_PANEL) {
      const size_t width = columns - first < PEBBLE_PANEL ? columns - first : PEBBLE_PANEL;
      float sum[PEBBLE_PANEL] = {0};
      for (size_t k = 0; k < depth; ++k) {
        for (size_t j = 0; j < PEBBLE_PANEL; ++j) sum[j] += x[k] * panel[k * PEBBLE_PANEL + j];
      }
      for (size_t j = 0; j < width; ++j) {
        const float value = sum[j] + (bias == NULL ? 0.0f : bias[first + j]);
        y[first + j] = activation == PEBBLE_RELU ? relu(value) : value;
      }
    }
  }
  return PEBBLE_OK;
}
