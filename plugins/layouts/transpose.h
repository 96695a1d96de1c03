/* Writes matrices x[rows][columns] as y[columns][rows], so many times, by blocks that stay in the cache. */
#define GRAFT_TRANSPOSE(BITS)                                                                                          \
  static inline void graft_transpose_##BITS(int64_t count, int64_t rows, int64_t columns, const void *source,          \
                                            void *target) {                                                            \
    enum { BLOCK = 16 };                                                                                               \
    const uint##BITS##_t *restrict x = source;                                                                         \
    uint##BITS##_t *restrict y = target;                                                                               \
    for (; count > 0; count--, x += rows * columns, y += rows * columns) {                                             \
      for (int64_t i = 0; i < rows; i += BLOCK) {                                                                      \
        const int64_t i_end = i + BLOCK < rows ? i + BLOCK : rows;                                                     \
        for (int64_t j = 0; j < columns; j += BLOCK) {                                                                 \
          const int64_t j_end = j + BLOCK < columns ? j + BLOCK : columns;                                             \
          for (int64_t k = j; k < j_end; k++) {                                                                        \
            for (int64_t l = i; l < i_end; l++) y[k * rows + l] = x[l * columns + k];                                  \
          }                                                                                                            \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }
GRAFT_TRANSPOSE(8)
GRAFT_TRANSPOSE(16)
GRAFT_TRANSPOSE(32)
GRAFT_TRANSPOSE(64)
