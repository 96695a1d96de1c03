/* Artifacts read from files: every truncation, every flipped bit, every failing allocation; SHA-256 and its
 * dispatch, and the hash of constants; and artifacts inside shared libraries, and in memory.
 */
#include "artifact_writer.h"
#include "meter.h"

static int later_count;
static char path[] = "test_artifact_XXXXXX";
static int file = -1;

static void store(const void *bytes, size_t size) {
  CHECK(ftruncate(file, 0) == 0);
  CHECK(pwrite(file, bytes, size, 0) == (ssize_t)size);
}

static int32_t load(GraftProgram **program, GraftError *error) {
  const GraftLoader *loaders[] = {&test_loader};
  GraftLoadOptions options = {.size = sizeof options, .threads = 1, .loaders = loaders, .loader_count = 1};
  memset(error, 0, sizeof *error);
  return graft_program_load(path, &options, program, error);
}

static void test_an_artifact_runs(void) {
  GraftProgram *program;
  GraftError error;
  if (load(&program, &error) != GRAFT_OK) {
    fprintf(stderr, "%s\n", error.message);
    abort();
  }
  float x[] = {1.0f, 2.0f};
  int64_t shape[] = {2};
  DLTensor input = floats(x, shape, 1), output = {0};
  must_run(program, &input, &output);
  check_floats(&output, (const float[]){2.0f, 3.0f}, 2);
  graft_free_output(&output);
  graft_program_destroy(program);
}

/* When it is loaded, or, with `later`, at the latest when it runs. */
static void must_refuse(int later) {
  GraftProgram *program;
  GraftError error;
  int32_t status = load(&program, &error);
  if (later && status == GRAFT_OK) {
    float x[] = {1.0f, 2.0f};
    int64_t shape[] = {2};
    DLTensor input = floats(x, shape, 1), output = {0};
    CHECK(graft_program_run(program, &input, &output, &error) == GRAFT_ERROR_ARTIFACT);
    graft_program_destroy(program);
    program = NULL;
    later_count++;
  } else {
    CHECK(status == GRAFT_ERROR_ARTIFACT || status == GRAFT_ERROR_SYSTEM);
  }
  CHECK(program == NULL && error.message[0] != 0);
}

static void test_every_truncation_is_refused(const Writer *writer) {
  for (size_t size = 0; size < writer->size; size++) {
    store(writer->bytes, size);
    must_refuse(0);
  }
}

static void test_every_flipped_bit_is_refused(Writer *writer, int named) {
  later_count = 0;
  store(writer->bytes, writer->size);
  for (size_t i = 0; i < writer->size; i++) {
    for (int bit = 0; bit < 8; bit++) {
      uint8_t flipped = writer->bytes[i] ^ (uint8_t)(1 << bit);
      CHECK(pwrite(file, &flipped, 1, (off_t)i) == 1);
      must_refuse(named);
    }
    CHECK(pwrite(file, writer->bytes + i, 1, (off_t)i) == 1);
  }
  CHECK(later_count == (named ? 8 * (int)sizeof one_value : 0));
}

static void test_every_truncated_library_is_refused(const Writer *library) {
  for (size_t size = 0; size < library->size; size++) {
    store(library->bytes, size);
    must_refuse(0);
  }
}

/* Most bits of an ELF file's headers are for others: what counts is that nothing outside the file is read. */
static void test_every_flipped_bit_of_a_librarys_headers_is_survived(const Writer *library, const Writer *artifact) {
  int refused = 0;
  store(library->bytes, library->size);
  for (size_t i = 0; i < library->size; i++) {
    if (i == 64) i += artifact->size;
    for (int bit = 0; bit < 8; bit++) {
      uint8_t flipped = library->bytes[i] ^ (uint8_t)(1 << bit);
      CHECK(pwrite(file, &flipped, 1, (off_t)i) == 1);
      GraftProgram *program;
      GraftError error;
      int32_t status = load(&program, &error);
      CHECK((status == GRAFT_OK) == (program != NULL) && (status == GRAFT_OK || error.message[0] != 0));
      refused += status != GRAFT_OK;
      graft_program_destroy(program);
    }
    CHECK(pwrite(file, library->bytes + i, 1, (off_t)i) == 1);
  }
  CHECK(refused > 100);
}

