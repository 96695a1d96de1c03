/* If, Loop and Scan: known and unknown shapes, absent inputs, stacked outputs, errors, failing allocations. */
#include "functions.h"

#define IF(condition, outputs, then_arguments, else_arguments)                                             \
  "{\"kind\":\"if\",\"inputs\":[" #condition "],\"outputs\":" outputs ",\"bodies\":[1,2],\"arguments\":[" \
  then_arguments "," else_arguments "],\"origin\":[\"the_if\"]}"
#define LOOP(inputs, outputs, arguments)                                                               \
  "{\"kind\":\"loop\",\"inputs\":" inputs ",\"outputs\":" outputs ",\"bodies\":[1],\"arguments\":[" \
  arguments "],\"origin\":[\"the_loop\"]}"
#define SCAN(inputs, outputs, arguments, attributes)                                                   \
  "{\"kind\":\"scan\",\"inputs\":" inputs ",\"outputs\":" outputs ",\"bodies\":[1],\"arguments\":[" \
  arguments "],\"attributes\":{" attributes "},\"origin\":[\"the_scan\"]}"

static int64_t two[] = {2}, four[] = {4};

/* ---- If ------------------------------------------------------------------------------------------------------- */

/* a < b ? a + b : a passed on; the output's shape is `shape` in the main procedure. */
#define CHOICE(shape, else_output)                                                                                   \
  MANIFEST(PROCEDURE("main", 64, "[0,1]", "[3]",                                                                     \
                     TENSOR("a", "float32", "[2]", INPUT(0)) "," TENSOR("b", "float32", "[2]", INPUT(1)) ","         \
                     TENSOR("c", "bool", "[]", ARENA(0)) "," TENSOR("y", "float32", shape, OUTPUT(0)),               \
                     CALL("less", "[0,1]", "[2]") "," IF(2, "[3]", "[0,1]", "[0]")) ","                              \
           PROCEDURE("then", 0, "[0,1]", "[2]",                                                                      \
                     TENSOR("a", "float32", "[2]", INPUT(0)) "," TENSOR("b", "float32", "[2]", INPUT(1)) ","         \
                     TENSOR("sum", "float32", "[2]", OUTPUT(0)), CALL("add", "[0,1]", "[2]")) ","                    \
           PROCEDURE("else", 0, "[0]", "[" else_output "]",                                                          \
                     TENSOR("a", "float32", "[2]", INPUT(0)) "," TENSOR("longer", "float32", "null", OUTPUT(0)),    \
                     CALL("append", "[0]", "[1]")))

static void check_if(const char *manifest, int b_larger, const float *expected, int64_t count) {
  GraftProgram *program = must_create(manifest, 1);
  for (int i = 0; i < 3; i++) {
    float a[] = {1, 2}, b[] = {b_larger ? 3 : 0, 4};
    DLTensor inputs[] = {floats(a, two, 1), floats(b, two, 1)}, output = {0};
    must_run(program, inputs, &output);
    check_floats(&output, expected, count);
    graft_free_output(&output);
  }
  graft_program_destroy(program);
}

static void test_if_runs_one_branch(void) {
  check_if(CHOICE("null", "1"), 1, (float[]){4, 6}, 2);
  check_if(CHOICE("null", "1"), 0, (float[]){1, 2, 2}, 3);
}

/* The body of unknown shape meets a caller that knows another one. */
static void test_if_checks_the_shape_of_a_branch(void) {
  GraftProgram *program = must_create(CHOICE("[2]", "1"), 1);
  float a[] = {1, 2}, b[] = {0, 4};
  DLTensor inputs[] = {floats(a, two, 1), floats(b, two, 1)}, output = {0};
  GraftError error = {0};
  CHECK(graft_program_run(program, inputs, &output, &error) == GRAFT_ERROR_RUN);
  CHECK_TEXT(error.message, "node 'the_if': output 'longer' has shape [3] where [2] is expected");
  graft_program_destroy(program);
}

/* ---- Loop ----------------------------------------------------------------------------------------------------- */

/* Inputs: trips int64, limit float32[1]. state += 1 from 1 while state < limit; `trips` and `condition` may be -1.
 * Outputs: the last state, all states stacked. */
