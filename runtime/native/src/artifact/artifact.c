/* Opening an artifact, a file or a part of one: map, read the directory, check hashes, resolve constants and modules. */
#include "artifact/artifact.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/constant_check.h"
#include "artifact/elf.h"
#include "artifact/file_map.h"
#include "artifact/safetensors.h"
#include "artifact/sha256.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "program/program.h"

static const char SIGNATURES[] = "signatures.json";

struct GraftArtifact {
  FileMap map, sidecar;
  int is_library;
  const ArtifactTrust *trust; /* while it is opened; NULL for one that needs no consent */
  ZipArchive archive;
  TensorStore store;
  ConstantCheck check;
  JsonDocument *manifest;
  GraftModuleSource *modules;
  GraftNamedTensor *module_constants;
  GraftProgramSource source;
  GraftAllocator host;
  const GraftAllocator *memory; /* `host`; NULL: the heap */
};

static int32_t refuse(GraftError *error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  error->code = GRAFT_ERROR_ARTIFACT;
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return GRAFT_ERROR_ARTIFACT;
}

static int32_t out_of_memory(GraftError *error) {
  error->code = GRAFT_ERROR_MEMORY;
  snprintf(error->message, sizeof error->message, "out of memory while opening the artifact");
  return GRAFT_ERROR_MEMORY;
}

static int32_t read_manifest(GraftArtifact *artifact, GraftError *error) {
  const ZipMember *member = graft_zip_find(&artifact->archive, "manifest.json");
  if (member == NULL) return refuse(error, "not a Graft artifact: it has no manifest.json");
  if (graft_crc32(member->data, member->size) != member->crc) {
    return refuse(error, "artifact is damaged: manifest.json does not have its checksum; compile it again");
  }
  char message[256];
  artifact->manifest = graft_json_parse((const char *)member->data, member->size, artifact->memory, message, sizeof message);
  if (artifact->manifest == NULL && graft_json_lacked_memory(message)) return out_of_memory(error);
  if (artifact->manifest == NULL) {
    return refuse(error, "artifact is damaged: manifest.json: %s; compile it again", message);
  }
  int64_t format = graft_json_integer(graft_json_member(graft_json_root(artifact->manifest), "format"), -1);
  if (format < 1) return refuse(error, "artifact is damaged: manifest.json states no format; compile it again");
  if (format > GRAFT_FORMAT_VERSION) {
    return refuse(error,
                  "artifact has format %" PRId64 ", this runtime reads up to %d; upgrade graft-compiler, or compile "
                  "the model with this version",
                  format, GRAFT_FORMAT_VERSION);
  }
  artifact->source.manifest = (const char *)member->data;
  artifact->source.manifest_size = member->size;
  return GRAFT_OK;
}

/* Reads the signatures of a library's file, if there are some. */
static void open_sidecar(GraftArtifact *artifact, const char *path) {
  char name[4096];
  GraftError ignored;
  int length = snprintf(name, sizeof name, "%s.sig", path);
  if (length > 0 && (size_t)length < sizeof name) graft_file_copy(name, &artifact->sidecar, &ignored);
}

/* Asks whether the artifact may be used. */
static int32_t ask_consent(GraftArtifact *artifact, const char *path, GraftError *error) {
  char digest[65], message[128];
  const ZipMember *member = graft_zip_find(&artifact->archive, SIGNATURES);
  if (artifact->is_library) {
    open_sidecar(artifact, path);
    graft_sha256_hex(artifact->map.bytes, artifact->map.size, digest);
  } else {
    graft_sha256_hex((const uint8_t *)artifact->source.manifest, artifact->source.manifest_size, digest);
  }
  snprintf(message, sizeof message, "graft signature 1\n%s sha256 %s\n", artifact->is_library ? "file" : "manifest",
           digest);
  const uint8_t *signatures = artifact->is_library ? artifact->sidecar.bytes : member ? member->data : NULL;
  size_t size = artifact->is_library ? artifact->sidecar.size : member ? member->size : 0;
  return artifact->trust->accept(artifact->trust->user, message, signatures, size, error);
}

