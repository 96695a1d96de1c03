/* The native loader: a hand-assembled image runs; damaged ones are refused. */
#include "functions.h"

enum { HEADER = 48, SYMBOL = 24, NAME = HEADER + SYMBOL, IMAGE = 4096, SIZE = 3 * 4096 };

/* *(float *)outputs[0]->data = *(const float *)inputs[0]->data; return 0; */
#if defined(__x86_64__)
static const unsigned char code[] = {0x48, 0x8B, 0x01, 0x48, 0x8B, 0x00, 0x48, 0x8B, 0x12, 0x48,
                                     0x8B, 0x12, 0x8B, 0x12, 0x89, 0x10, 0x31, 0xC0, 0xC3};
enum { MACHINE = 62 };
#elif defined(__aarch64__)
static const unsigned char code[] = {0x64, 0x00, 0x40, 0xF9, 0x84, 0x00, 0x40, 0xF9, 0x45, 0x00, 0x40,
                                     0xF9, 0xA5, 0x00, 0x40, 0xF9, 0xA5, 0x00, 0x40, 0xB9, 0x85, 0x00,
                                     0x00, 0xB9, 0x00, 0x00, 0x80, 0x52, 0xC0, 0x03, 0x5F, 0xD6};
enum { MACHINE = 183 };
#endif

static void put(unsigned char *image, size_t at, int bytes, uint64_t value) {
  for (int i = 0; i < bytes; i++) {
    image[at + (size_t)i] = (unsigned char)(value >> (8 * i));
  }
}

/* One page of code, one of data; the function "first" begins 64 bytes into the code. */
static void make_image(unsigned char *image) {
  memset(image, 0, SIZE);
  memcpy(image, "GRAFTIMG", 8);
  put(image, 8, 4, 1);
  put(image, 12, 4, MACHINE);
  put(image, 16, 8, IMAGE);
  put(image, 24, 8, 8192);
  put(image, 32, 8, 4096);
  put(image, 40, 8, 1);
  put(image, HEADER, 8, 64);
  put(image, HEADER + 8, 8, NAME);
  put(image, HEADER + 16, 8, 5);
  memcpy(image + NAME, "first", 5);
  memcpy(image + IMAGE + 64, code, sizeof code);
}

static const char manifest[] =
    "{\"abi\":2,\"modules\":[{\"name\":\"m\",\"kind\":\"native\",\"functions\":[\"first\"]}],\"procedures\":[" PROCEDURE(
        "main", 0, "[0]", "[1]",
        TENSOR("x", "float32", "[4]", INPUT(0)) "," TENSOR("y", "float32", "[]", OUTPUT(0)),
        CALL("first", "[0]", "[1]")) "]}";

static int32_t create(const unsigned char *image, size_t size, GraftProgram **program, GraftError *error) {
  GraftModuleSource module = {.data = image, .size = size};
  GraftProgramSource source = {
      .manifest = manifest, .manifest_size = sizeof manifest - 1, .modules = &module, .module_count = 1};
  return graft_program_create(&source, NULL, program, error);
}

static void test_image_runs(void) {
  unsigned char *image = malloc(SIZE);
  GraftProgram *program;
  GraftError error = {0};
  make_image(image);
  CHECK(create(image, SIZE, &program, &error) == GRAFT_OK);
  float x[] = {7, 8, 9, 10};
  int64_t shape[] = {4};
  DLTensor input = floats(x, shape, 1), output = {0};
  must_run(program, &input, &output);
  check_floats(&output, x, 1);
  graft_free_output(&output);
  graft_program_destroy(program);
  free(image);
}

static void check_damage(size_t at, int bytes, uint64_t value, size_t size, const char *reason) {
  unsigned char image[SIZE];
  char expected[256] = "module 'm' (kind 'native') cannot be loaded: ";
  GraftProgram *program;
  GraftError error = {0};
  make_image(image);
  put(image, at, bytes, value);
  unsigned char *tight = malloc(size);
  memcpy(tight, image, size);
  CHECK(create(tight, size, &program, &error) == GRAFT_ERROR_LOADER);
  strcat(expected, reason);
  CHECK_TEXT(error.message, expected);
  free(tight);
}

static void test_damage_is_named(void) {
  check_damage(0, 1, 'X', SIZE, "it is not a native image");
  check_damage(0, 1, 'G', 47, "it is not a native image");
  check_damage(8, 4, 2, SIZE, "it is a native image of version 2, this runtime reads version 1");
  check_damage(24, 8, 8191, SIZE,
               "its sizes are wrong: 8191 bytes at 4096 in a file of 12288, 4096 of them code");
  check_damage(24, 8, 12288, SIZE,
               "its sizes are wrong: 12288 bytes at 4096 in a file of 12288, 4096 of them code");
  check_damage(16, 8, UINT64_MAX, SIZE,
               "its sizes are wrong: 8192 bytes at 18446744073709551615 in a file of 12288, 4096 of them code");
  check_damage(32, 8, 12288, SIZE,
               "its sizes are wrong: 8192 bytes at 4096 in a file of 12288, 12288 of them code");
  check_damage(40, 8, UINT64_MAX / 24, SIZE, "its symbol table leaves the file");
  check_damage(HEADER, 8, 4096, SIZE, "symbol 0 lies outside the code or the file");
  check_damage(HEADER + 8, 8, UINT64_MAX, SIZE, "symbol 0 lies outside the code or the file");
  check_damage(HEADER + 16, 8, SIZE, SIZE, "symbol 0 lies outside the code or the file");
  check_damage(NAME, 1, 'x', SIZE, "it has no function 'first'");
  check_damage(40, 8, 0, SIZE, "it has no function 'first'");
#if defined(__x86_64__)
  check_damage(12, 4, 183, SIZE, "it holds code for ELF machine 183, this is machine 62");
#endif
}

