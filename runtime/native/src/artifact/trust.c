/* Loading artifacts from files: whole, or only where they are trusted (graft/trust.h). */
#include "graft/trust.h"

#include <inttypes.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/sha256.h"
#include "base/error.h"
#include "base/json.h"

enum { MOST_SIGNATURES = 64 }; /* that are tried: each costs time, and the file is not trusted yet */

/* 0 where the text has other digits than 2 * size hexadecimal ones. */
static int read_hex(const char *text, uint8_t *bytes, size_t size) {
  static const char digits[] = "0123456789abcdef";
  if (strlen(text) != 2 * size) return 0;
  for (size_t i = 0; i < 2 * size; i++) {
    const char *digit = strchr(digits, text[i]);
    if (digit == NULL) return 0;
    bytes[i / 2] = (uint8_t)(bytes[i / 2] << 4 | (digit - digits));
  }
  return 1;
}

/* The key of that name, NULL if it is not among the trusted ones. A key's name is the beginning of its SHA-256. */
static const uint8_t *find_key(const GraftTrust *trust, const char *name) {
  for (size_t i = 0; i < trust->key_count; i++) {
    char digest[65];
    graft_sha256_hex(trust->keys[i], sizeof *trust->keys, digest);
    if (strlen(name) == GRAFT_KEY_DIGITS && strncmp(name, digest, GRAFT_KEY_DIGITS) == 0) return trust->keys[i];
  }
  return NULL;
}

static int has_signature(const GraftTrust *trust, const char *message, const JsonValue *row) {
  uint8_t signature[64];
  const uint8_t *key = find_key(trust, graft_json_string(graft_json_member(row, "key"), ""));
  return key != NULL && read_hex(graft_json_string(graft_json_member(row, "signature"), ""), signature, sizeof signature) &&
         trust->verify(trust->user, signature, (const uint8_t *)message, strlen(message), key);
}

/* Whom the host trusts, and where its memory is from. */
typedef struct Judge {
  const GraftTrust *trust;
  const GraftAllocator *memory;
} Judge;

static int32_t accept_signed(void *user, const char *message, const uint8_t *signatures, size_t size, GraftError *error) {
  const Judge *judge = user;
  char text[256];
  if (signatures == NULL) {
    return graft_set_error(error, GRAFT_ERROR_ARTIFACT, "the artifact is not signed, and only signed ones may be loaded");
  }
  JsonDocument *document = graft_json_parse((const char *)signatures, size, judge->memory, text, sizeof text);
  if (document == NULL && graft_json_lacked_memory(text)) {
    return graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory while reading the artifact's signatures");
  }
  const JsonValue *rows = document ? graft_json_member(graft_json_root(document), "signatures") : NULL;
  size_t count = rows && rows->kind == JSON_ARRAY ? rows->as.list.count : 0;
  int is_trusted = 0;
  for (size_t i = 0; !is_trusted && i < count && i < MOST_SIGNATURES; i++) {
    is_trusted = has_signature(judge->trust, message, &rows->as.list.items[i]);
  }
  graft_json_free(document);
  return is_trusted ? GRAFT_OK
                    : graft_set_error(error, GRAFT_ERROR_ARTIFACT, "no signature of the artifact is that of a trusted key");
}

static int is_data(const GraftTrust *trust, const char *kind) {
  for (size_t i = 0; i < trust->data_kind_count; i++) {
    if (strcmp(trust->data_kinds[i], kind) == 0) return 1;
  }
  return 0;
}

static int32_t refuse_code(const GraftArtifact *artifact, const GraftTrust *trust, GraftError *error) {
  const GraftProgramSource *source = graft_artifact_source(artifact);
  for (size_t i = 0; i < source->module_count; i++) {
    const GraftModuleSource *module = source->modules + i;
    if (!is_data(trust, module->kind)) {
      return graft_set_error(error, GRAFT_ERROR_ARTIFACT,
                             "module '%.128s' (kind '%.128s') may hold machine code, and none may be loaded",
                             module->name, module->kind);
    }
  }
  return GRAFT_OK;
}

int32_t graft_program_load_trusted(const char *path, const GraftTrust *trust, const GraftLoadOptions *options,
                                   const GraftDevice *const *devices, size_t device_count, GraftProgram **program,
                                   GraftError *error) {
  GraftError ignored;
  if (error == NULL) error = &ignored;
  GraftArtifact *artifact;
  *program = NULL;
  GraftLoadOptions taken = {0};
  int32_t code = graft_take_options("GraftLoadOptions", options, &taken, sizeof taken, error);
  if (code != GRAFT_OK) return code;
  Judge judge = {trust, taken.allocator};
  ArtifactTrust consent = {accept_signed, &judge};
  int32_t native = trust ? trust->native : GRAFT_NATIVE_RUN, is_signed = native == GRAFT_NATIVE_SIGNED;
  if (native < GRAFT_NATIVE_RUN || native > GRAFT_NATIVE_REFUSE || (is_signed && trust->verify == NULL)) {
    return graft_set_error(error, GRAFT_ERROR_INPUT,
                           "GraftTrust.native is %" PRId32 " and verify is %s; give a GraftNative, and a function that "
                           "verifies signatures with GRAFT_NATIVE_SIGNED", native, trust->verify ? "there" : "NULL");
  }
  code = graft_artifact_open(path, is_signed ? &consent : NULL, taken.allocator, &artifact, error);
  if (code == GRAFT_OK && native == GRAFT_NATIVE_REFUSE) {
    code = refuse_code(artifact, trust, error);
    if (code != GRAFT_OK) graft_artifact_close(artifact);
  }
  if (code != GRAFT_OK) return code;
  GraftProgramSource source = *graft_artifact_source(artifact);
  source.devices = devices;
  source.device_count = device_count;
  return graft_program_create(&source, options, program, error);
}

int32_t graft_program_load(const char *path, const GraftLoadOptions *options, GraftProgram **program,
                           GraftError *error) {
  return graft_program_load_on(path, options, NULL, 0, program, error);
}

int32_t graft_program_load_on(const char *path, const GraftLoadOptions *options, const GraftDevice *const *devices,
                              size_t device_count, GraftProgram **program, GraftError *error) {
  return graft_program_load_trusted(path, NULL, options, devices, device_count, program, error);
}
