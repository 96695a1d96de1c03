#include "program/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/platform.h"
#include "base/sort.h"
#include "devices/devices.h"
#include "instance/instance.h"

#define POOL_LEAST (offsetof(GraftThreadPool, leave) + sizeof(void *))

enum { MAXIMUM_THREADS = 1024, MAXIMUM_MANIFEST_BYTES = 1 << 30, CONSTANT_ALIGNMENT = 64 };

/* ---- Creation ------------------------------------------------------------------------------------------------- */

static int32_t out_of_memory(GraftError *error) {
  return graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory while creating a program");
}

static int32_t read_manifest(GraftProgram *program, GraftError *error) {
  const GraftProgramSource *source = &program->source;
  char message[160];
  if (source->manifest_size > MAXIMUM_MANIFEST_BYTES) {
    return graft_set_error(error, GRAFT_ERROR_ARTIFACT, "damaged manifest: %zu bytes are too many",
                           source->manifest_size);
  }
  program->document = graft_json_parse(source->manifest, source->manifest_size, program->memory, message,
                                       sizeof message);
  if (!program->document) {
    return graft_json_lacked_memory(message)
               ? out_of_memory(error)
               : graft_set_error(error, GRAFT_ERROR_ARTIFACT, "damaged manifest: %s", message);
  }
  GRAFT_TRY(graft_read_manifest(graft_json_root(program->document), &program->store, &program->manifest, error));
  GRAFT_TRY(graft_check_procedures(&program->manifest, &program->store, error));
  GRAFT_TRY(graft_check_variants(&program->manifest, error));
  GRAFT_TRY(graft_check_targets(program->manifest.targets, error));
  if (source->module_count != (size_t)program->manifest.module_count) {
    return graft_set_error(error, GRAFT_ERROR_ARTIFACT, "the manifest names %" PRId32 " modules, %zu are there",
                           program->manifest.module_count, source->module_count);
  }
  return GRAFT_OK;
}

/* Kernels may rely on 64-byte alignment, so a constant that lies otherwise is copied. */
static int32_t place_constant(GraftProgram *program, size_t number, GraftError *error) {
  const GraftNamedTensor *given = program->source.constants + number;
  DLTensor *tensor = program->constants + number;
  size_t bytes;
  *tensor = *given->tensor;
  if (!graft_tensor_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes) || !graft_is_contiguous(tensor) ||
      tensor->device.device_type != kDLCPU) {
    return graft_set_error(error, GRAFT_ERROR_ARTIFACT, "constant '%s' is not a contiguous tensor in main memory",
                           given->name);
  }
  tensor->data = (char *)tensor->data + tensor->byte_offset;
  tensor->byte_offset = 0;
  tensor->strides = NULL;
  if ((uintptr_t)tensor->data % CONSTANT_ALIGNMENT) {
    void *copy = graft_store_allocate(&program->store, 1, bytes);
    if (!copy) {
      return out_of_memory(error);
    }
    if (bytes) {
      memcpy(copy, tensor->data, bytes);
    }
    tensor->data = copy;
  }
  return GRAFT_OK;
}

static int32_t place_constants(GraftProgram *program, GraftError *error) {
  program->constants = graft_store_allocate(&program->store, program->source.constant_count, sizeof(DLTensor));
  if (!program->constants) {
    return out_of_memory(error);
  }
  for (size_t i = 0; i < program->source.constant_count; i++) {
    GRAFT_TRY(place_constant(program, i, error));
  }
  return GRAFT_OK;
}

