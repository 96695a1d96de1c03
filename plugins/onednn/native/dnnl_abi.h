/* The part of oneDNN's C interface (version 3) that the loader uses, declared here so that a C compiler is enough.
 *
 * Names, values and signatures follow the oneAPI Deep Neural Network Library specification (dnnl.h of release 3.x,
 * whose C interface is stable). Every function is reached through the table `Dnnl`, filled by dlsym.
 */
#ifndef GRAFT_ONEDNN_ABI_H
#define GRAFT_ONEDNN_ABI_H

#include <stddef.h>
#include <stdint.h>

#define DNNL_MAX_RANK 12

typedef int DnnlStatus;
typedef int DnnlEnum;
typedef struct dnnl_engine *DnnlEngine;
typedef struct dnnl_stream *DnnlStream;
typedef struct dnnl_memory *DnnlMemory;
typedef struct dnnl_memory_desc *DnnlDesc;
typedef const struct dnnl_memory_desc *DnnlConstDesc;
typedef struct dnnl_post_ops *DnnlPostOps;
typedef struct dnnl_primitive_attr *DnnlAttr;
typedef struct dnnl_primitive_desc *DnnlRecipe; /* a primitive descriptor: an implementation, chosen */
typedef const struct dnnl_primitive_desc *DnnlConstRecipe;
typedef struct dnnl_primitive *DnnlPrimitive;

typedef struct {
  int arg;
  DnnlMemory memory;
} DnnlArg;

typedef struct {
  int major, minor, patch;
  const char *hash;
  unsigned cpu_runtime, gpu_runtime;
} DnnlVersion;

enum {
  DNNL_SUCCESS = 0,
  DNNL_CPU = 1,
  DNNL_F32 = 3,
  DNNL_ANY = 1,
  DNNL_INFERENCE = 96,
  DNNL_IN_ORDER = 1,
  DNNL_SCRATCHPAD_USER = 1,
  DNNL_CONVOLUTION_DIRECT = 1,
  DNNL_LRN_ACROSS_CHANNELS = 2815,
  DNNL_BINARY_ADD = 131056,
  DNNL_USE_GLOBAL_STATS = 1,
  DNNL_USE_SCALE = 2,
  DNNL_USE_SHIFT = 4,
  DNNL_QUERY_IMPLEMENTATION = 8,
  DNNL_QUERY_STRIDES = 14,
  DNNL_QUERY_RANK = 256,
  DNNL_QUERY_SIZES = 257,
  DNNL_QUERY_INNER_BLOCKS = 263,
  DNNL_QUERY_ARG_DESC = 255
};

enum {
  ARG_SRC = 1,
  ARG_SRC_1 = 2,
  ARG_DST = 17,
  ARG_WEIGHTS = 33,
  ARG_BIAS = 41,
  ARG_MEAN = 49,
  ARG_VARIANCE = 50,
  ARG_SCALE = 51,
  ARG_SHIFT = 52,
  ARG_SCRATCHPAD = 80,
  ARG_MULTIPLE_SRC = 1024,
  ARG_POST_OP = 32768 /* times (index of the post-op + 1), or-ed with the argument */
};

