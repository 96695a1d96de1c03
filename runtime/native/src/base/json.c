#include "base/json_parser.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"

enum { MAXIMUM_DEPTH = 128, SORT_THRESHOLD = 16 };

static int fail(JsonParser *parser, const char *reason) { return graft_json_fail_at(parser, parser->at, reason); }

static int push(JsonParser *parser, Pending *pending, JsonValue value) {
  if (pending->count == pending->capacity) {
    size_t capacity = pending->capacity ? 2 * pending->capacity : 64;
    JsonValue *values = graft_grow(parser->document->allocator, pending->values, pending->count, capacity,
                                   sizeof(JsonValue));
    if (!values) {
      return graft_json_fail_memory(parser);
    }
    pending->values = values;
    pending->capacity = capacity;
  }
  pending->values[pending->count++] = value;
  return 1;
}

/* Moves the values from `first` on into the document. */
static const JsonValue *settle(JsonParser *parser, Pending *pending, size_t first) {
  size_t bytes = (pending->count - first) * sizeof(JsonValue);
  JsonValue *values = graft_json_allocate(parser->document, bytes);
  if (values && bytes) {
    memcpy(values, pending->values + first, bytes);
  }
  pending->count = first;
  return values;
}

static void skip_space(JsonParser *parser) {
  while (parser->at < parser->length) {
    char c = parser->text[parser->at];
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      return;
    }
    parser->at++;
  }
}

/* ---- Numbers -------------------------------------------------------------------------------------------------- */

