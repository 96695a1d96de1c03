#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"

enum { MAXIMUM_DEPTH = 128, CHUNK_BYTES = 16384, SORT_THRESHOLD = 16 };

/* Values and strings live in chunks that are freed together. */
typedef struct Chunk {
  struct Chunk *next;
  size_t used;
  size_t size;
  max_align_t bytes[];
} Chunk;

struct JsonDocument {
  Chunk *chunks;
  JsonValue root;
};

/* Members of the lists that are still open: they move to the document when their list closes. */
typedef struct Pending {
  JsonValue *values;
  size_t count;
  size_t capacity;
} Pending;

typedef struct Parser {
  const char *text;
  size_t length;
  size_t at;
  int depth;
  JsonDocument *document;
  Pending items;
  Pending keys;
  char *message;
  size_t message_size;
} Parser;

static int fail_at(Parser *parser, size_t at, const char *reason) {
  if (parser->message_size) {
    snprintf(parser->message, parser->message_size, "invalid JSON at byte %zu: %s", at, reason);
  }
  return 0;
}

static int fail(Parser *parser, const char *reason) { return fail_at(parser, parser->at, reason); }

static int fail_memory(Parser *parser) { return fail(parser, "out of memory"); }

static void *allocate(JsonDocument *document, size_t bytes) {
  size_t unit = sizeof(max_align_t);
  if (bytes > SIZE_MAX - sizeof(Chunk) - unit) {
    return NULL;
  }
  bytes = (bytes + unit - 1) / unit * unit;
  Chunk *chunk = document->chunks;
  if (!chunk || chunk->size - chunk->used < bytes) {
    size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    chunk = graft_malloc(sizeof(Chunk) + size);
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

static int push(Parser *parser, Pending *pending, JsonValue value) {
  if (pending->count == pending->capacity) {
    size_t capacity = pending->capacity ? 2 * pending->capacity : 64;
    JsonValue *values = graft_realloc(pending->values, capacity, sizeof(JsonValue));
    if (!values) {
      return fail_memory(parser);
    }
    pending->values = values;
    pending->capacity = capacity;
  }
  pending->values[pending->count++] = value;
  return 1;
}

/* Moves the values from `first` on into the document. */
static const JsonValue *settle(Parser *parser, Pending *pending, size_t first) {
  size_t bytes = (pending->count - first) * sizeof(JsonValue);
  JsonValue *values = allocate(parser->document, bytes);
  if (values && bytes) {
    memcpy(values, pending->values + first, bytes);
  }
  pending->count = first;
  return values;
}

static void skip_space(Parser *parser) {
  while (parser->at < parser->length) {
    char c = parser->text[parser->at];
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      return;
    }
    parser->at++;
  }
}

static int peek(const Parser *parser) {
  return parser->at < parser->length ? (unsigned char)parser->text[parser->at] : -1;
}

static int is_digit(int c) { return c >= '0' && c <= '9'; }

/* ---- Strings -------------------------------------------------------------------------------------------------- */

/* Length of the well-formed UTF-8 sequence at `bytes` (Unicode 15, table 3-7); 0 if it is malformed. */
static size_t utf8_sequence(const unsigned char *bytes, size_t available) {
  unsigned char first = bytes[0];
  size_t length = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || length > available) {
    return 0;
  }
  for (size_t i = 1; i < length; i++) {
    if ((bytes[i] & 0xC0) != 0x80) {
      return 0;
    }
  }
  if ((first == 0xE0 && bytes[1] < 0xA0) || (first == 0xED && bytes[1] > 0x9F) ||
      (first == 0xF0 && bytes[1] < 0x90) || (first == 0xF4 && bytes[1] > 0x8F)) {
    return 0;
  }
  return length;
}

static size_t encode_utf8(uint32_t code, char *out) {
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  if (code < 0x800) {
    out[0] = (char)(0xC0 | (code >> 6));
    out[1] = (char)(0x80 | (code & 0x3F));
    return 2;
  }
  if (code < 0x10000) {
    out[0] = (char)(0xE0 | (code >> 12));
    out[1] = (char)(0x80 | ((code >> 6) & 0x3F));
    out[2] = (char)(0x80 | (code & 0x3F));
    return 3;
  }
  out[0] = (char)(0xF0 | (code >> 18));
  out[1] = (char)(0x80 | ((code >> 12) & 0x3F));
  out[2] = (char)(0x80 | ((code >> 6) & 0x3F));
  out[3] = (char)(0x80 | (code & 0x3F));
  return 4;
}

