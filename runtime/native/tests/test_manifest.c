/* Damaged manifests: each kind of damage is named; no byte changed in a good one makes the loader crash. */
#include "damage.h"

static void check_error(const char *manifest, const char *expected) {
  GraftProgram *program;
  GraftError error = {0};
  CHECK(create_program(manifest, 1, &program, &error) != GRAFT_OK);
  CHECK(program == NULL);
  CHECK_TEXT(error.message, expected);
}

/* A procedure of the tensors x (input), y (output), and more, with these calls. */
#define WITH(tensors, calls)                                                                                \
  MANIFEST(PROCEDURE("main", 128, "[0]", "[1]",                                                             \
                     TENSOR("x", "float32", "[8]", INPUT(0)) "," TENSOR("y", "float32", "[8]", OUTPUT(0))   \
                     tensors, calls))
#define TENSOR_2 "damaged manifest: procedure 0, tensor 2: "

static void test_fields(void) {
  check_error("[", "damaged manifest: invalid JSON at byte 1: expected a value");
  check_error("{}", "damaged manifest: 'abi' is not an integer");
  check_error("{\"abi\":9}",
              "the program was compiled for ABI version 9 of Graft's runtime, and this runtime has version 2; compile "
              "it again, or install the runtime that belongs to it");
  check_error("{\"abi\":2,\"procedures\":[],\"modules\":[]}", "damaged manifest: no procedure");
  check_error(MANIFEST(PROCEDURE("main", 0, "[0]", "[]", "", "")),
              "damaged manifest: procedure 0: entry 0 of 'inputs' is not an integer between 0 and -1");
  check_error(MANIFEST(PROCEDURE("main", -1, "[]", "[]", "", "")),
              "damaged manifest: procedure 0: 'arena_bytes' is -1, not between 0 and 2305843009213693951");
}

static void test_tensors(void) {
  check_error(WITH("," TENSOR("t", "float31", "[8]", ARENA(0)), ""), TENSOR_2 "unknown 'dtype' \"float31\"");
  check_error(WITH("," TENSOR("t", "float32", "[8]", "\"storage\":\"disk\""), ""),
              TENSOR_2 "unknown 'storage' \"disk\"");
  check_error(WITH("," TENSOR("t", "float32", "[8,-1]", ARENA(0)), ""),
              TENSOR_2 "'shape' has a dimension that is not a natural number, or is too large");
  check_error(WITH("," TENSOR("t", "float32", "[4611686018427387904,4]", ARENA(0)), ""),
              TENSOR_2 "'shape' has a dimension that is not a natural number, or is too large");
  check_error(WITH("," TENSOR("t", "float32", "8", ARENA(0)), ""),
              TENSOR_2 "'shape' is neither null nor an array of at most 32 integers");
  check_error(WITH("," TENSOR("t", "float32", "null", ARENA(0)), ""),
              TENSOR_2 "a tensor of storage arena needs a shape");
  check_error(WITH("," TENSOR("t", "float32", "[1]", DYNAMIC), ""),
              TENSOR_2 "a tensor of storage dynamic cannot have a shape of numbers");
  check_error(WITH("," TENSOR("t", "float32", "[8]", ARENA(32)), ""), TENSOR_2 "'offset' 32 is not a multiple of 64");
  check_error(WITH("," TENSOR("t", "float32", "[17]", ARENA(64)), ""),
              TENSOR_2 "68 bytes at 'offset' 64 leave the arena of 128 bytes");
  check_error(WITH("," TENSOR("t", "float32", "[8]", ARENA(9223372036854775744)), ""),
              TENSOR_2 "32 bytes at 'offset' 9223372036854775744 leave the arena of 128 bytes");
  check_error(WITH("," TENSOR("t", "float32", "[8]", VIEW(2, 0)), ""),
              TENSOR_2 "'of' is 2, not between 0 and 1");
  check_error(WITH("," TENSOR("t", "float32", "[8]", VIEW(0, 4)), ""),
              TENSOR_2 "32 bytes at 'offset' 4 leave the 32 bytes of tensor 0");
  check_error(WITH("," TENSOR("t", "float32", "[1]", VIEW(0, 2)), ""),
              TENSOR_2 "'offset' 2 is not a multiple of the element size");
  check_error(WITH("," TENSOR("t", "float32", "[8]", INPUT(1)), ""),
              "damaged manifest: procedure 0: tensor 't' claims to be input 1, which it is not");
  check_error(WITH("," TENSOR("t", "float32", "[8]", OUTPUT(0)), ""),
              "damaged manifest: procedure 0: tensor 't' claims to be output 0, which it is not");
  check_error(WITH("," TENSOR("t", "float32", "[8]", CONSTANT("two")), CALL("add", "[0,0]", "[1]")),
              "constant 'two' of tensor 't' is missing");
  check_error(WITH("," TENSOR("t", "float32", "[8]", CONSTANT("one")), CALL("add", "[0,0]", "[1]")),
              "constant 'one' is float32[1], and tensor 't' needs float32[8]");
}