/* strtod reads the decimal point of the process's locale: printing a number tells which that is. */
static int parse_double(JsonParser *parser, size_t start, JsonValue *value) {
  char sample[16];
  int sample_length = snprintf(sample, sizeof sample, "%.1f", 0.5);
  size_t length = parser->at - start, used = 0;
  if (sample_length < 3 || sample_length >= (int)sizeof sample) {
    return graft_json_fail_at(parser, start, "this locale cannot print a number");
  }
  char *copy = graft_json_allocate(parser->document, length + sizeof sample);
  if (!copy) {
    return graft_json_fail_memory(parser);
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
  if (isinf(number)) {
    return graft_json_fail_at(parser, start, "number is too large");
  }
  *value = (JsonValue){.kind = JSON_NUMBER, .as.number = number};
  return 1;
}

static int parse_digits(JsonParser *parser) {
  if (!graft_json_is_digit(graft_json_peek(parser))) {
    return fail(parser, "expected a digit");
  }
  while (graft_json_is_digit(graft_json_peek(parser))) {
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

static int parse_number(JsonParser *parser, JsonValue *value) {
  size_t start = parser->at;
  int negative = graft_json_peek(parser) == '-', whole = 1;
  parser->at += (size_t)negative;
  size_t digits = parser->at;
  if (graft_json_peek(parser) == '0') {
    parser->at++;
  } else if (!parse_digits(parser)) {
    return 0;
  }
  if (graft_json_is_digit(graft_json_peek(parser))) {
    return fail(parser, "number with a leading zero");
  }
  size_t end = parser->at;
  if (graft_json_peek(parser) == '.') {
    whole = 0;
    parser->at++;
    if (!parse_digits(parser)) {
      return 0;
    }
  }
  if (graft_json_peek(parser) == 'e' || graft_json_peek(parser) == 'E') {
    whole = 0;
    parser->at++;
    parser->at += graft_json_peek(parser) == '+' || graft_json_peek(parser) == '-';
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

static int parse_value(JsonParser *parser, JsonValue *value);

static int compare_keys(const void *left, const void *right) {
  const JsonValue *a = *(const JsonValue *const *)left, *b = *(const JsonValue *const *)right;
  size_t shorter = a->as.string.length < b->as.string.length ? a->as.string.length : b->as.string.length;
  int order = memcmp(a->as.string.bytes, b->as.string.bytes, shorter);
  return order ? order : (a->as.string.length > b->as.string.length) - (a->as.string.length < b->as.string.length);
}

/* Sorted pointers, so that a hostile object of many keys costs n log n. */
static int check_keys(JsonParser *parser, const JsonValue *keys, size_t count) {
  const JsonValue *few[SORT_THRESHOLD], **sorted = few;
  if (count > SORT_THRESHOLD) {
    sorted = graft_grow(parser->document->allocator, NULL, 0, count, sizeof *sorted);
    if (!sorted) {
      return graft_json_fail_memory(parser);
    }
  }
  for (size_t i = 0; i < count; i++) {
    sorted[i] = keys + i;
  }
  graft_sort(sorted, count, sizeof *sorted, compare_keys);
  int unique = 1;
  for (size_t i = 1; i < count && unique; i++) {
    unique = compare_keys(sorted + i - 1, sorted + i) != 0;
  }
  if (sorted != few) {
    graft_release(parser->document->allocator, sorted);
  }
  return unique ? 1 : fail(parser, "duplicate key in the object that ends here");
}

static int parse_key(JsonParser *parser) {
  JsonValue key;
  if (graft_json_peek(parser) != '"') {
    return fail(parser, "expected a key");
  }
  if (!graft_json_parse_string(parser, &key)) {
    return 0;
  }
  skip_space(parser);
  if (graft_json_peek(parser) != ':') {
    return fail(parser, "expected ':'");
  }
  parser->at++;
  skip_space(parser);
  return push(parser, &parser->keys, key);
}

static int parse_members(JsonParser *parser, int is_object, int close) {
  parser->at++;
  skip_space(parser);
  if (graft_json_peek(parser) == close) {
    return 1;
  }
  for (;;) {
    JsonValue item;
    if ((is_object && !parse_key(parser)) || !parse_value(parser, &item) || !push(parser, &parser->items, item)) {
      return 0;
    }
    skip_space(parser);
    if (graft_json_peek(parser) == close) {
      return 1;
    }
    if (graft_json_peek(parser) != ',') {
      return fail(parser, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    parser->at++;
    skip_space(parser);
  }
}

static int parse_list(JsonParser *parser, JsonValue *value) {
  int is_object = graft_json_peek(parser) == '{';
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
    return graft_json_fail_memory(parser);
  }
  parser->at++;
  parser->depth--;
  return 1;
}

static int parse_word(JsonParser *parser, const char *word, JsonValue result, JsonValue *value) {
  size_t length = strlen(word);
  if (parser->length - parser->at < length || memcmp(parser->text + parser->at, word, length) != 0) {
    return fail(parser, "expected a value");
  }
  parser->at += length;
  *value = result;
  return 1;
}

static int parse_value(JsonParser *parser, JsonValue *value) {
  int c = graft_json_peek(parser);
  switch (c) {
    case '{':
    case '[':
      return parse_list(parser, value);
    case '"':
      return graft_json_parse_string(parser, value);
    case 't':
      return parse_word(parser, "true", (JsonValue){.kind = JSON_BOOL, .as.integer = 1}, value);
    case 'f':
      return parse_word(parser, "false", (JsonValue){.kind = JSON_BOOL, .as.integer = 0}, value);
    case 'n':
      return parse_word(parser, "null", (JsonValue){.kind = JSON_NULL, .as.integer = 0}, value);
    default:
      return c == '-' || graft_json_is_digit(c) ? parse_number(parser, value) : fail(parser, "expected a value");
  }
}

JsonDocument *graft_json_parse(const char *text, size_t length, const GraftAllocator *allocator, char *message,
                               size_t message_size) {
  JsonParser parser = {.text = text, .length = length, .message = message, .message_size = message_size};
  parser.document = graft_allocate_zeroed(allocator, 1, sizeof(JsonDocument));
  if (!parser.document) {
    graft_json_fail_memory(&parser);
    return NULL;
  }
  parser.document->allocator = allocator;
  skip_space(&parser);
  int parsed = parse_value(&parser, &parser.document->root);
  skip_space(&parser);
  if (parsed && parser.at != length) {
    parsed = fail(&parser, "expected the end");
  }
  graft_release(allocator, parser.items.values);
  graft_release(allocator, parser.keys.values);
  if (!parsed) {
    graft_json_free(parser.document);
    return NULL;
  }
  return parser.document;
}
