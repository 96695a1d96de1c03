/* Artifacts that are loaded only if a trusted key has signed them, or if they hold no machine code. The signatures here
 * are no cryptography: a key's bytes, then the hash of what they sign. */
#include "graft/trust.h"

#include "artifact_writer.h"

static const uint8_t keys[2][32] = {{1, 2, 3}, {4, 5, 6}};
static char path[] = "/tmp/test_trust_XXXXXX", sidecar[sizeof path + 4];

static void digest_of(const char *message, char digest[65]) {
  graft_sha256_hex((const uint8_t *)message, strlen(message), digest);
}

static int32_t verify(void *user, const uint8_t *signature, const uint8_t *message, size_t size, const uint8_t *key) {
  char digest[65];
  ++*(int *)user;
  graft_sha256_hex(message, size, digest);
  return memcmp(signature, key, 32) == 0 && memcmp(signature + 32, digest, 32) == 0;
}

/* The text of a signature by a key, of what a file of that kind and hash has to have signed. */
static void write_signature(char *text, size_t size, int key, const char *kind, const char *hash) {
  char message[128], digest[65], name[65], hex[129];
  snprintf(message, sizeof message, "graft signature 1\n%s sha256 %s\n", kind, hash);
  digest_of(message, digest);
  graft_sha256_hex(keys[key], 32, name);
  for (int i = 0; i < 64; i++) {
    snprintf(hex + 2 * i, 3, "%02x", i < 32 ? keys[key][i] : (unsigned)digest[i - 32]);
  }
  snprintf(text, size, "{\"signatures\":[{\"key\":\"%.32s\",\"signature\":\"%s\"}]}", name, hex);
}

