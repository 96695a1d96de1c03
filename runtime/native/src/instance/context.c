#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/error.h"
#include "base/platform.h"
#include "devices/devices.h"
#include "devices/streams.h"
#include "instance/instance.h"

enum { PIECES = 16 }; /* of a part, in a run that may be stopped between them */

/* A parallel loop while it runs. */
typedef struct Loop {
  _Alignas(64) GraftTask task; /* with what else each thread reads on one line of memory */
  void *closure;
  int64_t count, grain;
  int32_t parts;
  Context *caller;
  Context *workers;
  pthread_mutex_t lock; /* guards what follows */
  int32_t failed_part;  /* the lowest that failed; `parts` if none */
  int32_t status;
  char message[sizeof(((Context *)0)->message)];
} Loop;

void graft_create_context(Context *context, const GraftAllocator *memory, GraftThreadPool *pool, int32_t thread_count) {
  context->scratch.allocator = memory;
  context->base.api = &graft_api;
  context->pool = pool;
  context->grain_scale = 1;
  context->thread_count = pool ? thread_count : 1;
}

GRAFT_FORMAT(2, 3) static int32_t api_fail(GraftContext *base, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  graft_context_record((Context *)base, GRAFT_ERROR_RUN, format, arguments);
  va_end(arguments);
  return GRAFT_ERROR_RUN;
}

static void *api_scratch(GraftContext *base, uint64_t bytes) {
  Context *context = (Context *)base;
  void *block = graft_scratch_allocate(&context->scratch, bytes);
  if (!block) {
    graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory: %" PRIu64 " bytes of scratch", bytes);
  }
  return block;
}

void *graft_call_memory(Context *context, size_t count, size_t bytes) {
  if (bytes && count > SIZE_MAX / 4 / bytes) {
    count = SIZE_MAX / 4 / bytes; /* fails below */
  }
  void *block = graft_scratch_allocate(&context->scratch, count * bytes);
  if (!block) {
    graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory: %zu bytes for control flow", count * bytes);
  }
  return block;
}

static int32_t api_thread_count(GraftContext *base) {
  const Context *context = (const Context *)base;
  return context->pool ? context->thread_count : 1;
}

/* Runs a task in this thread; parallel_for inside it is serial. */
static int32_t run_task(Context *context, GraftTask task, void *closure, int64_t begin, int64_t end) {
  GraftThreadPool *pool = context->pool;
  ScratchMark mark = graft_scratch_mark(&context->scratch);
  context->pool = NULL;
  int32_t status = task(&context->base, closure, begin, end);
  context->pool = pool;
  graft_scratch_release(&context->scratch, mark);
  return status;
}

int32_t graft_stop_status(Stop *stop) {
  if (!stop) {
    return GRAFT_OK;
  }
  int status = atomic_load_explicit(&stop->status, memory_order_relaxed);
  if (status) {
    return status;
  }
  if (stop->token && __atomic_load_n(&stop->token->is_cancelled, __ATOMIC_RELAXED)) {
    status = GRAFT_ERROR_CANCELLED;
  } else if (stop->end && graft_nanoseconds() >= stop->end) {
    status = GRAFT_ERROR_DEADLINE;
  }
  int none = GRAFT_OK;
  if (status && !atomic_compare_exchange_strong(&stop->status, &none, status)) {
    status = none; /* another thread has found a reason */
  }
  return status;
}

/* Runs a task over [begin, end): at once or, where the run may be stopped, in pieces of at least `grain`. */
static int32_t run_range(Context *context, Stop *stop, GraftTask task, void *closure, int64_t begin, int64_t end,
                         int64_t grain) {
  if (!stop) {
    return run_task(context, task, closure, begin, end);
  }
  int64_t step = (end - begin) / PIECES, least = grain > 0 ? grain : 1;
  step = step > least ? step : least;
  while (begin < end) {
    int64_t next = (end - begin) / 2 < step ? end : begin + step;
    GRAFT_TRY(graft_stop_status(stop));
    GRAFT_TRY(run_task(context, task, closure, begin, next));
    begin = next;
  }
  return GRAFT_OK;
}

/* The first `remainder` parts are one iteration longer. */
static int64_t part_begin(const Loop *loop, int32_t part) {
  int64_t size = loop->count / loop->parts, remainder = loop->count % loop->parts;
  return part * size + (part < remainder ? part : remainder);
}

static void run_part(void *argument, int32_t worker, int32_t part) {
  Loop *loop = argument;
  Context *context = worker ? loop->workers + worker : loop->caller;
  context->message[0] = 0;
  context->lacked_memory = 0;
  int32_t status = run_range(context, loop->caller->stop, loop->task, loop->closure, part_begin(loop, part),
                             part_begin(loop, part + 1), loop->grain);
  if (status == GRAFT_OK) {
    return;
  }
  pthread_mutex_lock(&loop->lock);
  if (part < loop->failed_part) {
    loop->failed_part = part;
    loop->status = graft_context_status(context, status);
    memcpy(loop->message, context->message, sizeof loop->message);
  }
  pthread_mutex_unlock(&loop->lock);
}

/* Iterations that a part should have at least. A grain of 1 says nothing of how long an iteration is. */
static int64_t worthy_grain(const Context *context, int64_t grain) {
  return grain < 2 || grain > INT64_MAX / context->grain_scale ? grain : grain * context->grain_scale;
}

