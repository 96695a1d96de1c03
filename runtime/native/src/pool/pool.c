#include "pool/pool.h"

#include <stdatomic.h>

#include "base/memory.h"
#include "base/platform.h"
#include "pool/affinity.h"

enum {
  SPINS_PER_CLOCK = 32,
  SPIN_NANOSECONDS = 200000, /* before a thread sleeps */
  GAP_NANOSECONDS = 30000,   /* between two looks at the clock: another thread had the processor meanwhile */
  LOOK_NANOSECONDS = 25000,  /* between two looks at the workers that a caller waits on */
  DOZE_NANOSECONDS = 1000000, /* between them once the caller sleeps */
  RESTS_PER_LOSS = 20,        /* without workers, for the time lost on one that lost its processor */
  CROWD_NANOSECONDS = 4000000 /* without workers, after callers took all processors */
};

/* Part p of job g is free while its ticket is 3g, taken once it is 3g + 1, and done once it is 3g + 2. A ticket of the
 * running job can only be taken before that job ends, so whoever takes it may read the job; a worker that comes late
 * takes nothing. */
typedef struct Ticket {
  _Alignas(64) atomic_uint_fast64_t value;
} Ticket;

/* Processors hand lines of memory to each other, each in the time of many instructions; so what the one thread writes
 * in each job is on other lines than what the other reads in each. */
typedef struct Worker {
  _Alignas(64) atomic_uint asleep; /* it sleeps on it; whoever clears it wakes it */
  atomic_int processor;            /* where it was last seen; -1 if unknown */
  struct Pool *pool;
  int32_t number;
  pthread_t thread;
  Affinity affinity;
  _Alignas(64) atomic_int works; /* on a part */
  atomic_uint_fast64_t helped;
  /* Of the caller that waits on it: what the clocks said when it last looked. */
  int64_t looked, had;
} Worker;

typedef struct Pool {
  GraftThreadPool base;
  const GraftAllocator *memory; /* NULL: the heap */
  GraftAllocator host;          /* what it is */
  int32_t started; /* workers that run; written under `busy` */
  Worker *workers;
  Ticket *tickets;
  atomic_uint *fork_mark;
  /* The newest job: what workers read of it is on one line. */
  _Alignas(64) atomic_uint announced; /* low half of the job's number, written last */
  atomic_int parts;
  atomic_int caller_processor; /* where the job comes from */
  atomic_uint_fast64_t newest; /* its number */
  _Atomic(GraftPart) function;
  _Atomic(void *) job;
  _Alignas(64) atomic_int callers;
  atomic_int stop;
  atomic_int caller_sleeps;
  atomic_uint wakes;                           /* the caller sleeps on it */
  atomic_int_fast64_t rest_until;              /* 0, or a time before which callers do without workers */
  _Alignas(64) atomic_int busy;                /* what follows is written by whoever holds it */
  uint64_t number;
  atomic_uint_fast64_t jobs, parted, lent;
} Pool;

