/* Graft's runtime: load an artifact, run it; and the ABI between the runtime and compiled modules.
 *
 * Two audiences share this header. Applications use the functions below "Programs". Modules (compiled regions) see
 * only GraftContext and its function table: native code that Graft emits has no external symbols.
 *
 * Every function that can fail returns GRAFT_OK (0) or an error code, whose meaning graft_code_text() says, and leaves a
 * text in the caller's GraftError. There is no global mutable state.
 */
#ifndef GRAFT_RUNTIME_H
#define GRAFT_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include "graft/dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GRAFT_ABI_VERSION 2

enum {
  GRAFT_OK = 0,
  GRAFT_ERROR_MEMORY = 1,   /* an allocation failed */
  GRAFT_ERROR_ARTIFACT = 2, /* damaged, hostile or of another version */
  GRAFT_ERROR_LOADER = 3,   /* no loader for a module kind, or the loader failed */
  GRAFT_ERROR_INPUT = 4,    /* wrong number, dtype, shape or device of an input */
  GRAFT_ERROR_RUN = 5,      /* a compiled function failed */
  GRAFT_ERROR_SYSTEM = 6,   /* the operating system refused something */
  GRAFT_ERROR_CANCELLED = 7, /* a run was cancelled */
  GRAFT_ERROR_DEADLINE = 8   /* a run was not done in its time */
};

/* ---- The ABI of compiled functions ---------------------------------------------------------------------------- */

typedef struct GraftContext GraftContext;

typedef int32_t (*GraftFunction)(GraftContext *context, void *state, const DLTensor *const *inputs,
                                 DLTensor *const *outputs);

/* One contiguous part [begin, end) of a parallel loop. `context` is that of the executing thread. */
typedef int32_t (*GraftTask)(GraftContext *context, void *closure, int64_t begin, int64_t end);

/* The function table. Entries are only ever appended; `size` is sizeof(GraftApi) of the runtime. */
typedef struct GraftApi {
  uint32_t abi_version;
  uint32_t size;
  /* Runs task over [0, count), split into at most thread_count contiguous parts of at least `grain` iterations each;
   * how many depends on what else runs. In a run that may be stopped, a part comes in several tasks of at least `grain`
   * iterations, one after another. Nested calls run serially. Returns the first error of any part. */
  int32_t (*parallel_for)(GraftContext *context, int64_t count, int64_t grain, GraftTask task, void *closure);
  /* 64-byte aligned memory, private to the calling thread, valid until the current function or task returns.
   * NULL when memory runs out (the error text is set). Repeated calls return disjoint blocks. */
  void *(*scratch)(GraftContext *context, uint64_t bytes);
  /* Allocates output `index` of the running call, whose shape was unknown before. NULL on failure. */
  void *(*allocate_output)(GraftContext *context, int32_t index, int32_t ndim, const int64_t *shape);
  /* Records a printf-style message and returns GRAFT_ERROR_RUN, so that a function can `return fail(...)`. */
  int32_t (*fail)(GraftContext *context, const char *format, ...);
  /* The number of threads that parallel_for may use, at least 1. */
  int32_t (*thread_count)(GraftContext *context);
  /* The stream of the running call on a device that the program uses (graft/device.h); NULL for others, and in tasks.
   * What a function puts there may still run when it returns: the runtime waits where somebody has to. */
  void *(*stream)(GraftContext *context, DLDevice device);
  /* Memory of such a device until what the running function put on that stream is done. Repeated calls return disjoint
   * blocks. NULL when memory runs out (the error text is set). */
  void *(*device_scratch)(GraftContext *context, DLDevice device, uint64_t bytes);
} GraftApi;

/* What a compiled function may read of its context; the rest is the runtime's own. */
struct GraftContext {
  const GraftApi *api;
};

/* The state of functions of kind "c_source": what one call of the program keeps from run to run, such as a vendor's
 * operator. A run takes an object out of a place, so that it has it alone, and puts it back; what is left at unload
 * goes to `destroy`. All zero at first. */
enum { GRAFT_KEPT = 8 };
typedef struct GraftKept {
  void *objects[GRAFT_KEPT];
  void (*destroy)(void *object);
} GraftKept;

/* ---- Loaders: one per module kind ----------------------------------------------------------------------------- */

typedef struct GraftNamedTensor {
  const char *name;
  const DLTensor *tensor; /* stays valid, read-only, as long as the program lives */
} GraftNamedTensor;

