/* Growing caches: appends in a buffer with room and without, the strides that are refused, and hostile manifests. */
#include "damage.h"
#include "execute/append.h"

#define SYMBOL(name, tensor, axis) \
  "{\"name\":\"" name "\",\"low\":0,\"high\":null,\"tensor\":" #tensor ",\"axis\":" #axis "}"
#define APPEND(inputs, outputs, axis) \
  "{\"kind\":\"append\",\"inputs\":" inputs ",\"outputs\":" outputs ",\"axis\":" axis "}"
#define GROWING(inputs, outputs, past, more, present, tensors, calls)                                                  \
  MANIFEST("{\"name\":\"main\",\"symbols\":[" SYMBOL("past", 0, 1) "," SYMBOL("new", 1, 1) "],\"extents\":[[\"add\","  \
           "\"s0\",\"s1\"]],\"inputs\":" inputs ",\"outputs\":" outputs ",\"tensors\":["                               \
           TENSOR("past", "float32", past, INPUT(0)) "," TENSOR("more", "float32", more, INPUT(1)) ","                 \
           TENSOR("present", "float32", present, OUTPUT(0)) tensors "],\"calls\":[" calls "]}")
#define PAST "[2,\"s0\",2]"
#define MORE "[2,\"s1\",2]"
#define PRESENT "[2,\"e0\",2]"
#define PLACE "damaged manifest: procedure 0: call 0: the append of 'present': "

static const char *const cache = GROWING("[0,1]", "[2]", PAST, MORE, PRESENT, "", APPEND("[0,1]", "[2]", "1"));

static void check_error(const char *manifest, const char *expected) {
  GraftProgram *program;
  GraftError error = {0};
  CHECK(create_program(manifest, 1, &program, &error) == GRAFT_ERROR_ARTIFACT);
  CHECK_TEXT(error.message, expected);
}

static void test_hostile_appends_are_refused(void) {
#define WITH(past, more, present, call) GROWING("[0,1]", "[2]", past, more, present, "", call)
  check_error(WITH(PAST, MORE, PRESENT, APPEND("[0]", "[2]", "1")),
              "damaged manifest: procedure 0, call 0: an append has two inputs and one output");
  check_error(WITH(PAST, MORE, PRESENT, APPEND("[0,1]", "[2]", "-1")),
              "damaged manifest: procedure 0, call 0: 'axis' is -1, not between 0 and 31");
  check_error(WITH(PAST, MORE, PRESENT, APPEND("[0,1]", "[2]", "3")),
              PLACE "its tensors differ in rank, or have no such axis");
  check_error(WITH(PAST, "[2,\"s1\"]", PRESENT, APPEND("[0,1]", "[2]", "1")),
              PLACE "its tensors differ in rank, or have no such axis");
  check_error(WITH(PAST, MORE, "[3,\"e0\",2]", APPEND("[0,1]", "[2]", "1")), PLACE "its shapes do not add up");
  check_error(WITH(PAST, MORE, PRESENT, APPEND("[0,1]", "[2]", "0")), PLACE "its shapes do not add up");
  check_error(GROWING("[0,1]", "[2,0]", PAST, MORE, PRESENT, "", APPEND("[0,1]", "[2]", "1")),
              PLACE "it appends to what is no input, or has views");
  check_error(GROWING("[0,1]", "[2,2]", PAST, MORE, PRESENT, "", APPEND("[0,1]", "[2]", "1")),
              PLACE "its result is no output, or has views");
  check_error(GROWING("[0,1]", "[2,3]", PAST, MORE, PRESENT, "," TENSOR("y", "float32", PAST, OUTPUT(1)),
                      APPEND("[0,1]", "[2]", "1") ",{\"kind\":\"copy\",\"inputs\":[0],\"outputs\":[3]}"),
              PLACE "something else reads what it appends to");
  check_error(GROWING("[0,1]", "[2,3]", PAST, MORE, PRESENT, "," TENSOR("y", "float32", PRESENT, OUTPUT(1)),
                      APPEND("[0,1]", "[2]", "1") ",{\"kind\":\"copy\",\"inputs\":[2],\"outputs\":[3]}"),
              PLACE "something else than a function reads its result");
}