#define CALL_0 "damaged manifest: procedure 0, call 0: "

static void test_calls(void) {
  check_error(WITH("", "{\"kind\":\"jump\"}"), CALL_0 "unknown 'kind' \"jump\"");
  check_error(WITH("", CALL("add", "[0,2]", "[1]")),
              CALL_0 "entry 1 of 'inputs' is not an integer between -1 and 1");
  check_error(WITH("", CALL("add", "[0,0]", "[-1]")),
              CALL_0 "entry 0 of 'outputs' is not an integer between 0 and 1");
  check_error(WITH("", "{\"kind\":\"call\",\"inputs\":[],\"outputs\":[],\"module\":1,\"function\":\"f\"}"),
              CALL_0 "'module' is 1, not between 0 and 0");
  check_error(WITH("", "{\"kind\":\"copy\",\"inputs\":[0,0],\"outputs\":[1]}"),
              CALL_0 "a copy has one input and one output");
  check_error(WITH("", ""), "damaged manifest: procedure 0: tensor 'y' is read before it is written");
  check_error(WITH("," TENSOR("t", "float32", "[8]", ARENA(0)), CALL("add", "[0,2]", "[1]")),
              "damaged manifest: procedure 0: call 0: tensor 't' is read before it is written");
  check_error(WITH("", CALL("add", "[0,1]", "[1]")),
              "damaged manifest: procedure 0: call 0: tensor 'y' is read before it is written");
  check_error(WITH("", CALL("add", "[0,0]", "[1]") "," CALL("add", "[0,0]", "[1]")),
              "damaged manifest: procedure 0: call 1: tensor 'y' is written twice");
  check_error(WITH("", CALL("add", "[0,0]", "[0]")),
              "damaged manifest: procedure 0: call 0: tensor 'x' is written, but its bytes are those of an input or a constant");
  check_error(WITH("," TENSOR("v", "float32", "[4]", VIEW(1, 0)), CALL("add", "[0,0]", "[2]")),
              "damaged manifest: procedure 0: tensor 'y' is read before it is written");
  check_error(WITH("," TENSOR("v", "float32", "[2,4]", VIEW(1, 0)), CALL("add", "[0,0]", "[2]") ","
                   CALL("add", "[0,0]", "[1]")),
              "damaged manifest: procedure 0: call 1: tensor 'y' is written twice");
  check_error(WITH("," TENSOR("d", "float32", "null", DYNAMIC) "," TENSOR("v", "float32", "[0]", VIEW(2, 0)),
                   CALL("add", "[0,0]", "[3]")),
              "damaged manifest: procedure 0: call 0: tensor 'v' is written, but it is a view of what has no size yet");
  check_error(WITH("," TENSOR("s", "float32", "[8]", ARENA(0)) "," TENSOR("v", "float32", "[2,4]", VIEW(2, 0)) ","
                   TENSOR("t", "float32", "[8]", ARENA(0)),
                   CALL("add", "[0,0]", "[3]") "," CALL("add", "[2,0]", "[4]") "," CALL("add", "[4,4]", "[1]")),
              "damaged manifest: procedure 0: tensors 's' and 't' overlap in the arena while both are live");
  check_error(WITH("", CALL("absent", "[0,0]", "[1]")),
              "damaged manifest: procedure 0: call 0: module 'm' has no function 'absent'");
  check_error(WITH("", CALL("unknown", "[0,0]", "[1]")),
              "module 'm' (kind 'test', plugin 'tester') cannot be loaded: there is no 'unknown'");
  check_error(WITH("," TENSOR("s", "float32", "[8]", ARENA(0)) "," TENSOR("t", "float32", "[2]", ARENA(0)),
                   CALL("add", "[0,0]", "[2]") "," CALL("add", "[0,0]", "[3]") "," CALL("add", "[2,3]", "[1]")),
              "damaged manifest: procedure 0: tensors 's' and 't' overlap in the arena while both are live");
  check_error(WITH("," TENSOR("s", "float32", "[8]", ARENA(0)) "," TENSOR("t", "float32", "[8]", ARENA(0)),
                   CALL("add", "[0,0]", "[2]") "," CALL("add", "[2,0]", "[3]") "," CALL("add", "[3,3]", "[1]")),
              "damaged manifest: procedure 0: tensors 's' and 't' overlap in the arena while both are live");
  check_error(WITH("," TENSOR("s", "float64", "[8]", ARENA(0)), "{\"kind\":\"copy\",\"inputs\":[0],\"outputs\":[2]}"),
              "damaged manifest: procedure 0: call 0: a copy between tensors of another type or size");
}