static int32_t api_parallel_for(GraftContext *base, int64_t count, int64_t grain, GraftTask task, void *closure) {
  Context *context = (Context *)base;
  if (count <= 0) {
    return GRAFT_OK;
  }
  int32_t parts = context->pool ? graft_pool_parts(context->pool, count, worthy_grain(context, grain)) : 1;
  parts = parts < context->thread_count ? parts : context->thread_count;
  if (parts < 2) {
    return run_range(context, context->stop, task, closure, 0, count, grain);
  }
  Loop loop; /* the text is large and needs no zeros */
  loop.task = task;
  loop.closure = closure;
  loop.count = count;
  loop.grain = grain;
  loop.parts = parts;
  loop.caller = context;
  loop.workers = context->instance->program->workers;
  loop.failed_part = parts;
  loop.status = GRAFT_OK;
  loop.message[0] = 0;
  if (pthread_mutex_init(&loop.lock, NULL) != 0) {
    return run_range(context, context->stop, task, closure, 0, count, grain);
  }
  if (!graft_pool_run(context->pool, parts, run_part, &loop)) {
    loop.status = run_range(context, context->stop, task, closure, 0, count, grain);
  }
  pthread_mutex_destroy(&loop.lock);
  if (loop.failed_part < parts) {
    memcpy(context->message, loop.message, sizeof loop.message);
    context->lacked_memory = loop.status == GRAFT_ERROR_MEMORY;
  }
  return loop.status;
}

static void *api_allocate_output(GraftContext *base, int32_t index, int32_t ndim, const int64_t *shape) {
  Context *context = (Context *)base;
  if (!context->instance) {
    graft_context_fail(context, GRAFT_ERROR_RUN, "outputs cannot be allocated inside a parallel loop");
    return NULL;
  }
  if (!context->call || index < 0 || index >= context->call->outputs.count) {
    graft_context_fail(context, GRAFT_ERROR_RUN, "there is no output %" PRId32 " to allocate", index);
    return NULL;
  }
  Frame *frame = context->frame;
  int32_t number = context->call->outputs.items[index];
  const TensorSpec *spec = frame->procedure->tensors + number;
  DLTensor *tensor = frame->tensors + number;
  char text[256] = "";
  size_t bytes = 0;
  int fits = ndim >= 0 && ndim <= GRAFT_MAXIMUM_DIMENSIONS && graft_tensor_bytes(spec->dtype, ndim, shape, &bytes);
  fits = fits && (spec->is_unknown ? spec->ndim < 0 || spec->ndim == ndim
                                   : graft_shape_equal(tensor->ndim, tensor->shape, ndim, shape));
  if (!fits) {
    graft_append_shape(text, sizeof text, ndim < 0 || ndim > GRAFT_MAXIMUM_DIMENSIONS ? 0 : ndim, shape);
    graft_context_fail(context, GRAFT_ERROR_RUN, "output '%s' cannot have %" PRId32 " dimensions %s", spec->name, ndim,
                       text);
    return NULL;
  }
  if (!spec->is_unknown) {
    return tensor->data;
  }
  if (tensor->data) {
    graft_context_fail(context, GRAFT_ERROR_RUN, "output '%s' is allocated twice", spec->name);
    return NULL;
  }
  if (!graft_block_reserve(graft_memory_of(context), frame->blocks + number, tensor, ndim, shape, bytes)) {
    graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory: %zu bytes for output '%s'", bytes, spec->name);
    return NULL;
  }
  void *data = tensor->data;
  if (!graft_frame_bind(frame, number, data)) {
    tensor->data = NULL;
    graft_context_fail(context, GRAFT_ERROR_RUN, "output '%s' is too small for a view of it", spec->name);
    return NULL;
  }
  return data;
}

static void *api_stream(GraftContext *base, DLDevice device) {
  Context *context = (Context *)base;
  int32_t number = context->instance ? graft_device_number(context->instance->program, device) : 0;
  DeviceStream *stream = number > 0 ? graft_device_stream(context, number) : NULL;
  return stream ? stream->stream : NULL;
}

/* The blocks of the calls before are used again: what they are for comes earlier on the same stream. */
static void *api_device_scratch(GraftContext *base, DLDevice device, uint64_t bytes) {
  Context *context = (Context *)base;
  int32_t number = context->instance ? graft_device_number(context->instance->program, device) : 0;
  if (number <= 0) {
    graft_context_fail(context, GRAFT_ERROR_RUN, "no memory of device type %" PRId32 " here", device.device_type);
    return NULL;
  }
  DeviceStream *stream = context->instance->streams + number - 1;
  if (stream->scratch_count == GRAFT_DEVICE_SCRATCH) {
    graft_context_fail(context, GRAFT_ERROR_RUN, "more than %d blocks of scratch on a device", GRAFT_DEVICE_SCRATCH);
    return NULL;
  }
  DeviceBlock *block = stream->scratch + stream->scratch_count++;
  int32_t status = block->memory && block->capacity < bytes ? graft_finish_devices(context) : GRAFT_OK;
  status = status ? status : graft_device_reserve(context, number, block, bytes, "scratch");
  return status ? NULL : block->memory;
}

const GraftApi graft_api = {
    .abi_version = GRAFT_ABI_VERSION,
    .size = sizeof(GraftApi),
    .parallel_for = api_parallel_for,
    .scratch = api_scratch,
    .allocate_output = api_allocate_output,
    .fail = api_fail,
    .thread_count = api_thread_count,
    .stream = api_stream,
    .device_scratch = api_device_scratch,
};
