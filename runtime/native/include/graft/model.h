/* A model as one shared library, as `graft export MODEL -o model.so` writes it: program, weights and runtime.
 *
 * The library has the functions of graft/runtime.h under names of its own, so that libraries of several models work side
 * by side in one process:
 *
 *   GRAFT_DECLARE_MODEL(digits)
 *   ...
 *   GraftProgram *program;
 *   graft_model_digits_load(NULL, &program, &error);
 *   graft_model_digits_run(program, inputs, outputs, &error);
 *
 * A program belongs to the library that loaded it: only functions of the same name may be given it. A pool of threads is
 * for programs of any library, and destroyed by the one that made it. Who opens libraries
 * at run time looks up `graft_model_NAME`, which gives all of them in a table.
 */
#ifndef GRAFT_MODEL_H
#define GRAFT_MODEL_H

#include "graft/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions of a library. Entries are only ever appended; `size` is that of the library's table. */
typedef struct GraftModel {
  uint32_t abi_version;
  uint32_t size;
  int32_t (*load)(const GraftLoadOptions *options, GraftProgram **program, GraftError *error);
  void (*destroy)(GraftProgram *program);
  int32_t (*input_count)(const GraftProgram *program);
  int32_t (*output_count)(const GraftProgram *program);
  GraftTensorInfo (*input)(const GraftProgram *program, int32_t index);
  GraftTensorInfo (*output)(const GraftProgram *program, int32_t index);
  int32_t (*symbol_count)(const GraftProgram *program);
  GraftSymbolInfo (*symbol)(const GraftProgram *program, int32_t index);
  int32_t (*run)(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs, GraftError *error);
  void (*free_output)(DLTensor *output);
  int32_t (*run_with)(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs, const GraftRunOptions *options,
                      GraftError *error);
  void (*cancel)(GraftCancelToken *token);
  int32_t (*input_index)(const GraftProgram *program, const char *name);
  int32_t (*output_index)(const GraftProgram *program, const char *name);
  int32_t (*thread_pool_create)(int32_t threads, const GraftAllocator *allocator, GraftThreadPool **pool,
                                GraftError *error);
  void (*thread_pool_destroy)(GraftThreadPool *pool);
} GraftModel;

/* The bytes of a table that ends before `run_with`. */
#define GRAFT_MODEL_LEAST offsetof(GraftModel, run_with)

typedef const GraftModel *(*GraftModelEntry)(void);

#ifdef __cplusplus
#define GRAFT_C extern "C"
#else
#define GRAFT_C
#endif

#define GRAFT_DECLARE_MODEL(NAME) GRAFT_DECLARE_MODEL_(NAME)
#define GRAFT_DECLARE_MODEL_(NAME)                                                                                     \
  GRAFT_C const GraftModel *graft_model_##NAME(void);                                                                  \
  GRAFT_C int32_t graft_model_##NAME##_load(const GraftLoadOptions *options, GraftProgram **program,                   \
                                            GraftError *error);                                                        \
  GRAFT_C void graft_model_##NAME##_destroy(GraftProgram *program);                                                    \
  GRAFT_C int32_t graft_model_##NAME##_input_count(const GraftProgram *program);                                       \
  GRAFT_C int32_t graft_model_##NAME##_output_count(const GraftProgram *program);                                      \
  GRAFT_C GraftTensorInfo graft_model_##NAME##_input(const GraftProgram *program, int32_t index);                      \
  GRAFT_C GraftTensorInfo graft_model_##NAME##_output(const GraftProgram *program, int32_t index);                     \
  GRAFT_C int32_t graft_model_##NAME##_symbol_count(const GraftProgram *program);                                      \
  GRAFT_C GraftSymbolInfo graft_model_##NAME##_symbol(const GraftProgram *program, int32_t index);                     \
  GRAFT_C int32_t graft_model_##NAME##_run(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs,           \
                                           GraftError *error);                                                         \
  GRAFT_C void graft_model_##NAME##_free_output(DLTensor *output);                                                     \
  GRAFT_C int32_t graft_model_##NAME##_run_with(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs,      \
                                                const GraftRunOptions *options, GraftError *error);                    \
  GRAFT_C void graft_model_##NAME##_cancel(GraftCancelToken *token);                                                   \
  GRAFT_C int32_t graft_model_##NAME##_input_index(const GraftProgram *program, const char *name);                     \
  GRAFT_C int32_t graft_model_##NAME##_output_index(const GraftProgram *program, const char *name);                    \
  GRAFT_C int32_t graft_model_##NAME##_thread_pool_create(int32_t threads, const GraftAllocator *allocator,            \
                                                          GraftThreadPool **pool, GraftError *error);                  \
  GRAFT_C void graft_model_##NAME##_thread_pool_destroy(GraftThreadPool *pool);

#ifdef __cplusplus
}
#endif
#endif
