/* The pool of threads: every part runs once wherever the threads are, no caller waits on a worker that stands, workers
 * keep off the processors of callers. */
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/platform.h"
#include "check.h"
#include "pool/affinity.h"
#include "pool/pool.h"

enum { THREADS = 4, JOBS = 2000, ENOUGH = 5000 };

typedef struct Job {
  GraftThreadPool *pool;
  atomic_int begun;
  int32_t parts;
  int32_t worker[THREADS];
  pthread_t thread[THREADS];
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
  job->thread[part] = pthread_self();
  job->processors[part] = processors_of(pthread_self(), &set);
  atomic_fetch_add(&job->begun, 1);
  while (atomic_load(&job->begun) < job->parts) {
    sched_yield();
  }
}

static void check_meeting(GraftThreadPool *pool, Job *job) {
  *job = (Job){.parts = THREADS};
  CHECK(graft_pool_run(pool, THREADS, meet, job));
  int32_t seen = 0;
  for (int part = 0; part < THREADS; part++) {
    seen |= 1 << job->worker[part];
  }
  CHECK(job->worker[0] == 0 && seen == (1 << THREADS) - 1);
}

static void test_every_part_runs_once(void) {
  GraftThreadPool *pool = graft_pool_create(THREADS, NULL);
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
  GraftThreadPool *pool = graft_pool_create(THREADS, NULL);
  CHECK(pool);
  Job job = {.pool = pool, .parts = 2};
  CHECK(graft_pool_run(pool, 2, run_inside, &job));
  CHECK(job.refused);
  check_meeting(pool, &job); /* it serves again afterwards */
  graft_pool_destroy(pool);
}

static void *run_often(void *argument) {
  GraftThreadPool *pool = argument;
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
  GraftThreadPool *pool = graft_pool_create(THREADS, NULL);
  pthread_t other;
  CHECK(pool && pthread_create(&other, NULL, run_often, pool) == 0);
  run_often(pool);
  pthread_join(other, NULL);
  graft_pool_destroy(pool);
}

/* Workers sleep after a short while without work. Whoever wakes them keeps them off its own processor, and afterwards
 * they may run everywhere again. */
static void test_sleepers_wake_away_from_the_caller(void) {
  GraftThreadPool *pool = graft_pool_create(THREADS, NULL);
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
    for (int tries = 0; processors_of(job.thread[part], &set) < usual; tries++) {
      CHECK(tries < ENOUGH);
      sleep_milliseconds(1);
    }
  }
  graft_pool_destroy(pool);
}

/* ---- Where workers run ---------------------------------------------------------------------------------------- */

/* A thread that widens its processors again when it is told to. */
typedef struct Subject {
  Affinity affinity;
  pthread_t thread;
  atomic_int turn; /* 1: widen, 2: end; 0 again when done */
} Subject;

static void *obey(void *argument) {
  Subject *subject = argument;
  int turn;
  while ((turn = atomic_load(&subject->turn)) != 2) {
    if (turn == 1) {
      graft_affinity_widen(&subject->affinity);
      atomic_store(&subject->turn, 0);
    }
    sleep_milliseconds(1);
  }
  return NULL;
}

static void start_subject(Subject *subject) {
  *subject = (Subject){.turn = 0};
  CHECK(graft_affinity_create(&subject->affinity));
  CHECK(pthread_create(&subject->thread, NULL, obey, subject) == 0);
  graft_affinity_attach(&subject->affinity, subject->thread);
}

static void widen(Subject *subject) {
  atomic_store(&subject->turn, 1);
  while (atomic_load(&subject->turn)) {
    sleep_milliseconds(1);
  }
}

static void end_subject(Subject *subject) {
  atomic_store(&subject->turn, 2);
  pthread_join(subject->thread, NULL);
  graft_affinity_destroy(&subject->affinity);
}

static void check_may_run_on(const Subject *subject, const cpu_set_t *expected) {
  cpu_set_t set;
  processors_of(subject->thread, &set);
  CHECK(CPU_EQUAL(&set, expected));
}

static int32_t nth_processor(const cpu_set_t *set, int n) {
  int32_t processor = 0;
  while (!CPU_ISSET((size_t)processor, set) || n-- > 0) {
    processor++;
  }
  return processor;
}

static void only(cpu_set_t *set, int32_t processor) {
  CPU_ZERO(set);
  CPU_SET((size_t)processor, set);
}

