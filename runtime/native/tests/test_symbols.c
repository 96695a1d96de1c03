/* Programs of symbolic shapes: hostile manifests, failing memory, plans, and threads with shapes of their own. */

#include "damage.h"

#define SYMBOL(name, low, high, tensor, axis) \
  "{\"name\":\"" name "\",\"low\":" #low ",\"high\":" #high ",\"tensor\":" #tensor ",\"axis\":" #axis "}"
#define SYMBOLIC(name, symbols, extents, inputs, outputs, tensors, calls)                                            \
  "{\"name\":\"" name "\",\"symbols\":[" symbols "],\"extents\":[" extents "],\"inputs\":" inputs ",\"outputs\":" outputs \
  ",\"tensors\":[" tensors "],\"calls\":[" calls "]}"
#define PLANNED "\"storage\":\"arena\""
#define EXTENTS(values) "\"storage\":\"extents\",\"values\":" values
#define SEQ SYMBOL("seq", 0, null, 0, 0)

static void check_error(const char *manifest, const char *expected) {
  GraftProgram *program;
  GraftError error = {0};
  CHECK(create_program(manifest, 1, &program, &error) == GRAFT_ERROR_ARTIFACT);
  CHECK(program == NULL);
  CHECK_TEXT(error.message, expected);
}

/* A procedure of x (input) and y (output) of these shapes, and of more. */
#define WITH(symbols, extents, x, y, tensors, calls)                                                      \
  MANIFEST(SYMBOLIC("main", symbols, extents, "[0]", "[1]",                                               \
                    TENSOR("x", "float32", x, INPUT(0)) "," TENSOR("y", "float32", y, OUTPUT(0)) tensors, calls))
#define PLACE "damaged manifest: procedure 0: "
#define TENSOR_2 "damaged manifest: procedure 0, tensor 2: "

static void test_symbols(void) {
  check_error(WITH("", "", "[1]", "[1]", "", ""), PLACE "'symbols' has 0 entries, not between 1 and 65536");
  check_error(WITH(SYMBOL("seq", -1, null, 0, 0), "", "[\"s0\"]", "[1]", "", ""),
              PLACE "symbol 0: 'low' is -1, not between 0 and 4611686018427387904");
  check_error(WITH(SYMBOL("seq", 5, 4, 0, 0), "", "[\"s0\"]", "[1]", "", ""),
              PLACE "symbol 0: 'high' is 4, not between 5 and 4611686018427387904");
  check_error(WITH(SYMBOL("seq", 5, 4.5, 0, 0), "", "[\"s0\"]", "[1]", "", ""),
              PLACE "symbol 0: 'high' is not an integer");
  check_error(WITH(SYMBOL("seq", 0, 4, 2, 0), "", "[\"s0\"]", "[1]", "", ""),
              PLACE "symbol 0: 'tensor' is 2, not between 0 and 1");
  check_error(WITH(SEQ "," SEQ, "", "[\"s0\",\"s1\"]", "[1]", "", ""),
              PLACE "two symbols are named 'seq'");
  check_error(WITH(SYMBOL("seq", 0, 4, 0, 1), "", "[\"s0\"]", "[1]", "", ""),
              PLACE "symbol 'seq' is not axis 1 of tensor 'x'");
  check_error(WITH(SEQ, "[\"mul\",2,\"s0\"]", "[\"e0\"]", "[1]", "", ""),
              PLACE "symbol 'seq' is not axis 0 of tensor 'x'");
  check_error(WITH(SYMBOL("seq", 0, 4, 2, 0), "", "[1]", "[1]", "," TENSOR("t", "int8", "[\"s0\"]", PLANNED), ""),
              PLACE "symbol 'seq' is bound by tensor 't', whose memory is not asked for");
  check_error(WITH(SYMBOL("seq", 0, 4, 1, 0), "", "[1]", "[\"s0\"]", "", ""),
              PLACE "symbol 'seq' is bound by tensor 'y', which no call writes");
}

