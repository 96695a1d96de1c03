/* Runs that are stopped: by a token or by a deadline, between calls and between tasks of a parallel loop. */
#include <inttypes.h>
#include <pthread.h>

#include "functions.h"

static GraftCancelToken token;
static _Atomic int64_t done;

/* Cancels the run that it is in, after its first piece. */
static int32_t cancel_part(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  (void)context;
  (void)closure;
  done += end - begin;
  graft_cancel(&token);
  return GRAFT_OK;
}

static int32_t count_part(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  (void)context;
  int64_t grain = *(int64_t *)closure;
  CHECK(end - begin >= grain);
  done += end - begin;
  return GRAFT_OK;
}

/* Keeps the error of its tasks to itself. */
static int32_t cancelling(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  (void)state;
  (void)inputs;
  (void)outputs;
  context->api->parallel_for(context, 1000, 1, cancel_part, NULL);
  return GRAFT_OK;
}

/* Every iteration comes once, in tasks that are not too small. */
static int32_t counting(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  (void)state;
  (void)inputs;
  (void)outputs;
  for (int64_t count = 1; count < 300; count += 7) {
    for (int64_t grain = 1; grain <= count; grain *= 3) {
      done = 0;
      CHECK(context->api->parallel_for(context, count, grain, count_part, &grain) == GRAFT_OK);
      CHECK(done == count);
    }
  }
  return GRAFT_OK;
}

static int32_t stop_load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **module) {
  (void)user;
  (void)host;
  (void)source;
  *module = NULL;
  return GRAFT_OK;
}

static int32_t stop_lookup(void *user, const GraftLoaderHost *host, void *module, const char *function,
                           GraftFunction *entry, void **state) {
  (void)user;
  (void)host;
  *entry = strcmp(function, "add") == 0 ? cancelling : strcmp(function, "less") == 0 ? counting : function_forget;
  *state = module;
  return GRAFT_OK;
}

static void stop_unload(void *user, void *module) {
  (void)user;
  (void)module;
}

static const GraftLoader stop_loader = {.abi_version = GRAFT_ABI_VERSION,
                                        .kind = "test",
                                        .load = stop_load,
                                        .lookup = stop_lookup,
                                        .unload = stop_unload};

#define STRAIGHT(FIRST, SECOND, THIRD)                                                                \
  MANIFEST(PROCEDURE("main", 128, "[0]", "[3]",                                                       \
                     TENSOR("x", "float32", "[2]", INPUT(0)) "," TENSOR("a", "float32", "[2]", ARENA(0)) "," \
                         TENSOR("b", "float32", "[2]", ARENA(64)) "," TENSOR("y", "float32", "[2]", OUTPUT(0)), \
                     CALL(FIRST, "[0]", "[1]") "," CALL(SECOND, "[1]", "[2]") "," CALL(THIRD, "[2]", "[3]")))

static const char middle[] = STRAIGHT("append", "add", "fail");
static const char last[] = STRAIGHT("append", "fail", "add");
static const char pieces[] = STRAIGHT("less", "append", "fail");

static GraftProgram *create(const char *manifest, int32_t threads) {
  const GraftLoader *loaders[] = {&stop_loader};
  GraftModuleSource module = {.name = "m", .kind = "test"};
  GraftProgramSource source = {
      .manifest = manifest, .manifest_size = strlen(manifest), .modules = &module, .module_count = 1};
  GraftLoadOptions options = {.size = sizeof options, .threads = threads, .loaders = loaders, .loader_count = 1};
  GraftProgram *program;
  GraftError error = {0};
  CHECK(graft_program_create(&source, &options, &program, &error) == GRAFT_OK);
  return program;
}

static int32_t run(GraftProgram *program, int64_t nanoseconds, GraftError *error) {
  float x[2] = {1, 2}, y[2];
  int64_t shape[] = {2};
  DLTensor input = floats(x, shape, 1), output = floats(y, shape, 1);
  GraftRunOptions options = {.size = sizeof options, .nanoseconds = nanoseconds, .cancel = &token};
  return graft_program_run_with(program, &input, &output, &options, error);
}

static void test_cancelled_task_stops_the_run_where_it_is(void) {
  for (int32_t threads = 1; threads < 4; threads++) {
    GraftProgram *program = create(middle, threads);
    GraftError error = {0};
    token = (GraftCancelToken){0};
    done = 0;
    CHECK(run(program, 0, &error) == GRAFT_ERROR_CANCELLED);
    CHECK_TEXT(error.message, "the run was cancelled in call 2 of 3, node 'node_add'");
    CHECK(done > 0 && done < 1000);
    graft_program_destroy(program);
  }
}

static void test_token_that_is_cancelled_stops_the_next_run_at_once(void) {
  GraftProgram *program = create(middle, 1);
  GraftError error = {0};
  graft_cancel(&token);
  CHECK(run(program, 0, &error) == GRAFT_ERROR_CANCELLED);
  CHECK_TEXT(error.message, "the run was cancelled before call 1 of 3, node 'node_append'");
  graft_program_destroy(program);
}

static void test_error_of_tasks_that_a_function_keeps_stops_the_run_after_its_last_call(void) {
  GraftProgram *program = create(last, 1);
  GraftError error = {0};
  token = (GraftCancelToken){0};
  CHECK(run(program, 0, &error) == GRAFT_ERROR_CANCELLED);
  CHECK_TEXT(error.message, "the run was cancelled in call 3 of 3, node 'node_add'");
  graft_program_destroy(program);
}

static void test_deadline(void) {
  GraftProgram *program = create(pieces, 1);
  GraftError error = {0};
  token = (GraftCancelToken){0};
  CHECK(run(program, -1, &error) == GRAFT_ERROR_DEADLINE);
  CHECK_TEXT(error.message, "the deadline of the run passed before call 1 of 3, node 'node_less'");
  CHECK(run(program, INT64_MAX, &error) == GRAFT_OK);
  CHECK(run(program, 0, &error) == GRAFT_OK);
  graft_program_destroy(program);
}

static void test_pieces_are_all_of_the_loop(void) {
  for (int32_t threads = 1; threads < 4; threads++) {
    GraftProgram *program = create(pieces, threads);
    GraftError error = {0};
    token = (GraftCancelToken){0};
    CHECK(run(program, 0, &error) == GRAFT_OK);
    graft_program_destroy(program);
  }
}

int main(void) {
  test_cancelled_task_stops_the_run_where_it_is();
  test_token_that_is_cancelled_stops_the_next_run_at_once();
  test_error_of_tasks_that_a_function_keeps_stops_the_run_after_its_last_call();
  test_deadline();
  test_pieces_are_all_of_the_loop();
  return 0;
}