static int32_t write_extents(GraftProgram *program, const IndexList *list, GraftError *error) {
  char text[1024];
  Procedure *main = program->manifest.procedures;
  for (int32_t i = 0; i < list->count; i++) {
    TensorSpec *spec = main->tensors + list->items[i];
    spec->extents = graft_store_allocate(&program->store, spec->ndim < 0 ? 0 : (size_t)spec->ndim, sizeof(char *));
    for (int32_t axis = 0; spec->extents && axis < spec->ndim; axis++) {
      text[0] = 0;
      graft_append_extent(text, sizeof text, main,
                          spec->dimensions ? spec->dimensions[axis] : (Dimension){-1, spec->shape[axis]});
      char *copy = graft_store_allocate(&program->store, strlen(text) + 1, 1);
      spec->extents[axis] = copy ? strcpy(copy, text) : NULL;
      if (!copy) {
        return out_of_memory(error);
      }
    }
    if (!spec->extents) {
      return out_of_memory(error);
    }
  }
  return GRAFT_OK;
}

static int compare_names(const void *left, const void *right) {
  const GraftNamedTensor *a = left, *b = right;
  return strcmp(a->name, b->name);
}

static int32_t attach_constant(const GraftNamedTensor *sorted, size_t count, TensorSpec *spec, GraftError *error) {
  GraftNamedTensor wanted = {spec->constant, NULL};
  const GraftNamedTensor *found = count ? bsearch(&wanted, sorted, count, sizeof *sorted, compare_names) : NULL;
  if (!found) {
    return graft_set_error(error, GRAFT_ERROR_ARTIFACT, "constant '%s' of tensor '%s' is missing", spec->constant,
                           spec->name);
  }
  if (!graft_dtype_equal(found->tensor->dtype, spec->dtype) ||
      !graft_shape_equal(spec->ndim, spec->shape, found->tensor->ndim, found->tensor->shape)) {
    char expected[256] = "", got[256] = "";
    graft_append_shape(expected, sizeof expected, spec->ndim, spec->shape);
    graft_append_shape(got, sizeof got, found->tensor->ndim, found->tensor->shape);
    return graft_set_error(error, GRAFT_ERROR_ARTIFACT, "constant '%s' is %s%s, and tensor '%s' needs %s%s",
                           spec->constant, graft_dtype_name(found->tensor->dtype), got, spec->name,
                           graft_dtype_name(spec->dtype), expected);
  }
  spec->data = found->tensor;
  return GRAFT_OK;
}

static int32_t attach_constants(GraftProgram *program, GraftError *error) {
  size_t count = program->source.constant_count;
  GraftNamedTensor *sorted = graft_allocate_zeroed(program->memory, count, sizeof *sorted);
  if (!sorted) {
    return out_of_memory(error);
  }
  for (size_t i = 0; i < count; i++) {
    sorted[i] = (GraftNamedTensor){program->source.constants[i].name, program->constants + i};
  }
  graft_sort(sorted, count, sizeof *sorted, compare_names);
  int32_t status = GRAFT_OK;
  for (int32_t i = 0; !status && i < program->manifest.procedure_count; i++) {
    const Procedure *procedure = program->manifest.procedures + i;
    for (int32_t k = 0; !status && k < procedure->tensor_count; k++) {
      if (procedure->tensors[k].storage == STORAGE_CONSTANT) {
        status = attach_constant(sorted, count, procedure->tensors + k, error);
      }
    }
  }
  graft_release(program->memory, sorted);
  return status;
}

static int32_t check_threads(int32_t count, GraftError *error) {
  if (count < 0 || count > MAXIMUM_THREADS) {
    return graft_set_error(error, GRAFT_ERROR_INPUT, "%" PRId32 " threads are not between 0 and %d", count,
                           MAXIMUM_THREADS);
  }
  return GRAFT_OK;
}

static int32_t create_threads(GraftProgram *program, GraftError *error) {
  if (program->thread_count < 2) {
    program->pool = NULL;
    return GRAFT_OK;
  }
  if (!program->pool) {
    program->pool = program->own_pool = graft_pool_create(program->thread_count, program->memory);
  }
  size_t count = program->pool ? (size_t)program->pool->thread_count : 0;
  program->workers = graft_store_allocate(&program->store, count, sizeof(Context));
  if (!program->pool || !program->workers) {
    return out_of_memory(error);
  }
  for (size_t i = 1; i < count; i++) {
    graft_create_context(program->workers + i, program->memory, NULL, 1);
  }
  return GRAFT_OK;
}