static void test_a_library_without_a_program_is_told(Writer *library) {
  uint8_t *name = library->bytes + library->size - 192 - 17;
  CHECK(memcmp(name, ".graft", 6) == 0);
  memcpy(name, ".other", 6);
  store(library->bytes, library->size);
  GraftProgram *program;
  GraftError error;
  CHECK(load(&program, &error) == GRAFT_ERROR_ARTIFACT);
  CHECK_TEXT(error.message,
             "the shared library holds no Graft program: it has no section '.graft'; give one that `graft export` wrote");
}

static void test_an_artifact_in_memory_runs(const Writer *writer) {
  static _Alignas(64) uint8_t room[CAPACITY + 1];
  const GraftLoader *loaders[] = {&test_loader};
  GraftLoadOptions options = {.size = sizeof options, .threads = 1, .loaders = loaders, .loader_count = 1};
  GraftProgram *program;
  GraftError error = {0};
  memcpy(room, writer->bytes, writer->size);
  CHECK(graft_program_load_memory(room, writer->size, &options, &program, &error) == GRAFT_OK);
  float x[] = {1.0f, 2.0f};
  int64_t shape[] = {2};
  DLTensor input = floats(x, shape, 1), output = {0};
  must_run(program, &input, &output);
  check_floats(&output, (const float[]){2.0f, 3.0f}, 2);
  graft_free_output(&output);
  graft_program_destroy(program);
  CHECK(graft_program_load_memory(room, writer->size - 1, &options, &program, NULL) == GRAFT_ERROR_ARTIFACT);
  memcpy(room + 1, writer->bytes, writer->size);
  CHECK(graft_program_load_memory(room + 1, writer->size, &options, &program, &error) == GRAFT_ERROR_INPUT);
  CHECK_TEXT(error.message, "the artifact in memory is not aligned to 64 bytes; move it");
}

static void test_every_failing_allocation_is_survived(void) {
  GraftProgram *program = NULL;
  GraftError error;
  int failures = 0;
  for (; !program; failures++) {
    fail_allocation(failures);
    int32_t status = load(&program, &error);
    fail_allocation(-1);
    CHECK(status == GRAFT_OK || (error.message[0] != 0 && program == NULL));
    CHECK(failures < 1000);
  }
  CHECK(failures > 10);
  graft_program_destroy(program);
}

/* Loads and runs with memory of the host alone; returns whether there were more than n allocations. */
static int load_with_failure(int n) {
  Meter meter = {.left = n};
  GraftAllocator allocator = {meter_allocate, meter_release, &meter};
  const GraftLoader *loaders[] = {&test_loader};
  GraftLoadOptions options = {
      .size = sizeof options, .threads = 2, .loaders = loaders, .loader_count = 1, .allocator = &allocator};
  GraftProgram *program;
  GraftError error = {0};
  fail_allocation(0); /* of the heap */
  int32_t status = graft_program_load(path, &options, &program, &error);
  if (status == GRAFT_OK) {
    float x[] = {1.0f, 2.0f};
    int64_t shape[] = {2};
    DLTensor input = floats(x, shape, 1), output = {0};
    status = graft_program_run(program, &input, &output, &error);
    if (status == GRAFT_OK) {
      check_floats(&output, (const float[]){2.0f, 3.0f}, 2);
      graft_free_output(&output);
    }
  }
  CHECK(status == GRAFT_OK || (status == GRAFT_ERROR_MEMORY && strstr(error.message, "out of memory")));
  graft_program_destroy(program);
  CHECK(graft_test_allocation_fails()); /* nobody had asked the heap */
  fail_allocation(-1);
  CHECK(atomic_load(&meter.held) == 0);
  return n >= 0 && atomic_load(&meter.left) < 0;
}

static void test_loading_asks_the_allocator_alone_and_may_be_refused(void) {
  int n = 0;
  CHECK(!load_with_failure(-1));
  while (load_with_failure(n)) {
    n++;
  }
  CHECK(n > 20);
}

static void test_a_missing_file_is_told(void) {
  GraftProgram *program;
  GraftError error = {0};
  CHECK(graft_program_load("/nowhere/x.graft", NULL, &program, &error) == GRAFT_ERROR_SYSTEM);
  CHECK_TEXT(error.message, "cannot open artifact '/nowhere/x.graft': No such file or directory");
  CHECK(graft_program_load("/nowhere/x.graft", NULL, &program, NULL) == GRAFT_ERROR_SYSTEM);
}

