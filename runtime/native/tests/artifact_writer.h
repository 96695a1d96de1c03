/* Writes artifacts in the one form that the reader takes, so that tests of it need no Python. */
#ifndef GRAFT_TESTS_ARTIFACT_WRITER_H
#define GRAFT_TESTS_ARTIFACT_WRITER_H

#include <unistd.h>

#include "artifact/artifact.h"
#include "artifact/content.h"
#include "artifact/sha256.h"
#include "functions.h"

enum { CAPACITY = 1 << 16 };

typedef struct Writer {
  uint8_t bytes[CAPACITY], directory[CAPACITY];
  size_t size, directory_size, count;
} Writer;

static void put(uint8_t *bytes, size_t *size, uint64_t value, int width) {
  CHECK(*size + (size_t)width <= CAPACITY);
  for (int i = 0; i < width; i++) {
    bytes[(*size)++] = (uint8_t)(value >> (8 * i));
  }
}

static void put_bytes(uint8_t *bytes, size_t *size, const void *data, size_t count) {
  CHECK(*size + count <= CAPACITY);
  memcpy(bytes + *size, data, count);
  *size += count;
}

static void put_header(uint8_t *bytes, size_t *size, uint32_t crc, size_t name_length, size_t extra_length) {
  put(bytes, size, 45, 2);
  put(bytes, size, 0x0800, 2);
  put(bytes, size, 0, 2);
  put(bytes, size, 0x00210000, 4);
  put(bytes, size, crc, 4);
  put(bytes, size, UINT64_MAX, 8);
  put(bytes, size, name_length, 2);
  put(bytes, size, extra_length, 2);
}

static void put_member(Writer *writer, const char *name, const void *data, size_t size) {
  size_t length = strlen(name), start = writer->size, padding = -(start + 30 + length + 24) % 64;
  uint32_t crc = graft_crc32(data, size);
  put(writer->bytes, &writer->size, 0x04034b50, 4);
  put_header(writer->bytes, &writer->size, crc, length, 24 + padding);
  put_bytes(writer->bytes, &writer->size, name, length);
  put(writer->bytes, &writer->size, 1 | 16 << 16, 4);
  put(writer->bytes, &writer->size, size, 8);
  put(writer->bytes, &writer->size, size, 8);
  put(writer->bytes, &writer->size, 0x4752 | padding << 16, 4);
  for (size_t i = 0; i < padding; i++) {
    put(writer->bytes, &writer->size, 0, 1);
  }
  put_bytes(writer->bytes, &writer->size, data, size);
  put(writer->directory, &writer->directory_size, 0x02014b50, 4);
  put(writer->directory, &writer->directory_size, 45, 2);
  put_header(writer->directory, &writer->directory_size, crc, length, 28);
  put(writer->directory, &writer->directory_size, 0, 8);
  put(writer->directory, &writer->directory_size, 0, 2);
  put(writer->directory, &writer->directory_size, UINT32_MAX, 4);
  put_bytes(writer->directory, &writer->directory_size, name, length);
  put(writer->directory, &writer->directory_size, 1 | 24 << 16, 4);
  put(writer->directory, &writer->directory_size, size, 8);
  put(writer->directory, &writer->directory_size, size, 8);
  put(writer->directory, &writer->directory_size, start, 8);
  writer->count++;
}

static void put_end(Writer *writer) {
  size_t directory = writer->size, end;
  put_bytes(writer->bytes, &writer->size, writer->directory, writer->directory_size);
  end = writer->size;
  put(writer->bytes, &writer->size, 0x06064b50, 4);
  put(writer->bytes, &writer->size, 44, 8);
  put(writer->bytes, &writer->size, 45 | 45 << 16, 4);
  put(writer->bytes, &writer->size, 0, 8);
  put(writer->bytes, &writer->size, writer->count, 8);
  put(writer->bytes, &writer->size, writer->count, 8);
  put(writer->bytes, &writer->size, writer->directory_size, 8);
  put(writer->bytes, &writer->size, directory, 8);
  put(writer->bytes, &writer->size, 0x07064b50, 8);
  put(writer->bytes, &writer->size, end, 8);
  put(writer->bytes, &writer->size, 1, 4);
  put(writer->bytes, &writer->size, 0x06054b50, 8);
  put(writer->bytes, &writer->size, UINT32_MAX, 4);
  put(writer->bytes, &writer->size, UINT64_MAX, 8);
  put(writer->bytes, &writer->size, 0, 2);
}

