#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>

#include "memory.h"
#include "platform.h"

enum { SPIN_NANOSECONDS = 200000, SPINS_PER_CLOCK = 32 };

/* Part p of job g is free while its ticket is 2g and taken once it is 2g + 1. A ticket of the running job can only be
 * taken before that job ends, so whoever takes it may read the job; a worker that comes late takes nothing. */
typedef struct Ticket {
  _Alignas(64) atomic_uint_fast64_t value;
} Ticket;

typedef struct Worker {
  Pool *pool;
  int32_t number;
  pthread_t thread;
} Worker;

struct Pool {
  int32_t thread_count;
  int32_t started; /* workers that run; written under `busy` */
  Worker *workers;
  Ticket *tickets;
  atomic_uint *fork_mark;
  atomic_int busy;
  /* The running job. */
  PoolFunction function;
  void *job;
  uint64_t number;
  _Alignas(64) atomic_uint announced; /* low half of the newest job's number; workers sleep on it */
  atomic_int sleepers;
  atomic_int stop;
  atomic_int parts;
  atomic_uint_fast64_t newest;
  _Alignas(64) atomic_uint remaining; /* parts not done; the caller sleeps on it */
  atomic_int caller_sleeps;
};

static void pause_processor(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Spins until *word differs from `value`, for a short while; returns the last value seen. */
static unsigned spin_while(atomic_uint *word, unsigned value) {
  int64_t start = graft_nanoseconds();
  do {
    for (int i = 0; i < SPINS_PER_CLOCK; i++) {
      unsigned seen = atomic_load_explicit(word, memory_order_acquire);
      if (seen != value) {
        return seen;
      }
      pause_processor();
    }
  } while (graft_nanoseconds() - start < SPIN_NANOSECONDS);
  return value;
}

/* Runs part `part` of job `number` if nobody has begun it. */
static void try_part(Pool *pool, uint64_t number, int32_t worker, int32_t part) {
  uint_fast64_t ticket = 2 * number;
  if (!atomic_compare_exchange_strong(&pool->tickets[part].value, &ticket, 2 * number + 1)) {
    return;
  }
  pool->function(pool->job, worker, part);
  if (atomic_fetch_sub(&pool->remaining, 1) == 1 && worker != 0 && atomic_load(&pool->caller_sleeps)) {
    graft_wake(&pool->remaining, 1);
  }
}

static void *worker_main(void *argument) {
  Worker *worker = argument;
  Pool *pool = worker->pool;
  unsigned seen = 0;
  while (!atomic_load(&pool->stop)) {
    unsigned announced = spin_while(&pool->announced, seen);
    if (announced == seen) {
      atomic_fetch_add(&pool->sleepers, 1);
      if (!atomic_load(&pool->stop)) {
        graft_wait(&pool->announced, seen);
      }
      atomic_fetch_sub(&pool->sleepers, 1);
      continue;
    }
    seen = announced;
    uint64_t number = atomic_load(&pool->newest);
    int32_t parts = atomic_load(&pool->parts);
    for (int32_t i = 0; i < parts; i++) {
      try_part(pool, number, worker->number, (worker->number + i) % parts);
    }
  }
  return NULL;
}

/* Fewer threads than asked for are enough: the caller does what nobody takes. */
static void start_workers(Pool *pool) {
  for (int32_t i = 1; i < pool->thread_count; i++) {
    Worker *worker = &pool->workers[i];
    *worker = (Worker){.pool = pool, .number = i};
    if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) {
      break;
    }
    pool->started = i;
  }
}

Pool *graft_pool_create(int32_t thread_count) {
  Pool *pool = graft_aligned_malloc(sizeof(Pool));
  if (!pool) {
    return NULL;
  }
  *pool = (Pool){.thread_count = thread_count};
  pool->workers = graft_calloc((size_t)thread_count, sizeof(Worker));
  pool->tickets = graft_aligned_malloc((size_t)thread_count * sizeof(Ticket));
  pool->fork_mark = graft_create_fork_mark();
  if (!pool->workers || !pool->tickets) {
    graft_destroy_fork_mark(pool->fork_mark);
    free(pool->workers);
    free(pool->tickets);
    free(pool);
    return NULL;
  }
  for (int32_t i = 0; i < thread_count; i++) {
    atomic_init(&pool->tickets[i].value, 1);
  }
  return pool;
}

/* In a forked child the parent's threads are gone, and a job that ran meanwhile never ends. One thread of the child
 * finds the mark wiped and starts afresh; the others do without the pool until it is done. */
static int survive_fork(Pool *pool) {
  unsigned wiped = 0;
  if (!pool->fork_mark || atomic_load_explicit(pool->fork_mark, memory_order_acquire) == 1) {
    return 1;
  }
  if (!atomic_compare_exchange_strong(pool->fork_mark, &wiped, 2)) {
    return 0;
  }
  pool->started = 0;
  atomic_store(&pool->sleepers, 0);
  atomic_store(&pool->busy, 0);
  atomic_store(pool->fork_mark, 1);
  return 1;
}

void graft_pool_destroy(Pool *pool) {
  if (!pool) {
    return;
  }
  if (pool->started && (!pool->fork_mark || atomic_load(pool->fork_mark) == 1)) {
    atomic_store(&pool->stop, 1);
    atomic_fetch_add(&pool->announced, 1);
    graft_wake(&pool->announced, pool->started);
    for (int32_t i = 1; i <= pool->started; i++) {
      pthread_join(pool->workers[i].thread, NULL);
    }
  }
  graft_destroy_fork_mark(pool->fork_mark);
  free(pool->workers);
  free(pool->tickets);
  free(pool);
}

static void announce(Pool *pool, int32_t parts, PoolFunction function, void *job) {
  pool->function = function;
  pool->job = job;
  pool->number++;
  atomic_store(&pool->remaining, (unsigned)parts);
  atomic_store(&pool->parts, parts);
  for (int32_t i = 0; i < parts; i++) {
    atomic_store(&pool->tickets[i].value, 2 * pool->number);
  }
  atomic_store(&pool->newest, pool->number);
  atomic_fetch_add(&pool->announced, 1);
  if (atomic_load(&pool->sleepers)) {
    for (int32_t i = 1; i <= pool->started; i++) {
      graft_keep_away(pool->workers[i].thread);
    }
    graft_wake(&pool->announced, parts - 1);
  }
}

static void await_workers(Pool *pool) {
  for (;;) {
    unsigned remaining = atomic_load_explicit(&pool->remaining, memory_order_acquire);
    if (remaining == 0) {
      return;
    }
    if (spin_while(&pool->remaining, remaining) != remaining) {
      continue;
    }
    atomic_store(&pool->caller_sleeps, 1);
    if (atomic_load(&pool->remaining) == remaining) {
      graft_wait(&pool->remaining, remaining);
    }
    atomic_store(&pool->caller_sleeps, 0);
  }
}

int graft_pool_run(Pool *pool, int32_t parts, PoolFunction function, void *job) {
  int idle = 0;
  if (!survive_fork(pool) || !atomic_compare_exchange_strong(&pool->busy, &idle, 1)) {
    return 0;
  }
  if (!pool->started) {
    start_workers(pool);
  }
  announce(pool, parts, function, job);
  for (int32_t part = 0; part < parts; part++) {
    try_part(pool, pool->number, 0, part);
  }
  await_workers(pool);
  atomic_store(&pool->busy, 0);
  return 1;
}
