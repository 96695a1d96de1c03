/* The threads of a C project: the caller and THREADS - 1 workers, which take parts of a kernel's loop until none is
 * left.
 *
 * Workers start with the first loop that is worth it and sleep between loops. Nobody waits for a worker that has not
 * come: who is free takes a part, and the caller waits only for parts that were begun. One call at a time has the
 * workers; a second one, in an arena of its own, runs its loops by itself, as does everyone where no thread can be
 * started.
 */
#include <pthread.h>
#include <stdatomic.h>

enum { PARTS_PER_THREAD = 4 };

typedef struct Loop {
  const GraftContext *context; /* of the caller: the scratch memory of worker i lies i blocks behind its own */
  GraftTask task;
  void *closure;
  int64_t count, part;
} Loop;

static pthread_mutex_t whose = PTHREAD_MUTEX_INITIALIZER; /* held by the caller that has the workers */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* of what follows */
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static Loop loop;
static unsigned loops, active;
static int is_open, is_started;
static _Atomic int64_t next_part;
static _Atomic int32_t failure;

static void take_parts(const Loop *own, GraftContext *context) {
  const uint64_t used = context->used;
  for (;;) {
    const int64_t begin = atomic_fetch_add(&next_part, own->part);
    if (begin >= own->count) return;
    const int64_t end = own->count - begin < own->part ? own->count : begin + own->part;
    const int32_t status = own->task(context, own->closure, begin, end);
    context->used = used;
    if (status != GRAFT_OK) {
      atomic_store(&failure, status);
      atomic_store(&next_part, own->count);
    }
  }
}

static void *work(void *number) {
  const uint64_t worker = (uint64_t)(uintptr_t)number;
  unsigned seen = 0;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!is_open || seen == loops) pthread_cond_wait(&begun, &lock);
    seen = loops;
    ++active;
    const Loop own = loop;
    pthread_mutex_unlock(&lock);
    GraftContext context = {own.context->scratch + worker * own.context->scratch_bytes, own.context->scratch_bytes, 0};
    take_parts(&own, &context);
    pthread_mutex_lock(&lock);
    if (--active == 0) pthread_cond_signal(&ended);
  }
  return NULL;
}

/* Workers that cannot be started are missing, no more. */
static void start(void) {
  is_started = 1;
  for (uintptr_t number = 1; number < THREADS; ++number) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, (void *)number) == 0) pthread_detach(thread);
  }
}

int32_t graft_parallel_for(GraftContext *context, int64_t count, int64_t grain, GraftTask task, void *closure) {
  if (count <= 0) return GRAFT_OK;
  if (count <= grain || pthread_mutex_trylock(&whose) != 0) {
    const uint64_t used = context->used;
    const int32_t status = task(context, closure, 0, count);
    context->used = used;
    return status;
  }
  const int64_t even = (count - 1) / (THREADS * PARTS_PER_THREAD) + 1;
  const Loop own = {context, task, closure, count, even > grain ? even : grain};
  if (!is_started) start();
  pthread_mutex_lock(&lock);
  loop = own;
  ++loops;
  is_open = 1;
  atomic_store(&next_part, 0);
  atomic_store(&failure, GRAFT_OK);
  pthread_cond_broadcast(&begun);
  pthread_mutex_unlock(&lock);
  take_parts(&own, context);
  pthread_mutex_lock(&lock);
  is_open = 0;
  while (active != 0) pthread_cond_wait(&ended, &lock);
  pthread_mutex_unlock(&lock);
  const int32_t status = atomic_load(&failure);
  pthread_mutex_unlock(&whose);
  return status;
}