/* y = x + one, with the constant in safetensors layout and one module of kind "test". With `named` the constant has the
 * hash of its content as its name and goes to the function only, else its name is "one" and it goes to the module too. */
static inline void write_members(Writer *writer, int named, char of_manifest[65]) {
  static char manifest[4096], block[256], key[64] = "one", header[128];
  char of_constants[65], of_module[65], of_header[65], handed[80] = "";
  const size_t room = 192; /* the constants' header, filled up with spaces */
  if (named) {
    graft_content_text(graft_content_chunk((const uint8_t *)one_value, 4), key);
    strcat(key, "-float32-1");
  } else {
    strcpy(handed, "\"one\":\"one\"");
  }
  memset(writer, 0, sizeof *writer);
  memset(block, ' ', room);
  memset(block, 0, 8);
  block[0] = (char)(room - 8);
  int size = snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", key);
  memcpy(block + 8, header, (size_t)size);
  memcpy(block + room, one_value, 4);
  graft_sha256_hex(block, room + 4, of_constants);
  graft_sha256_hex(block, room, of_header);
  graft_sha256_hex("code", 4, of_module);
  int length = snprintf(
      manifest, sizeof manifest,
      "{\"format\":1,\"abi\":2,\"members\":{\"constants.safetensors\":{\"sha256\":\"%s\",\"header\":\"%s\",\"size\":"
      "%zu},\"modules/0\":{\"sha256\":\"%s\",\"size\":4}},\"modules\":[{\"name\":\"m\",\"kind\":\"test\","
      "\"member\":\"modules/0\",\"constants\":{%s},\"functions\":[\"add\"]}],\"procedures\":["
      PROCEDURE("main", 64, "[0]", "[1]",
                TENSOR("x", "float32", "[2]", INPUT(0)) "," TENSOR("y", "float32", "[2]", OUTPUT(0)) "," TENSOR(
                    "one", "float32", "[1]", CONSTANT("%s")),
                CALL("add", "[0,2]", "[1]")) "]}",
      of_constants, of_header, room + 4, of_module, handed, key);
  CHECK(length > 0 && (size_t)length < sizeof manifest);
  put_member(writer, "manifest.json", manifest, (size_t)length);
  put_member(writer, "constants.safetensors", block, room + 4);
  put_member(writer, "modules/0", "code", 4);
  graft_sha256_hex((const uint8_t *)manifest, (size_t)length, of_manifest);
}

static inline void write_artifact(Writer *writer, int named) {
  char ignored[65];
  write_members(writer, named, ignored);
  put_end(writer);
}

/* An ELF file with the sections "", ".graft" (the artifact) and ".shstrtab", as far as a reader of sections looks. */
static inline void write_library(Writer *library, const Writer *artifact) {
  static const char names[] = "\0.graft\0.shstrtab";
  const size_t at = 64, name_at = at + artifact->size, table = name_at + sizeof names;
  memset(library, 0, sizeof *library);
  uint8_t *bytes = library->bytes;
  size_t *size = &library->size;
  put_bytes(bytes, size, "\177ELF\2\1\1", 7);
  *size = 40;
  put(bytes, size, table, 8);
  *size = 58;
  put(bytes, size, 64, 2);
  put(bytes, size, 3, 2);
  put(bytes, size, 2, 2);
  put_bytes(bytes, size, artifact->bytes, artifact->size);
  put_bytes(bytes, size, names, sizeof names);
  const size_t rows[3][4] = {{0, 0, 0, 0}, {1, 1, at, artifact->size}, {8, 3, name_at, sizeof names}};
  for (int i = 0; i < 3; i++) {
    put(bytes, size, rows[i][0], 4);
    put(bytes, size, rows[i][1], 4);
    *size += 16;
    put(bytes, size, rows[i][2], 8);
    put(bytes, size, rows[i][3], 8);
    *size += 24;
  }
  CHECK(*size == table + 192);
}

#endif