static void pause_processor(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Spins a little, until another job than `seen` is announced; returns the last one announced. */
static unsigned spin_for_job(Pool *pool, unsigned seen) {
  unsigned announced = seen;
  for (int i = 0; i < SPINS_PER_CLOCK && announced == seen; i++) {
    announced = atomic_load_explicit(&pool->announced, memory_order_acquire);
    if (announced == seen) {
      pause_processor();
    }
  }
  return announced;
}

static int is_done(const Ticket *ticket, uint64_t number) {
  return atomic_load_explicit(&ticket->value, memory_order_acquire) == 3 * number + 2;
}

/* Spins a little, until a part is done; returns whether it is. */
static int spin_until_done(const Ticket *ticket, uint64_t number) {
  for (int i = 0; i < SPINS_PER_CLOCK; i++) {
    if (is_done(ticket, number)) {
      return 1;
    }
    pause_processor();
  }
  return 0;
}

static void prefetch(const void *memory) {
#if defined(__GNUC__)
  __builtin_prefetch(memory);
#else
  (void)memory;
#endif
}

static void count(atomic_uint_fast64_t *counter) { atomic_fetch_add_explicit(counter, 1, memory_order_relaxed); }

/* Takes part `part` of job `number`; returns whether nobody had begun it. */
static int take_part(Pool *pool, uint64_t number, int32_t part) {
  uint_fast64_t ticket = 3 * number;
  return atomic_compare_exchange_strong(&pool->tickets[part].value, &ticket, 3 * number + 1);
}

/* Runs a part that `worker` (NULL for the caller) has taken. */
static void run_part(Pool *pool, uint64_t number, Worker *worker, int32_t part) {
  GraftPart function = atomic_load_explicit(&pool->function, memory_order_relaxed);
  void *job = atomic_load_explicit(&pool->job, memory_order_relaxed);
  if (!worker) {
    function(job, 0, part);
    atomic_store_explicit(&pool->tickets[part].value, 3 * number + 2, memory_order_relaxed);
    return;
  }
  atomic_store_explicit(&worker->works, 1, memory_order_relaxed);
  function(job, worker->number, part);
  count(&worker->helped);
  atomic_store_explicit(&worker->works, 0, memory_order_relaxed);
  atomic_store(&pool->tickets[part].value, 3 * number + 2);
  if (atomic_load(&pool->caller_sleeps)) {
    atomic_fetch_add(&pool->wakes, 1);
    graft_wake(&pool->wakes, 1);
  }
}

/* ---- Workers -------------------------------------------------------------------------------------------------- */

static int crowded(const Pool *pool) {
  return atomic_load_explicit(&pool->callers, memory_order_relaxed) >= pool->base.thread_count;
}

/* Spins until another job than `seen` is announced, for a short while, and only as long as nobody else has a use for
 * this processor; returns the last job seen. */
static unsigned await_job(Worker *worker, unsigned seen) {
  Pool *pool = worker->pool;
  int64_t start = graft_nanoseconds(), last = start, now = start;
  do {
    unsigned announced = spin_for_job(pool, seen);
    if (announced != seen) {
      return announced;
    }
    int32_t processor = graft_processor();
    if (processor != atomic_load_explicit(&worker->processor, memory_order_relaxed)) {
      atomic_store_explicit(&worker->processor, processor, memory_order_relaxed);
    }
    if (processor == atomic_load_explicit(&pool->caller_processor, memory_order_relaxed) || crowded(pool)) {
      break;
    }
    last = now;
    now = graft_nanoseconds();
  } while (now - last < GAP_NANOSECONDS && now - start < SPIN_NANOSECONDS);
  return seen;
}

/* Nobody sleeps narrowed: whoever narrows a worker looks afterwards whether it sleeps, and the worker, once it says that
 * it sleeps, whether it was narrowed. */
static void sleep_until_wanted(Worker *worker, unsigned seen) {
  Pool *pool = worker->pool;
  graft_affinity_widen(&worker->affinity);
  atomic_store(&worker->asleep, 1);
  if (atomic_load(&pool->announced) != seen || atomic_load(&pool->stop) ||
      atomic_load(&worker->affinity.narrowed)) {
    atomic_store(&worker->asleep, 0);
    return;
  }
  while (atomic_load(&worker->asleep)) {
    graft_wait(&worker->asleep, 1, 0);
  }
}

static void *worker_main(void *argument) {
  Worker *worker = argument;
  Pool *pool = worker->pool;
  unsigned seen = 0;
  while (!atomic_load(&pool->stop)) {
    unsigned announced = await_job(worker, seen);
    if (announced == seen) {
      sleep_until_wanted(worker, seen);
      continue;
    }
    seen = announced;
    uint64_t number = atomic_load(&pool->newest);
    int32_t parts = atomic_load(&pool->parts);
    prefetch(atomic_load_explicit(&pool->job, memory_order_relaxed)); /* comes while the ticket does */
    for (int32_t i = 0; i + 1 < parts; i++) {
      int32_t part = 1 + (worker->number - 1 + i) % (parts - 1);
      if (take_part(pool, number, part)) {
        run_part(pool, number, worker, part);
      }
    }
    graft_affinity_widen(&worker->affinity);
  }
  return NULL;
}

static int start_worker(Pool *pool, int32_t number) {
  Worker *worker = &pool->workers[number];
  *worker = (Worker){.pool = pool, .number = number};
  atomic_init(&worker->processor, -1);
  if (!graft_affinity_create(&worker->affinity)) {
    return 0;
  }
  if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) {
    graft_affinity_destroy(&worker->affinity);
    return 0;
  }
  graft_affinity_attach(&worker->affinity, worker->thread);
  return 1;
}

/* Fewer threads than asked for are enough: the caller does what nobody takes. */
static void start_workers(Pool *pool) {
  for (int32_t i = 1; i < pool->base.thread_count && start_worker(pool, i); i++) {
    pool->started = i;
  }
}

/* ---- Life ----------------------------------------------------------------------------------------------------- */

static void release(Pool *pool) {
  const GraftAllocator host = pool->host, *memory = pool->memory ? &host : NULL;
  graft_destroy_fork_mark(pool->fork_mark);
  graft_release(memory, pool->workers);
  graft_release(memory, pool->tickets);
  graft_release(memory, pool);
}

/* In a forked child the parent's threads are gone, and a job that ran meanwhile never ends. One thread of the child
 * finds the mark wiped and starts afresh (`callers` is the number of its own calls that run); the others do without the
 * pool until it is done. */