static int parse_hex4(Parser *parser, uint32_t *code) {
  *code = 0;
  for (int i = 0; i < 4; i++) {
    int c = peek(parser);
    int lower = c | 0x20;
    int digit = is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
    if (digit < 0) {
      return fail(parser, "expected four hexadecimal digits");
    }
    *code = *code * 16 + (uint32_t)digit;
    parser->at++;
  }
  return 1;
}

/* After "\u". A high surrogate must be followed by "\u" and a low one. */
static int parse_unicode_escape(Parser *parser, char *out, size_t *written) {
  uint32_t code;
  size_t start = parser->at - 2;
  if (!parse_hex4(parser, &code)) {
    return 0;
  }
  if (code >= 0xDC00 && code <= 0xDFFF) {
    return fail_at(parser, start, "low surrogate without a high one");
  }
  if (code >= 0xD800 && code <= 0xDBFF) {
    uint32_t low = 0;
    if (parser->length - parser->at < 2 || memcmp(parser->text + parser->at, "\\u", 2) != 0) {
      return fail_at(parser, start, "high surrogate without a low one");
    }
    parser->at += 2;
    if (!parse_hex4(parser, &low)) {
      return 0;
    }
    if (low < 0xDC00 || low > 0xDFFF) {
      return fail_at(parser, start, "high surrogate without a low one");
    }
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  *written += encode_utf8(code, out + *written);
  return 1;
}

static int parse_escape(Parser *parser, char *out, size_t *written) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  parser->at++;
  int c = peek(parser);
  if (c == 'u') {
    parser->at++;
    return parse_unicode_escape(parser, out, written);
  }
  const char *found = c > 0 ? strchr(names, c) : NULL;
  if (!found) {
    return fail(parser, "unknown escape");
  }
  out[(*written)++] = values[found - names];
  parser->at++;
  return 1;
}

/* The distance to the closing quote bounds the decoded length: no escape grows. */
static int string_bound(Parser *parser, size_t *bound) {
  size_t end = parser->at;
  while (end < parser->length && parser->text[end] != '"') {
    end += parser->text[end] == '\\' ? 2 : 1;
  }
  if (end >= parser->length) {
    return fail_at(parser, parser->length, "string is not closed");
  }
  *bound = end - parser->at;
  return 1;
}

static int parse_string(Parser *parser, JsonValue *value) {
  size_t bound = 0, written = 0;
  parser->at++;
  if (!string_bound(parser, &bound)) {
    return 0;
  }
  char *out = allocate(parser->document, bound + 1);
  if (!out) {
    return fail_memory(parser);
  }
  for (;;) {
    const unsigned char *bytes = (const unsigned char *)parser->text + parser->at;
    size_t available = parser->length - parser->at;
    if (available == 0) {
      return fail(parser, "string is not closed");
    }
    if (*bytes == '"') {
      break;
    }
    if (*bytes < 0x20) {
      return fail(parser, "control character in a string");
    }
    if (*bytes == '\\') {
      if (!parse_escape(parser, out, &written)) {
        return 0;
      }
      continue;
    }
    size_t sequence = utf8_sequence(bytes, available);
    if (!sequence) {
      return fail(parser, "invalid UTF-8");
    }
    memcpy(out + written, bytes, sequence);
    written += sequence;
    parser->at += sequence;
  }
  out[written] = 0;
  parser->at++;
  *value = (JsonValue){.kind = JSON_STRING, .as.string = {.bytes = out, .length = written}};
  return 1;
}

/* ---- Numbers -------------------------------------------------------------------------------------------------- */

