/* The JSON parser: values, strictness, every truncation, every failing allocation. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "check.h"

static void check_error(const char *text, const char *expected) {
  char message[128] = "";
  JsonDocument *document = graft_json_parse(text, strlen(text), NULL, message, sizeof message);
  CHECK(document == NULL);
  CHECK_TEXT(message, expected);
}

static void test_values(void) {
  static const char text[] = " {\"a\": [1, -9223372036854775808, 9223372036854775807, 1.5e1, true, false, null],"
                             "\"\\u00e9\\ud83d\\ude00\\n\": \"x\\\\\", \"n\": {}, \"big\": 9223372036854775808} ";
  JsonDocument *document = graft_json_parse(text, sizeof text - 1, NULL, NULL, 0);
  CHECK(document != NULL);
  const JsonValue *root = graft_json_root(document), *a = graft_json_member(root, "a");
  CHECK(graft_json_count(root) == 4 && graft_json_count(a) == 7);
  CHECK(graft_json_integer(graft_json_item(a, 0), 0) == 1);
  CHECK(graft_json_integer(graft_json_item(a, 1), 0) == INT64_MIN);
  CHECK(graft_json_integer(graft_json_item(a, 2), 0) == INT64_MAX);
  CHECK(graft_json_number(graft_json_item(a, 3), 0) == 15.0);
  CHECK(graft_json_number(graft_json_item(a, 0), 0) == 1.0);
  CHECK(graft_json_item(a, 4)->kind == JSON_BOOL && graft_json_item(a, 4)->as.integer == 1);
  CHECK(graft_json_item(a, 6)->kind == JSON_NULL && graft_json_item(a, 7) == NULL);
  CHECK_TEXT(graft_json_string(graft_json_member(root, "\xc3\xa9\xf0\x9f\x98\x80\n"), ""), "x\\");
  CHECK(graft_json_member(root, "big")->kind == JSON_NUMBER);
  CHECK(graft_json_member(root, "absent") == NULL && graft_json_integer(root, 7) == 7);
  graft_json_free(document);
}

static void test_errors(void) {
  check_error("", "invalid JSON at byte 0: expected a value");
  check_error("{\"a\":1,\"a\":2}", "invalid JSON at byte 12: duplicate key in the object that ends here");
  check_error("[1,]", "invalid JSON at byte 3: expected a value");
  check_error("[01]", "invalid JSON at byte 2: number with a leading zero");
  check_error("[1e999]", "invalid JSON at byte 1: number is too large");
  check_error("[1.]", "invalid JSON at byte 3: expected a digit");
  check_error("\"\xff\"", "invalid JSON at byte 1: invalid UTF-8");
  check_error("\"\xed\xa0\x80\"", "invalid JSON at byte 1: invalid UTF-8");
  check_error("\"\\ud800x\"", "invalid JSON at byte 1: high surrogate without a low one");
  check_error("\"\\udc00\"", "invalid JSON at byte 1: low surrogate without a high one");
  check_error("\"\t\"", "invalid JSON at byte 1: control character in a string");
  check_error("\"\\x\"", "invalid JSON at byte 2: unknown escape");
  check_error("[1] 2", "invalid JSON at byte 4: expected the end");
  check_error("{1:2}", "invalid JSON at byte 1: expected a key");
  check_error("nul", "invalid JSON at byte 0: expected a value");
  char deep[300];
  memset(deep, '[', sizeof deep - 1);
  deep[sizeof deep - 1] = 0;
  check_error(deep, "invalid JSON at byte 128: nested too deeply");
}

static void test_many_keys_are_checked(void) {
  static char text[200000];
  size_t used = 0;
  text[used++] = '{';
  for (int i = 0; i < 10000; i++) {
    used += (size_t)snprintf(text + used, sizeof text - used, "\"k%d\":%d,", i, i);
  }
  snprintf(text + used, sizeof text - used, "\"k77\":0}");
  JsonDocument *document = graft_json_parse(text, strlen(text), NULL, NULL, 0);
  CHECK(document == NULL);
  text[used - 1] = '}';
  document = graft_json_parse(text, used, NULL, NULL, 0);
  CHECK(graft_json_integer(graft_json_member(graft_json_root(document), "k9999"), 0) == 9999);
  graft_json_free(document);
}

static const char sample[] = "{\"a\":[1,2.5,\"\\u00e9\",{\"b\":null}],\"c\":[[],{}],\"d\":true}";

static void test_every_truncation_is_an_error(void) {
  for (size_t length = 0; length < sizeof sample - 1; length++) {
    char *copy = malloc(length + 1); /* exactly sized: the sanitizer sees a read past the end */
    memcpy(copy, sample, length);
    char *tight = realloc(copy, length ? length : 1);
    CHECK(graft_json_parse(tight, length, NULL, NULL, 0) == NULL);
    free(tight);
  }
}

static void test_every_changed_byte_is_survived(void) {
  char copy[sizeof sample];
  for (size_t at = 0; at < sizeof sample - 1; at++) {
    for (int byte = 0; byte < 256; byte++) {
      memcpy(copy, sample, sizeof sample);
      copy[at] = (char)byte;
      graft_json_free(graft_json_parse(copy, sizeof sample - 1, NULL, NULL, 0));
    }
  }
}

static void test_every_failing_allocation_is_an_error(void) {
  JsonDocument *document = NULL;
  for (int n = 0; !document; n++) {
    char message[128] = "";
    fail_allocation(n);
    document = graft_json_parse(sample, sizeof sample - 1, NULL, message, sizeof message);
    fail_allocation(-1);
    CHECK(document || graft_json_lacked_memory(message));
  }
  graft_json_free(document);
}

int main(void) {
  test_values();
  test_errors();
  test_many_keys_are_checked();
  test_every_truncation_is_an_error();
  test_every_changed_byte_is_survived();
  test_every_failing_allocation_is_an_error();
  return 0;
}
