/* What a host gives: memory of its own, threads that programs share or that are the host's, and who is told of times. */
#include "functions.h"
#include "meter.h"

/* x float32[64]: sum = x + 1; grown = sum and one more element, asked for; a loop that adds 1 to the state `trips` times. */
static const char manifest[] = MANIFEST(PROCEDURE(
    "main", 256, "[0,1]", "[4,5]",
    TENSOR("x", "float32", "[64]", INPUT(0)) "," TENSOR("trips", "int64", "[]", INPUT(1)) ","
    TENSOR("one", "float32", "[1]", CONSTANT("one")) "," TENSOR("sum", "float32", "[64]", ARENA(0)) ","
    TENSOR("grown", "float32", "null", OUTPUT(0)) "," TENSOR("last", "float32", "null", OUTPUT(1)),
    CALL("add", "[0,2]", "[3]") "," CALL("append", "[3]", "[4]") ","
    "{\"kind\":\"loop\",\"inputs\":[1,-1,3],\"outputs\":[5],\"bodies\":[1],\"arguments\":[[2]],\"origin\":[\"the_loop\"]}") ","
    PROCEDURE("body", 0, "[0,1,2,3]", "[1,4]",
    TENSOR("i", "int64", "[]", INPUT(0)) "," TENSOR("go", "bool", "[]", INPUT(1)) ","
    TENSOR("state", "float32", "[64]", INPUT(2)) "," TENSOR("step", "float32", "[1]", INPUT(3)) ","
    TENSOR("next", "float32", "[64]", OUTPUT(1)), CALL("add", "[2,3]", "[4]")));

enum { TRIPS = 5 };

static int32_t try_run(GraftProgram *program, const GraftRunOptions *options, DLTensor *outputs, GraftError *error) {
  float x[64];
  int64_t shape[] = {64}, trips = TRIPS;
  for (int i = 0; i < 64; i++) {
    x[i] = (float)i;
  }
  DLTensor inputs[] = {floats(x, shape, 1), integers(&trips, NULL, 0)};
  outputs[0] = outputs[1] = (DLTensor){0};
  return graft_program_run_with(program, inputs, outputs, options, error);
}

static void check_outputs(DLTensor *outputs) {
  float grown[65], last[64];
  for (int i = 0; i < 64; i++) {
    grown[i] = (float)i + 1;
    last[i] = (float)i + 1 + TRIPS;
  }
  grown[64] = 64;
  check_floats(outputs, grown, 65);
  check_floats(outputs + 1, last, 64);
}

static void check_run(GraftProgram *program) {
  DLTensor outputs[2];
  GraftError error = {0};
  CHECK(try_run(program, NULL, outputs, &error) == GRAFT_OK);
  check_outputs(outputs);
  graft_free_output(outputs);
  graft_free_output(outputs + 1);
}

/* ---- Memory --------------------------------------------------------------------------------------------------- */

static void test_programs_ask_the_allocator_alone(void) {
  for (int32_t threads = 1; threads < 4; threads++) {
    Meter meter = {.left = -1};
    GraftAllocator allocator = {meter_allocate, meter_release, &meter};
    GraftProgram *program;
    GraftError error = {0};
    fail_allocation(0); /* of the heap */
    CHECK(create_with(manifest, (GraftLoadOptions){.threads = threads, .allocator = &allocator}, &program, &error) ==
          GRAFT_OK);
    allocator = (GraftAllocator){0}; /* it was copied */
    int created = atomic_load(&meter.total);
    for (int i = 0; i < 20; i++) {
      check_run(program);
    }
    CHECK(graft_test_allocation_fails()); /* nobody else had asked */
    CHECK(created > 0 && atomic_load(&meter.total) > created);
    fail_allocation(-1);
    graft_program_destroy(program);
    CHECK(atomic_load(&meter.held) == 0);
  }
}

/* Returns whether there were more than n allocations. */
static int run_with_failure(int32_t threads, int n) {
  Meter meter = {.left = n};
  GraftAllocator allocator = {meter_allocate, meter_release, &meter};
  GraftProgram *program;
  DLTensor outputs[2];
  GraftError error = {0};
  GraftLoadOptions options = {.threads = threads, .allocator = &allocator};
  int failed = 1;
  int32_t status = create_with(manifest, options, &program, &error);
  if (status == GRAFT_OK) {
    status = try_run(program, NULL, outputs, &error);
    if (status == GRAFT_OK) {
      graft_free_output(outputs);
      graft_free_output(outputs + 1);
    }
    failed = atomic_exchange(&meter.left, -1) < 0;
    check_run(program); /* a failed call leaves the program usable */
  }
  CHECK(status == GRAFT_OK || (status == GRAFT_ERROR_MEMORY && strstr(error.message, "out of memory")));
  graft_program_destroy(program);
  CHECK(atomic_load(&meter.held) == 0);
  return failed;
}