static int survive_fork(Pool *pool, int callers) {
  unsigned wiped = 0;
  if (!pool->fork_mark || atomic_load_explicit(pool->fork_mark, memory_order_acquire) == 1) {
    return 1;
  }
  if (!atomic_compare_exchange_strong(pool->fork_mark, &wiped, 2)) {
    return 0;
  }
  pool->started = 0;
  atomic_store(&pool->callers, callers);
  atomic_store(&pool->caller_sleeps, 0);
  atomic_store(&pool->busy, 0);
  atomic_store(pool->fork_mark, 1);
  return 1;
}

static void wake_worker(Worker *worker) {
  if (atomic_exchange(&worker->asleep, 0)) {
    graft_wake(&worker->asleep, 1);
  }
}

void graft_pool_destroy(GraftThreadPool *base) {
  Pool *pool = (Pool *)base;
  if (!pool) {
    return;
  }
  if (pool->started && (!pool->fork_mark || atomic_load(pool->fork_mark) == 1)) {
    atomic_store(&pool->stop, 1);
    atomic_fetch_add(&pool->announced, 1);
    for (int32_t i = 1; i <= pool->started; i++) {
      wake_worker(&pool->workers[i]);
      pthread_join(pool->workers[i].thread, NULL);
      graft_affinity_destroy(&pool->workers[i].affinity);
    }
  }
  release(pool);
}

/* ---- Callers -------------------------------------------------------------------------------------------------- */

static void rest(Pool *pool, int64_t nanoseconds) {
  atomic_store_explicit(&pool->rest_until, graft_nanoseconds() + nanoseconds, memory_order_relaxed);
}

static int rests(const Pool *pool) {
  int64_t until = atomic_load_explicit(&pool->rest_until, memory_order_relaxed);
  return until && graft_nanoseconds() < until;
}

static int32_t enter(GraftThreadPool *base) {
  Pool *pool = (Pool *)base;
  if (!survive_fork(pool, 0)) {
    return 0;
  }
  if (atomic_fetch_add(&pool->callers, 1) + 1 >= base->thread_count) {
    rest(pool, CROWD_NANOSECONDS);
  }
  return 1;
}

static void leave(GraftThreadPool *base) { atomic_fetch_sub(&((Pool *)base)->callers, 1); }

static int32_t free_threads(GraftThreadPool *base) {
  Pool *pool = (Pool *)base;
  int32_t others = atomic_load_explicit(&pool->callers, memory_order_relaxed) - 1;
  int32_t processors = base->thread_count - (others > 0 ? others : 0);
  return processors < 2 || rests(pool) ? 1 : processors;
}

/* Sees to it that a worker can take a part: it wakes, on another processor than the caller's, and waits for its turn on
 * another. A worker that is off its processor elsewhere is left to the system: whoever begins no part delays nobody. */
static void call_worker(Pool *pool, Worker *worker, int32_t here) {
  if (atomic_load(&worker->asleep)) {
    if (graft_affinity_leave(&worker->affinity, here)) {
      wake_worker(worker);
    }
    return;
  }
  if (here >= 0 && atomic_load_explicit(&worker->processor, memory_order_relaxed) == here) {
    atomic_store_explicit(&worker->processor, -1, memory_order_relaxed);
    graft_affinity_leave(&worker->affinity, here);
    wake_worker(worker); /* it may have finished and gone to sleep meanwhile */
    count(&pool->parted);
  }
}

static void announce(Pool *pool, int32_t parts, GraftPart function, void *job) {
  int32_t here = graft_processor();
  uint64_t number = ++pool->number;
  atomic_store_explicit(&pool->function, function, memory_order_relaxed);
  atomic_store_explicit(&pool->job, job, memory_order_relaxed);
  atomic_store_explicit(&pool->parts, parts, memory_order_relaxed);
  atomic_store_explicit(&pool->caller_processor, here, memory_order_relaxed);
  for (int32_t i = 1; i < parts; i++) {
    atomic_store_explicit(&pool->tickets[i].value, 3 * number, memory_order_release);
  }
  atomic_store_explicit(&pool->newest, number, memory_order_release);
  atomic_store_explicit(&pool->announced, (unsigned)number, memory_order_release);
  for (int32_t i = 1; i < parts && i <= pool->started; i++) {
    call_worker(pool, &pool->workers[i], here);
  }
}

/* Whether a worker has begun a part and has had no processor since the last look. The first look only begins. */
static int stands_still(Worker *worker, int64_t now) {
  if (!atomic_load_explicit(&worker->works, memory_order_relaxed)) {
    worker->looked = 0;
    return 0;
  }
  int64_t had = graft_affinity_nanoseconds(&worker->affinity);
  int64_t passed = now - worker->looked, gained = had - worker->had;
  int first = !worker->looked;
  worker->looked = now;
  worker->had = had;
  return !first && had >= 0 && gained < passed / 4;
}

