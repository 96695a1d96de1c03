/* A module of kind "cuda" as its header says it (plugins/cuda/image.py): images, and what functions launch. */
#ifndef GRAFT_CUDA_MODULE_H
#define GRAFT_CUDA_MODULE_H

#include "driver.h"
#include "base/extent_arithmetic.h"
#include "graft/runtime.h"
#include "base/json.h"
#include "base/store.h"

enum { CUDA_MOST_ARGUMENTS = 256, CUDA_MOST_WORKSPACES = 256, CUDA_MOST_EXTENTS = 65536, CUDA_ALIGNMENT = 256 };

/* A number, an operation before, or the extent of an axis of an input or output. */
typedef struct CudaExtent {
  enum { EXTENT_NUMBER, EXTENT_OPERATION, EXTENT_INPUT, EXTENT_OUTPUT } kind;
  int32_t axis;
  int64_t number; /* or that of the operation, input or output */
} CudaExtent;

typedef struct CudaOperation {
  ExtentOperator operator;
  CudaExtent left, right;
} CudaOperation;

typedef struct CudaArgument {
  enum { ARGUMENT_INPUT, ARGUMENT_OUTPUT, ARGUMENT_WORKSPACE, ARGUMENT_CONSTANT, ARGUMENT_REPORT, ARGUMENT_EXTENT } kind;
  int32_t number;   /* of all but extents */
  const char *name; /* of a constant */
  CudaExtent extent;
} CudaArgument;

typedef struct CudaLaunch {
  const char *kernel, *node;
  CudaExtent grid[3];
  uint32_t block[3], cluster[3], shared;
  CudaArgument *arguments;
  int32_t argument_count;
  CudaHandle function;
} CudaLaunch;

struct CudaModule;

typedef struct CudaFunction {
  struct CudaModule *module;
  const char *name;
  CudaLaunch *launches;
  CudaExtent *workspaces;
  CudaOperation *operations;
  int32_t launch_count, workspace_count, operation_count;
  int32_t input_count, output_count; /* of a call: as many as it reads and writes */
} CudaFunction;

typedef struct CudaImage {
  const char *form, *arch;
  int number; /* 90 for sm_90 and sm_90a */
  int is_exact; /* sm_90a is for no other device */
  const char *data;
  size_t size;
} CudaImage;

typedef struct CudaModule {
  Store store;
  JsonDocument *document;
  CudaImage *images;
  CudaFunction *functions;
  int32_t image_count, function_count;
  void *device; /* a CudaDevice, open; NULL before */
  CudaHandle handle;
  const char **constant_names;
  CudaAddress *constants;
  int32_t constant_count;
} CudaModule;

/* Reads the bytes; NULL, or what is wrong with them. The module keeps pointers into them. */
const char *graft_cuda_read(CudaModule *module, const char *bytes, size_t size);

/* Evaluates all operations of a function into `values`; 0 where one has no value, or a tensor lacks the axis. */
int graft_cuda_evaluate(const CudaFunction *function, const DLTensor *const *inputs, DLTensor *const *outputs,
                        int64_t *values);
int graft_cuda_value(const CudaExtent *extent, const DLTensor *const *inputs, DLTensor *const *outputs,
                     const int64_t *values, int64_t *value);

#endif