static void test_extents(void) {
#define NO_OPERATION "entry 0 of 'extents' is no operation on numbers, symbols and earlier entries"
  check_error(WITH(SEQ, "[\"pow\",2,\"s0\"]", "[\"s0\"]", "[1]", "", ""), PLACE NO_OPERATION);
  check_error(WITH(SEQ, "[\"add\",2,\"s1\"]", "[\"s0\"]", "[1]", "", ""), PLACE NO_OPERATION);
  check_error(WITH(SEQ, "[\"add\",2,\"e0\"]", "[\"s0\"]", "[1]", "", ""), PLACE NO_OPERATION);
  check_error(WITH(SEQ, "[\"add\",2,\"e1\"],[\"add\",1,1]", "[\"s0\"]", "[1]", "", ""), PLACE NO_OPERATION);
  check_error(WITH(SEQ, "[\"add\",2]", "[\"s0\"]", "[1]", "", ""), PLACE NO_OPERATION);
  check_error(WITH(SEQ, "[\"add\",2,4611686018427387905]", "[\"s0\"]", "[1]", "", ""), PLACE NO_OPERATION);
  check_error(WITH(SEQ, "7", "[\"s0\"]", "[1]", "", ""), PLACE NO_OPERATION);
  check_error(WITH(SEQ, "", "[\"s0\"]", "[\"e0\"]", "", ""),
              "damaged manifest: procedure 0, tensor 1: 'shape' has a dimension that is not a natural number, or is too "
              "large");
  check_error(WITH(SEQ, "", "[\"s0\"]", "[1]", "," TENSOR("e", "int64", "[2]", EXTENTS("[1]")), ""),
              TENSOR_2 "1 'values' are not the elements of an int64 or int32 tensor of this shape");
  check_error(WITH(SEQ, "", "[\"s0\"]", "[1]", "," TENSOR("e", "float32", "[1]", EXTENTS("[1]")), ""),
              TENSOR_2 "1 'values' are not the elements of an int64 or int32 tensor of this shape");
  check_error(WITH(SEQ, "", "[\"s0\"]", "[1]", "," TENSOR("e", "int64", "[1]", EXTENTS("[\"s1\"]")), ""),
              TENSOR_2 "entry 0 of 'values' is no number of the type, symbol or extent");
  check_error(WITH(SEQ, "", "[\"s0\"]", "[1]", "," TENSOR("e", "int32", "[1]", EXTENTS("[2147483648]")), ""),
              TENSOR_2 "entry 0 of 'values' is no number of the type, symbol or extent");
  check_error(WITH(SEQ, "", "[\"s0\"]", "[1]", "," TENSOR("e", "int64", "[\"s0\"]", EXTENTS("[]")), ""),
              TENSOR_2 "a tensor of storage extents needs a shape of numbers");
}

static void test_a_table_may_not_hide_what_cannot_be_written_out(void) {
  char extents[16384] = "[\"add\",\"s0\",\"s0\"]", manifest[32768];
  for (int i = 0; i < 20; i++) {
    snprintf(extents + strlen(extents), 64, ",[\"mul\",\"e%d\",\"e%d\"]", i, i);
  }
  static const char pattern[] = WITH(SEQ, "%s", "[\"s0\"]", "[1]", "", "");
  snprintf(manifest, sizeof manifest, pattern, extents);
  check_error(manifest, PLACE "entry 12 of 'extents' has more than 4096 operations, or is nested more than 256 deep");
  strcpy(extents, "[\"add\",\"s0\",\"s0\"]");
  for (int i = 0; i < 300; i++) {
    snprintf(extents + strlen(extents), 64, ",[\"add\",\"e%d\",1]", i);
  }
  snprintf(manifest, sizeof manifest, pattern, extents);
  check_error(manifest, PLACE "entry 256 of 'extents' has more than 4096 operations, or is nested more than 256 deep");
}

static void test_tensors(void) {
  check_error(WITH(SEQ, "", "[\"s0\"]", "[1]", "," TENSOR("c", "float32", "[\"s0\"]", CONSTANT("one")), ""),
              TENSOR_2 "a tensor of storage constant needs a shape of numbers");
  check_error(WITH(SEQ, "", "[\"s0\"]", "[1]", "," TENSOR("d", "float32", "[2]", DYNAMIC), ""),
              TENSOR_2 "a tensor of storage dynamic cannot have a shape of numbers");
  check_error(WITH(SEQ, "", "[\"s0\"]", "[1]", "," TENSOR("v", "float32", "[1]", VIEW(0, 4)), ""),
              TENSOR_2 "a view with symbols, or of a tensor with symbols, is not all of tensor 0");
  check_error(WITH(SEQ, "", "[\"s0\"]", "[2]",
                   "," TENSOR("v", "float32", "[1]", VIEW(1, 4)) "," TENSOR("w", "float32", "[\"s0\"]", VIEW(2, 0)), ""),
              "damaged manifest: procedure 0, tensor 3: a view with symbols, or of a tensor with symbols, is not all of "
              "tensor 2");
  check_error(WITH(SEQ, "", "[\"s0\"]", "null", "," TENSOR("v", "float32", "[\"s0\"]", VIEW(1, 0)), ""),
              TENSOR_2 "a view with symbols, or of a tensor with symbols, is not all of tensor 1");
  check_error(WITH(SEQ, "", "[\"s0\"]", "[1]", "," TENSOR("e", "int64", "[1]", EXTENTS("[\"s0\"]")), COPY(2, 2)),
              PLACE "call 0: tensor 'e' is written, but its bytes are those of an input or a constant");
}

