/* Programs from parts in memory, and the state of their calls. */
#ifndef GRAFT_PROGRAM_H
#define GRAFT_PROGRAM_H

#include <pthread.h>
#include <stdarg.h>

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

enum { GRAFT_KEPT_PLANS = 8 };

/* The memory plan of one binding. */
typedef struct KeptPlan {
  int64_t *key;      /* the values of Stage.known */
  uint64_t *offsets; /* in the order of Stage.arena */
  uint64_t bytes;    /* of the arena */
  uint64_t used;     /* when it was used last, by StageState.clock */
} KeptPlan;

/* A stage in a frame. */
typedef struct StageState {
  int is_bound; /* whether all that the stage knows is that of the frame's symbols */
  char *arena;
  uint64_t capacity;
  uint64_t touched; /* bytes of the arena that some call has used */
  KeptPlan plans[GRAFT_KEPT_PLANS];
  int32_t plan_count;
  uint64_t clock;
} StageState;

/* One activation of a procedure. Bodies cannot contain themselves, so each procedure has one frame per instance. */
typedef struct Frame {
  const Procedure *procedure;
  char *arena;
  DLTensor *tensors;
  DLTensor **pointers; /* of all calls: inputs, then outputs; NULL for absent ones */
  Block *blocks;       /* per tensor; used by those of unknown shape */
  int64_t *values;     /* of symbols and operations */
  int64_t **shapes;    /* per tensor: where the runtime evaluates its shape, or keeps that of an input */
  int64_t **strides;   /* per tensor: of what grows, room for strides */
  StageState *stages;
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
  Frame *entry;  /* of the running call: the first frame, or a variant's */
  const Call *failed;
  int64_t *nanoseconds; /* NULL, or a time for each call of the entry */
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
extern const GraftLoader graft_c_source_loader;

/* Instances (instance.c). */
Instance *graft_acquire_instance(GraftProgram *program);
void graft_release_instance(Instance *instance);
void graft_destroy_instance(Instance *instance);

/* Frames and the memory of their tensors (frame.c). Creation returns 0 when memory runs out; then there may be parts to
 * destroy. */
int graft_create_frame(Store *store, const Procedure *procedure, Frame *frame);
void graft_destroy_frame(Frame *frame);

/* Gives the tensor memory for this shape; 0 when memory runs out. The data hold nothing definite. */
int graft_block_reserve(Block *block, DLTensor *tensor, int32_t ndim, const int64_t *shape, size_t bytes);
void graft_block_free(Block *block);

/* Sets the data of a tensor that is not fixed, and of the views of it. Returns 0 if a view would leave it. */
int graft_frame_bind(Frame *frame, int32_t tensor, void *data);

/* The function table (context.c). */
extern const GraftApi graft_api;
void graft_create_context(Context *context, Pool *pool, int32_t thread_count);

/* Both record a message (if none is recorded yet) and return `status` (failure.c). */
int32_t graft_context_fail(Context *context, int32_t status, const char *format, ...) GRAFT_FORMAT(3, 4);
int32_t graft_context_record(Context *context, int32_t status, const char *format, va_list arguments)
    GRAFT_FORMAT(3, 0);

/* An output of a running procedure, as its caller sees it. */
typedef struct Result {
  DLTensor tensor; /* before: data != NULL is where it must be written, and has this shape. After: the output */
  Block block;     /* after: its memory, if the procedure made it */
} Result;

/* Whether output `i` has a shape that is known when the procedure begins, and is written straight to where it is
 * wanted: then the result needs data before the procedure runs. */
int graft_writes_in_place(const Procedure *procedure, int32_t i);

/* Symbols (binding.c). Binds those of a stage to the shapes that came, and evaluates, checks and places what is known
 * then; if nothing changed since the last time, it only compares. Stage 0 comes when all inputs are bound, and before
 * the results are prepared. */
int32_t graft_bind_stage(Context *context, Frame *frame, int32_t number);
static inline int32_t graft_enter(Context *context, Frame *frame) {
  return frame->procedure->stage_count ? graft_bind_stage(context, frame, 0) : GRAFT_OK;
}

/* Binds the symbols that a call's outputs tell, and compares the shapes of those whose memory it asked for. */
int32_t graft_accept_outputs(Context *context, Frame *frame, const Call *call);

/* Says that an input or output has another number of dimensions than its specification. */
int32_t graft_fail_rank(Context *context, const Frame *frame, const TensorSpec *spec, const DLTensor *tensor);

/* Memory for a stage whose shapes are known (placement.c): for the tensors of its arena by a plan, kept or new; and for
 * outputs, which are handed over when the procedure is done and so get theirs each time. */
int32_t graft_place_arena(Context *context, Frame *frame, int32_t number);
int32_t graft_place_late_outputs(Context *context, Frame *frame, const Stage *stage);

/* The bytes of a tensor whose shape is known. */
size_t graft_frame_bytes(const Frame *frame, int32_t tensor);

/* An extent of a tensor whose rank is known; 0 where it depends on symbols that are not bound yet. */
int64_t graft_known_extent(const Frame *frame, int32_t tensor, int32_t axis);

/* Runs a procedure that was entered (execute.c). `results` are its outputs. */
int32_t graft_run_procedure(Context *context, Frame *frame, Result *results);

/* Binds input `i` of the frame to a value whose type is known to be right; checks the shape, but for symbols in it. */
int32_t graft_bind_input(Context *context, Frame *frame, int32_t i, const DLTensor *value);

/* Before and after a body runs: lets its output `i` become `tensor` of the calling frame (-1: nobody wants it). */
int32_t graft_prepare_result(Context *context, Frame *frame, int32_t tensor, const Frame *body, int32_t i,
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
  int64_t *nanoseconds; /* in: NULL, or room for one time per call of procedure 0 and of any variant */
  void *user;           /* in: what graft_context_user gives to functions of this run */
  const Call *failed;   /* out */
  int32_t procedure;    /* out: the number of the entry that ran */
} GraftRunDetails;

/* Says whether the constants are right, which is found out once. */
int32_t graft_check_constants(const GraftProgram *program, GraftContext *context, GraftError *error);

/* A run in two steps, for who makes the outputs when their shapes are known (run.c). The inputs stay valid until the
 * second; between them the instance belongs to the caller, who ends the run or gives the instance back. */
int32_t graft_run_begin(GraftProgram *program, const DLTensor *inputs, Instance **instance, GraftError *error);
int32_t graft_run_end(Instance *instance, DLTensor *outputs, GraftRunDetails *details, GraftError *error);

/* Output `i` with its shape; NULL where that is known only after the run. */
const DLTensor *graft_run_output(const Instance *instance, int32_t i);

#endif