#define COUNTING(trips, condition, state_shape, stack_shape)                                                          \
  MANIFEST(PROCEDURE("main", 64, "[0,1]", "[3,4]",                                                                    \
                     TENSOR("trips", "int64", "[]", INPUT(0)) "," TENSOR("limit", "float32", "[1]", INPUT(1)) ","     \
                     TENSOR("one", "float32", "[1]", CONSTANT("one")) ","                                             \
                     TENSOR("last", "float32", state_shape, OUTPUT(0)) ","                                            \
                     TENSOR("all", "float32", stack_shape, OUTPUT(1)) "," TENSOR("go", "bool", "[1]", ARENA(0)),      \
                     CALL("less", "[2,1]", "[5]") ","                                                                 \
                     LOOP("[" trips "," condition ",2]", "[3,4]", "[1]")) ","                                         \
           PROCEDURE("body", 64, "[0,1,2,3]", "[4,5,6]",                                                              \
                     TENSOR("i", "int64", "[]", INPUT(0)) "," TENSOR("go", "bool", "[]", INPUT(1)) ","                \
                     TENSOR("state", "float32", "[1]", INPUT(2)) "," TENSOR("limit", "float32", "[1]", INPUT(3)) ","  \
                     TENSOR("more", "bool", "[1]", OUTPUT(0)) "," TENSOR("next", "float32", "[1]", OUTPUT(1)) ","     \
                     TENSOR("row", "float32", "[1]", OUTPUT(2)),                                                      \
                     CALL("add", "[2,2]", "[5]") "," CALL("less", "[5,3]", "[4]") "," COPY(2, 6)))

static void check_counting(const char *manifest, int64_t trips, float limit, float last, int64_t rows) {
  GraftProgram *program = must_create(manifest, 1);
  for (int repeat = 0; repeat < 2; repeat++) {
    int64_t one[] = {1};
    DLTensor inputs[] = {integers(&trips, NULL, 0), floats(&limit, one, 1)}, outputs[2] = {{0}};
    must_run(program, inputs, outputs);
    check_floats(outputs, &last, 1);
    CHECK(outputs[1].ndim == 2 && outputs[1].shape[0] == rows && outputs[1].shape[1] == 1);
    float expected = 1;
    for (int64_t i = 0; i < rows; i++, expected *= 2) {
      CHECK(((float *)outputs[1].data)[i] == expected);
    }
    graft_free_output(outputs);
    graft_free_output(outputs + 1);
  }
  graft_program_destroy(program);
}

static void test_loop_ends_by_trips_or_condition(void) {
  check_counting(COUNTING("0", "-1", "[1]", "null"), 3, 1e9f, 8, 3);
  check_counting(COUNTING("0", "5", "[1]", "null"), 100, 1000, 1024, 10);
  check_counting(COUNTING("0", "5", "null", "null"), 100, 1000, 1024, 10);
  check_counting(COUNTING("-1", "5", "[1]", "null"), 0, 1e6f, 1048576, 20);
  check_counting(COUNTING("0", "-1", "[1]", "[3,1]"), 3, 1e9f, 8, 3);
  check_counting(COUNTING("0", "5", "[1]", "null"), 5, 0.5f, 1, 0);
  check_counting(COUNTING("0", "-1", "null", "null"), -7, 1e9f, 1, 0);
  check_counting(COUNTING("0", "-1", "[1]", "[0,1]"), 0, 1e9f, 1, 0);
}

static void check_counting_error(int64_t trips, const char *expected) {
  GraftProgram *program = must_create(COUNTING("0", "-1", "[1]", "[3,1]"), 1);
  float limit = 1e9f;
  int64_t one[] = {1};
  DLTensor inputs[] = {integers(&trips, NULL, 0), floats(&limit, one, 1)}, outputs[2] = {{0}};
  GraftError error = {0};
  CHECK(graft_program_run(program, inputs, outputs, &error) == GRAFT_ERROR_RUN);
  CHECK_TEXT(error.message, expected);
  graft_program_destroy(program);
}

static void test_loop_with_another_number_of_slices_is_an_error(void) {
  check_counting_error(4, "node 'the_loop': the slices 'row' are more than the output that they make has room for");
  check_counting_error(2, "node 'the_loop': the slices 'row' are fewer than the output that they make has room for");
}

/* The state grows by one element with each iteration; a second state goes round unchanged. */
#define GROWING                                                                                                       \
  MANIFEST(PROCEDURE("main", 0, "[0,1]", "[2,3]",                                                                     \
                     TENSOR("trips", "int64", "[1]", INPUT(0)) "," TENSOR("x", "float32", "[2]", INPUT(1)) ","        \
                     TENSOR("y", "float32", "null", OUTPUT(0)) "," TENSOR("same", "float32", "[2]", OUTPUT(1)),       \
                     LOOP("[0,-1,1,1]", "[2,3]", "[]")) ","                                                           \
           PROCEDURE("body", 0, "[0,1,2,3]", "[1,4,3]",                                                               \
                     TENSOR("i", "int64", "[]", INPUT(0)) "," TENSOR("go", "bool", "[]", INPUT(1)) ","                \
                     TENSOR("state", "float32", "null", INPUT(2)) "," TENSOR("same", "float32", "[2]", INPUT(3)) ","  \
                     TENSOR("longer", "float32", "null", OUTPUT(1)),                                                  \
                     CALL("append", "[2]", "[4]")))