/* strtod reads the decimal point of the process's locale: printing a number tells which that is. */
static int parse_double(Parser *parser, size_t start, JsonValue *value) {
  char sample[16];
  int sample_length = snprintf(sample, sizeof sample, "%.1f", 0.5);
  size_t length = parser->at - start, used = 0;
  if (sample_length < 3 || sample_length >= (int)sizeof sample) {
    return fail_at(parser, start, "this locale cannot print a number");
  }
  char *copy = graft_malloc(length + sizeof sample);
  if (!copy) {
    return fail_memory(parser);
  }
  for (size_t i = start; i < parser->at; i++) {
    if (parser->text[i] == '.') {
      memcpy(copy + used, sample + 1, (size_t)sample_length - 2);
      used += (size_t)sample_length - 2;
    } else {
      copy[used++] = parser->text[i];
    }
  }
  copy[used] = 0;
  double number = strtod(copy, NULL);
  free(copy);
  if (isinf(number)) {
    return fail_at(parser, start, "number is too large");
  }
  *value = (JsonValue){.kind = JSON_NUMBER, .as.number = number};
  return 1;
}

static int parse_digits(Parser *parser) {
  if (!is_digit(peek(parser))) {
    return fail(parser, "expected a digit");
  }
  while (is_digit(peek(parser))) {
    parser->at++;
  }
  return 1;
}

/* The digits of [start, end) as a negative number, which has the larger range; 0 if that overflows. */
static int negative_integer(const char *text, size_t start, size_t end, int64_t *result) {
  *result = 0;
  for (size_t i = start; i < end; i++) {
    int digit = text[i] - '0';
    if (*result < (INT64_MIN + digit) / 10) {
      return 0;
    }
    *result = *result * 10 - digit;
  }
  return 1;
}

static int parse_number(Parser *parser, JsonValue *value) {
  size_t start = parser->at;
  int negative = peek(parser) == '-', whole = 1;
  parser->at += (size_t)negative;
  size_t digits = parser->at;
  if (peek(parser) == '0') {
    parser->at++;
  } else if (!parse_digits(parser)) {
    return 0;
  }
  if (is_digit(peek(parser))) {
    return fail(parser, "number with a leading zero");
  }
  size_t end = parser->at;
  if (peek(parser) == '.') {
    whole = 0;
    parser->at++;
    if (!parse_digits(parser)) {
      return 0;
    }
  }
  if (peek(parser) == 'e' || peek(parser) == 'E') {
    whole = 0;
    parser->at++;
    parser->at += peek(parser) == '+' || peek(parser) == '-';
    if (!parse_digits(parser)) {
      return 0;
    }
  }
  int64_t integer;
  if (whole && negative_integer(parser->text, digits, end, &integer) && (negative || integer != INT64_MIN)) {
    *value = (JsonValue){.kind = JSON_INTEGER, .as.integer = negative ? integer : -integer};
    return 1;
  }
  return parse_double(parser, start, value);
}

/* ---- Lists ---------------------------------------------------------------------------------------------------- */

static int parse_value(Parser *parser, JsonValue *value);

static int compare_keys(const void *left, const void *right) {
  const JsonValue *a = *(const JsonValue *const *)left, *b = *(const JsonValue *const *)right;
  size_t shorter = a->as.string.length < b->as.string.length ? a->as.string.length : b->as.string.length;
  int order = memcmp(a->as.string.bytes, b->as.string.bytes, shorter);
  return order ? order : (a->as.string.length > b->as.string.length) - (a->as.string.length < b->as.string.length);
}

/* Sorted pointers, so that a hostile object of many keys costs n log n. */
static int check_keys(Parser *parser, const JsonValue *keys, size_t count) {
  const JsonValue *few[SORT_THRESHOLD], **sorted = few;
  if (count > SORT_THRESHOLD) {
    sorted = graft_realloc(NULL, count, sizeof *sorted);
    if (!sorted) {
      return fail_memory(parser);
    }
  }
  for (size_t i = 0; i < count; i++) {
    sorted[i] = keys + i;
  }
  qsort(sorted, count, sizeof *sorted, compare_keys);
  int unique = 1;
  for (size_t i = 1; i < count && unique; i++) {
    unique = compare_keys(sorted + i - 1, sorted + i) != 0;
  }
  if (sorted != few) {
    free(sorted);
  }
  return unique ? 1 : fail(parser, "duplicate key in the object that ends here");
}