/* How many threads runs may use; all of a pool has no more. */
static int32_t choose_threads(GraftProgram *program, const GraftLoadOptions *options, GraftError *error) {
  const GraftThreadPool *pool = options->thread_pool;
  GRAFT_TRY(check_threads(options->threads, error));
  if (pool && (pool->size < POOL_LEAST || !pool->run || pool->thread_count < 1 || pool->thread_count > MAXIMUM_THREADS)) {
    return graft_set_error(error, GRAFT_ERROR_INPUT, "the pool of threads lacks its size, its function 'run' or threads");
  }
  int32_t most = pool ? pool->thread_count : MAXIMUM_THREADS;
  int32_t wanted = options->threads ? options->threads : pool ? most : graft_processor_count();
  program->thread_count = wanted < most ? wanted : most;
  program->pool = options->thread_pool;
  return GRAFT_OK;
}

int32_t graft_thread_pool_create(int32_t threads, const GraftAllocator *allocator, GraftThreadPool **pool,
                                 GraftError *error) {
  *pool = NULL;
  GRAFT_TRY(check_threads(threads, error));
  *pool = graft_pool_create(threads ? threads : graft_processor_count(), allocator);
  return *pool ? GRAFT_OK : graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory while creating a pool of threads");
}

void graft_thread_pool_destroy(GraftThreadPool *pool) { graft_pool_destroy(pool); }

/* The first instance is made at once, so that a program that does not fit into memory is refused here. */
static int32_t create_first_instance(GraftProgram *program, GraftError *error) {
  Instance *instance = graft_acquire_instance(program);
  if (!instance) {
    uint64_t largest = 0;
    for (int32_t i = 0; i < program->manifest.procedure_count; i++) {
      uint64_t bytes = program->manifest.procedures[i].arena_bytes;
      largest = bytes > largest ? bytes : largest;
    }
    return graft_set_error(error, GRAFT_ERROR_MEMORY,
                           "out of memory: the program needs an arena of %" PRIu64 " bytes", largest);
  }
  graft_release_instance(instance);
  return GRAFT_OK;
}

/* Modules may look at their constants while they are loaded; compiled functions see theirs when the program runs. */
static int32_t check_handed_constants(GraftProgram *program, GraftError *error) {
  for (size_t i = 0; i < program->source.module_count; i++) {
    if (program->source.modules[i].constant_count > 0) {
      return graft_check_constants(program, NULL, error);
    }
  }
  return GRAFT_OK;
}

static int32_t build(GraftProgram *program, const GraftLoadOptions *options, GraftError *error) {
  GRAFT_TRY(choose_threads(program, options, error));
  GRAFT_TRY(read_manifest(program, error));
  GRAFT_TRY(write_extents(program, &program->manifest.procedures[0].inputs, error));
  GRAFT_TRY(write_extents(program, &program->manifest.procedures[0].outputs, error));
  GRAFT_TRY(check_handed_constants(program, error));
  GRAFT_TRY(place_constants(program, error));
  GRAFT_TRY(attach_constants(program, error));
  GRAFT_TRY(graft_open_devices(program, error));
  GRAFT_TRY(graft_upload_constants(program, error));
  GRAFT_TRY(create_threads(program, error));
  GRAFT_TRY(graft_load_modules(program, options, error));
  return create_first_instance(program, error);
}