/* When shapes are known: x[seq], y[found], n[found] which a call finds out. */
#define FOUND(y, tensors, calls)                                                                                  \
  WITH(SEQ "," SYMBOL("found", 0, null, 2, 0), "", "[\"s0\"]", y, "," TENSOR("n", "int64", "[\"s1\"]", DYNAMIC) tensors, \
       calls)

static void test_what_is_not_known_yet_is_not_used(void) {
  check_error(FOUND("[\"s1\"]", "," TENSOR("t", "float32", "[\"s1\"]", PLANNED),
                    CALL("add", "[0,0]", "[3]") "," CALL("nonzero", "[0]", "[2]") "," CALL("add", "[3,3]", "[1]")),
              PLACE "call 0: tensor 't' is written before its shape is known");
  check_error(FOUND("[\"s1\"]", "," TENSOR("t", "float32", "[\"s1\"]", PLANNED),
                    "{\"kind\":\"call\",\"module\":0,\"function\":\"add\",\"inputs\":[0],\"outputs\":[2,3]}"),
              PLACE "call 0: tensor 't' is written before its shape is known");
  check_error(FOUND("[1]", "," TENSOR("e", "int64", "[1]", EXTENTS("[\"s1\"]")),
                    CALL("add", "[0,3]", "[1]") "," CALL("nonzero", "[0]", "[2]")),
              PLACE "call 0: tensor 'e' is read before its shape is known");
  check_error(MANIFEST(SYMBOLIC("main", SEQ "," SYMBOL("found", 0, null, 2, 0), "[\"add\",\"s0\",\"s1\"]", "[0,1]", "[]",
                                TENSOR("x", "float32", "[\"s0\"]", INPUT(0)) ","
                                TENSOR("z", "float32", "[\"e0\"]", INPUT(1)) ","
                                TENSOR("n", "int64", "[\"s1\"]", DYNAMIC),
                                CALL("nonzero", "[0]", "[2]"))),
              PLACE "the shape of input 'z' is not known when the procedure begins");
}

/* ---- Runs ----------------------------------------------------------------------------------------------------- */

/* Everything at once: y[2 * seq] = what a loop makes of x[seq], and what was found in it. */
static const char rich[] =
    MANIFEST(SYMBOLIC("main", SYMBOL("seq", 0, 9, 0, 0) "," SYMBOL("found", 0, null, 4, 0) "," SYMBOL("last", 0, null, 3, 0),
                      "[\"mul\",2,\"s0\"],[\"floordiv\",\"e0\",2],[\"max\",\"e1\",\"s1\"]", "[0,1]", "[2,3]",
                      TENSOR("x", "float32", "[\"s0\"]", INPUT(0)) "," TENSOR("n", "int64", "[]", INPUT(1)) ","
                      TENSOR("y", "float32", "[\"s0\"]", OUTPUT(0)) "," TENSOR("z", "float32", "[\"s2\"]", OUTPUT(1)) ","
                      TENSOR("d", "int64", "[\"s1\"]", DYNAMIC) "," TENSOR("s", "float32", "[\"e1\"]", PLANNED) ","
                      TENSOR("t", "float32", "[\"s0\"]", PLANNED) "," TENSOR("v", "float32", "[\"s0\",1]", VIEW(5, 0)) ","
                      TENSOR("e", "int64", "[2]", EXTENTS("[\"e0\",\"e2\"]")) ","
                      TENSOR("l", "float32", "[\"e2\"]", PLANNED),
                      CALL("add", "[0,0]", "[5]") ","
                      "{\"kind\":\"call\",\"module\":0,\"function\":\"add\",\"inputs\":[7,5],\"outputs\":[6],\"in_place\":[0,1]},"
                      CALL("nonzero", "[6]", "[4]") "," CALL("add", "[6,6]", "[9]") "," CALL("add", "[6,6]", "[2]") ","
                      "{\"kind\":\"loop\",\"inputs\":[1,-1,0],\"outputs\":[3],\"bodies\":[1],\"arguments\":[[0]]}") ","
             SYMBOLIC("body", SYMBOL("a", 0, null, 2, 0) "," SYMBOL("b", 0, null, 3, 0), "[\"add\",\"s0\",0]", "[0,1,2,3]",
                      "[1,5]",
                      TENSOR("i", "int64", "[]", INPUT(0)) "," TENSOR("c", "bool", "[]", INPUT(1)) ","
                      TENSOR("s", "float32", "[\"s0\"]", INPUT(2)) "," TENSOR("x", "float32", "[\"s1\"]", INPUT(3)) ","
                      TENSOR("t", "float32", "[\"s0\"]", PLANNED) "," TENSOR("r", "float32", "[\"e0\"]", OUTPUT(1)),
                      CALL("add", "[2,3]", "[4]") "," CALL("add", "[4,3]", "[5]")));