/* X(result, name without "dnnl_", parameters) */
#define DNNL_FUNCTIONS(X)                                                                                             \
  X(const DnnlVersion *, version, (void))                                                                             \
  X(DnnlStatus, engine_create, (DnnlEngine *, DnnlEnum, size_t))                                                      \
  X(DnnlStatus, engine_destroy, (DnnlEngine))                                                                         \
  X(DnnlStatus, stream_create, (DnnlStream *, DnnlEngine, unsigned))                                                  \
  X(DnnlStatus, stream_wait, (DnnlStream))                                                                            \
  X(DnnlStatus, stream_destroy, (DnnlStream))                                                                         \
  X(DnnlStatus, memory_create, (DnnlMemory *, DnnlConstDesc, DnnlEngine, void *))                                     \
  X(DnnlStatus, memory_set_data_handle, (DnnlMemory, void *))                                                         \
  X(DnnlStatus, memory_destroy, (DnnlMemory))                                                                         \
  X(DnnlStatus, memory_desc_create_with_strides, (DnnlDesc *, int, const int64_t *, DnnlEnum, const int64_t *))       \
  X(DnnlStatus, memory_desc_create_with_tag, (DnnlDesc *, int, const int64_t *, DnnlEnum, DnnlEnum))                  \
  X(DnnlStatus, memory_desc_clone, (DnnlDesc *, DnnlConstDesc))                                                       \
  X(DnnlStatus, memory_desc_reshape, (DnnlDesc *, DnnlConstDesc, int, const int64_t *))                               \
  X(DnnlStatus, memory_desc_query, (DnnlConstDesc, DnnlEnum, void *))                                                 \
  X(DnnlStatus, memory_desc_destroy, (DnnlDesc))                                                                      \
  X(int, memory_desc_equal, (DnnlConstDesc, DnnlConstDesc))                                                           \
  X(size_t, memory_desc_get_size, (DnnlConstDesc))                                                                    \
  X(DnnlStatus, post_ops_create, (DnnlPostOps *))                                                                     \
  X(DnnlStatus, post_ops_destroy, (DnnlPostOps))                                                                      \
  X(DnnlStatus, post_ops_append_sum, (DnnlPostOps, float, int32_t, DnnlEnum))                                         \
  X(DnnlStatus, post_ops_append_eltwise, (DnnlPostOps, DnnlEnum, float, float))                                       \
  X(DnnlStatus, post_ops_append_binary, (DnnlPostOps, DnnlEnum, DnnlConstDesc))                                       \
  X(DnnlStatus, primitive_attr_create, (DnnlAttr *))                                                                  \
  X(DnnlStatus, primitive_attr_destroy, (DnnlAttr))                                                                   \
  X(DnnlStatus, primitive_attr_set_scratchpad_mode, (DnnlAttr, DnnlEnum))                                             \
  X(DnnlStatus, primitive_attr_set_post_ops, (DnnlAttr, DnnlPostOps))                                                 \
  X(DnnlStatus, primitive_desc_destroy, (DnnlRecipe))                                                                 \
  X(DnnlStatus, primitive_desc_query, (DnnlConstRecipe, DnnlEnum, int, void *))                                       \
  X(DnnlConstDesc, primitive_desc_query_md, (DnnlConstRecipe, DnnlEnum, int))                                         \
  X(DnnlStatus, primitive_create, (DnnlPrimitive *, DnnlConstRecipe))                                                 \
  X(DnnlStatus, primitive_destroy, (DnnlPrimitive))                                                                   \
  X(DnnlStatus, primitive_execute, (DnnlPrimitive, DnnlStream, int, const DnnlArg *))                                 \
  X(DnnlStatus, reorder_primitive_desc_create,                                                                        \
    (DnnlRecipe *, DnnlConstDesc, DnnlEngine, DnnlConstDesc, DnnlEngine, DnnlAttr))                                   \
  X(DnnlStatus, convolution_forward_primitive_desc_create,                                                            \
    (DnnlRecipe *, DnnlEngine, DnnlEnum, DnnlEnum, DnnlConstDesc, DnnlConstDesc, DnnlConstDesc, DnnlConstDesc,        \
     const int64_t *, const int64_t *, const int64_t *, const int64_t *, DnnlAttr))                                   \
  X(DnnlStatus, matmul_primitive_desc_create,                                                                         \
    (DnnlRecipe *, DnnlEngine, DnnlConstDesc, DnnlConstDesc, DnnlConstDesc, DnnlConstDesc, DnnlAttr))                 \
  X(DnnlStatus, pooling_forward_primitive_desc_create,                                                                \
    (DnnlRecipe *, DnnlEngine, DnnlEnum, DnnlEnum, DnnlConstDesc, DnnlConstDesc, const int64_t *, const int64_t *,    \
     const int64_t *, const int64_t *, const int64_t *, DnnlAttr))                                                    \
  X(DnnlStatus, softmax_forward_primitive_desc_create,                                                                \
    (DnnlRecipe *, DnnlEngine, DnnlEnum, DnnlEnum, DnnlConstDesc, DnnlConstDesc, int, DnnlAttr))                      \
  X(DnnlStatus, eltwise_forward_primitive_desc_create,                                                                \
    (DnnlRecipe *, DnnlEngine, DnnlEnum, DnnlEnum, DnnlConstDesc, DnnlConstDesc, float, float, DnnlAttr))             \
  X(DnnlStatus, binary_primitive_desc_create,                                                                         \
    (DnnlRecipe *, DnnlEngine, DnnlEnum, DnnlConstDesc, DnnlConstDesc, DnnlConstDesc, DnnlAttr))                      \
  X(DnnlStatus, layer_normalization_forward_primitive_desc_create,                                                    \
    (DnnlRecipe *, DnnlEngine, DnnlEnum, DnnlConstDesc, DnnlConstDesc, DnnlConstDesc, float, unsigned, DnnlAttr))     \
  X(DnnlStatus, lrn_forward_primitive_desc_create,                                                                    \
    (DnnlRecipe *, DnnlEngine, DnnlEnum, DnnlEnum, DnnlConstDesc, DnnlConstDesc, int64_t, float, float, float,        \
     DnnlAttr))                                                                                                       \
  X(DnnlStatus, batch_normalization_forward_primitive_desc_create,                                                    \
    (DnnlRecipe *, DnnlEngine, DnnlEnum, DnnlConstDesc, DnnlConstDesc, float, unsigned, DnnlAttr))                    \
  X(DnnlStatus, concat_primitive_desc_create,                                                                         \
    (DnnlRecipe *, DnnlEngine, DnnlConstDesc, int, int, DnnlConstDesc const *, DnnlAttr))

typedef struct Dnnl {
#define DNNL_MEMBER(result, name, parameters) result(*name) parameters;
  DNNL_FUNCTIONS(DNNL_MEMBER)
#undef DNNL_MEMBER
  /* Of the OpenMP run-time that this oneDNN was built with; NULL where it was built with another. */
  void (*omp_set_num_threads)(int);
  int (*omp_get_max_threads)(void);
} Dnnl;

#endif