static void store(const char *name, const void *bytes, size_t size) {
  FILE *file = fopen(name, "wb");
  CHECK(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static int calls;
static const char *const data_kinds[] = {"test"};

static int32_t load(int32_t native, size_t key_count, size_t data_kind_count, GraftError *error) {
  const GraftLoader *loaders[] = {&test_loader};
  GraftLoadOptions options = {.size = sizeof options, .threads = 1, .loaders = loaders, .loader_count = 1};
  GraftTrust trust = {sizeof trust, native, keys, key_count, verify, &calls, data_kinds, data_kind_count};
  GraftProgram *program;
  memset(error, 0, sizeof *error);
  int32_t status = graft_program_load_trusted(path, &trust, &options, NULL, 0, &program, error);
  CHECK((status == GRAFT_OK) == (program != NULL));
  graft_program_destroy(program);
  return status;
}

static void must_refuse(int32_t native, size_t key_count, const char *message) {
  GraftError error;
  CHECK(load(native, key_count, 0, &error) == GRAFT_ERROR_ARTIFACT);
  CHECK_TEXT(error.message, message);
}

static Writer *write_signed(int key) {
  static Writer writer;
  char of_manifest[65], text[512];
  write_members(&writer, 1, of_manifest);
  write_signature(text, sizeof text, key, "manifest", of_manifest);
  put_member(&writer, "signatures.json", text, strlen(text));
  put_end(&writer);
  store(path, writer.bytes, writer.size);
  return &writer;
}

static void test_only_what_a_trusted_key_has_signed_is_loaded(void) {
  static Writer writer;
  GraftError error;
  write_signed(0);
  CHECK(load(GRAFT_NATIVE_SIGNED, 2, 0, &error) == GRAFT_OK);
  CHECK(load(GRAFT_NATIVE_RUN, 0, 0, &error) == GRAFT_OK);
  must_refuse(GRAFT_NATIVE_SIGNED, 0, "no signature of the artifact is that of a trusted key");
  write_signed(1);
  CHECK(load(GRAFT_NATIVE_SIGNED, 2, 0, &error) == GRAFT_OK);
  must_refuse(GRAFT_NATIVE_SIGNED, 1, "no signature of the artifact is that of a trusted key");
  write_artifact(&writer, 1);
  store(path, writer.bytes, writer.size);
  must_refuse(GRAFT_NATIVE_SIGNED, 2, "the artifact is not signed, and only signed ones may be loaded");
}

/* Constants, too: there is no later in which they are looked at. */
static void test_every_flipped_bit_is_refused_when_it_is_loaded(void) {
  GraftError error;
  Writer *writer = write_signed(0);
  for (size_t i = 0; i < writer->size; i++) {
    writer->bytes[i] ^= (uint8_t)(1u << i % 8);
    store(path, writer->bytes, writer->size);
    CHECK(load(GRAFT_NATIVE_SIGNED, 2, 0, &error) != GRAFT_OK);
    writer->bytes[i] ^= (uint8_t)(1u << i % 8);
  }
}

static void test_signature_of_a_library_lies_beside_it(void) {
  static Writer writer, library;
  char of_file[65], text[512];
  GraftError error;
  write_artifact(&writer, 1);
  write_library(&library, &writer);
  store(path, library.bytes, library.size);
  must_refuse(GRAFT_NATIVE_SIGNED, 2, "the artifact is not signed, and only signed ones may be loaded");
  graft_sha256_hex(library.bytes, library.size, of_file);
  write_signature(text, sizeof text, 1, "file", of_file);
  store(sidecar, text, strlen(text));
  CHECK(load(GRAFT_NATIVE_SIGNED, 2, 0, &error) == GRAFT_OK);
  library.bytes[12] ^= 1;
  store(path, library.bytes, library.size);
  must_refuse(GRAFT_NATIVE_SIGNED, 2, "no signature of the artifact is that of a trusted key");
  unlink(sidecar);
}

static void test_damaged_signatures_are_none(void) {
  static Writer writer;
  const char *texts[] = {"", "{", "[]", "{\"signatures\":7}", "{\"signatures\":[7,{},{\"key\":1}]}",
                         "{\"signatures\":[{\"key\":\"00\",\"signature\":\"zz\"}]}"};
  char ignored[65];
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    write_members(&writer, 1, ignored);
    put_member(&writer, "signatures.json", texts[i], strlen(texts[i]));
    put_end(&writer);
    store(path, writer.bytes, writer.size);
    must_refuse(GRAFT_NATIVE_SIGNED, 2, "no signature of the artifact is that of a trusted key");
  }
}

static void test_few_of_many_signatures_are_tried(void) {
  static Writer writer;
  static char text[32768] = "{\"signatures\":[";
  char of_manifest[65], name[65];
  graft_sha256_hex(keys[0], 32, name);
  for (int i = 0; i < 128; i++) {
    snprintf(text + strlen(text), 300, "%s{\"key\":\"%.32s\",\"signature\":\"%0128d\"}", i ? "," : "", name, 0);
  }
  strcat(text, "]}");
  write_members(&writer, 1, of_manifest);
  put_member(&writer, "signatures.json", text, strlen(text));
  put_end(&writer);
  store(path, writer.bytes, writer.size);
  calls = 0;
  must_refuse(GRAFT_NATIVE_SIGNED, 2, "no signature of the artifact is that of a trusted key");
  CHECK(calls == 64);
}

static void test_machine_code_is_refused(void) {
  GraftError error;
  write_signed(0);
  must_refuse(GRAFT_NATIVE_REFUSE, 2, "module 'm' (kind 'test') may hold machine code, and none may be loaded");
  CHECK(load(GRAFT_NATIVE_REFUSE, 2, 1, &error) == GRAFT_OK);
}

static void test_options_that_say_nothing_are_refused(void) {
  GraftError error = {0};
  GraftProgram *program;
  GraftTrust trust = {.size = sizeof trust, .native = GRAFT_NATIVE_SIGNED};
  CHECK(graft_program_load_trusted(path, &trust, NULL, NULL, 0, &program, &error) == GRAFT_ERROR_INPUT);
  CHECK_TEXT(error.message, "GraftTrust.native is 1 and verify is NULL; give a GraftNative, and a function that verifies "
                            "signatures with GRAFT_NATIVE_SIGNED");
  CHECK(load(7, 2, 0, &error) == GRAFT_ERROR_INPUT);
}

int main(void) {
  int file = mkstemp(path);
  CHECK(file >= 0);
  close(file);
  snprintf(sidecar, sizeof sidecar, "%s.sig", path);
  test_only_what_a_trusted_key_has_signed_is_loaded();
  test_every_flipped_bit_is_refused_when_it_is_loaded();
  test_signature_of_a_library_lies_beside_it();
  test_damaged_signatures_are_none();
  test_few_of_many_signatures_are_tried();
  test_machine_code_is_refused();
  test_options_that_say_nothing_are_refused();
  unlink(path);
  return 0;
}