static void test_every_refused_allocation_is_an_error(void) {
  int n = 0;
  while (run_with_failure(2, n)) {
    n++;
  }
  CHECK(n > 10);
}

/* ---- Threads -------------------------------------------------------------------------------------------------- */

static void *run_often(void *program) {
  for (int i = 0; i < 100; i++) {
    check_run(program);
  }
  return NULL;
}

static void test_programs_share_threads(void) {
  GraftThreadPool *pool;
  GraftProgram *programs[3];
  Meter meter = {.left = -1};
  GraftAllocator allocator = {meter_allocate, meter_release, &meter};
  GraftError error = {0};
  CHECK(graft_thread_pool_create(3, &allocator, &pool, &error) == GRAFT_OK && pool->thread_count == 3);
  for (int i = 0; i < 3; i++) { /* of at most 3, 1 and 2 threads */
    GraftLoadOptions options = {.threads = i, .thread_pool = pool};
    CHECK(create_with(manifest, options, programs + i, &error) == GRAFT_OK);
    CHECK(programs[i]->thread_count == (i ? i : 3));
  }
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) {
    CHECK(pthread_create(threads + i, NULL, run_often, programs[i]) == 0);
  }
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], NULL);
    graft_program_destroy(programs[i]);
  }
  CHECK(graft_pool_counts(pool).jobs > 0);
  graft_thread_pool_destroy(pool);
  CHECK(atomic_load(&meter.held) == 0);
}

/* A host's own threads: here the calling thread has them all, one after another. */
typedef struct HostPool {
  GraftThreadPool base;
  int32_t jobs, refused;
} HostPool;

static int32_t host_run(GraftThreadPool *pool, int32_t parts, GraftPart part, void *job) {
  HostPool *host = (HostPool *)pool;
  CHECK(parts > 1 && parts <= pool->thread_count);
  if (++host->jobs % 3 == 0) {
    host->refused++;
    return 0;
  }
  for (int32_t i = parts - 1; i >= 0; i--) {
    part(job, i, i);
  }
  return 1;
}

static void test_a_host_brings_threads_of_its_own(void) {
  HostPool host = {.base = {.size = sizeof(GraftThreadPool), .thread_count = 4, .run = host_run}};
  GraftProgram *program;
  GraftError error = {0};
  CHECK(create_with(manifest, (GraftLoadOptions){.thread_pool = &host.base}, &program, &error) == GRAFT_OK);
  for (int i = 0; i < 10; i++) {
    check_run(program);
  }
  CHECK(host.jobs > 10 && host.refused > 0);
  graft_program_destroy(program);
}

/* ---- Times ---------------------------------------------------------------------------------------------------- */

typedef struct Seen {
  int32_t count;
  GraftCallTime times[3 + TRIPS];
} Seen;

static void note(void *user, const GraftCallTime *time) {
  Seen *seen = user;
  CHECK(seen->count < 3 + TRIPS);
  seen->times[seen->count++] = *time;
}

static void test_every_call_is_timed(void) {
  GraftProgram *program = must_create(manifest, 2);
  Seen seen = {0};
  GraftRunOptions options = {.size = sizeof options, .timed = note, .user = &seen};
  GraftError error = {0};
  DLTensor outputs[2];
  CHECK(try_run(program, &options, outputs, &error) == GRAFT_OK);
  check_outputs(outputs);
  graft_free_output(outputs);
  graft_free_output(outputs + 1);
  CHECK(seen.count == 3 + TRIPS);
  int64_t inside = 0;
  for (int i = 0; i < seen.count; i++) {
    const GraftCallTime *time = seen.times + i;
    int is_body = i >= 2 && i < 2 + TRIPS, is_loop = i == 2 + TRIPS;
    CHECK(time->node_count == 1 && time->nanoseconds >= 0 && time->depth == is_body);
    CHECK_TEXT(time->nodes[0], is_loop ? "the_loop" : i == 1 ? "node_append" : "node_add");
    CHECK_TEXT(time->function ? time->function : "none", is_loop ? "none" : i == 1 ? "append" : "add");
    CHECK(is_loop ? !time->module && !time->kind : !strcmp(time->module, "m") && !strcmp(time->kind, "test"));
    CHECK(i == 0 || is_loop || time->begin >= seen.times[i - 1].begin + seen.times[i - 1].nanoseconds);
    inside += is_body ? time->nanoseconds : 0;
  }
  CHECK(seen.times[2 + TRIPS].nanoseconds >= inside && seen.times[2 + TRIPS].begin <= seen.times[2].begin);
  graft_program_destroy(program);
}

