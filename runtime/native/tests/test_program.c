/* Programs without control flow: running, errors of functions, dynamic outputs, threads, failing allocations. */
#include <sys/wait.h>
#include <unistd.h>

#include "functions.h"

/* y = view of (x + 1) from its element 16 on, plus x[0:16]; also the sum itself, copied. */
static const char straight[] = MANIFEST(PROCEDURE(
    "main", 256, "[0]", "[4,5]",
    TENSOR("x", "float32", "[32]", INPUT(0)) "," TENSOR("one", "float32", "[1]", CONSTANT("one")) ","
    TENSOR("sum", "float32", "[32]", ARENA(64)) "," TENSOR("upper", "float32", "[16]", VIEW(2, 64)) ","
    TENSOR("y", "float32", "[16]", OUTPUT(0)) "," TENSOR("copied", "float32", "[4,8]", OUTPUT(1)) ","
    TENSOR("lower", "float32", "[16]", VIEW(0, 0)),
    CALL("add", "[0,1]", "[2]") "," CALL("add", "[3,6]", "[4]") "," COPY(2, 5)));

static void check_straight(GraftProgram *program) {
  float x[32], y[16], expected[16], sum[32];
  int64_t shape[] = {32}, y_shape[] = {16};
  for (int i = 0; i < 32; i++) {
    x[i] = (float)(i * i);
    sum[i] = x[i] + 1;
  }
  for (int i = 0; i < 16; i++) {
    expected[i] = x[i + 16] + 1 + x[i];
  }
  DLTensor input = floats(x, shape, 1), outputs[2] = {floats(y, y_shape, 1), {0}};
  must_run(program, &input, outputs);
  check_floats(outputs, expected, 16);
  CHECK(outputs[0].data == y);
  CHECK(outputs[1].ndim == 2 && outputs[1].shape[0] == 4 && outputs[1].shape[1] == 8);
  check_floats(outputs + 1, sum, 32);
  graft_free_output(outputs + 1);
}

static void test_runs_with_any_number_of_threads(void) {
  for (int32_t threads = 0; threads < 5; threads++) {
    GraftProgram *program = must_create(straight, threads);
    for (int i = 0; i < 50; i++) {
      check_straight(program);
    }
    graft_program_destroy(program);
  }
}

static void test_describes_itself(void) {
  GraftProgram *program = must_create(straight, 1);
  CHECK(graft_program_input_count(program) == 1 && graft_program_output_count(program) == 2);
  GraftTensorInfo info = graft_program_output(program, 1);
  CHECK_TEXT(info.name, "copied");
  CHECK(info.ndim == 2 && info.shape[1] == 8 && info.dtype.code == kDLFloat && info.dtype.bits == 32);
  CHECK(graft_program_input(program, 1).name == NULL);
  CHECK(graft_program_input_index(program, graft_program_input(program, 0).name) == 0);
  CHECK(graft_program_output_index(program, "copied") == 1 && graft_program_input_index(program, "copied") == -1);
  CHECK(graft_program_output_index(program, NULL) == -1 && graft_program_output_index(program, "") == -1);
  graft_program_destroy(program);
}

static void test_every_code_has_a_text(void) {
  for (int32_t code = GRAFT_OK; code <= GRAFT_ERROR_DEADLINE; code++) {
    for (int32_t other = GRAFT_OK; other < code; other++) {
      CHECK(strcmp(graft_code_text(code), graft_code_text(other)));
    }
  }
  CHECK_TEXT(graft_code_text(-1), "an unknown error code");
  CHECK_TEXT(graft_code_text(GRAFT_ERROR_DEADLINE + 1), "an unknown error code");
}

static void *run_often(void *program) {
  for (int i = 0; i < 200; i++) {
    check_straight(program);
  }
  return NULL;
}

static void test_several_threads_call_one_program(void) {
  run_on_threads(must_create(straight, 3), 4, run_often);
}

/* Threads do not survive a fork: the child must notice, not wait for them. */
#ifndef __SANITIZE_THREAD__ /* which cannot follow threads that a forked child starts */
static void test_runs_in_a_forked_child(void) {
  GraftProgram *program = must_create(straight, 3);
  check_straight(program);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    check_straight(program);
    graft_program_destroy(program);
    _exit(0);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  check_straight(program);
  graft_program_destroy(program);
}
#endif

static void check_run_error(const char *manifest, int32_t code, const char *expected) {
  GraftProgram *program = must_create(manifest, 3);
  float x[4] = {1, 0, 2, 0};
  int64_t shape[] = {4};
  for (int i = 0; i < 3; i++) { /* an error leaves the program usable */
    DLTensor input = floats(x, shape, 1), output = {0};
    GraftError error = {0};
    int32_t status = graft_program_run(program, &input, &output, &error);
    CHECK_TEXT(error.message, expected);
    CHECK(status == code && error.code == code);
  }
  graft_program_destroy(program);
}

