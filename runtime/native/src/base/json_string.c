#include <string.h>

#include "base/json_parser.h"

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

static int parse_hex4(JsonParser *parser, uint32_t *code) {
  *code = 0;
  for (int i = 0; i < 4; i++) {
    int c = graft_json_peek(parser);
    int lower = c | 0x20;
    int digit = graft_json_is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
    if (digit < 0) {
      return graft_json_fail_at(parser, parser->at, "expected four hexadecimal digits");
    }
    *code = *code * 16 + (uint32_t)digit;
    parser->at++;
  }
  return 1;
}

/* After "\u". A high surrogate must be followed by "\u" and a low one. */
static int parse_unicode_escape(JsonParser *parser, char *out, size_t *written) {
  uint32_t code;
  size_t start = parser->at - 2;
  if (!parse_hex4(parser, &code)) {
    return 0;
  }
  if (code >= 0xDC00 && code <= 0xDFFF) {
    return graft_json_fail_at(parser, start, "low surrogate without a high one");
  }
  if (code >= 0xD800 && code <= 0xDBFF) {
    uint32_t low = 0;
    if (parser->length - parser->at < 2 || memcmp(parser->text + parser->at, "\\u", 2) != 0) {
      return graft_json_fail_at(parser, start, "high surrogate without a low one");
    }
    parser->at += 2;
    if (!parse_hex4(parser, &low)) {
      return 0;
    }
    if (low < 0xDC00 || low > 0xDFFF) {
      return graft_json_fail_at(parser, start, "high surrogate without a low one");
    }
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  *written += encode_utf8(code, out + *written);
  return 1;
}

static int parse_escape(JsonParser *parser, char *out, size_t *written) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  parser->at++;
  int c = graft_json_peek(parser);
  if (c == 'u') {
    parser->at++;
    return parse_unicode_escape(parser, out, written);
  }
  const char *found = c > 0 ? strchr(names, c) : NULL;
  if (!found) {
    return graft_json_fail_at(parser, parser->at, "unknown escape");
  }
  out[(*written)++] = values[found - names];
  parser->at++;
  return 1;
}

/* The distance to the closing quote bounds the decoded length: no escape grows. */
static int string_bound(JsonParser *parser, size_t *bound) {
  size_t end = parser->at;
  while (end < parser->length && parser->text[end] != '"') {
    end += parser->text[end] == '\\' ? 2 : 1;
  }
  if (end >= parser->length) {
    return graft_json_fail_at(parser, parser->length, "string is not closed");
  }
  *bound = end - parser->at;
  return 1;
}

int graft_json_parse_string(JsonParser *parser, JsonValue *value) {
  size_t bound = 0, written = 0;
  parser->at++;
  if (!string_bound(parser, &bound)) {
    return 0;
  }
  char *out = graft_json_allocate(parser->document, bound + 1);
  if (!out) {
    return graft_json_fail_memory(parser);
  }
  for (;;) {
    const unsigned char *bytes = (const unsigned char *)parser->text + parser->at;
    size_t available = parser->length - parser->at;
    if (available == 0) {
      return graft_json_fail_at(parser, parser->at, "string is not closed");
    }
    if (*bytes == '"') {
      break;
    }
    if (*bytes < 0x20) {
      return graft_json_fail_at(parser, parser->at, "control character in a string");
    }
    if (*bytes == '\\') {
      if (!parse_escape(parser, out, &written)) {
        return 0;
      }
      continue;
    }
    size_t sequence = utf8_sequence(bytes, available);
    if (!sequence) {
      return graft_json_fail_at(parser, parser->at, "invalid UTF-8");
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