typedef struct GraftModuleSource {
  const char *name;
  const char *kind;
  const void *data;
  size_t size;
  const GraftNamedTensor *constants;
  size_t constant_count;
  int32_t thread_count;
} GraftModuleSource;

/* `fail` stores the message for the caller of the loader and returns GRAFT_ERROR_LOADER; where memory ran out, a loader
 * returns what `graft_fail_memory` does. How many inputs and outputs a function is given is known where it is looked up
 * for a call, and -1 elsewhere. */
typedef struct GraftLoaderHost {
  uint32_t abi_version;
  int32_t (*fail)(const struct GraftLoaderHost *host, const char *format, ...);
  int32_t input_count, output_count;
} GraftLoaderHost;

static inline int32_t graft_fail_memory(const GraftLoaderHost *host, const char *module) {
  host->fail(host, "module '%s': memory ran out", module);
  return GRAFT_ERROR_MEMORY;
}

typedef struct GraftLoader {
  uint32_t abi_version;
  const char *kind;
  void *user;
  int32_t (*load)(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **module);
  /* Gives the function and the state to call it with; both stay valid until unload. */
  int32_t (*lookup)(void *user, const GraftLoaderHost *host, void *module, const char *function,
                    GraftFunction *entry, void **state);
  void (*unload)(void *user, void *module);
} GraftLoader;

/* A shared library that provides a loader exports: const GraftLoader *graft_loader(void); */
typedef const GraftLoader *(*GraftLoaderEntry)(void);

/* ---- What a host gives ---------------------------------------------------------------------------------------- */

/* Memory of the host's own. Several threads may call both at a time. */
typedef struct GraftAllocator {
  void *(*allocate)(void *user, size_t bytes); /* at a multiple of 64; NULL when there is none */
  void (*release)(void *user, void *block);    /* of what `allocate` gave; never NULL */
  void *user;
} GraftAllocator;

/* One part of a job. */
typedef void (*GraftPart)(void *job, int32_t worker, int32_t part);

/* Threads that programs share: those that graft_thread_pool_create starts, or a host's own. It stays as it is until the
 * last program that has it is destroyed, and may be of another library than the program. */
typedef struct GraftThreadPool {
  uint32_t size;        /* sizeof(GraftThreadPool) */
  int32_t thread_count; /* that may work at a time, the caller's included */
  /* Runs `part` for parts 0 to parts - 1, at most thread_count, and returns 1 when all are done; or returns 0, having done
   * nothing, and its caller does them all. `worker` is 0 in the calling thread, else 1 to thread_count - 1, and no two
   * threads have the same number above 0 at a time. */
  int32_t (*run)(struct GraftThreadPool *pool, int32_t parts, GraftPart part, void *job);
  /* Into how many parts a loop is worth splitting now, at least 1. NULL: thread_count. */
  int32_t (*free_threads)(struct GraftThreadPool *pool);
  /* Around each run; `leave` only if `enter` returned 1. NULL: nothing. */
  int32_t (*enter)(struct GraftThreadPool *pool);
  void (*leave)(struct GraftThreadPool *pool);
} GraftThreadPool;

/* ---- Programs ------------------------------------------------------------------------------------------------- */

typedef struct GraftProgram GraftProgram;

/* A caller-owned error text. Zero-initialise it; no need to free it. */
typedef struct GraftError {
  int32_t code;
  char message[1024];
} GraftError;

/* What an error code means, in a few words; never NULL. */
const char *graft_code_text(int32_t code);

/* Options are zero but for what is wanted. Fields are only ever appended; those beyond `size` count as zero. */
typedef struct GraftLoadOptions {
  uint32_t size;                      /* sizeof(GraftLoadOptions) */
  int32_t threads;                    /* 0: as many as the process may use, or as `thread_pool` has */
  const GraftLoader *const *loaders;  /* besides the built-in kind "native" */
  size_t loader_count;
  const GraftAllocator *allocator;    /* NULL: the heap. Copied */
  GraftThreadPool *thread_pool;       /* NULL: the program starts threads of its own */
} GraftLoadOptions;

/* Starts threads for several programs, with their first parallel loop; a count of 0 is that of the processors that the
 * process may use. `allocator` may be NULL. */
int32_t graft_thread_pool_create(int32_t threads, const GraftAllocator *allocator, GraftThreadPool **pool,
                                 GraftError *error);
void graft_thread_pool_destroy(GraftThreadPool *pool);