static int32_t refuse_hash(const char *name, GraftError *error) {
  return refuse(error, "artifact is damaged: member '%.256s' does not have the hash in manifest.json; compile it again",
                name);
}

static int has_hash(const JsonValue *entry, const char *field, const uint8_t *data, size_t size) {
  char digest[65];
  graft_sha256_hex(data, size, digest);
  return strcmp(digest, graft_json_string(graft_json_member(entry, field), "")) == 0;
}

static int has_size(const JsonValue *entry, const ZipMember *member) {
  return (uint64_t)graft_json_integer(graft_json_member(entry, "size"), -1) == member->size;
}

static int is_constants(const char *name) { return strcmp(name, "constants.safetensors") == 0; }

static int32_t check_member(const ZipMember *member, const JsonValue *entry, GraftError *error) {
  if (is_constants(member->name)) return GRAFT_OK; /* read_constants looks at them */
  if (has_size(entry, member) && has_hash(entry, "sha256", member->data, member->size)) return GRAFT_OK;
  return refuse_hash(member->name, error);
}

/* Every member but the manifest is listed with size and SHA-256, and every listed one is there. Keys are unique and
 * names too, so it is enough to look up what is listed and to mark it. */
static int32_t check_members(const GraftArtifact *artifact, GraftError *error) {
  const JsonValue *listed = graft_json_member(graft_json_root(artifact->manifest), "members");
  if (listed == NULL || listed->kind != JSON_OBJECT) {
    return refuse(error, "artifact is damaged: manifest.json lists no members; compile it again");
  }
  const ZipArchive *archive = &artifact->archive;
  uint8_t *found = graft_allocate_zeroed(artifact->memory, archive->count, 1);
  if (found == NULL) return out_of_memory(error);
  int32_t code = GRAFT_OK;
  for (size_t i = 0; code == GRAFT_OK && i < listed->as.list.count; i++) {
    const char *name = listed->as.list.keys[i].as.string.bytes;
    const ZipMember *member = graft_zip_find(archive, name);
    if (member == NULL) {
      code = refuse(error, "artifact is damaged: member '%.256s' is missing; compile it again", name);
    } else {
      found[member - archive->members] = 1;
      code = check_member(member, &listed->as.list.items[i], error);
    }
  }
  for (size_t i = 0; code == GRAFT_OK && i < archive->count; i++) {
    const char *name = archive->members[i].name;
    if (!found[i] && strcmp(name, "manifest.json") != 0 && strcmp(name, SIGNATURES) != 0) {
      code = refuse(error, "artifact is damaged: member '%.256s' is not listed in manifest.json; compile it again", name);
    }
  }
  graft_release(artifact->memory, found);
  return code;
}

/* The header has a hash of its own. Where every constant is named by the hash of its content, nothing else is read now;
 * other constants, such as those of earlier versions, are checked with the whole member. */
static int32_t read_constants(GraftArtifact *artifact, GraftError *error) {
  const ZipMember *member = graft_zip_find(&artifact->archive, "constants.safetensors");
  if (member == NULL) return refuse(error, "artifact is damaged: constants.safetensors is missing; compile it again");
  const JsonValue *listed = graft_json_member(graft_json_root(artifact->manifest), "members");
  const JsonValue *entry = graft_json_member(listed, member->name);
  size_t header = graft_tensor_store_header(member->data, member->size);
  int later = graft_json_member(entry, "header") != NULL && header > 0 && artifact->trust == NULL;
  const char *field = later ? "header" : "sha256";
  if (!has_size(entry, member) || !has_hash(entry, field, member->data, later ? header : member->size)) {
    return refuse_hash(member->name, error);
  }
  int32_t code = graft_tensor_store_read(member->data, member->size, artifact->memory, &artifact->store, error);
  if (code != GRAFT_OK) return code;
  if (later && !graft_constants_name_content(&artifact->store)) {
    later = 0;
    if (!has_hash(entry, "sha256", member->data, member->size)) return refuse_hash(member->name, error);
  }
  if (!graft_constant_check_create(&artifact->check, &artifact->store, !later)) return out_of_memory(error);
  artifact->source.constants = artifact->store.tensors;
  artifact->source.constant_count = artifact->store.count;
  return GRAFT_OK;
}