static void test_memory_is_used_again(void) {
  graft_program_destroy(must_create(
      WITH("," TENSOR("s", "float32", "[8]", ARENA(0)) "," TENSOR("t", "float32", "[8]", ARENA(64)) ","
           TENSOR("u", "float32", "[8]", ARENA(0)),
           CALL("add", "[0,0]", "[2]") "," CALL("add", "[2,0]", "[3]") "," CALL("add", "[3,3]", "[4]") ","
           CALL("add", "[4,4]", "[1]")),
      1));
}

#define PARTS                                                                                                   \
  "," TENSOR("a", "float32", "[4]", VIEW(1, 0)) "," TENSOR("b", "float32", "[3]", VIEW(1, 16)) ","              \
      TENSOR("c", "float32", "[1]", VIEW(1, 28)) "," TENSOR("d", "float32", "[2]", VIEW(1, 12))

static void test_parts_of_a_tensor_are_written_one_by_one(void) {
  graft_program_destroy(must_create(
      WITH(PARTS, CALL("add", "[0,0]", "[4]") "," CALL("add", "[0,0]", "[2]") "," CALL("add", "[2,4]", "[3]")), 1));
  graft_program_destroy(must_create(WITH(PARTS, CALL("add", "[0,0]", "[3,2,4]") "," CALL("add", "[5,1]", "[]")), 1));
  check_error(WITH(PARTS, CALL("add", "[0,0]", "[4]") "," CALL("add", "[0,0]", "[2]")),
              "damaged manifest: procedure 0: tensor 'y' is read before it is written");
  check_error(WITH(PARTS, CALL("add", "[0,0]", "[2]") "," CALL("add", "[5,0]", "[3]")),
              "damaged manifest: procedure 0: call 1: tensor 'd' is read before it is written");
  check_error(WITH(PARTS, CALL("add", "[0,0]", "[2]") "," CALL("add", "[0,0]", "[5]")),
              "damaged manifest: procedure 0: call 1: tensor 'd' is written twice");
  check_error(WITH(PARTS, CALL("add", "[0,0]", "[3]") "," CALL("add", "[0,0]", "[5]")),
              "damaged manifest: procedure 0: call 1: tensor 'd' is written twice");
  check_error(WITH(PARTS, CALL("add", "[0,0]", "[3]") "," CALL("add", "[0,0]", "[1]")),
              "damaged manifest: procedure 0: call 1: tensor 'y' is written twice");
  check_error(WITH(PARTS, CALL("add", "[0,0]", "[1]") "," CALL("add", "[0,0]", "[3]")),
              "damaged manifest: procedure 0: call 1: tensor 'b' is written twice");
}

#define IN_PLACE(inputs, outputs, places)                                                                       \
  "{\"kind\":\"call\",\"module\":0,\"function\":\"add\",\"inputs\":" inputs ",\"outputs\":" outputs               \
  ",\"in_place\":" places "}"
#define TWO "," TENSOR("s", "float32", "[8]", ARENA(0)) "," TENSOR("t", "float32", "[8]", ARENA(0))
#define LIVE "damaged manifest: procedure 0: tensors 's' and 't' overlap in the arena while both are live"