/* y = function(x) for x float32[4]. */
#define ONE_CALL(function, dtype, shape)                                                                       \
  MANIFEST(PROCEDURE("main", 0, "[0]", "[1]",                                                                  \
                     TENSOR("x", "float32", "[4]", INPUT(0)) "," TENSOR("y", dtype, shape, OUTPUT(0)),         \
                     CALL(function, "[0]", "[1]")))

static void test_errors_of_functions(void) {
  check_run_error(ONE_CALL("fail", "float32", "[4]"), GRAFT_ERROR_RUN,
                  "node 'node_fail': function 'fail' of module 'm' (kind 'test', plugin 'tester'): no luck with 7");
  check_run_error(ONE_CALL("fail_parts", "float32", "[4]"), GRAFT_ERROR_RUN,
                  "node 'node_fail_parts': function 'fail_parts' of module 'm' (kind 'test', plugin 'tester'): "
                  "part from 0");
  check_run_error(ONE_CALL("silent", "float32", "[4]"), GRAFT_ERROR_RUN,
                  "node 'node_silent': function 'silent' of module 'm' (kind 'test', plugin 'tester'): failed with "
                  "code 42 and no message");
  check_run_error(ONE_CALL("forget", "int64", "null"), GRAFT_ERROR_RUN,
                  "node 'node_forget': function 'forget' of module 'm' (kind 'test', plugin 'tester'): output 'y' was "
                  "not allocated");
  check_run_error(ONE_CALL("twice", "int64", "null"), GRAFT_ERROR_RUN,
                  "node 'node_twice': function 'twice' of module 'm' (kind 'test', plugin 'tester'): output 'y' is "
                  "allocated twice");
  check_run_error(ONE_CALL("nonzero", "int64", "[3]"), GRAFT_ERROR_RUN,
                  "node 'node_nonzero': function 'nonzero' of module 'm' (kind 'test', plugin 'tester'): output 'y' "
                  "cannot have 1 dimensions [2]");
}

static void test_dynamic_output_belongs_to_the_caller(void) {
  GraftProgram *program = must_create(ONE_CALL("nonzero", "int64", "null"), 1);
  CHECK(graft_program_output(program, 0).ndim == -1);
  float x[4] = {0, 5, 0, 6};
  int64_t shape[] = {4}, two[] = {2}, data[2];
  for (int i = 0; i < 3; i++) {
    DLTensor input = floats(x, shape, 1), output = {0};
    must_run(program, &input, &output);
    CHECK(output.ndim == 1 && output.shape[0] == 2);
    CHECK(((int64_t *)output.data)[0] == 1 && ((int64_t *)output.data)[1] == 3);
    graft_free_output(&output);
    DLTensor given = integers(data, two, 1);
    must_run(program, &input, &given);
    CHECK(given.data == data && data[0] == 1 && data[1] == 3);
  }
  x[0] = 1;
  DLTensor input = floats(x, shape, 1), given = integers(data, two, 1);
  GraftError error = {0};
  CHECK(graft_program_run(program, &input, &given, &error) == GRAFT_ERROR_RUN);
  CHECK_TEXT(error.message, "output 'y' has shape [3] where [2] is expected");
  graft_program_destroy(program);
}

/* z = view of the last 8 bytes of the positions: there must be at least two. */
static void test_view_of_a_dynamic_tensor_is_checked(void) {
  GraftProgram *program = must_create(
      MANIFEST(PROCEDURE("main", 0, "[0]", "[3]",
                         TENSOR("x", "float32", "[4]", INPUT(0)) "," TENSOR("positions", "int64", "null", DYNAMIC) ","
                         TENSOR("second", "int64", "[1]", VIEW(1, 8)) "," TENSOR("y", "int64", "[1]", OUTPUT(0)),
                         CALL("nonzero", "[0]", "[1]") "," COPY(2, 3))),
      1);
  float x[4] = {0, 5, 0, 6};
  int64_t shape[] = {4};
  DLTensor input = floats(x, shape, 1), output = {0};
  must_run(program, &input, &output);
  CHECK(*(int64_t *)output.data == 3);
  graft_free_output(&output);
  x[1] = 0;
  GraftError error = {0};
  output = (DLTensor){0};
  CHECK(graft_program_run(program, &input, &output, &error) == GRAFT_ERROR_RUN);
  CHECK(strstr(error.message, "output 'positions' is too small for a view of it"));
  graft_program_destroy(program);
}

static void test_absent_input_is_null(void) {
  GraftProgram *program = must_create(
      MANIFEST(PROCEDURE("main", 0, "[0]", "[1,2]",
                         TENSOR("x", "float32", "[4]", INPUT(0)) "," TENSOR("a", "float32", "[]", OUTPUT(0)) ","
                         TENSOR("b", "float32", "[]", OUTPUT(1)),
                         CALL("present", "[0,-1]", "[1]") "," CALL("present", "[0,0]", "[2]"))),
      1);
  float x[4] = {0}, a = 0, b = 0;
  int64_t shape[] = {4};
  DLTensor input = floats(x, shape, 1), outputs[] = {floats(&a, NULL, 0), floats(&b, NULL, 0)};
  must_run(program, &input, outputs);
  CHECK(a == 1.0f && b == 2.0f);
  graft_program_destroy(program);
}