static int32_t read_module(GraftArtifact *artifact, const JsonValue *entry, GraftModuleSource *module,
                           GraftNamedTensor **constants, GraftError *error) {
  const char *name = graft_json_string(graft_json_member(entry, "name"), NULL);
  const char *kind = graft_json_string(graft_json_member(entry, "kind"), NULL);
  const char *path = graft_json_string(graft_json_member(entry, "member"), NULL);
  const JsonValue *handed = graft_json_member(entry, "constants");
  if (name == NULL || kind == NULL || path == NULL || (handed != NULL && handed->kind != JSON_OBJECT)) {
    return refuse(error, "artifact is damaged: a module in manifest.json lacks name, kind or member; compile it again");
  }
  const ZipMember *member = graft_zip_find(&artifact->archive, path);
  if (member == NULL) return refuse(error, "artifact is damaged: module '%.128s' names no member; compile it again", name);
  *module = (GraftModuleSource){.name = name, .kind = kind, .data = member->data, .size = member->size};
  module->constants = *constants;
  module->constant_count = graft_json_count(handed);
  for (size_t i = 0; i < module->constant_count; i++) {
    const char *key = graft_json_string(&handed->as.list.items[i], "");
    const GraftNamedTensor *found = graft_tensor_store_find(&artifact->store, key);
    if (found == NULL) {
      return refuse(error,
                    "artifact is damaged: module '%.128s' needs constant '%.80s', which is missing; compile it again",
                    name, key);
    }
    *(*constants)++ = (GraftNamedTensor){handed->as.list.keys[i].as.string.bytes, found->tensor};
  }
  return GRAFT_OK;
}

static int32_t read_modules(GraftArtifact *artifact, GraftError *error) {
  const JsonValue *listed = graft_json_member(graft_json_root(artifact->manifest), "modules");
  if (listed == NULL || listed->kind != JSON_ARRAY) {
    return refuse(error, "artifact is damaged: manifest.json lists no modules; compile it again");
  }
  size_t count = listed->as.list.count, handed = 0;
  for (size_t i = 0; i < count; i++) {
    handed += graft_json_count(graft_json_member(&listed->as.list.items[i], "constants"));
  }
  artifact->modules = graft_allocate_zeroed(artifact->memory, count, sizeof *artifact->modules);
  artifact->module_constants = graft_allocate_zeroed(artifact->memory, handed, sizeof *artifact->module_constants);
  if (artifact->modules == NULL || artifact->module_constants == NULL) return out_of_memory(error);
  GraftNamedTensor *constants = artifact->module_constants;
  for (size_t i = 0; i < count; i++) {
    int32_t code = read_module(artifact, &listed->as.list.items[i], &artifact->modules[i], &constants, error);
    if (code != GRAFT_OK) return code;
  }
  artifact->source.modules = artifact->modules;
  artifact->source.module_count = count;
  return GRAFT_OK;
}

int32_t graft_artifact_check(GraftArtifact *artifact, GraftContext *context, GraftError *error) {
  return graft_constant_check_run(&artifact->check, context, error);
}

static int32_t check(void *owner, GraftContext *context, GraftError *error) {
  return graft_artifact_check(owner, context, error);
}

static void release(void *owner) { graft_artifact_close(owner); }

/* The bytes themselves, or those of the section of a shared library. */
static int32_t read_archive(GraftArtifact *artifact, const uint8_t *bytes, size_t size, GraftError *error) {
  artifact->is_library = graft_is_elf(bytes, size);
  if (artifact->is_library) {
    int32_t code = graft_elf_artifact(bytes, size, &bytes, &size, error);
    if (code != GRAFT_OK) return code;
  }
  return graft_zip_read(bytes, size, artifact->memory, &artifact->archive, error);
}