static void run_rich(GraftProgram *program, int64_t length) {
  float x[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, expected[9], looped[9];
  int64_t trips = 3;
  DLTensor inputs[] = {floats(x, &length, 1), integers(&trips, NULL, 0)}, outputs[2] = {{0}};
  must_run(program, inputs, outputs);
  for (int64_t i = 0; i < length; i++) {
    expected[i] = 8 * x[i];
    looped[i] = 7 * x[i];
  }
  check_floats(outputs, expected, length);
  check_floats(outputs + 1, looped, length);
  graft_free_output(outputs);
  graft_free_output(outputs + 1);
}

static void test_every_shape_runs(void) {
  GraftProgram *program = must_create(rich, 1);
  for (int64_t round = 0; round < 40; round++) {
    run_rich(program, round * 7 % 10);
  }
  graft_program_destroy(program);
}

static void test_the_interface_tells_symbols(void) {
  GraftProgram *program = must_create(rich, 1);
  CHECK(graft_program_symbol_count(program) == 3);
  GraftSymbolInfo seq = graft_program_symbol(program, 0), found = graft_program_symbol(program, 1);
  CHECK_TEXT(seq.name, "seq");
  CHECK(seq.low == 0 && seq.high == 9 && found.high == -1);
  CHECK(graft_program_symbol(program, 3).name == NULL);
  CHECK(graft_program_input(program, 0).shape[0] == -1);
  CHECK_TEXT(graft_program_input(program, 0).extents[0], "seq");
  CHECK_TEXT(graft_program_output(program, 1).extents[0], "last");
  graft_program_destroy(program);
}

static void test_outputs_of_the_caller_are_checked(void) {
  GraftProgram *program = must_create(WITH(SEQ, "", "[\"s0\"]", "[\"s0\"]", "", CALL("add", "[0,0]", "[1]")), 1);
  float x[] = {1, 2, 3}, y[3], expected[] = {2, 4, 6};
  int64_t three = 3, two = 2;
  DLTensor input = floats(x, &three, 1), output = floats(y, &two, 1);
  GraftError error = {0};
  CHECK(graft_program_run(program, &input, &output, &error) == GRAFT_ERROR_INPUT);
  CHECK_TEXT(error.message, "output 'y' must be float32[3], got float32[2]");
  output = floats(y, &three, 1);
  must_run(program, &input, &output);
  check_floats(&output, expected, 3);
  graft_program_destroy(program);
}

/* The bytes of the arena of stage 0 of the first instance. */
static uint64_t arena_of(const GraftProgram *program) { return program->idle->frames[0].stages[0].capacity; }

static const char chain[] = WITH(SEQ, "", "[\"s0\"]", "[\"s0\"]",
                                 "," TENSOR("a", "float32", "[\"s0\"]", PLANNED) ","
                                 TENSOR("b", "float32", "[\"s0\"]", PLANNED) "," TENSOR("c", "float32", "[\"s0\"]", PLANNED),
                                 CALL("add", "[0,0]", "[2]") ","
                                 "{\"kind\":\"call\",\"module\":0,\"function\":\"add\",\"inputs\":[2,2],\"outputs\":[3],"
                                 "\"in_place\":[0,1]},"
                                 "{\"kind\":\"call\",\"module\":0,\"function\":\"add\",\"inputs\":[3,0],\"outputs\":[4],"
                                 "\"in_place\":[0]}," CALL("add", "[4,4]", "[1]"));

static void run_chain(GraftProgram *program, int64_t length) {
  float *x = calloc((size_t)length + 1, sizeof *x);
  CHECK(x);
  x[0] = 1;
  DLTensor input = floats(x, &length, 1), output = {0};
  must_run(program, &input, &output);
  CHECK(count_of(&output) == length && (length == 0 || ((float *)output.data)[0] == 10));
  graft_free_output(&output);
  free(x);
}

static void test_plans_are_kept_and_arenas_fit_them(void) {
  GraftProgram *program = must_create(chain, 1);
  const StageState *state = program->idle->frames[0].stages;
  run_chain(program, 16);
  CHECK(arena_of(program) == 64); /* each stands on the one before */
  run_chain(program, 1600);
  CHECK(arena_of(program) == 6400 && state->plan_count == 2);
  const char *arena = state->arena;
  for (int round = 0; round < 5; round++) {
    run_chain(program, round % 2 ? 16 : 1600);
    CHECK(state->plan_count == 2 && state->arena == arena);
  }
  for (int64_t length = 1; length < 8; length++) { /* the one of 1600 elements is the oldest but one */
    run_chain(program, length);
  }
  CHECK(state->plan_count == GRAFT_KEPT_PLANS && arena_of(program) == 6400);
  run_chain(program, 9);
  CHECK(arena_of(program) == 64);
  graft_program_destroy(program);
}

static void test_large_arenas_have_room_to_grow_into(void) {
  GraftProgram *program = must_create(chain, 1);
  const StageState *state = program->idle->frames[0].stages;
  run_chain(program, 1 << 20);
  const char *arena = state->arena;
  CHECK(arena_of(program) == 4 * (4 << 20) && state->touched == 4 << 20);
  run_chain(program, 3 << 20);
  CHECK(state->arena == arena && state->touched == 3 * (4 << 20));
  for (int64_t length = 1; length <= GRAFT_KEPT_PLANS; length++) {
    run_chain(program, length);
  }
  CHECK(arena_of(program) == 64 && state->touched == 64);
  graft_program_destroy(program);
}

static void test_a_failed_binding_leaves_the_program_usable(void) {
  GraftProgram *program = must_create(chain, 1);
  int64_t lengths[] = {4, (int64_t)1 << 60};
  float x[4] = {1};
  GraftError error = {0};
  DLTensor input = floats(x, lengths + 1, 1), output = {0};
  for (int round = 0; round < 2; round++) {
    CHECK(graft_program_run(program, &input, &output, &error) == GRAFT_ERROR_MEMORY);
    CHECK_TEXT(error.message, "out of memory: these shapes need an arena of 4611686018427387904 bytes");
    run_chain(program, 4);
  }
  graft_program_destroy(program);
}

/* ---- Failing memory, damage and threads ------------------------------------------------------------------------ */

static int survives_failure(int n) {
  GraftProgram *program = NULL;
  GraftError error = {0};
  float x[] = {1, 2};
  int64_t length = 2, trips = 2;
  DLTensor inputs[] = {floats(x, &length, 1), integers(&trips, NULL, 0)}, outputs[2] = {{0}};
  fail_allocation(n);
  int32_t created = create_program(rich, 1, &program, &error), ran = GRAFT_OK;
  if (created == GRAFT_OK) {
    ran = graft_program_run(program, inputs, outputs, &error);
  }
  fail_allocation(-1);
  if (created == GRAFT_OK) {
    CHECK(ran == GRAFT_OK || ran == GRAFT_ERROR_MEMORY);
    if (ran == GRAFT_OK) {
      graft_free_output(outputs);
      graft_free_output(outputs + 1);
    }
    run_rich(program, 5);
  } else {
    CHECK(program == NULL && strstr(error.message, "out of memory"));
  }
  graft_program_destroy(program);
  return created == GRAFT_OK && ran == GRAFT_OK;
}

static void test_every_failing_allocation_is_an_error(void) {
  int n = 0;
  while (!survives_failure(n)) {
    n++;
  }
  CHECK(n > 10);
}

static void test_every_change_is_survived(void) {
  float x[] = {1, 2};
  int64_t length = 2, trips = 2;
  DLTensor inputs[] = {floats(x, &length, 1), integers(&trips, NULL, 0)};
  survive_changed_bytes(rich, inputs, 2);
  survive_extreme_numbers(rich, inputs, 2);
}

static void *run_shapes(void *program) {
  for (int64_t round = 0; round < 60; round++) {
    run_rich(program, round * 3 % 10);
  }
  return NULL;
}

static void test_threads_have_shapes_of_their_own(void) {
  run_on_threads(must_create(rich, 2), 3, run_shapes);
}

int main(void) {
  test_symbols();
  test_extents();
  test_a_table_may_not_hide_what_cannot_be_written_out();
  test_tensors();
  test_what_is_not_known_yet_is_not_used();
  test_every_shape_runs();
  test_the_interface_tells_symbols();
  test_outputs_of_the_caller_are_checked();
  test_plans_are_kept_and_arenas_fit_them();
  test_large_arenas_have_room_to_grow_into();
  test_a_failed_binding_leaves_the_program_usable();
  test_every_failing_allocation_is_an_error();
  test_threads_have_shapes_of_their_own();
  test_every_change_is_survived();
  return 0;
}