static int parse_key(Parser *parser) {
  JsonValue key;
  if (peek(parser) != '"') {
    return fail(parser, "expected a key");
  }
  if (!parse_string(parser, &key)) {
    return 0;
  }
  skip_space(parser);
  if (peek(parser) != ':') {
    return fail(parser, "expected ':'");
  }
  parser->at++;
  skip_space(parser);
  return push(parser, &parser->keys, key);
}

static int parse_members(Parser *parser, int is_object, int close) {
  parser->at++;
  skip_space(parser);
  if (peek(parser) == close) {
    return 1;
  }
  for (;;) {
    JsonValue item;
    if ((is_object && !parse_key(parser)) || !parse_value(parser, &item) || !push(parser, &parser->items, item)) {
      return 0;
    }
    skip_space(parser);
    if (peek(parser) == close) {
      return 1;
    }
    if (peek(parser) != ',') {
      return fail(parser, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    parser->at++;
    skip_space(parser);
  }
}

static int parse_list(Parser *parser, JsonValue *value) {
  int is_object = peek(parser) == '{';
  size_t first_item = parser->items.count, first_key = parser->keys.count;
  if (++parser->depth > MAXIMUM_DEPTH) {
    return fail(parser, "nested too deeply");
  }
  if (!parse_members(parser, is_object, is_object ? '}' : ']')) {
    return 0;
  }
  size_t count = parser->items.count - first_item;
  if (is_object && count && !check_keys(parser, parser->keys.values + first_key, count)) {
    return 0;
  }
  *value = (JsonValue){.kind = is_object ? JSON_OBJECT : JSON_ARRAY, .as.list.count = count};
  value->as.list.items = settle(parser, &parser->items, first_item);
  value->as.list.keys = is_object ? settle(parser, &parser->keys, first_key) : NULL;
  if (!value->as.list.items || (is_object && !value->as.list.keys)) {
    return fail_memory(parser);
  }
  parser->at++;
  parser->depth--;
  return 1;
}

static int parse_word(Parser *parser, const char *word, JsonValue result, JsonValue *value) {
  size_t length = strlen(word);
  if (parser->length - parser->at < length || memcmp(parser->text + parser->at, word, length) != 0) {
    return fail(parser, "expected a value");
  }
  parser->at += length;
  *value = result;
  return 1;
}

static int parse_value(Parser *parser, JsonValue *value) {
  int c = peek(parser);
  switch (c) {
    case '{':
    case '[':
      return parse_list(parser, value);
    case '"':
      return parse_string(parser, value);
    case 't':
      return parse_word(parser, "true", (JsonValue){.kind = JSON_BOOL, .as.integer = 1}, value);
    case 'f':
      return parse_word(parser, "false", (JsonValue){.kind = JSON_BOOL, .as.integer = 0}, value);
    case 'n':
      return parse_word(parser, "null", (JsonValue){.kind = JSON_NULL, .as.integer = 0}, value);
    default:
      return c == '-' || is_digit(c) ? parse_number(parser, value) : fail(parser, "expected a value");
  }
}

JsonDocument *graft_json_parse(const char *text, size_t length, char *message, size_t message_size) {
  Parser parser = {.text = text, .length = length, .message = message, .message_size = message_size};
  parser.document = graft_calloc(1, sizeof(JsonDocument));
  if (!parser.document) {
    fail_memory(&parser);
    return NULL;
  }
  skip_space(&parser);
  int parsed = parse_value(&parser, &parser.document->root);
  skip_space(&parser);
  if (parsed && parser.at != length) {
    parsed = fail(&parser, "expected the end");
  }
  free(parser.items.values);
  free(parser.keys.values);
  if (!parsed) {
    graft_json_free(parser.document);
    return NULL;
  }
  return parser.document;
}

const JsonValue *graft_json_root(const JsonDocument *document) { return &document->root; }

void graft_json_free(JsonDocument *document) {
  if (!document) {
    return;
  }
  for (Chunk *chunk = document->chunks; chunk;) {
    Chunk *next = chunk->next;
    free(chunk);
    chunk = next;
  }
  free(document);
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