static void test_a_thread_leaves_a_processor_until_it_widens_its_own(void) {
  Subject subject;
  cpu_set_t own, rest, one;
  int count = processors_of(pthread_self(), &own);
  int32_t processor = nth_processor(&own, 0);
  start_subject(&subject);
  rest = own;
  CPU_CLR((size_t)processor, &rest);
  CHECK(graft_affinity_leave(&subject.affinity, processor) == (count > 1));
  check_may_run_on(&subject, count > 1 ? &rest : &own);
  graft_affinity_bring(&subject.affinity, processor); /* its own are what they were, not what it is narrowed to */
  only(&one, processor);
  check_may_run_on(&subject, &one);
  widen(&subject);
  check_may_run_on(&subject, &own);
  end_subject(&subject);
}

static void test_a_thread_stays_within_what_others_gave_it(void) {
  Subject subject;
  cpu_set_t own, one;
  int count = processors_of(pthread_self(), &own);
  int32_t processor = nth_processor(&own, 0);
  start_subject(&subject);
  only(&one, processor);
  CHECK(pthread_setaffinity_np(subject.thread, sizeof one, &one) == 0);
  CHECK(!graft_affinity_leave(&subject.affinity, processor));
  check_may_run_on(&subject, &one);
  if (count > 1) {
    int32_t other = nth_processor(&own, 1);
    graft_affinity_bring(&subject.affinity, other);
    check_may_run_on(&subject, &one);
    CHECK(graft_affinity_leave(&subject.affinity, other));
  }
  widen(&subject);
  check_may_run_on(&subject, &one);
  end_subject(&subject);
}

static void test_the_clock_of_a_sleeper_stands_still(void) {
  Subject subject;
  start_subject(&subject);
  int64_t before = graft_affinity_nanoseconds(&subject.affinity), start = graft_nanoseconds();
  sleep_milliseconds(50);
  int64_t had = graft_affinity_nanoseconds(&subject.affinity) - before;
  CHECK(before >= 0 && had < (graft_nanoseconds() - start) / 4);
  end_subject(&subject);
}

/* ---- Under load ----------------------------------------------------------------------------------------------- */

/* Threads that keep one processor busy. */
typedef struct Load {
  pthread_t threads[4];
  int32_t processor;
  atomic_int end;
} Load;

static void *keep_busy(void *argument) {
  Load *load = argument;
  cpu_set_t set;
  only(&set, load->processor);
  CHECK(pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0);
  while (!atomic_load(&load->end)) {
  }
  return NULL;
}

static void start_load(Load *load, int32_t processor) {
  *load = (Load){.processor = processor};
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&load->threads[i], NULL, keep_busy, load) == 0);
  }
}

static void end_load(Load *load) {
  atomic_store(&load->end, 1);
  for (int i = 0; i < 4; i++) {
    pthread_join(load->threads[i], NULL);
  }
}

static int64_t processor_time(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* The worker begins its part before the caller ends its own, and is soon without a processor: others want it. */
static void work_long(void *argument, int32_t worker, int32_t part) {
  Job *job = argument;
  (void)part;
  if (!worker) {
    for (int tries = 0; !atomic_load(&job->begun) && tries < 100; tries++) {
      sleep_milliseconds(1);
    }
    return;
  }
  atomic_fetch_add(&job->begun, 1);
  int64_t end = processor_time() + 10000000;
  while (processor_time() < end) {
  }
}

/* Runs such a job with the caller on its own processor; returns whether its worker got that processor, and then leaves
 * in *parts how many the next job is worth, or 0 if the question came too late. */
static int lends(GraftThreadPool *pool, const cpu_set_t *own, int32_t *parts) {
  cpu_set_t one;
  Job job = {.parts = 2};
  uint64_t before = graft_pool_counts(pool).lent;
  only(&one, nth_processor(own, 0));
  CHECK(graft_pool_run(pool, 1, count_part, &job)); /* workers start with what the caller may use */
  CHECK(pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0);
  CHECK(graft_pool_run(pool, 2, work_long, &job));
  int64_t ended = graft_nanoseconds();
  *parts = graft_pool_parts(pool, 2, 1);
  *parts = graft_nanoseconds() - ended < 100000 ? *parts : 0;
  CHECK(pthread_setaffinity_np(pthread_self(), sizeof *own, own) == 0);
  return graft_pool_counts(pool).lent > before;
}

static void test_a_worker_that_lost_its_processor_gets_the_callers(void) {
  GraftThreadPool *pool = graft_pool_create(2, NULL);
  Load load;
  cpu_set_t own;
  int32_t parts = 0;
  CHECK(pool);
  if (processors_of(pthread_self(), &own) > 1) {
    start_load(&load, nth_processor(&own, 1));
    for (int tries = 0; !lends(pool, &own, &parts) || !parts; tries++) {
      CHECK(tries < 100);
    }
    CHECK(parts == 1); /* no help is wanted for a while */
    end_load(&load);
  }
  graft_pool_destroy(pool);
}

static void test_every_part_runs_once_while_the_caller_moves_and_others_work(void) {
  GraftThreadPool *pool = graft_pool_create(THREADS, NULL);
  Load load;
  cpu_set_t own, one;
  int processors = processors_of(pthread_self(), &own);
  CHECK(pool);
  start_load(&load, nth_processor(&own, 0));
  for (int number = 0; number < 200; number++) {
    only(&one, nth_processor(&own, number / 3 % processors));
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof one, number % 2 ? &one : &own) == 0);
    Job job = {.parts = 1 + number % THREADS};
    CHECK(graft_pool_run(pool, job.parts, count_part, &job));
    for (int part = 0; part < THREADS; part++) {
      CHECK(atomic_load(&job.runs[part]) == (part < job.parts));
    }
  }
  CHECK(pthread_setaffinity_np(pthread_self(), sizeof own, &own) == 0);
  end_load(&load);
  CHECK(graft_pool_counts(pool).jobs == 200);
  graft_pool_destroy(pool);
}

