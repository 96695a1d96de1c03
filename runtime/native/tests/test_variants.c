/* Variants of the entry: which of them takes a call, and manifests whose variants are none. */

#include "damage.h"

#define SYMBOL(name, low, high) \
  "{\"name\":\"" name "\",\"low\":" #low ",\"high\":" #high ",\"tensor\":0,\"axis\":0}"
#define INNER "\"storage\":\"arena\",\"offset\":0"
/* Of x and z; y and t have the shape of x. */
#define ENTRY(symbols, x, z, y, calls)                                                                       \
  "{\"name\":\"main\"," symbols "\"inputs\":[0,1],\"outputs\":[2],"                                        \
  "\"tensors\":[" TENSOR("x", "float32", x, INPUT(0)) "," TENSOR("z", "float32", z, INPUT(1)) ","            \
  TENSOR("y", "float32", y, OUTPUT(0)) "," TENSOR("t", "float32", x, INNER) "],\"calls\":[" calls "]}"
#define SYMBOLIC(name, low, high, calls)                                                                     \
  ENTRY("\"symbols\":[" SYMBOL(name, low, high) "],\"extents\":[],", "[\"s0\"]", "[\"s0\"]", "[\"s0\"]", calls)
#define STATIC(x, z, y, calls) ENTRY("\"arena_bytes\":64,\"arena_bound\":0,", x, z, y, calls)

/* y = x + z; x + 2 z; 2 x + 2 z; a call that fails. */
#define SUM CALL("add", "[0,1]", "[2]")
#define MORE CALL("add", "[0,1]", "[3]") "," CALL("add", "[3,1]", "[2]")
#define DOUBLED CALL("add", "[0,1]", "[3]") "," CALL("add", "[3,3]", "[2]")
#define FAILING CALL("add", "[0,1]", "[3]") "," CALL("fail", "[3]", "[2]")

#define GENERAL SYMBOLIC("seq", 1, 9, SUM)
#define WITH(numbers, variants) "{\"abi\":2,\"variants\":" numbers ",\"procedures\":[" GENERAL "," variants "]," MODULES "}"

static const char three[] = WITH("[1,2,3]", STATIC("[3]", "[3]", "[3]", MORE) "," SYMBOLIC("seq", 5, 7, DOUBLED) ","
                                 STATIC("[8]", "[8]", "[8]", FAILING));

static void check_error(const char *manifest, const char *expected) {
  GraftProgram *program;
  GraftError error = {0};
  CHECK(create_program(manifest, 1, &program, &error) == GRAFT_ERROR_ARTIFACT);
  CHECK(program == NULL);
  CHECK_TEXT(error.message, expected);
}

/* ---- Manifests ------------------------------------------------------------------------------------------------ */