/* Truncated anywhere in header and symbols, and with any byte of them changed: refused or loaded, never a crash. */
static void test_header_is_checked_everywhere(void) {
  unsigned char image[SIZE];
  GraftProgram *program;
  GraftError error = {0};
  for (size_t at = 0; at < NAME + 5; at++) {
    for (int bit = 0; bit < 8; bit++) {
      make_image(image);
      image[at] ^= (unsigned char)(1 << bit);
      if (create(image, SIZE, &program, &error) == GRAFT_OK) {
        graft_program_destroy(program);
      }
    }
    unsigned char *tight = malloc(at + 1);
    make_image(image);
    memcpy(tight, image, at + 1);
    CHECK(create(tight, at + 1, &program, &error) == GRAFT_ERROR_LOADER);
    free(tight);
  }
}

/* Of kind "c_source": a library and the place of one of its functions, whose names stand behind the rows. */
enum { ROWS = 3, OUTSIDE = HEADER + ROWS * SYMBOL, PLACE = 4096 + 64 };

static const char c_source[] =
    "{\"abi\":2,\"modules\":[{\"name\":\"m\",\"kind\":\"c_source\",\"functions\":[\"first\"]}],"
    "\"procedures\":[" PROCEDURE("main", 0, "[0]", "[1]",
                               TENSOR("x", "float32", "[4]", INPUT(0)) "," TENSOR("y", "float32", "[]", OUTPUT(0)),
                               CALL("first", "[0]", "[1]")) "]}";

static void put_row(unsigned char *image, int number, uint64_t offset, const char *name) {
  size_t row = HEADER + (size_t)number * SYMBOL, at = OUTSIDE + (size_t)number * 256;
  put(image, row, 8, offset);
  put(image, row + 8, 8, at);
  put(image, row + 16, 8, strlen(name));
  memcpy(image + at, name, strlen(name));
}

static int32_t create_outside(const char *library, const char *function, uint64_t place, uint64_t version,
                              GraftProgram **program, GraftError *error) {
  unsigned char image[SIZE];
  make_image(image);
  put(image, 8, 4, version);
  put(image, 40, 8, ROWS);
  put_row(image, 0, 64, "first");
  put_row(image, 1, UINT64_MAX, library);
  put_row(image, 2, place, function);
  GraftModuleSource module = {.data = image, .size = SIZE};
  GraftProgramSource source = {
      .manifest = c_source, .manifest_size = sizeof c_source - 1, .modules = &module, .module_count = 1};
  return graft_program_create(&source, NULL, program, error);
}

static void check_outside(const char *library, const char *function, uint64_t place, uint64_t version,
                          const char *reason) {
  char expected[512] = "module 'm' (kind 'c_source') cannot be loaded: ";
  GraftProgram *program;
  GraftError error = {0};
  CHECK(create_outside(library, function, place, version, &program, &error) == GRAFT_ERROR_LOADER);
  strcat(expected, reason);
  CHECK_TEXT(error.message, expected);
}

static void test_functions_of_libraries_are_found(void) {
  GraftProgram *program;
  GraftError error = {0};
  CHECK(create_outside("libc.so.6", "strlen", PLACE, 2, &program, &error) == GRAFT_OK);
  graft_program_destroy(program);
  check_outside("libc.so.6", "strlem", PLACE, 2, "it calls 'strlem', which none of its libraries has ('libc.so.6')");
  check_outside("libvendor.so.9", "strlen", PLACE, 2,
                "it needs the library 'libvendor.so.9', which cannot be opened: libvendor.so.9: cannot open shared "
                "object file: No such file or directory");
  check_outside("libc.so.6", "strlen", PLACE + 1, 2, "the place of 'strlen' lies outside its data");
  check_outside("libc.so.6", "strlen", 8192 - 4, 2, "the place of 'strlen' lies outside its data");
  check_outside("libc.so.6", "strlen", UINT64_MAX - 7, 2, "the place of 'strlen' lies outside its data");
  check_outside("libc.so.6", "", PLACE, 2,
                "a name of what it calls outside is empty, longer than 255 bytes or no text");
  check_outside("libc.so.6", "strlen", PLACE, 1, "it is a native image of version 1, this runtime reads version 2");
}

static void test_every_failing_allocation_is_an_error(void) {
  for (int outside = 0; outside < 2; outside++) {
    GraftProgram *program = NULL;
    int failures = 0;
    for (unsigned char image[SIZE]; !program; failures++) {
      GraftError error = {0};
      make_image(image);
      fail_allocation(failures);
      int32_t status = outside ? create_outside("libc.so.6", "strlen", PLACE, 2, &program, &error)
                               : create(image, SIZE, &program, &error);
      fail_allocation(-1);
      CHECK(status == GRAFT_OK || (status == GRAFT_ERROR_MEMORY && strstr(error.message, "out of memory")));
    }
    CHECK(failures > 5);
    graft_program_destroy(program);
  }
}

int main(void) {
  test_every_failing_allocation_is_an_error();
  test_functions_of_libraries_are_found();
  test_image_runs();
  test_damage_is_named();
  test_header_is_checked_everywhere();
  return 0;
}