/* Reads what lies in memory into an artifact, which is closed if that fails. */
static int32_t open_bytes(GraftArtifact *artifact, const char *path, const uint8_t *bytes, size_t size,
                          GraftError *error) {
  int32_t code = read_archive(artifact, bytes, size, error);
  if (code == GRAFT_OK) code = read_manifest(artifact, error);
  if (code == GRAFT_OK && artifact->trust) code = ask_consent(artifact, path, error);
  if (code == GRAFT_OK) code = check_members(artifact, error);
  if (code == GRAFT_OK) code = read_constants(artifact, error);
  if (code == GRAFT_OK) code = read_modules(artifact, error);
  if (code != GRAFT_OK) {
    graft_artifact_close(artifact);
    return code;
  }
  artifact->source.check = check;
  artifact->source.release = release;
  artifact->source.owner = artifact;
  artifact->trust = NULL;
  return GRAFT_OK;
}

static GraftArtifact *create(const GraftAllocator *allocator) {
  GraftArtifact *artifact = graft_allocate_zeroed(allocator, 1, sizeof *artifact);
  if (artifact && allocator) {
    artifact->host = *allocator;
    artifact->memory = &artifact->host;
  }
  return artifact;
}

int32_t graft_artifact_open(const char *path, const ArtifactTrust *trust, const GraftAllocator *allocator,
                            GraftArtifact **opened, GraftError *error) {
  *opened = NULL;
  GraftArtifact *artifact = create(allocator);
  if (artifact == NULL) return out_of_memory(error);
  artifact->trust = trust;
  int32_t code = trust ? graft_file_copy(path, &artifact->map, error) : graft_file_map(path, &artifact->map, error);
  if (code != GRAFT_OK) {
    graft_artifact_close(artifact);
    return code;
  }
  code = open_bytes(artifact, path, artifact->map.bytes, artifact->map.size, error);
  if (code == GRAFT_OK) *opened = artifact;
  return code;
}

int32_t graft_artifact_open_memory(const void *bytes, size_t size, const GraftAllocator *allocator,
                                   GraftArtifact **opened, GraftError *error) {
  *opened = NULL;
  GraftArtifact *artifact = create(allocator);
  if (artifact == NULL) return out_of_memory(error);
  int32_t code = open_bytes(artifact, NULL, bytes, size, error);
  if (code == GRAFT_OK) *opened = artifact;
  return code;
}

void graft_artifact_close(GraftArtifact *artifact) {
  if (artifact == NULL) return;
  graft_release(artifact->memory, artifact->modules);
  graft_release(artifact->memory, artifact->module_constants);
  graft_json_free(artifact->manifest);
  graft_constant_check_destroy(&artifact->check);
  graft_tensor_store_free(&artifact->store);
  graft_zip_free(&artifact->archive);
  graft_file_unmap(&artifact->map);
  graft_file_unmap(&artifact->sidecar);
  const GraftAllocator host = artifact->host;
  graft_release(artifact->memory ? &host : NULL, artifact);
}

const GraftProgramSource *graft_artifact_source(const GraftArtifact *artifact) { return &artifact->source; }

const ZipArchive *graft_artifact_members(const GraftArtifact *artifact) { return &artifact->archive; }

int32_t graft_program_load_memory(const void *bytes, size_t size, const GraftLoadOptions *options,
                                  GraftProgram **program, GraftError *error) {
  GraftError ignored;
  if (error == NULL) error = &ignored;
  GraftArtifact *artifact;
  *program = NULL;
  if ((uintptr_t)bytes % 64 != 0) {
    return graft_set_error(error, GRAFT_ERROR_INPUT, "the artifact in memory is not aligned to 64 bytes; move it");
  }
  GraftLoadOptions taken = {0};
  int32_t code = graft_take_options("GraftLoadOptions", options, &taken, sizeof taken, error);
  if (code == GRAFT_OK) code = graft_artifact_open_memory(bytes, size, taken.allocator, &artifact, error);
  return code == GRAFT_OK ? graft_program_create(&artifact->source, options, program, error) : code;
}