static void test_loop_state_may_change_its_shape(void) {
  GraftProgram *program = must_create(GROWING, 1);
  float x[] = {5, 6}, expected[] = {5, 6, 2, 3, 4};
  for (int64_t trips = 0; trips < 4; trips++) {
    int64_t one[] = {1};
    DLTensor inputs[] = {integers(&trips, one, 1), floats(x, two, 1)}, outputs[2] = {{0}};
    must_run(program, inputs, outputs);
    check_floats(outputs, expected, 2 + trips);
    check_floats(outputs + 1, x, 2);
    graft_free_output(outputs);
    graft_free_output(outputs + 1);
  }
  graft_program_destroy(program);
}

/* Slices of unknown shape are stacked; that they change is an error. */
#define STACKING(source)                                                                                              \
  MANIFEST(PROCEDURE("main", 0, "[0,1]", "[2]",                                                                       \
                     TENSOR("trips", "int64", "[]", INPUT(0)) "," TENSOR("x", "float32", "[4]", INPUT(1)) ","         \
                     TENSOR("y", "float32", "null", OUTPUT(0)) "," TENSOR("rest", "float32", "null", DYNAMIC),        \
                     LOOP("[0,-1,1]", "[3,2]", "[1]")) ","                                                            \
           PROCEDURE("body", 0, "[0,1,2,3]", "[1,4,5]",                                                               \
                     TENSOR("i", "int64", "[]", INPUT(0)) "," TENSOR("go", "bool", "[]", INPUT(1)) ","                \
                     TENSOR("state", "float32", "null", INPUT(2)) "," TENSOR("x", "float32", "[4]", INPUT(3)) ","     \
                     TENSOR("longer", "float32", "null", OUTPUT(1)) "," TENSOR("row", "float32", "null", OUTPUT(2)),  \
                     CALL("append", "[2]", "[4]") "," CALL("append", "[" source "]", "[5]")))

static void test_loop_stacks_slices_of_unknown_shape(void) {
  GraftProgram *program = must_create(STACKING("3"), 1);
  float x[] = {1, 2, 3, 4}, row[] = {1, 2, 3, 4, 4};
  for (int64_t trips = 0; trips < 20; trips += 19) {
    DLTensor inputs[] = {integers(&trips, NULL, 0), floats(x, four, 1)}, output = {0};
    must_run(program, inputs, &output);
    CHECK(output.shape[0] == trips && output.ndim == (trips ? 2 : 1));
    for (int64_t i = 0; i < trips; i++) {
      CHECK(memcmp((float *)output.data + 5 * i, row, sizeof row) == 0);
    }
    graft_free_output(&output);
  }
  graft_program_destroy(program);
  program = must_create(STACKING("2"), 1);
  int64_t trips = 2;
  DLTensor inputs[] = {integers(&trips, NULL, 0), floats(x, four, 1)}, output = {0};
  GraftError error = {0};
  CHECK(graft_program_run(program, inputs, &output, &error) == GRAFT_ERROR_RUN);
  CHECK_TEXT(error.message, "node 'the_loop': the slices 'row' change their shape from one iteration to the next");
  graft_program_destroy(program);
}

/* ---- Scan ----------------------------------------------------------------------------------------------------- */

/* Running sums over one axis of x float32[2,3]: the final sum, and all sums stacked. */
#define SUMS(slice, stack, attributes)                                                                                \
  MANIFEST(PROCEDURE("main", 0, "[0,1]", "[2,3]",                                                                     \
                     TENSOR("start", "float32", slice, INPUT(0)) "," TENSOR("x", "float32", "[2,3]", INPUT(1)) ","    \
                     TENSOR("last", "float32", slice, OUTPUT(0)) "," TENSOR("all", "float32", stack, OUTPUT(1)),      \
                     SCAN("[0,1]", "[2,3]", "[]", "\"scan_inputs\":1," attributes)) ","                               \
           PROCEDURE("body", 0, "[0,1]", "[2,3]",                                                                     \
                     TENSOR("sum", "float32", slice, INPUT(0)) "," TENSOR("x", "float32", slice, INPUT(1)) ","        \
                     TENSOR("next", "float32", slice, OUTPUT(0)) "," TENSOR("row", "float32", slice, OUTPUT(1)),      \
                     CALL("add", "[0,1]", "[2]") "," COPY(2, 3)))