static void test_hostile_variants_are_refused(void) {
#define PLACE "damaged manifest: variant in procedure 1"
#define GOOD STATIC("[3]", "[3]", "[3]", SUM)
  check_error(WITH("7", GOOD), "damaged manifest: 'variants' is not an array");
  check_error(WITH("[0]", GOOD), "damaged manifest: entry 0 of 'variants' is not an integer between 1 and 1");
  check_error(WITH("[1,2]", GOOD), "damaged manifest: entry 1 of 'variants' is not an integer between 1 and 1");
  check_error(WITH("[\"1\"]", GOOD), "damaged manifest: entry 0 of 'variants' is not an integer between 1 and 1");
  check_error(WITH("[1]", STATIC("[3]", "[2]", "[3]", SUM)), PLACE ": input 'z' is float32[2], which is no float32[seq]");
  check_error(WITH("[1]", STATIC("[10]", "[10]", "[10]", SUM)),
              PLACE ": input 'x' is float32[10], which is no float32[seq]");
  check_error(WITH("[1]", STATIC("[0]", "[0]", "[0]", SUM)), PLACE ": input 'x' is float32[0], which is no float32[seq]");
  check_error(WITH("[1]", STATIC("[3,1]", "[3]", "[3]", SUM)),
              PLACE ": input 'x' is float32[3,1], which is no float32[seq]");
  check_error(WITH("[1]", STATIC("[3]", "[3]", "null", SUM)), PLACE ": output 'y' is float32, which is no float32[seq]");
  check_error(WITH("[1]", SYMBOLIC("n", 0, 9, SUM)), PLACE ": input 'x' is float32[n], which is no float32[seq]");
  check_error(WITH("[1]", SYMBOLIC("n", 1, 10, SUM)), PLACE ": input 'x' is float32[n], which is no float32[seq]");
  check_error(WITH("[1]", PROCEDURE("main", 0, "[0]", "[1]", TENSOR("x", "float32", "[3]", INPUT(0)) ","
                                    TENSOR("y", "float32", "[3]", OUTPUT(0)), CALL("add", "[0,0]", "[1]"))),
              PLACE " has 1 inputs, the entry has 2");
  check_error(WITH("[1]", PROCEDURE("main", 0, "[0,1]", "[]", TENSOR("x", "float32", "[3]", INPUT(0)) ","
                                    TENSOR("z", "float32", "[3]", INPUT(1)), "")),
              PLACE " has 0 outputs, the entry has 1");
  check_error(WITH("[1]", PROCEDURE("main", 0, "[0,1]", "[2]", TENSOR("x", "float32", "[3]", INPUT(0)) ","
                                    TENSOR("z", "int64", "[3]", INPUT(1)) "," TENSOR("y", "float32", "[3]", OUTPUT(0)),
                                    CALL("add", "[0,1]", "[2]"))),
              PLACE ": input 'z' is int64[3], which is no float32[seq]");
}

static void test_numbers_of_the_entry_stay(void) {
#define FIXED(numbers, entry, variant) \
  "{\"abi\":2,\"variants\":" numbers ",\"procedures\":[" entry "," variant "]," MODULES "}"
  check_error(FIXED("[1]", STATIC("[2]", "[2]", "[2]", SUM), STATIC("[3]", "[2]", "[2]", SUM)),
              PLACE ": input 'x' is float32[3], which is no float32[2]");
  check_error(FIXED("[1]", STATIC("[2]", "[2]", "[2]", SUM), STATIC("[2]", "[2]", "[3]", SUM)),
              PLACE ": output 'y' is float32[3], which is no float32[2]");
  check_error(FIXED("[1]", STATIC("[2]", "[2]", "[2]", SUM), SYMBOLIC("n", 2, 2, SUM)),
              PLACE ": input 'x' is float32[n], which is no float32[2]");
}

/* ---- Runs ----------------------------------------------------------------------------------------------------- */

