/* A vendor's library, as small as one can be. */
#include <stdint.h>

enum { STENCIL_DONE = 0, STENCIL_REFUSED = 1 };
enum { STENCIL_PLAIN = 0, STENCIL_RELU = 1 };

int stencil_relu(const float *x, int64_t count, float *y);
int stencil_matmul(const float *a, const float *b, float *y, int rows, int columns, int depth, int activation);