/* Two blocks of rows of two elements; the strides are those of a buffer with room for so many rows. */
typedef struct Rows {
  int64_t shape[3], strides[3];
  DLTensor tensor;
} Rows;

static DLTensor *rows(Rows *rows, float *data, int64_t count, int64_t room) {
  *rows = (Rows){{2, count, 2}, {2 * room, 2, 1}, {0}};
  rows->tensor = (DLTensor){data, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, rows->shape, room ? rows->strides : NULL, 0};
  return &rows->tensor;
}

static int32_t append(GraftProgram *program, const DLTensor *past, const DLTensor *more, DLTensor *present,
                      GraftError *error) {
  DLTensor inputs[2] = {*past, *more};
  *error = (GraftError){0};
  return graft_program_run(program, inputs, present, error);
}

static void test_rows_are_appended_where_there_is_room(void) {
  GraftProgram *program = must_create(cache, 1);
  GraftError error;
  Rows past, more, present;
  float new_rows[8] = {1, 2, 3, 4, 5, 6, 7, 8}, buffer[16];
  for (int i = 0; i < 16; i++) {
    buffer[i] = -1.0f - (float)i;
  }
  CHECK(append(program, rows(&past, buffer, 1, 4), rows(&more, new_rows, 2, 0), rows(&present, buffer, 3, 4),
               &error) == GRAFT_OK);
  const float expected[16] = {-1, -2, 1, 2, 3, 4, -7, -8, -9, -10, 5, 6, 7, 8, -15, -16};
  CHECK(memcmp(buffer, expected, sizeof buffer) == 0);
  graft_program_destroy(program);
}

static void test_elsewhere_the_old_rows_are_copied_too(void) {
  GraftProgram *program = must_create(cache, 1);
  GraftError error;
  Rows past, more, present;
  float new_rows[4] = {1, 2, 3, 4}, old_rows[4] = {-1, -2, -3, -4}, buffer[12] = {0}, packed[8];
  CHECK(append(program, rows(&past, old_rows, 1, 0), rows(&more, new_rows, 1, 0), rows(&present, buffer, 2, 3),
               &error) == GRAFT_OK);
  const float expected[12] = {-1, -2, 1, 2, 0, 0, -3, -4, 3, 4, 0, 0};
  CHECK(memcmp(buffer, expected, sizeof buffer) == 0);
  CHECK(append(program, rows(&past, buffer, 1, 3), rows(&more, new_rows, 1, 0), rows(&present, packed, 2, 0),
               &error) == GRAFT_OK);
  const float dense[8] = {-1, -2, 1, 2, -3, -4, 3, 4};
  CHECK(memcmp(packed, dense, sizeof packed) == 0);
  CHECK(append(program, rows(&past, NULL, 0, 0), rows(&more, old_rows, 1, 0), rows(&present, buffer, 1, 3),
               &error) == GRAFT_OK);
  CHECK(memcmp(buffer + 6, old_rows + 2, 2 * sizeof(float)) == 0);
  graft_program_destroy(program);
}

static void test_many_rows_are_copied_by_all_threads(void) {
  enum { ROWS = 1 << 17 };
  GraftProgram *program = must_create(cache, 2);
  GraftError error;
  Rows past, more;
  float *old_rows = calloc((size_t)ROWS * 4, sizeof(float)), new_rows[4] = {1, 2, 3, 4};
  DLTensor made = {0};
  CHECK(old_rows);
  old_rows[(size_t)ROWS * 2 - 1] = 9;
  CHECK(append(program, rows(&past, old_rows, ROWS, 0), rows(&more, new_rows, 1, 0), &made, &error) == GRAFT_OK);
  const float *data = made.data;
  CHECK(data[(size_t)ROWS * 2 - 1] == 9 && data[(size_t)ROWS * 2] == 1 && data[(size_t)ROWS * 4 + 2] == 3);
  graft_free_output(&made);
  free(old_rows);
  graft_program_destroy(program);
}

