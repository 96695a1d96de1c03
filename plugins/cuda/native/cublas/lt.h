/* cuBLASLt as this plugin calls it: a table of functions that are looked up when a module is loaded, so that nothing is
 * linked. Numbers are those of cublasLt.h and library_types.h, which do not change from version to version. */
#ifndef GRAFT_CUBLAS_LT_H
#define GRAFT_CUBLAS_LT_H

#include <stddef.h>
#include <stdint.h>

typedef int LtStatus;
typedef void *LtHandle; /* handles, descriptions, layouts, preferences */

enum {
  LT_OK = 0,
  LT_NOT_SUPPORTED = 15,

  LT_FLOAT32 = 0, LT_FLOAT64 = 1, LT_FLOAT16 = 2, LT_BFLOAT16 = 14,
  LT_COMPUTE_32 = 68, LT_COMPUTE_64 = 70, LT_COMPUTE_FAST_16 = 74, LT_COMPUTE_FAST_BF16 = 75, LT_COMPUTE_FAST_TF32 = 77,

  LT_TURN_A = 3, LT_TURN_B = 4, LT_EPILOGUE = 7, LT_BIAS = 8, /* of a product */
  LT_BATCH = 5, LT_BATCH_STEP = 6,                            /* of a layout */
  LT_WORKSPACE = 1,                                           /* of a preference */

  LT_PLAIN = 1, LT_RELU = 2, LT_WITH_BIAS = 4, LT_GELU = 32, /* epilogues: an activation, and whether a bias is added */
};

typedef struct LtChoice {
  uint64_t algorithm[8];
  size_t workspace;
  LtStatus state;
  float waves;
  int reserved[4];
} LtChoice;

typedef struct Lt {
  LtStatus (*create)(LtHandle *handle);
  LtStatus (*destroy)(LtHandle handle);
  LtStatus (*create_product)(LtHandle *product, int compute, int scale);
  LtStatus (*destroy_product)(LtHandle product);
  LtStatus (*set_product)(LtHandle product, int attribute, const void *value, size_t bytes);
  LtStatus (*create_layout)(LtHandle *layout, int type, uint64_t rows, uint64_t columns, int64_t pitch);
  LtStatus (*destroy_layout)(LtHandle layout);
  LtStatus (*set_layout)(LtHandle layout, int attribute, const void *value, size_t bytes);
  LtStatus (*create_preference)(LtHandle *preference);
  LtStatus (*destroy_preference)(LtHandle preference);
  LtStatus (*set_preference)(LtHandle preference, int attribute, const void *value, size_t bytes);
  LtStatus (*choose)(LtHandle handle, LtHandle product, LtHandle a, LtHandle b, LtHandle c, LtHandle d,
                     LtHandle preference, int wanted, LtChoice *choices, int *found);
  LtStatus (*multiply)(LtHandle handle, LtHandle product, const void *alpha, const void *a, LtHandle a_layout,
                       const void *b, LtHandle b_layout, const void *beta, const void *c, LtHandle c_layout, void *d,
                       LtHandle d_layout, const void *algorithm, void *workspace, size_t bytes, void *stream);
} Lt;

/* The library of this process, opened once; NULL with the reason in `message`. GRAFT_CUBLASLT is its path for those who
 * have it elsewhere than the dynamic linker looks. */
const Lt *graft_lt(char *message, size_t size);

#endif