static void cancel(void *user, const GraftCallTime *time) {
  (void)time;
  graft_cancel(user);
}

static void test_a_timed_run_can_be_cancelled(void) {
  GraftProgram *program = must_create(manifest, 1);
  GraftCancelToken token = {0};
  GraftRunOptions options = {.size = sizeof options, .cancel = &token, .timed = cancel, .user = &token};
  GraftError error = {0};
  DLTensor outputs[2];
  CHECK(try_run(program, &options, outputs, &error) == GRAFT_ERROR_CANCELLED);
  CHECK_TEXT(error.message, "the run was cancelled before call 2 of 3, node 'node_append'");
  graft_program_destroy(program);
}

/* ---- Options -------------------------------------------------------------------------------------------------- */

static void check_refused(GraftLoadOptions options, const char *expected) {
  GraftProgram *program;
  GraftError error = {0};
  CHECK(create_with(manifest, options, &program, &error) == GRAFT_ERROR_INPUT);
  CHECK_TEXT(error.message, expected);
}

static void test_wrong_options_are_refused(void) {
  const char *lacking = "the pool of threads lacks its size, its function 'run' or threads";
  GraftThreadPool small = {.size = 8, .thread_count = 1, .run = host_run}, idle = {.size = sizeof idle, .thread_count = 2};
  GraftThreadPool none = {.size = sizeof none, .run = host_run};
  check_refused((GraftLoadOptions){.thread_pool = &small}, lacking);
  check_refused((GraftLoadOptions){.thread_pool = &idle}, lacking);
  check_refused((GraftLoadOptions){.thread_pool = &none}, lacking);
  check_refused((GraftLoadOptions){.threads = -1}, "-1 threads are not between 0 and 1024");
  GraftProgram *program = must_create(manifest, 1);
  GraftError error = {0};
  DLTensor outputs[2];
  CHECK(try_run(program, &(GraftRunOptions){.nanoseconds = -1}, outputs, &error) == GRAFT_ERROR_INPUT);
  CHECK_TEXT(error.message, "the size of options is 0, not sizeof(GraftRunOptions)");
  struct {
    GraftRunOptions known;
    int64_t later;
  } newer = {.known.size = sizeof newer, .later = 1};
  CHECK(try_run(program, &newer.known, outputs, &error) == GRAFT_ERROR_INPUT);
  CHECK_TEXT(error.message, "options are set that this runtime's GraftRunOptions does not have; upgrade it");
  graft_program_destroy(program);
}

static void test_options_of_other_versions_count_as_far_as_they_go(void) {
  GraftProgram *program = must_create(manifest, 1);
  GraftCancelToken token = {.is_cancelled = 1};
  GraftRunOptions older = {.size = offsetof(GraftRunOptions, cancel), .cancel = &token};
  struct {
    GraftRunOptions known;
    int64_t later;
  } newer = {.known.size = sizeof newer};
  const GraftRunOptions *both[] = {&older, &newer.known};
  for (int i = 0; i < 2; i++) {
    DLTensor outputs[2];
    GraftError error = {0};
    CHECK(try_run(program, both[i], outputs, &error) == GRAFT_OK);
    graft_free_output(outputs);
    graft_free_output(outputs + 1);
  }
  graft_program_destroy(program);
}

int main(void) {
  test_programs_ask_the_allocator_alone();
  test_every_refused_allocation_is_an_error();
  test_programs_share_threads();
  test_a_host_brings_threads_of_its_own();
  test_every_call_is_timed();
  test_a_timed_run_can_be_cancelled();
  test_wrong_options_are_refused();
  test_options_of_other_versions_count_as_far_as_they_go();
  return 0;
}
