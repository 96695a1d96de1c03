/* A JSON parser (RFC 8259) for manifests, headers and graphs: strict, bounded depth, no global state. */
#ifndef GRAFT_JSON_H
#define GRAFT_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "graft/runtime.h"

typedef enum { JSON_NULL, JSON_BOOL, JSON_INTEGER, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;

/* An integer is a number without fraction or exponent that fits int64; other numbers are doubles. */
typedef struct JsonValue {
  JsonKind kind;
  union {
    int64_t integer; /* also for JSON_BOOL: 0 or 1 */
    double number;
    struct {
      const char *bytes; /* UTF-8, zero-terminated; escapes decoded */
      size_t length;
    } string;
    struct {
      const struct JsonValue *items; /* values of an array or object */
      const struct JsonValue *keys;  /* strings; NULL for an array */
      size_t count;
    } list;
  } as;
} JsonValue;

typedef struct JsonDocument JsonDocument;

/* Returns NULL on error, with a text in `message` that names the byte offset. Duplicate keys are an error. The allocator
 * (NULL: the heap) lives as long as the document. */
JsonDocument *graft_json_parse(const char *text, size_t length, const GraftAllocator *allocator, char *message,
                               size_t message_size);
/* Whether such a text says that memory ran out, and nothing of the JSON. */
int graft_json_lacked_memory(const char *message);
const JsonValue *graft_json_root(const JsonDocument *document);
void graft_json_free(JsonDocument *document);

/* Each gives NULL (or the fallback) when the value is absent or of another kind. */
const JsonValue *graft_json_member(const JsonValue *object, const char *key);
const JsonValue *graft_json_item(const JsonValue *array, size_t index);
int64_t graft_json_integer(const JsonValue *value, int64_t fallback);
double graft_json_number(const JsonValue *value, double fallback); /* integers too */
const char *graft_json_string(const JsonValue *value, const char *fallback);
size_t graft_json_count(const JsonValue *list);

#endif