/* y of x = 1, 2, ... and z = 1, 1, ...: of x by `times`, and of z by `more`. */
static void run_length(GraftProgram *program, int64_t length, float times, float more) {
  float x[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, z[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, expected[9];
  DLTensor inputs[] = {floats(x, &length, 1), floats(z, &length, 1)}, output = {0};
  must_run(program, inputs, &output);
  for (int64_t i = 0; i < length; i++) {
    expected[i] = times * x[i] + more;
  }
  check_floats(&output, expected, length);
  graft_free_output(&output);
}

static void run_all(GraftProgram *program) {
  for (int64_t round = 0; round < 3; round++) {
    run_length(program, 2, 1, 1);
    run_length(program, 3, 1, 2);
    run_length(program, 4, 1, 1);
    run_length(program, 5, 2, 2);
    run_length(program, 7, 2, 2);
    run_length(program, 9, 1, 1);
  }
}

static void test_the_first_variant_that_fits_runs(void) {
  GraftProgram *program = must_create(three, 1);
  run_all(program);
  CHECK(graft_program_input(program, 0).shape[0] == -1);
  CHECK(graft_program_symbol_count(program) == 1 && graft_program_symbol(program, 0).high == 9);
  graft_program_destroy(program);
  program = must_create(WITH("[2,1]", SYMBOLIC("n", 3, 5, DOUBLED) "," STATIC("[3]", "[3]", "[3]", MORE)), 1);
  run_length(program, 3, 1, 2);
  run_length(program, 4, 2, 2);
  run_length(program, 6, 1, 1);
  graft_program_destroy(program);
}

static void test_shapes_that_no_variant_takes_are_errors_of_the_entry(void) {
  GraftProgram *program = must_create(three, 1);
  float x[9] = {0};
  int64_t lengths[] = {3, 4, 0};
  DLTensor inputs[] = {floats(x, lengths, 1), floats(x, lengths + 1, 1)}, output = {0};
  GraftError error = {0};
  CHECK(graft_program_run(program, inputs, &output, &error) == GRAFT_ERROR_INPUT);
  CHECK_TEXT(error.message, "input 'z' has 4 at axis 0, but dimension 'seq' is 3 (input 'x', axis 0)");
  inputs[0].shape = inputs[1].shape = lengths + 2;
  CHECK(graft_program_run(program, inputs, &output, &error) == GRAFT_ERROR_INPUT);
  CHECK_TEXT(error.message,
             "input 'x' has 0 at axis 0, but dimension 'seq' is at least 1; compile the model with a wider range for it");
  run_all(program);
  graft_program_destroy(program);
}

static void count_call(void *user, const GraftCallTime *time) {
  CHECK(time->nanoseconds >= 0 && time->depth == 0);
  ++*(int32_t *)user;
}

static void test_times_and_failures_are_those_of_the_variant(void) {
  GraftProgram *program = must_create(three, 1);
  int64_t lengths[] = {3, 4, 8};
  int32_t calls;
  Timing timing = {count_call, &calls};
  float x[9] = {0};
  GraftRunDetails details = {.timing = &timing};
  GraftError error = {0};
  for (int i = 0; i < 3; i++) {
    DLTensor inputs[] = {floats(x, lengths + i, 1), floats(x, lengths + i, 1)}, output = {0};
    Instance *instance;
    CHECK(graft_run_begin(program, inputs, &instance, &error) == GRAFT_OK);
    calls = 0;
    int32_t status = graft_run_end(instance, &output, &details, &error);
    CHECK(status == (i < 2 ? GRAFT_OK : GRAFT_ERROR_RUN));
    CHECK(details.procedure == (i == 0 ? 1 : i == 1 ? 0 : 3));
    CHECK(calls == (i == 1 ? 1 : 2));
    graft_free_output(&output);
  }
  CHECK(details.failed == program->manifest.procedures[3].calls + 1);
  graft_program_destroy(program);
}

/* ---- Failing memory, damage and threads ------------------------------------------------------------------------ */

static void *run_everything(void *program) {
  for (int round = 0; round < 10; round++) {
    run_all(program);
  }
  return NULL;
}

static void test_threads_choose_for_themselves(void) {
  run_on_threads(must_create(three, 2), 3, run_everything);
}

static void test_every_failing_allocation_is_an_error(void) {
  for (int n = 0, created = GRAFT_ERROR_MEMORY; created != GRAFT_OK; n++) {
    GraftProgram *program;
    GraftError error = {0};
    fail_allocation(n);
    created = create_program(three, 1, &program, &error);
    fail_allocation(-1);
    CHECK(created == GRAFT_OK || strstr(error.message, "out of memory"));
    graft_program_destroy(program);
  }
}

static void test_every_change_is_survived(void) {
  float x[] = {1, 2, 3};
  int64_t length = 3;
  DLTensor inputs[] = {floats(x, &length, 1), floats(x, &length, 1)};
  survive_changed_bytes(three, inputs, 2);
  survive_extreme_numbers(three, inputs, 2);
}

int main(void) {
  test_hostile_variants_are_refused();
  test_numbers_of_the_entry_stay();
  test_the_first_variant_that_fits_runs();
  test_shapes_that_no_variant_takes_are_errors_of_the_entry();
  test_times_and_failures_are_those_of_the_variant();
  test_threads_choose_for_themselves();
  test_every_failing_allocation_is_an_error();
  test_every_change_is_survived();
  return 0;
}