int32_t graft_program_create(const GraftProgramSource *source, const GraftLoadOptions *options, GraftProgram **program,
                             GraftError *error) {
  *program = NULL;
  GraftLoadOptions taken = {0};
  int32_t status = graft_take_options("GraftLoadOptions", options, &taken, sizeof taken, error);
  GraftProgram *created = status ? NULL : graft_allocate(taken.allocator, sizeof(GraftProgram));
  if (created) {
    *created = (GraftProgram){.source = *source};
  }
  if (!created || pthread_mutex_init(&created->lock, NULL) != 0) {
    graft_release(taken.allocator, created);
    if (source->release) {
      source->release(source->owner);
    }
    return status ? status : out_of_memory(error);
  }
  if (taken.allocator) {
    created->host = *taken.allocator;
    created->memory = created->store.allocator = &created->host;
  }
  status = build(created, &taken, error);
  if (status) {
    graft_program_destroy(created);
    return status;
  }
  *program = created;
  return GRAFT_OK;
}

void graft_program_destroy(GraftProgram *program) {
  if (!program) {
    return;
  }
  while (program->idle) {
    Instance *instance = program->idle;
    program->idle = instance->next;
    graft_destroy_instance(instance);
  }
  int32_t workers = program->workers && program->pool ? program->pool->thread_count : 0;
  graft_pool_destroy(program->own_pool);
  for (int32_t i = 1; i < workers; i++) {
    graft_scratch_destroy(&program->workers[i].scratch);
  }
  graft_unload_modules(program);
  graft_close_devices(program);
  graft_json_free(program->document);
  graft_store_destroy(&program->store);
  pthread_mutex_destroy(&program->lock);
  if (program->source.release) {
    program->source.release(program->source.owner);
  }
  const GraftAllocator host = program->host;
  graft_release(program->memory ? &host : NULL, program);
}

/* ---- Interface ------------------------------------------------------------------------------------------------ */

static const IndexList *list_of(const GraftProgram *program, int outputs) {
  const Procedure *main = program->manifest.procedures;
  return outputs ? &main->outputs : &main->inputs;
}

static GraftTensorInfo tensor_info(const GraftProgram *program, const IndexList *list, int32_t index) {
  if (index < 0 || index >= list->count) {
    return (GraftTensorInfo){.name = NULL, .ndim = -1};
  }
  const TensorSpec *spec = program->manifest.procedures[0].tensors + list->items[index];
  return (GraftTensorInfo){
      .name = spec->name, .dtype = spec->dtype, .ndim = spec->ndim, .shape = spec->shape, .extents = spec->extents};
}

int32_t graft_program_input_count(const GraftProgram *program) { return list_of(program, 0)->count; }

int32_t graft_program_output_count(const GraftProgram *program) { return list_of(program, 1)->count; }

GraftTensorInfo graft_program_input(const GraftProgram *program, int32_t index) {
  return tensor_info(program, list_of(program, 0), index);
}

GraftTensorInfo graft_program_output(const GraftProgram *program, int32_t index) {
  return tensor_info(program, list_of(program, 1), index);
}

static int32_t index_of(const GraftProgram *program, const IndexList *list, const char *name) {
  for (int32_t i = 0; name && i < list->count; i++) {
    if (!strcmp(program->manifest.procedures[0].tensors[list->items[i]].name, name)) {
      return i;
    }
  }
  return -1;
}

int32_t graft_program_input_index(const GraftProgram *program, const char *name) {
  return index_of(program, list_of(program, 0), name);
}

int32_t graft_program_output_index(const GraftProgram *program, const char *name) {
  return index_of(program, list_of(program, 1), name);
}

int32_t graft_program_symbol_count(const GraftProgram *program) {
  return program->manifest.procedures[0].symbol_count;
}

GraftSymbolInfo graft_program_symbol(const GraftProgram *program, int32_t index) {
  if (index < 0 || index >= graft_program_symbol_count(program)) {
    return (GraftSymbolInfo){.high = -1};
  }
  const SymbolSpec *symbol = program->manifest.procedures[0].symbols + index;
  return (GraftSymbolInfo){symbol->name, symbol->low, symbol->high == GRAFT_MAXIMUM_EXTENT ? -1 : symbol->high};
}