/* Maps the artifact at `path`, a file of its own or a part of a shared library that `graft export` wrote. `options` may
 * be NULL. With an allocator, all that loading and runs ask for in main memory is the host's, and nothing the heap's:
 * but for a vendor's loader, which takes what it likes. */
int32_t graft_program_load(const char *path, const GraftLoadOptions *options, GraftProgram **program,
                           GraftError *error);

/* The same for the bytes of such a file, at a multiple of 64, which must stay as they are until the program is
 * destroyed. */
int32_t graft_program_load_memory(const void *bytes, size_t size, const GraftLoadOptions *options,
                                  GraftProgram **program, GraftError *error);
void graft_program_destroy(GraftProgram *program);

typedef struct GraftTensorInfo {
  const char *name;
  DLDataType dtype;
  int32_t ndim;         /* -1: known only after a run */
  const int64_t *shape;        /* -1 for an extent that is no number */
  const char *const *extents;  /* each as text, as in "2 * seq" */
} GraftTensorInfo;

/* A dimension that has a value in each run. */
typedef struct GraftSymbolInfo {
  const char *name;
  int64_t low;
  int64_t high; /* -1: no limit */
} GraftSymbolInfo;

int32_t graft_program_input_count(const GraftProgram *program);
int32_t graft_program_output_count(const GraftProgram *program);
GraftTensorInfo graft_program_input(const GraftProgram *program, int32_t index);
GraftTensorInfo graft_program_output(const GraftProgram *program, int32_t index);

/* Which input or output has a name; -1 where none has. */
int32_t graft_program_input_index(const GraftProgram *program, const char *name);
int32_t graft_program_output_index(const GraftProgram *program, const char *name);

/* The symbols of the extents above: those that inputs bind, and those that are known after a run. */
int32_t graft_program_symbol_count(const GraftProgram *program);
GraftSymbolInfo graft_program_symbol(const GraftProgram *program, int32_t index);

/* Runs the program. May be called by several threads at once: each call has its own arena.
 * outputs[i].data == NULL: the runtime allocates it (and the shape), where outputs[i].device says: in main memory, if
 * that is zero too; free it with graft_free_output, before the program is destroyed. Else it has the shape that follows
 * from those of the inputs. Inputs and outputs are in main memory, or on a device that the program computes on
 * (graft/device.h); what is done there is done when this returns. All are contiguous, but a growing cache and what it
 * becomes may be the first rows of one buffer (docs/runtime.md). */
int32_t graft_program_run(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs, GraftError *error);

/* What other threads stop runs with. Zero at first, changed by graft_cancel alone; it stays where it is until the runs
 * that have it have returned. Runs that begin later are stopped, too. */
typedef struct GraftCancelToken {
  int32_t is_cancelled;
} GraftCancelToken;

void graft_cancel(GraftCancelToken *token);

/* What one call of a program took. The texts stay valid as long as the program. */
typedef struct GraftCallTime {
  const char *function; /* and its module; NULL for what the runtime does itself: copies and control flow */
  const char *module;
  const char *kind;         /* of the module */
  const char *const *nodes; /* of the model that it computes */
  int32_t node_count;
  int32_t depth;       /* 0; in a body of control flow, in how many, and the call that runs it comes after it */
  int64_t begin;       /* in nanoseconds of a clock that never goes back */
  int64_t nanoseconds; /* what a device was given to do included */
} GraftCallTime;

typedef struct GraftRunOptions {
  uint32_t size;            /* sizeof(GraftRunOptions) */
  int64_t nanoseconds;      /* that the run may take; 0: any time, less: none is left */
  GraftCancelToken *cancel; /* NULL: nobody cancels it */
  /* Called behind each call, in the thread of the run, with `user`. NULL: calls are not timed. */
  void (*timed)(void *user, const GraftCallTime *time);
  void *user;
} GraftRunOptions;

/* The same for a run that is timed or may be stopped: before each call of a compiled function, each iteration of control
 * flow and each task of a parallel loop. It returns GRAFT_ERROR_CANCELLED or GRAFT_ERROR_DEADLINE then, with a text that
 * says how far it came, and no output is given; what a caller's memory for outputs holds is undefined. `options` may be
 * NULL. */
int32_t graft_program_run_with(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs,
                               const GraftRunOptions *options, GraftError *error);
void graft_free_output(DLTensor *output);

#ifdef __cplusplus
}
#endif
#endif