/* ---- Several callers ------------------------------------------------------------------------------------------ */

static void await_parts(GraftThreadPool *pool, int32_t parts) {
  for (int tries = 0; graft_pool_parts(pool, THREADS, 1) != parts; tries++) {
    CHECK(tries < ENOUGH);
    sleep_milliseconds(1);
  }
}

static void test_workers_take_what_callers_leave(void) {
  GraftThreadPool *pool = graft_pool_create(THREADS, NULL);
  int64_t entered = 0;
  CHECK(pool);
  for (int32_t callers = 1; callers <= THREADS + 1; callers++) {
    CHECK(graft_pool_enter(pool));
    entered = graft_nanoseconds();
    int32_t left = callers < THREADS ? THREADS - callers + 1 : 1;
    CHECK(graft_pool_parts(pool, THREADS, 1) == left);
    CHECK(graft_pool_parts(pool, 2, 1) == (left < 2 ? left : 2));
  }
  for (int32_t callers = 0; callers <= THREADS; callers++) {
    graft_pool_leave(pool);
  }
  int32_t parts = graft_pool_parts(pool, THREADS, 1); /* more callers may come any moment */
  CHECK(parts == 1 || graft_nanoseconds() - entered > 1000000);
  await_parts(pool, THREADS);
  graft_pool_destroy(pool);
}

#ifndef __SANITIZE_THREAD__ /* which cannot follow threads that a forked child starts */
static void test_a_child_does_not_count_the_callers_of_its_parent(void) {
  GraftThreadPool *pool = graft_pool_create(2, NULL);
  Job job = {.parts = 2};
  CHECK(pool && graft_pool_enter(pool) && graft_pool_run(pool, 2, count_part, &job));
  pid_t child = fork();
  if (child == 0) {
    CHECK(graft_pool_enter(pool) && graft_pool_parts(pool, 2, 1) == 2);
    CHECK(graft_pool_run(pool, 2, count_part, &job));
    graft_pool_leave(pool);
    _exit(0);
  }
  int status = 1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  graft_pool_leave(pool);
  graft_pool_destroy(pool);
}
#endif

static void test_a_pool_without_memory_is_not_made(void) {
  for (int n = 0;; n++) {
    fail_allocation(n);
    GraftThreadPool *pool = graft_pool_create(THREADS, NULL);
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
  test_a_thread_leaves_a_processor_until_it_widens_its_own();
  test_a_thread_stays_within_what_others_gave_it();
  test_the_clock_of_a_sleeper_stands_still();
  test_a_worker_that_lost_its_processor_gets_the_callers();
  test_every_part_runs_once_while_the_caller_moves_and_others_work();
  test_workers_take_what_callers_leave();
#ifndef __SANITIZE_THREAD__
  test_a_child_does_not_count_the_callers_of_its_parent();
#endif
  test_a_pool_without_memory_is_not_made();
  return 0;
}
