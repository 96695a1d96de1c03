/* Products as ONNX has them, by cblas_sgemm and cblas_dgemm: what these do not say stands around them.
 *
 * y = activation(alpha * a b + beta * c) for each of `count` products. a and b go on by a_step and b_step elements from
 * one product to the next, 0 where all share it. c may be NULL; c_row and c_column are its strides, 0 where it repeats.
 * Returns 0, or 1 for an extent that CBLAS has no number for.
 */
#define GRAFT_CBLAS(T, PREFIX)                                                                                         \
  static inline int graft_cblas_##PREFIX##gemm(CBLAS_TRANSPOSE turn_a, CBLAS_TRANSPOSE turn_b, int64_t count,          \
                                               int64_t m, int64_t n, int64_t k, T alpha, const T *a, int64_t a_step,   \
                                               const T *b, int64_t b_step, T beta, const T *c, int64_t c_row,          \
                                               int64_t c_column, int is_relu, T *y) {                                  \
    if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX) return 1;                                                     \
    const int64_t lda = turn_a == CblasTrans ? m : k, ldb = turn_b == CblasTrans ? k : n;                              \
    for (int64_t one = 0; one < count; one++, y += m * n) {                                                            \
      for (int64_t i = 0; c && i < m; i++) {                                                                           \
        for (int64_t j = 0; j < n; j++) y[i * n + j] = c[i * c_row + j * c_column];                                    \
      }                                                                                                                \
      cblas_##PREFIX##gemm(CblasRowMajor, turn_a, turn_b, (int)m, (int)n, (int)k, alpha, a + one * a_step,             \
                           (int)(lda > 0 ? lda : 1), b + one * b_step, (int)(ldb > 0 ? ldb : 1), c ? beta : (T)0, y,   \
                           (int)n);                                                                                    \
      for (int64_t i = 0; is_relu && i < m * n; i++) y[i] = y[i] < 0 ? 0 : y[i];                                       \
    }                                                                                                                  \
    return 0;                                                                                                          \
  }
GRAFT_CBLAS(float, s)
GRAFT_CBLAS(double, d)