/* Outputs that are an input, a constant, and one tensor twice: copied. */
static void test_outputs_of_any_storage(void) {
  GraftProgram *program = must_create(
      MANIFEST(PROCEDURE("main", 64, "[0]", "[0,1,2,2,3,3]",
                         TENSOR("x", "float32", "[2]", INPUT(0)) "," TENSOR("one", "float32", "[1]", CONSTANT("one"))
                         "," TENSOR("sum", "float32", "[2]", ARENA(0)) "," TENSOR("y", "float32", "[2]", OUTPUT(4)),
                         CALL("add", "[0,1]", "[2]") "," CALL("add", "[2,1]", "[3]"))),
      1);
  float x[2] = {3, 4};
  int64_t shape[] = {2};
  DLTensor input = floats(x, shape, 1), outputs[6] = {{0}};
  must_run(program, &input, outputs);
  check_floats(outputs, x, 2);
  check_floats(outputs + 1, one_value, 1);
  for (int i = 2; i < 6; i++) {
    check_floats(outputs + i, i < 4 ? (float[]){4, 5} : (float[]){5, 6}, 2);
  }
  for (int i = 0; i < 6; i++) {
    CHECK(outputs[i].data != x);
    graft_free_output(outputs + i);
  }
  graft_program_destroy(program);
}

static void check_input_error(GraftProgram *program, DLTensor input, const char *expected) {
  DLTensor outputs[2] = {{0}};
  GraftError error = {0};
  CHECK(graft_program_run(program, &input, outputs, &error) == GRAFT_ERROR_INPUT);
  CHECK_TEXT(error.message, expected);
}

static void test_errors_of_inputs(void) {
  GraftProgram *program = must_create(straight, 1);
  float x[64] = {0};
  int64_t shape[] = {32}, shorter[] = {31}, strides[] = {2};
  check_input_error(program, floats(x, shorter, 1), "input 'x' must be float32[32], got float32[31]");
  check_input_error(program, floats(x, shape, 0), "input 'x' must be float32[32], got float32[]");
  check_input_error(program, integers((int64_t *)x, shape, 1), "input 'x' must be float32[32], got int64[32]");
  check_input_error(program, floats(NULL, shape, 1), "input 'x' has no data");
  DLTensor strided = floats(x, shape, 1), elsewhere = floats(x, shape, 1);
  strided.strides = strides;
  check_input_error(program, strided, "input 'x' is not contiguous; pass a row-major copy");
  elsewhere.device.device_type = kDLCUDA;
  check_input_error(program, elsewhere, "input 'x' is on device type 2, not in main memory; copy it there");
  graft_program_destroy(program);
}

/* Creates and runs with the n-th allocation failing; returns whether none was left to fail. */
static int survives_failure(const char *manifest, int32_t threads, int n) {
  GraftProgram *program = NULL;
  GraftError error = {0};
  float x[32] = {1};
  int64_t shape[] = {32};
  DLTensor input = floats(x, shape, 1), outputs[2] = {{0}};
  fail_allocation(n);
  int32_t created = create_program(manifest, threads, &program, &error), ran = GRAFT_OK;
  if (created == GRAFT_OK) {
    ran = graft_program_run(program, &input, outputs, &error);
  }
  fail_allocation(-1);
  if (created == GRAFT_OK) {
    if (ran == GRAFT_OK) {
      graft_free_output(outputs);
      graft_free_output(outputs + 1);
    }
    must_run(program, &input, outputs); /* a failed call leaves the program usable */
    graft_free_output(outputs);
    graft_free_output(outputs + 1);
  } else {
    CHECK(program == NULL && strstr(error.message, "out of memory"));
  }
  graft_program_destroy(program);
  return created == GRAFT_OK && ran == GRAFT_OK;
}

static void test_every_failing_allocation_is_an_error(void) {
  int n = 0;
  while (!survives_failure(straight, 2, n)) {
    n++;
  }
  CHECK(n > 10);
}

int main(void) {
  test_runs_with_any_number_of_threads();
  test_describes_itself();
  test_every_code_has_a_text();
  test_several_threads_call_one_program();
#ifndef __SANITIZE_THREAD__
  test_runs_in_a_forked_child();
#endif
  test_errors_of_functions();
  test_dynamic_output_belongs_to_the_caller();
  test_view_of_a_dynamic_tensor_is_checked();
  test_absent_input_is_null();
  test_outputs_of_any_storage();
  test_errors_of_inputs();
  test_every_failing_allocation_is_an_error();
  return 0;
}