/* Gives the caller's processor to a worker that has none, if there is one. */
static int lend_processor(Pool *pool, int64_t now) {
  for (int32_t i = 1; i <= pool->started; i++) {
    Worker *worker = &pool->workers[i];
    if (stands_still(worker, now)) {
      graft_affinity_bring(&worker->affinity, graft_processor());
      wake_worker(worker); /* as in `call_worker` */
      worker->looked = 0;
      count(&pool->lent);
      return 1;
    }
  }
  return 0;
}

static void doze(Pool *pool, const Ticket *ticket) {
  unsigned wakes = atomic_load(&pool->wakes);
  atomic_store(&pool->caller_sleeps, 1);
  if (atomic_load(&ticket->value) != 3 * pool->number + 2) {
    graft_wait(&pool->wakes, wakes, DOZE_NANOSECONDS);
  }
  atomic_store(&pool->caller_sleeps, 0);
}

/* Waits until all parts are done: spins, looks now and then how the workers fare, and sleeps in the end. */
static void await_workers(Pool *pool, int32_t parts) {
  int32_t part = 1;
  while (part < parts && is_done(&pool->tickets[part], pool->number)) {
    part++;
  }
  if (part == parts) {
    return;
  }
  int64_t start = graft_nanoseconds(), looked = start, lost = 0;
  for (int32_t i = 1; i <= pool->started; i++) {
    pool->workers[i].looked = 0;
  }
  while (part < parts) {
    if (spin_until_done(&pool->tickets[part], pool->number)) {
      part++;
      continue;
    }
    int64_t now = graft_nanoseconds();
    if (now - looked < LOOK_NANOSECONDS) {
      continue;
    }
    looked = now;
    int lent = lend_processor(pool, now);
    lost = lent && !lost ? now - start : lost;
    if (lent || now - start > SPIN_NANOSECONDS) {
      doze(pool, &pool->tickets[part]);
    }
  }
  if (lost) {
    rest(pool, RESTS_PER_LOSS * lost);
  }
}

/* Announces a job and runs the caller's share of it. Part 0 needs no ticket: the caller begins it while the
 * announcement is still on its way. A worker that falls asleep meanwhile, unseen, has begun nothing. */
static void run_job(Pool *pool, int32_t parts, GraftPart function, void *job) {
  announce(pool, parts, function, job);
  function(job, 0, 0);
  for (int32_t part = 1; part < parts; part++) {
    if (take_part(pool, pool->number, part)) {
      run_part(pool, pool->number, NULL, part);
    }
  }
  await_workers(pool, parts);
}

static int32_t run(GraftThreadPool *base, int32_t parts, GraftPart function, void *job) {
  Pool *pool = (Pool *)base;
  int idle = 0;
  if (!survive_fork(pool, 1) || !atomic_compare_exchange_strong(&pool->busy, &idle, 1)) {
    return 0;
  }
  if (!pool->started) {
    start_workers(pool);
  }
  count(&pool->jobs);
  run_job(pool, parts, function, job);
  atomic_store_explicit(&pool->busy, 0, memory_order_release);
  return 1;
}

GraftThreadPool *graft_pool_create(int32_t thread_count, const GraftAllocator *allocator) {
  Pool *pool = graft_allocate(allocator, sizeof(Pool));
  if (!pool) {
    return NULL;
  }
  *pool = (Pool){.base = {.size = sizeof(GraftThreadPool),
                          .thread_count = thread_count,
                          .run = run,
                          .free_threads = free_threads,
                          .enter = enter,
                          .leave = leave}};
  if (allocator) {
    pool->host = *allocator;
    pool->memory = &pool->host;
  }
  pool->workers = graft_allocate(allocator, (size_t)thread_count * sizeof(Worker));
  pool->tickets = graft_allocate(allocator, (size_t)thread_count * sizeof(Ticket));
  pool->fork_mark = graft_create_fork_mark();
  if (!pool->workers || !pool->tickets) {
    release(pool);
    return NULL;
  }
  for (int32_t i = 0; i < thread_count; i++) {
    atomic_init(&pool->tickets[i].value, 2);
  }
  return &pool->base;
}

PoolCounts graft_pool_counts(const GraftThreadPool *base) {
  const Pool *pool = (const Pool *)base;
  PoolCounts counts = {atomic_load(&pool->jobs), 0, atomic_load(&pool->parted), atomic_load(&pool->lent)};
  for (int32_t i = 1; i <= pool->started; i++) {
    counts.helped += atomic_load(&pool->workers[i].helped);
  }
  return counts;
}