#define AXES(input, input_direction, output, output_direction)                                   \
  "\"input_axes\":[" #input "],\"input_directions\":[" #input_direction "],\"output_axes\":[" \
  #output "],\"output_directions\":[" #output_direction "]"

static void check_sums(const char *manifest, int64_t length, const float *last, const float *all) {
  GraftProgram *program = must_create(manifest, 1);
  float start[] = {0, 0, 0}, x[] = {1, 2, 3, 10, 20, 30};
  int64_t slice[] = {length}, shape[] = {2, 3};
  DLTensor inputs[] = {floats(start, slice, 1), floats(x, shape, 2)}, outputs[2] = {{0}};
  must_run(program, inputs, outputs);
  check_floats(outputs, last, length);
  check_floats(outputs + 1, all, 6);
  graft_free_output(outputs);
  graft_free_output(outputs + 1);
  graft_program_destroy(program);
}

static void test_scan_along_any_axis_and_direction(void) {
  const float rows[] = {11, 22, 33}, columns[] = {6, 60};
  check_sums(SUMS("[3]", "[2,3]", AXES(0, 0, 0, 0)), 3, rows, (float[]){1, 2, 3, 11, 22, 33});
  check_sums(SUMS("[3]", "null", AXES(0, 1, 0, 0)), 3, rows, (float[]){10, 20, 30, 11, 22, 33});
  check_sums(SUMS("[3]", "null", AXES(-2, 0, 0, 1)), 3, rows, (float[]){11, 22, 33, 1, 2, 3});
  check_sums(SUMS("[3]", "[3,2]", AXES(0, 0, -1, 0)), 3, rows, (float[]){1, 11, 2, 22, 3, 33});
  check_sums(SUMS("[3]", "null", AXES(0, 0, 1, 1)), 3, rows, (float[]){11, 1, 22, 2, 33, 3});
  check_sums(SUMS("[2]", "null", AXES(1, 0, 0, 0)), 2, columns, (float[]){1, 10, 3, 30, 6, 60});
  check_sums(SUMS("[2]", "null", AXES(-1, 1, 1, 0)), 2, columns, (float[]){3, 5, 6, 30, 50, 60});
}

/* ---- Failing allocations -------------------------------------------------------------------------------------- */

static int survives_failure(const char *manifest, const DLTensor *inputs, int32_t output_count, int n) {
  GraftProgram *program = must_create(manifest, 1);
  DLTensor outputs[2] = {{0}};
  GraftError error = {0};
  fail_allocation(n);
  int32_t status = graft_program_run(program, inputs, outputs, &error);
  fail_allocation(-1);
  for (int32_t i = 0; !status && i < output_count; i++) {
    graft_free_output(outputs + i);
  }
  CHECK(status == GRAFT_OK || strstr(error.message, "out of memory"));
  graft_program_destroy(program);
  return status == GRAFT_OK;
}

static void test_every_failing_allocation_is_an_error(void) {
  float x[] = {1, 2, 3, 4}, limit = 1000, sums[] = {1, 2, 3, 10, 20, 30};
  int64_t trips = 20, one[] = {1}, three[] = {3}, shape[] = {2, 3};
  DLTensor counting[] = {integers(&trips, NULL, 0), floats(&limit, one, 1)};
  DLTensor growing[] = {integers(&trips, one, 1), floats(x, two, 1)};
  DLTensor stacking[] = {integers(&trips, NULL, 0), floats(x, four, 1)};
  DLTensor scanning[] = {floats(x, three, 1), floats(sums, shape, 2)};
  for (int n = 0; !survives_failure(COUNTING("0", "5", "null", "null"), counting, 2, n); n++) {
  }
  for (int n = 0; !survives_failure(GROWING, growing, 2, n); n++) {
  }
  for (int n = 0; !survives_failure(STACKING("3"), stacking, 1, n); n++) {
  }
  for (int n = 0; !survives_failure(SUMS("[3]", "null", AXES(0, 0, 1, 1)), scanning, 2, n); n++) {
  }
}

int main(void) {
  test_if_runs_one_branch();
  test_if_checks_the_shape_of_a_branch();
  test_loop_ends_by_trips_or_condition();
  test_loop_with_another_number_of_slices_is_an_error();
  test_loop_state_may_change_its_shape();
  test_loop_stacks_slices_of_unknown_shape();
  test_scan_along_any_axis_and_direction();
  test_every_failing_allocation_is_an_error();
  return 0;
}
