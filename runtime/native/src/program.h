/* Programs from parts in memory, and the state of their calls. */
#ifndef GRAFT_PROGRAM_H
#define GRAFT_PROGRAM_H

#include <pthread.h>

#include "error.h"
#include "graft/runtime.h"
#include "pool.h"
#include "procedure.h"
#include "scratch.h"
#include "store.h"

/* What a program is made of. `modules` are in the order of the manifest. All memory must stay valid until `release`
 * (which may be NULL) is called: when the program is destroyed, or at once if it cannot be created. `check` (which may be
 * NULL) says whether the constants are right; it is called before anything sees them, and has to be fast when it is
 * called again. */
typedef struct GraftProgramSource {
  const char *manifest;
  size_t manifest_size;
  const GraftModuleSource *modules;
  size_t module_count;
  const GraftNamedTensor *constants;
  size_t constant_count;
  int32_t (*check)(void *owner, GraftContext *context, GraftError *error);
  void (*release)(void *owner);
  void *owner;
} GraftProgramSource;

int32_t graft_program_create(const GraftProgramSource *source, const GraftLoadOptions *options, GraftProgram **program,
                             GraftError *error);

/* Memory of a tensor whose shape was unknown: `start` holds the shape, the data follow. */
typedef struct Block {
  void *start;
  size_t capacity; /* bytes of data */
} Block;

/* One activation of a procedure. Bodies cannot contain themselves, so each procedure has one frame per instance. */
typedef struct Frame {
  const Procedure *procedure;
  char *arena;
  DLTensor *tensors;
  DLTensor **pointers; /* of all calls: inputs, then outputs; NULL for absent ones */
  Block *blocks;       /* per tensor; used by those of unknown shape */
} Frame;

typedef struct Instance Instance;

/* What a thread knows while it runs compiled code; compiled code sees `base`. */
typedef struct Context {
  GraftContext base;
  Instance *instance; /* NULL in a worker */
  Scratch scratch;
  Pool *pool; /* NULL: parallel_for runs serially */
  int32_t thread_count;
  Frame *frame;
  const Call *call;
  char message[768]; /* of the last failure; empty if there was none */
} Context;

/* The state of one running call of a program; instances are kept and used again. */
struct Instance {
  Instance *next;
  GraftProgram *program;
  Context context;
  Store store;
  Frame *frames; /* by procedure number */
  const Call *failed;
  int64_t *nanoseconds; /* NULL, or a time for each call of procedure 0 */
  void *user;
};

/* A module that its loader made. */
typedef struct LoadedModule {
  const GraftLoader *loader;
  void *module;
} LoadedModule;

struct GraftProgram {
  GraftProgramSource source;
  JsonDocument *document;
  Store store;
  Manifest manifest;
  int32_t thread_count;
  LoadedModule *modules;
  int32_t loaded_count;
  DLTensor *constants; /* 64-byte aligned, in the order of the source */
  Pool *pool;          /* NULL for one thread */
  Context *workers;    /* by worker number; 0 is unused */
  pthread_mutex_t lock;
  Instance *idle;
};

/* Module loading (module.c). */
int32_t graft_load_modules(GraftProgram *program, const GraftLoadOptions *options, GraftError *error);
void graft_unload_modules(GraftProgram *program);
extern const GraftLoader graft_native_loader;

/* Instances (instance.c). */
Instance *graft_acquire_instance(GraftProgram *program);
void graft_release_instance(Instance *instance);
void graft_destroy_instance(Instance *instance);

/* Gives the tensor memory for this shape; 0 when memory runs out. The data hold nothing definite. */
int graft_block_reserve(Block *block, DLTensor *tensor, int32_t ndim, const int64_t *shape, size_t bytes);
void graft_block_free(Block *block);

/* Sets the data of a tensor that is not fixed, and of the views of it. Returns 0 if a view would leave it. */
int graft_frame_bind(Frame *frame, int32_t tensor, void *data);

/* The function table (context.c). */
extern const GraftApi graft_api;
void graft_create_context(Context *context, Pool *pool, int32_t thread_count);

/* Records a message (if none is recorded yet) and returns `status`. */
int32_t graft_context_fail(Context *context, int32_t status, const char *format, ...) GRAFT_FORMAT(3, 4);

/* An output of a running procedure, as its caller sees it. */
typedef struct Result {
  DLTensor tensor; /* before: data != NULL is where it must be written, and has this shape. After: the output */
  Block block;     /* after: its memory, if the procedure made it */
} Result;

/* Whether output `i` has a known shape and is written straight to where it is wanted: then the result needs data
 * before the procedure runs. */
int graft_writes_in_place(const Procedure *procedure, int32_t i);

/* Runs a procedure whose inputs are bound (execute.c). `results` are its outputs. */
int32_t graft_run_procedure(Context *context, Frame *frame, Result *results);

/* Binds input `i` of the frame to a value whose type is known to be right; checks the shape. */
int32_t graft_bind_input(Context *context, Frame *frame, int32_t i, const DLTensor *value);

/* Before and after a body runs: lets its output `i` become `tensor` of the calling frame (-1: nobody wants it). */
int32_t graft_prepare_result(Context *context, Frame *frame, int32_t tensor, const Procedure *body, int32_t i,
                             Result *result);
int32_t graft_deliver_result(Context *context, Frame *frame, int32_t tensor, Result *result);

/* Copies a value to a tensor of the frame, which gets its shape if that is unknown. */
int32_t graft_store_value(Context *context, Frame *frame, int32_t tensor, const DLTensor *value);

/* Memory for `count` items until the running call ends; NULL, with the message set, when it runs out. */
void *graft_call_memory(Context *context, size_t count, size_t bytes);

/* Control flow (control.c). */
int32_t graft_run_if(Context *context, Frame *frame, const Call *call);
int32_t graft_run_loop(Context *context, Frame *frame, const Call *call);
int32_t graft_run_scan(Context *context, Frame *frame, const Call *call);

/* More than graft_program_run: the call that failed, and times. */
typedef struct GraftRunDetails {
  int64_t *nanoseconds; /* in: NULL, or room for one time per call of procedure 0 */
  void *user;           /* in: what graft_context_user gives to functions of this run */
  const Call *failed;   /* out */
} GraftRunDetails;

int32_t graft_program_run_detailed(GraftProgram *program, const DLTensor *inputs, DLTensor *outputs,
                                   GraftRunDetails *details, GraftError *error);

#endif
