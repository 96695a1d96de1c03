/* What the files of the JSON parser share. */
#ifndef GRAFT_JSON_PARSER_H
#define GRAFT_JSON_PARSER_H

#include "base/json.h"

/* Values and strings live in chunks that are freed together. */
typedef struct Chunk {
  struct Chunk *next;
  size_t used;
  size_t size;
  max_align_t bytes[];
} Chunk;

struct JsonDocument {
  const GraftAllocator *allocator;
  Chunk *chunks;
  JsonValue root;
};

/* Members of the lists that are still open: they move to the document when their list closes. */
typedef struct Pending {
  JsonValue *values;
  size_t count;
  size_t capacity;
} Pending;

typedef struct JsonParser {
  const char *text;
  size_t length;
  size_t at;
  int depth;
  JsonDocument *document;
  Pending items;
  Pending keys;
  char *message;
  size_t message_size;
} JsonParser;

static inline int graft_json_peek(const JsonParser *parser) {
  return parser->at < parser->length ? (unsigned char)parser->text[parser->at] : -1;
}

static inline int graft_json_is_digit(int c) { return c >= '0' && c <= '9'; }

/* Writes the message; returns 0. */
int graft_json_fail_at(JsonParser *parser, size_t at, const char *reason);
int graft_json_fail_memory(JsonParser *parser);

/* NULL when memory runs out. */
void *graft_json_allocate(JsonDocument *document, size_t bytes);

/* At the opening quote (json_string.c). 0 after an error. */
int graft_json_parse_string(JsonParser *parser, JsonValue *value);

#endif
