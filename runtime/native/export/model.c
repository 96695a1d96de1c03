/* The functions of one model's library, under its name; the artifact is that of artifact.S. */
#include "graft/model.h"

#define JOIN_(LEFT, RIGHT) LEFT##RIGHT
#define JOIN(LEFT, RIGHT) JOIN_(LEFT, RIGHT)
#define ENTRY(FUNCTION) JOIN(JOIN(graft_model_, GRAFT_MODEL), FUNCTION)
#define EXPORTED __attribute__((visibility("default")))

extern const uint8_t *const graft_artifact[2] __attribute__((visibility("hidden"))); /* begin and end */

GRAFT_DECLARE_MODEL(GRAFT_MODEL)

EXPORTED int32_t ENTRY(_load)(const GraftLoadOptions *options, GraftProgram **program, GraftError *error) {
  return graft_program_load_memory(graft_artifact[0], (size_t)(graft_artifact[1] - graft_artifact[0]), options, program,
                                   error);
}

EXPORTED void ENTRY(_destroy)(GraftProgram *program) { graft_program_destroy(program); }

EXPORTED int32_t ENTRY(_input_count)(const GraftProgram *program) { return graft_program_input_count(program); }

EXPORTED int32_t ENTRY(_output_count)(const GraftProgram *program) { return graft_program_output_count(program); }

EXPORTED GraftTensorInfo ENTRY(_input)(const GraftProgram *program, int32_t index) {
  return graft_program_input(program, index);
}

EXPORTED GraftTensorInfo ENTRY(_output)(const GraftProgram *program, int32_t index) {
  return graft_program_output(program, index);
}

EXPORTED int32_t ENTRY(_symbol_count)(const GraftProgram *program) { return graft_program_symbol_count(program); }

EXPORTED GraftSymbolInfo ENTRY(_symbol)(const GraftProgram *program, int32_t index) {
  return graft_program_symbol(program, index);
}

EXPORTED int32_t ENTRY(_run)(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs, GraftError *error) {
  return graft_program_run(program, inputs, outputs, error);
}

EXPORTED void ENTRY(_free_output)(DLTensor *output) { graft_free_output(output); }

EXPORTED int32_t ENTRY(_run_with)(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs,
                                  const GraftRunOptions *options, GraftError *error) {
  return graft_program_run_with(program, inputs, outputs, options, error);
}

EXPORTED void ENTRY(_cancel)(GraftCancelToken *token) { graft_cancel(token); }

EXPORTED int32_t ENTRY(_input_index)(const GraftProgram *program, const char *name) {
  return graft_program_input_index(program, name);
}

EXPORTED int32_t ENTRY(_output_index)(const GraftProgram *program, const char *name) {
  return graft_program_output_index(program, name);
}

EXPORTED int32_t ENTRY(_thread_pool_create)(int32_t threads, const GraftAllocator *allocator, GraftThreadPool **pool,
                                            GraftError *error) {
  return graft_thread_pool_create(threads, allocator, pool, error);
}

EXPORTED void ENTRY(_thread_pool_destroy)(GraftThreadPool *pool) { graft_thread_pool_destroy(pool); }

EXPORTED const GraftModel *JOIN(graft_model_, GRAFT_MODEL)(void) {
  static const GraftModel model = {GRAFT_ABI_VERSION,
                                   sizeof(GraftModel),
                                   ENTRY(_load),
                                   graft_program_destroy,
                                   graft_program_input_count,
                                   graft_program_output_count,
                                   graft_program_input,
                                   graft_program_output,
                                   graft_program_symbol_count,
                                   graft_program_symbol,
                                   graft_program_run,
                                   graft_free_output,
                                   graft_program_run_with,
                                   graft_cancel,
                                   graft_program_input_index,
                                   graft_program_output_index,
                                   graft_thread_pool_create,
                                   graft_thread_pool_destroy};
  return &model;
}