static void test_a_result_may_stand_on_what_dies(void) {
  graft_program_destroy(must_create(WITH(TWO, CALL("add", "[0,0]", "[2]") "," IN_PLACE("[2,2]", "[3]", "[0,1]") ","
                                              CALL("add", "[3,0]", "[1]")), 1));
  check_error(WITH(TWO, CALL("add", "[0,0]", "[2]") "," IN_PLACE("[2,2]", "[3]", "[0]") "," CALL("add", "[3,0]", "[1]")),
              LIVE);
  check_error(WITH(TWO, CALL("add", "[0,0]", "[2]") "," IN_PLACE("[2,0]", "[3]", "[0]") "," CALL("add", "[3,2]", "[1]")),
              LIVE);
  check_error(WITH("," TENSOR("s", "float32", "[8]", ARENA(0)) "," TENSOR("t", "float32", "[4]", ARENA(0)),
                   CALL("add", "[0,0]", "[2]") "," IN_PLACE("[2,0]", "[3]", "[0]") "," CALL("add", "[3,0]", "[1]")),
              LIVE);
  check_error(WITH(TWO, CALL("add", "[0,0]", "[2]") "," IN_PLACE("[2,0]", "[3]", "[2]") "," CALL("add", "[3,0]", "[1]")),
              "damaged manifest: procedure 0, call 1: entry 0 of 'in_place' is not an integer between 0 and 1");
}

#define BODY(name, inputs, tensors, outputs) PROCEDURE(name, 0, inputs, outputs, tensors, "")
#define MAIN_IF(bodies, arguments)                                                                              \
  PROCEDURE("main", 0, "[0]", "[1]",                                                                            \
            TENSOR("x", "bool", "[]", INPUT(0)) "," TENSOR("y", "bool", "[]", OUTPUT(0)),                       \
            "{\"kind\":\"if\",\"inputs\":[0],\"outputs\":[1],\"bodies\":" bodies ",\"arguments\":" arguments "}")

static void test_bodies(void) {
  check_error(MANIFEST(MAIN_IF("[1]", "[[]]")),
              CALL_0 "entry 0 of 'bodies' is not an integer between 0 and 0");
  check_error(MANIFEST(MAIN_IF("[0]", "[[0]]")), CALL_0 "1 bodies and 1 lists of arguments, not 2 each");
  check_error(MANIFEST(MAIN_IF("[0,0]", "[[0],[0]]")),
              "damaged manifest: bodies are nested more than 32 deep, or contain themselves");
  check_error(MANIFEST(MAIN_IF("[1,1]", "[[0],[]]") "," BODY("b", "[0]", TENSOR("a", "bool", "[]", INPUT(0)), "[0]")),
              "damaged manifest: procedure 0: call 0: body 'b' has 1 inputs, the call needs 0");
  check_error(MANIFEST(MAIN_IF("[1,1]", "[[0],[0]]") "," BODY("b", "[0]", TENSOR("a", "bool", "[]", INPUT(0)), "[]")),
              "damaged manifest: procedure 0: call 0: body 'b' has 0 outputs, the call needs 1");
  check_error(MANIFEST(MAIN_IF("[1,1]", "[[0],[0]]") "," BODY("b", "[0]", TENSOR("a", "int8", "[]", INPUT(0)), "[0]")),
              "damaged manifest: procedure 0: call 0: body 'b': tensors 'x' and 'a' do not agree: another element "
              "type");
  check_error(MANIFEST(MAIN_IF("[1,1]", "[[0],[0]]") "," BODY("b", "[0]", TENSOR("a", "bool", "[2]", INPUT(0)), "[0]")),
              "damaged manifest: procedure 0: call 0: body 'b': tensors 'x' and 'a' do not agree: another shape");
}

static void test_targets(void) {
#define TARGETS(targets) "{\"abi\":2,\"targets\":" targets ",\"procedures\":[" \
                         PROCEDURE("main", 0, "[]", "[]", "", "") "]," MODULES "}"
  check_error(TARGETS("[{\"arch\":\"z80\",\"features\":[]}]"),
#if defined(__x86_64__)
              "the program was compiled for z80, and this machine is x86_64; compile it again for this machine");
  check_error(TARGETS("[{\"arch\":\"x86_64\",\"features\":[\"sse2\",\"avx2048\",\"rtm\"]}]"),
              "the program was compiled for a processor with avx2048 (unknown to this runtime), which this one lacks; "
              "compile it again for this processor");
  graft_program_destroy(must_create(TARGETS("[{\"arch\":\"x86_64\",\"features\":[\"sse2\",\"cx8\",\"64bit\"]}]"), 1));
#else
              "the program was compiled for z80, and this machine is aarch64; compile it again for this machine");
