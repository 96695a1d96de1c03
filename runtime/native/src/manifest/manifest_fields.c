#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "manifest/manifest_reader.h"

int32_t graft_damaged(const Reader *reader, const char *format, ...) {
  char text[512], call[32] = "";
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (reader->call >= 0) {
    snprintf(call, sizeof call, "call %" PRId32 ": ", reader->call);
  }
  return graft_set_error(reader->error, GRAFT_ERROR_ARTIFACT, "damaged manifest: %s%s%s", reader->where, call, text);
}

int32_t graft_allocated(const Reader *reader, const void *memory) {
  return memory ? GRAFT_OK
                : graft_set_error(reader->error, GRAFT_ERROR_MEMORY, "out of memory while reading the manifest");
}

int32_t graft_read_integer(Reader *reader, const JsonValue *object, const char *key, int64_t low, int64_t high,
                            int64_t *result) {
  const JsonValue *value = graft_json_member(object, key);
  if (!value || value->kind != JSON_INTEGER) {
    return graft_damaged(reader, "'%s' is not an integer", key);
  }
  if (value->as.integer < low || value->as.integer > high) {
    return graft_damaged(reader, "'%s' is %" PRId64 ", not between %" PRId64 " and %" PRId64, key, value->as.integer,
                         low, high);
  }
  *result = value->as.integer;
  return GRAFT_OK;
}

int32_t graft_read_text(Reader *reader, const JsonValue *object, const char *key, const char **result) {
  const JsonValue *value = graft_json_member(object, key);
  if (!value || value->kind != JSON_STRING || strlen(value->as.string.bytes) != value->as.string.length) {
    return graft_damaged(reader, "'%s' is not a text", key);
  }
  *result = value->as.string.bytes;
  return GRAFT_OK;
}

int32_t graft_find_name(const char *const *names, int32_t count, const char *name) {
  for (int32_t i = 0; i < count; i++) {
    if (strcmp(names[i], name) == 0) {
      return i;
    }
  }
  return -1;
}

int32_t graft_read_array(Reader *reader, const JsonValue *object, const char *key, const JsonValue **result) {
  *result = graft_json_member(object, key);
  if (!*result || (*result)->kind != JSON_ARRAY || graft_json_count(*result) > INT32_MAX / 2) {
    return graft_damaged(reader, "'%s' is not an array", key);
  }
  return GRAFT_OK;
}

int32_t graft_read_rows(Reader *reader, const JsonValue *object, const char *key, const JsonValue **result) {
  *result = graft_json_member(object, key);
  return *result ? graft_read_array(reader, object, key, result) : GRAFT_OK;
}

int32_t graft_read_list(Reader *reader, const JsonValue *array, const char *key, int64_t low, int64_t limit,
                         IndexList *list) {
  list->count = (int32_t)graft_json_count(array);
  list->items = graft_store_allocate(reader->store, (size_t)list->count, sizeof(int32_t));
  GRAFT_TRY(graft_allocated(reader, list->items));
  for (int32_t i = 0; i < list->count; i++) {
    const JsonValue *item = graft_json_item(array, (size_t)i);
    if (item->kind != JSON_INTEGER || item->as.integer < low || item->as.integer >= limit) {
      return graft_damaged(reader, "entry %" PRId32 " of '%s' is not an integer between %" PRId64 " and %" PRId64, i,
                           key, low, limit - 1);
    }
    list->items[i] = (int32_t)item->as.integer;
  }
  return GRAFT_OK;
}

int32_t graft_read_indices(Reader *reader, const JsonValue *object, const char *key, int64_t low, int64_t limit,
                            IndexList *list) {
  const JsonValue *array;
  GRAFT_TRY(graft_read_array(reader, object, key, &array));
  return graft_read_list(reader, array, key, low, limit, list);
}
