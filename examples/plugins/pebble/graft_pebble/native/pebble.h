/* Pebble: kernels of small networks, in float32. Tensors are contiguous; `count` is the number of their elements.
   Functions keep nothing, so that several threads may call them at a time. */
#ifndef PEBBLE_H
#define PEBBLE_H

#include <stddef.h>

enum { PEBBLE_OK = 0, PEBBLE_BAD_SIZE = 1 };
enum { PEBBLE_LINEAR = 0, PEBBLE_RELU = 1 };
enum { PEBBLE_PANEL = 16 }; /* columns of weights that lie together */

int pebble_relu(const float *x, size_t count, float *y);
int pebble_add(const float *a, const float *b, size_t count, float *y);

/* Softmax over rows of `columns` elements. */
int pebble_softmax(const float *x, size_t count, size_t columns, float *y);

/* Rows with mean 0 and variance 1, times `scale`, plus `bias` (NULL for none), one of each a column. */
int pebble_normalize(const float *x, const float *scale, const float *bias, float epsilon, size_t count, size_t columns,
                     float *y);

/* y = activation(x w + bias), `bias` NULL for none. The weights are panels of PEBBLE_PANEL columns, the last filled up
   with zeros: w[panel][depth][PEBBLE_PANEL]. */
int pebble_dense(const float *x, const float *w, const float *bias, size_t count, size_t depth, size_t columns,
                 int activation, float *y);

#endif
