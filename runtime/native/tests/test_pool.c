/* The pool of threads: every part runs once, sleepers wake away from their waker, other callers do without. */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "check.h"
#include "platform.h"
#include "pool.h"

enum { THREADS = 4, JOBS = 2000 };

typedef struct Job {
  Pool *pool;
  atomic_int begun;
  int32_t parts;
  int32_t worker[THREADS];
  int processors[THREADS]; /* how many the thread of each part may use */
  int refused;
  atomic_int runs[THREADS];
} Job;

static void sleep_milliseconds(long count) {
  struct timespec time = {.tv_nsec = count * 1000000};
  nanosleep(&time, NULL);
}

static int processors_of(pthread_t thread, cpu_set_t *set) {
  CPU_ZERO(set);
  CHECK(pthread_getaffinity_np(thread, sizeof *set, set) == 0);
  return CPU_COUNT(set);
}

static void count_part(void *argument, int32_t worker, int32_t part) {
  Job *job = argument;
  CHECK(worker >= 0 && worker < THREADS && part >= 0 && part < job->parts);
  atomic_fetch_add(&job->runs[part], 1);
}

/* Returns when all parts have begun, so that each has a thread of its own. */
static void meet(void *argument, int32_t worker, int32_t part) {
  Job *job = argument;
  cpu_set_t set;
  job->worker[part] = worker;
  job->processors[part] = processors_of(pthread_self(), &set);
  atomic_fetch_add(&job->begun, 1);
  while (atomic_load(&job->begun) < job->parts) {
    sched_yield();
  }
}

static void check_meeting(Pool *pool, Job *job) {
  *job = (Job){.parts = THREADS};
  CHECK(graft_pool_run(pool, THREADS, meet, job));
  int32_t seen = 0;
  for (int part = 0; part < THREADS; part++) {
    seen |= 1 << job->worker[part];
  }
  CHECK(job->worker[0] == 0 && seen == (1 << THREADS) - 1);
}

static void test_every_part_runs_once(void) {
  Pool *pool = graft_pool_create(THREADS);
  CHECK(pool);
  for (int number = 0; number < JOBS; number++) {
    Job job = {.parts = 1 + number % THREADS};
    CHECK(graft_pool_run(pool, job.parts, count_part, &job));
    for (int part = 0; part < THREADS; part++) {
      CHECK(atomic_load(&job.runs[part]) == (part < job.parts));
    }
  }
  graft_pool_destroy(pool);
}

static void run_inside(void *argument, int32_t worker, int32_t part) {
  Job *job = argument;
  (void)worker;
  if (part == 0) {
    Job inner = {.parts = 2};
    job->refused = !graft_pool_run(job->pool, 2, count_part, &inner);
    CHECK(atomic_load(&inner.runs[0]) == 0 && atomic_load(&inner.runs[1]) == 0);
  }
}

static void test_a_busy_pool_refuses_and_does_nothing(void) {
  Pool *pool = graft_pool_create(THREADS);
  CHECK(pool);
  Job job = {.pool = pool, .parts = 2};
  CHECK(graft_pool_run(pool, 2, run_inside, &job));
  CHECK(job.refused);
  check_meeting(pool, &job); /* it serves again afterwards */
  graft_pool_destroy(pool);
}

static void *run_often(void *argument) {
  Pool *pool = argument;
  for (int number = 0; number < JOBS; number++) {
    Job job = {.parts = 3};
    int ran = graft_pool_run(pool, job.parts, count_part, &job);
    for (int part = 0; part < job.parts; part++) {
      CHECK(atomic_load(&job.runs[part]) == ran);
    }
  }
  return NULL;
}

static void test_callers_on_two_threads_share_a_pool(void) {
  Pool *pool = graft_pool_create(THREADS);
  pthread_t other;
  CHECK(pool && pthread_create(&other, NULL, run_often, pool) == 0);
  run_often(pool);
  pthread_join(other, NULL);
  graft_pool_destroy(pool);
}

/* Workers sleep after a short while without work; whoever wakes them keeps them off its own processor. */
static void test_sleepers_wake_away_from_the_caller(void) {
  Pool *pool = graft_pool_create(THREADS);
  cpu_set_t set;
  int usual = processors_of(pthread_self(), &set);
  Job job;
  CHECK(pool);
  check_meeting(pool, &job);
  for (int round = 0; round < 5; round++) {
    sleep_milliseconds(20);
    check_meeting(pool, &job);
    CHECK(job.processors[0] == usual);
  }
  for (int part = 1; usual > 1 && part < THREADS; part++) {
    CHECK(job.processors[part] == usual - 1);
  }
  graft_pool_destroy(pool);
}

static void *wait_for_end(void *argument) {
  atomic_int *end = argument;
  while (!atomic_load(end)) {
    sleep_milliseconds(1);
  }
  return NULL;
}

static void test_keep_away_leaves_all_but_the_callers_processor(void) {
  atomic_int end = 0;
  pthread_t thread;
  cpu_set_t own, other;
  CHECK(pthread_create(&thread, NULL, wait_for_end, &end) == 0);
  int count = processors_of(pthread_self(), &own), here, after;
  do { /* until the caller stays where it is meanwhile */
    here = sched_getcpu();
    graft_keep_away(thread);
    after = sched_getcpu();
  } while (here != after);
  if (count > 1) {
    CHECK(processors_of(thread, &other) == count - 1 && !CPU_ISSET((size_t)here, &other));
    CPU_SET((size_t)here, &other);
  } else {
    CHECK(processors_of(thread, &other) == 1);
  }
  CHECK(CPU_EQUAL(&own, &other));
  atomic_store(&end, 1);
  pthread_join(thread, NULL);
}

static void test_keep_away_does_nothing_where_there_is_one_processor(void) {
  atomic_int end = 0;
  pthread_t thread;
  cpu_set_t own, other, one;
  int count = processors_of(pthread_self(), &own);
  CHECK(pthread_create(&thread, NULL, wait_for_end, &end) == 0);
  CPU_ZERO(&one);
  CPU_SET((size_t)sched_getcpu(), &one);
  CHECK(pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0);
  graft_keep_away(thread);
  CHECK(processors_of(thread, &other) == count);
  CHECK(pthread_setaffinity_np(pthread_self(), sizeof own, &own) == 0);
  atomic_store(&end, 1);
  pthread_join(thread, NULL);
}

static void test_a_pool_without_memory_is_not_made(void) {
  for (int n = 0;; n++) {
    fail_allocation(n);
    Pool *pool = graft_pool_create(THREADS);
    int failed = atomic_load(&allocations_left) < 0;
    fail_allocation(-1);
    CHECK(failed == !pool);
    graft_pool_destroy(pool);
    if (pool) {
      CHECK(n == 3); /* the pool, its workers, its tickets */
      return;
    }
  }
}

int main(void) {
  test_every_part_runs_once();
  test_a_busy_pool_refuses_and_does_nothing();
  test_callers_on_two_threads_share_a_pool();
  test_sleepers_wake_away_from_the_caller();
  test_keep_away_leaves_all_but_the_callers_processor();
  test_keep_away_does_nothing_where_there_is_one_processor();
  test_a_pool_without_memory_is_not_made();
  return 0;
}
