/* A loaded program, the instances that run it and their frames: what they hold. */
#ifndef GRAFT_STATE_H
#define GRAFT_STATE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/scratch.h"
#include "base/store.h"
#include "graft/device.h"
#include "graft/runtime.h"
#include "manifest/procedure.h"
#include "pool/pool.h"
#include "pool/sharing.h"

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
  const GraftDevice *const *devices;
  size_t device_count;
  int32_t (*check)(void *owner, GraftContext *context, GraftError *error);
  void (*release)(void *owner);
  void *owner;
  const GraftAllocator *arenas; /* where they come from: memory that another process sees, too. NULL: where all does */
} GraftProgramSource;

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
  uint64_t *device_bytes; /* of those of devices */
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

/* Memory of a device that grows with what is asked for. */
typedef struct DeviceBlock {
  void *memory;
  uint64_t capacity;
} DeviceBlock;

enum { GRAFT_KEPT_GRAPHS = 8 };

/* What a series of calls on a device puts on its stream, recorded for the addresses and shapes that had the same key. */
typedef struct KeptGraph {
  uint64_t key;
  void *graph; /* NULL: the key was seen once */
  uint64_t used;
} KeptGraph;

/* Of the first call of a series. */
typedef struct Series {
  KeptGraph kept[GRAFT_KEPT_GRAPHS];
  uint64_t clock;
  int is_refused; /* whether the device could not record it */
} Series;

/* What a frame of a procedure that uses devices has besides. */
typedef struct DeviceFrame {
  DeviceBlock *arenas;       /* by device; where the arena was planned once */
  DeviceBlock *stage_arenas; /* by stage, then device; where it is planned for each binding */
  DeviceBlock *staged;       /* by tensor: of inputs and outputs that the caller has in main memory */
  void **events;             /* by call: of copies to main memory */
  Series *series;            /* by call */
  void **pinned;             /* by device: the memory of the frame that it reaches by itself, NULL for none */
  int is_placed;             /* whether arenas and events are there */
} DeviceFrame;

/* One activation of a procedure. Bodies cannot contain themselves, so each procedure has one frame per instance. */
typedef struct Frame {
  const Procedure *procedure;
  const GraftAllocator *memory; /* of the arenas */
  char *arena;
  DLTensor *tensors;
  DLTensor **pointers; /* of all calls: inputs, then outputs; NULL for absent ones */
  Block *blocks;       /* per tensor; used by those of unknown shape */
  int64_t *values;     /* of symbols and operations */
  int64_t **shapes;    /* per tensor: where the runtime evaluates its shape, or keeps that of an input */
  int64_t **strides;   /* per tensor: of what grows, room for strides */
  StageState *stages;
  DeviceFrame *device; /* NULL for a procedure that uses none */
} Frame;

typedef struct Instance Instance;

/* Who is told how long calls take. */
typedef struct Timing {
  void (*tell)(void *user, const GraftCallTime *time);
  void *user;
} Timing;

enum { GRAFT_DEVICE_SCRATCH = 8 };

/* The stream of an instance on a device, and what functions asked for there. */
typedef struct DeviceStream {
  void *stream; /* made when it is first used */
  int is_busy;  /* whether anything was put on it since it was last waited for */
  DeviceBlock scratch[GRAFT_DEVICE_SCRATCH];
  int32_t scratch_count; /* of the running call */
} DeviceStream;

/* What may end a run early. */
typedef struct Stop {
  const GraftCancelToken *token; /* NULL: none */
  int64_t end;                   /* by graft_nanoseconds; 0: none */
  atomic_int status;             /* why the run was stopped; GRAFT_OK: it was not */
} Stop;

/* What a thread knows while it runs compiled code; compiled code sees `base`. */
typedef struct Context {
  GraftContext base;
  Instance *instance; /* NULL in a worker */
  Scratch scratch;
  GraftThreadPool *pool; /* NULL: parallel_for runs serially */
  int32_t grain_scale; /* how many times as large as loops ask for their parts are at least */
  int32_t thread_count;
  Frame *frame;
  const Call *call;
  Stop *stop; /* NULL: nothing ends the run early */
  char message[768]; /* of the last failure; empty if there was none */
  int lacked_memory; /* whether it says that memory ran out */
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
  int32_t refused; /* extents do not agree: whoever finds out, it is what the caller gave */
  const Timing *timing; /* NULL: calls are not timed */
  int32_t depth;        /* of procedures that run in others */
  void *user;
  DeviceStream *streams; /* by device */
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
  const GraftDevice **devices; /* those of the manifest, open */
  int32_t device_count;
  void **device_constants; /* by device: the memory of those that are there */
  const GraftAllocator *memory; /* the host's; NULL: the heap */
  GraftAllocator host;          /* what it is */
  GraftThreadPool *pool;        /* NULL for one thread */
  GraftThreadPool *own_pool;    /* the same, if the program made it */
  Sharing sharing;              /* what its runs took so far */
  Context *workers;             /* by worker number; 0 is unused */
  pthread_mutex_t lock;
  Instance *idle;
};

/* An output of a running procedure, as its caller sees it. */
typedef struct Result {
  DLTensor tensor; /* before: data != NULL is where it must be written, and has this shape. After: the output */
  Block block;     /* after: its memory, if the procedure made it */
  DLTensor delivered; /* of the entry, where a device has to do with it: what its caller gets (border.c) */
} Result;

/* Both record a message (if none is recorded yet) and return `status` (failure.c). */
int32_t graft_context_fail(Context *context, int32_t status, const char *format, ...) GRAFT_FORMAT(3, 4);
int32_t graft_context_record(Context *context, int32_t status, const char *format, va_list arguments)
    GRAFT_FORMAT(3, 0);
/* Returns the status of a call that gave `status`: a function that memory was refused to may end with any error. */
int32_t graft_context_status(const Context *context, int32_t status);

/* The host's memory; NULL for the heap. */
static inline const GraftAllocator *graft_memory_of(const Context *context) { return context->scratch.allocator; }

/* Says whether the constants are right, which is found out once. */
static inline int32_t graft_check_constants(const GraftProgram *program, GraftContext *context, GraftError *error) {
  const GraftProgramSource *source = &program->source;
  return source->check ? source->check(source->owner, context, error) : GRAFT_OK;
}

#endif
