/* JSON documents: their memory, what is said of a text that is none, and how values are read. */
#include <stdio.h>
#include <string.h>

#include "base/json_parser.h"
#include "base/memory.h"

enum { CHUNK_BYTES = 16384 };

static const char NO_MEMORY[] = "out of memory";

int graft_json_fail_at(JsonParser *parser, size_t at, const char *reason) {
  if (parser->message_size) {
    snprintf(parser->message, parser->message_size, "invalid JSON at byte %zu: %s", at, reason);
  }
  return 0;
}

int graft_json_fail_memory(JsonParser *parser) {
  if (parser->message_size) {
    snprintf(parser->message, parser->message_size, "%s", NO_MEMORY);
  }
  return 0;
}

int graft_json_lacked_memory(const char *message) { return strcmp(message, NO_MEMORY) == 0; }

void *graft_json_allocate(JsonDocument *document, size_t bytes) {
  size_t unit = sizeof(max_align_t);
  if (bytes > SIZE_MAX - sizeof(Chunk) - unit) {
    return NULL;
  }
  bytes = (bytes + unit - 1) / unit * unit;
  Chunk *chunk = document->chunks;
  if (!chunk || chunk->size - chunk->used < bytes) {
    size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    chunk = graft_allocate(document->allocator, sizeof(Chunk) + size);
    if (!chunk) {
      return NULL;
    }
    *chunk = (Chunk){.next = document->chunks, .used = 0, .size = size};
    document->chunks = chunk;
  }
  void *block = (char *)chunk->bytes + chunk->used;
  chunk->used += bytes;
  return block;
}

const JsonValue *graft_json_root(const JsonDocument *document) { return &document->root; }

void graft_json_free(JsonDocument *document) {
  if (!document) {
    return;
  }
  for (Chunk *chunk = document->chunks; chunk;) {
    Chunk *next = chunk->next;
    graft_release(document->allocator, chunk);
    chunk = next;
  }
  graft_release(document->allocator, document);
}

const JsonValue *graft_json_member(const JsonValue *object, const char *key) {
  if (!object || object->kind != JSON_OBJECT) {
    return NULL;
  }
  size_t length = strlen(key);
  for (size_t i = 0; i < object->as.list.count; i++) {
    const JsonValue *name = object->as.list.keys + i;
    if (name->as.string.length == length && memcmp(name->as.string.bytes, key, length) == 0) {
      return object->as.list.items + i;
    }
  }
  return NULL;
}

const JsonValue *graft_json_item(const JsonValue *array, size_t index) {
  return array && array->kind == JSON_ARRAY && index < array->as.list.count ? array->as.list.items + index : NULL;
}

int64_t graft_json_integer(const JsonValue *value, int64_t fallback) {
  return value && value->kind == JSON_INTEGER ? value->as.integer : fallback;
}

double graft_json_number(const JsonValue *value, double fallback) {
  if (value && value->kind == JSON_INTEGER) {
    return (double)value->as.integer;
  }
  return value && value->kind == JSON_NUMBER ? value->as.number : fallback;
}

const char *graft_json_string(const JsonValue *value, const char *fallback) {
  return value && value->kind == JSON_STRING ? value->as.string.bytes : fallback;
}

size_t graft_json_count(const JsonValue *list) {
  return list && (list->kind == JSON_ARRAY || list->kind == JSON_OBJECT) ? list->as.list.count : 0;
}