/* The examples of FIPS 180-4, and both compressions on lengths around the block size. */
static void test_sha256(void) {
  static uint8_t data[1 << 16];
  char digest[65];
  graft_sha256_hex("", 0, digest);
  CHECK_TEXT(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  graft_sha256_hex("abc", 3, digest);
  CHECK_TEXT(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  graft_sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, digest);
  CHECK_TEXT(digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  if (!graft_sha256_has_x86()) {
    return;
  }
  for (size_t i = 0; i < sizeof data; i++) {
    data[i] = (uint8_t)(i * 167 + (i >> 8));
  }
  for (size_t blocks = 0; blocks < 20; blocks++) {
    uint32_t portable[8] = {1, 2, 3, 4, 5, 6, 7, 8}, fast[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    graft_sha256_blocks(portable, data + blocks, blocks);
    graft_sha256_blocks_x86(fast, data + blocks, blocks);
    CHECK(memcmp(portable, fast, sizeof fast) == 0);
  }
}

static void content_text(const uint8_t *data, size_t size, char text[33]) {
  ContentHash hashes[4];
  size_t count = graft_content_chunks(size);
  CHECK(count <= 4);
  for (size_t i = 0; i < count; i++) {
    size_t left = size - i * GRAFT_CONTENT_CHUNK;
    hashes[i] = graft_content_chunk(data + i * GRAFT_CONTENT_CHUNK, left < GRAFT_CONTENT_CHUNK ? left : GRAFT_CONTENT_CHUNK);
  }
  graft_content_text(graft_content_join(hashes, count), text);
}

/* Lengths around the block and the chunk, zeros that differ in number only, every bit, and words that change places. */
static void test_content_hash(void) {
  static uint8_t data[(2 << 20) + 100];
  char text[33], other[33], before[33] = "";
  content_text(data, 0, text);
  CHECK_TEXT(text, "57413c7007663ca5af78020fcc2acacb");
  size_t lengths[] = {1, 7, 8, 63, 64, 65, 200, GRAFT_CONTENT_CHUNK, GRAFT_CONTENT_CHUNK + 1, sizeof data};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    content_text(data, lengths[i], text);
    CHECK(strcmp(text, before) != 0);
    strcpy(before, text);
  }
  for (size_t i = 0; i < sizeof data; i++) {
    data[i] = (uint8_t)(i * 167 + (i >> 8) + (i >> 16));
  }
  content_text(data, 200, text);
  CHECK_TEXT(text, "616402376b100e54bb5e6cdcdd0f0942");
  for (size_t bit = 0; bit < 8 * 200; bit++) {
    data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    content_text(data, 200, other);
    CHECK(strcmp(text, other) != 0);
    /* A lane alone would not notice the top bit of a word together with bit 28 of the word behind it in the lane. */
    if (bit % 64 == 63 && bit / 8 + 64 < 200) {
      data[bit / 8 / 8 * 8 + 64 + 3] ^= 1 << 4;
      content_text(data, 200, other);
      CHECK(strcmp(text, other) != 0);
      data[bit / 8 / 8 * 8 + 64 + 3] ^= 1 << 4;
    }
    data[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  content_text(data, sizeof data, text);
  for (size_t i = 0; i < 8; i++) { /* the first two chunks exchanged */
    uint8_t byte = data[i];
    data[i] = data[i + GRAFT_CONTENT_CHUNK];
    data[i + GRAFT_CONTENT_CHUNK] = byte;
  }
  content_text(data, sizeof data, other);
  CHECK(strcmp(text, other) != 0);
}

int main(void) {
  static Writer writer, library;
  file = mkstemp(path);
  CHECK(file >= 0);
  test_sha256();
  test_content_hash();
  test_a_missing_file_is_told();
  for (int named = 0; named < 2; named++) {
    write_artifact(&writer, named);
    store(writer.bytes, writer.size);
    test_an_artifact_runs();
    test_every_failing_allocation_is_survived();
    test_loading_asks_the_allocator_alone_and_may_be_refused();
    test_every_truncation_is_refused(&writer);
    test_every_flipped_bit_is_refused(&writer, named);
    test_an_artifact_in_memory_runs(&writer);
    write_library(&library, &writer);
    store(library.bytes, library.size);
    test_an_artifact_runs();
    test_every_failing_allocation_is_survived();
    test_loading_asks_the_allocator_alone_and_may_be_refused();
    test_every_truncated_library_is_refused(&library);
    test_every_flipped_bit_of_a_librarys_headers_is_survived(&library, &writer);
    test_a_library_without_a_program_is_told(&library);
  }
  close(file);
  unlink(path);
  return 0;
}