#endif
}

static void test_loaders(void) {
  GraftProgram *program;
  GraftError error = {0};
  static const char manifest[] = MANIFEST(PROCEDURE("main", 0, "[]", "[]", "", ""));
  GraftModuleSource module = {.data = "refuse", .size = 6};
  GraftProgramSource source = {
      .manifest = manifest, .manifest_size = sizeof manifest - 1, .modules = &module, .module_count = 1};
  CHECK(graft_program_create(&source, NULL, &program, &error) == GRAFT_ERROR_LOADER);
  CHECK_TEXT(error.message, "no loader for modules of kind 'test', which module 'm' needs; plugin 'tester' provides "
                            "it; install it with: pip install tester");
  GraftLoader old = test_loader;
  const GraftLoader *loaders[] = {&test_loader};
  GraftLoadOptions options = {.size = sizeof options, .threads = 1, .loaders = loaders, .loader_count = 1};
  CHECK(graft_program_create(&source, &options, &program, &error) == GRAFT_ERROR_LOADER);
  CHECK_TEXT(error.message, "module 'm' (kind 'test', plugin 'tester') cannot be loaded: I was told to");
  old.abi_version = 7;
  loaders[0] = &old;
  CHECK(graft_program_create(&source, &options, &program, &error) == GRAFT_ERROR_LOADER);
  CHECK_TEXT(error.message, "the loader for kind 'test' was built for ABI version 7 of Graft's runtime, and this "
                            "runtime has version 2; update plugin 'tester'");
  source.module_count = 0;
  CHECK(graft_program_create(&source, &options, &program, &error) == GRAFT_ERROR_ARTIFACT);
  CHECK_TEXT(error.message, "the manifest names 1 modules, 0 are there");
}

/* A manifest with every kind of tensor and call. */
static const char rich[] =
    MANIFEST(PROCEDURE("main", 192, "[0,1]", "[3,4]",
                       TENSOR("n", "int64", "[]", INPUT(0)) "," TENSOR("x", "float32", "[2]", INPUT(1)) ","
                       TENSOR("one", "float32", "[1]", CONSTANT("one")) "," TENSOR("y", "float32", "[2]", OUTPUT(0)) ","
                       TENSOR("z", "float32", "null", OUTPUT(1)) "," TENSOR("s", "float32", "[2]", ARENA(64)) ","
                       TENSOR("v", "float32", "[1]", VIEW(5, 4)) "," TENSOR("d", "float32", "null", DYNAMIC),
                       CALL("add", "[1,2]", "[5]") "," CALL("append", "[6]", "[7]") ","
                       "{\"kind\":\"loop\",\"inputs\":[0,-1,5],\"outputs\":[3,4],\"bodies\":[1],\"arguments\":[[2]]}") ","
             PROCEDURE("body", 64, "[0,1,2,3]", "[1,4,4]",
                       TENSOR("i", "int64", "[]", INPUT(0)) "," TENSOR("c", "bool", "[]", INPUT(1)) ","
                       TENSOR("s", "float32", "[2]", INPUT(2)) "," TENSOR("one", "float32", "[1]", INPUT(3)) ","
                       TENSOR("t", "float32", "[2]", OUTPUT(1)),
                       CALL("add", "[2,3]", "[4]")));

static void test_every_change_is_survived(void) {
  int64_t trips = 2, shape[] = {2};
  float x[] = {1, 2};
  DLTensor inputs[] = {integers(&trips, NULL, 0), floats(x, shape, 1)};
  survive_changed_bytes(rich, inputs, 2);
  survive_extreme_numbers(rich, inputs, 2);
}

int main(void) {
  test_fields();
  test_tensors();
  test_calls();
  test_memory_is_used_again();
  test_parts_of_a_tensor_are_written_one_by_one();
  test_a_result_may_stand_on_what_dies();
  test_bodies();
  test_targets();
  test_loaders();
  test_every_change_is_survived();
  return 0;
}