static void test_other_strides_are_refused(void) {
  GraftProgram *program = must_create(cache, 1);
  GraftError error;
  Rows past, more, present;
  float new_rows[8] = {0}, buffer[32] = {0};
#define REFUSED(expected)                                                                                   \
  CHECK(append(program, &past.tensor, &more.tensor, &present.tensor, &error) == GRAFT_ERROR_INPUT);         \
  CHECK_TEXT(error.message, expected)
  rows(&past, buffer, 2, 4), rows(&more, new_rows, 1, 0), rows(&present, buffer, 3, 5);
  REFUSED("output 'present' begins where input 'past' does, but has other strides; give both those of one buffer");
  rows(&present, buffer, 3, 4);
  past.strides[1] = 3;
  REFUSED("input 'past' is neither contiguous nor the first rows of a contiguous buffer");
  rows(&past, buffer, 2, 1);
  REFUSED("input 'past' is neither contiguous nor the first rows of a contiguous buffer");
  rows(&past, buffer, 2, (int64_t)1 << 61);
  REFUSED("input 'past' is neither contiguous nor the first rows of a contiguous buffer");
  rows(&past, buffer, 2, 4), rows(&more, new_rows, 1, 2);
  REFUSED("input 'more' is not contiguous; pass a row-major copy");
  rows(&more, new_rows, 1, 0), rows(&present, buffer, 4, 4);
  REFUSED("output 'present' must be float32[2,3,2], got float32[2,4,2]");
  graft_program_destroy(program);
}

static void test_pitches(void) {
  int64_t shape[4] = {1, 3, 2, 5}, strides[4] = {7, 40, 5, 1};
  DLTensor tensor = {NULL, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, strides, 0};
  CHECK(graft_block_pitch(&tensor, 2) == 40); /* the stride of the axis of 1 means nothing */
  CHECK(graft_block_pitch(&tensor, 3) == -1);
  tensor.strides = NULL;
  CHECK(graft_block_pitch(&tensor, 2) == 10);
  CHECK(graft_block_pitch(&tensor, 0) == 30);
  graft_grow_strides(&tensor, 2, 40, strides);
  CHECK(strides[0] == 120 && strides[1] == 40 && strides[2] == 5 && strides[3] == 1);
}

/* 1 if the n-th allocation is one too many for the program to notice. */
static int survives_failure(int n) {
  GraftProgram *program;
  GraftError error = {0};
  fail_allocation(n);
  int32_t status = create_program(cache, 1, &program, &error);
  fail_allocation(-1);
  if (status) {
    CHECK(program == NULL && strstr(error.message, "out of memory"));
    return 0;
  }
  graft_program_destroy(program);
  return 1;
}

static void test_every_failing_allocation_is_an_error(void) {
  int n = 0;
  while (!survives_failure(n)) {
    n++;
  }
  CHECK(n > 10);
}

static void test_every_change_is_survived(void) {
  Rows past, more;
  float old_rows[16] = {0}, new_rows[16] = {0};
  rows(&past, old_rows, 1, 0), rows(&more, new_rows, 2, 0);
  const DLTensor inputs[2] = {past.tensor, more.tensor};
  survive_changed_bytes(cache, inputs, 2);
  survive_extreme_numbers(cache, inputs, 2);
}

int main(void) {
  test_hostile_appends_are_refused();
  test_rows_are_appended_where_there_is_room();
  test_elsewhere_the_old_rows_are_copied_too();
  test_many_rows_are_copied_by_all_threads();
  test_other_strides_are_refused();
  test_pitches();
  test_every_failing_allocation_is_an_error();
  test_every_change_is_survived();
  return 0;
}
