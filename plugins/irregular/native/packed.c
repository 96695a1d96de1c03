/* Packed values: reading with every length checked, and writing (the grammar: runtime/packed_values.py). */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum { ABSENT = 0, TENSOR = 1, SEQUENCE = 2, MOST_DEPTH = 16 };

const ElementRow IRREGULAR_ELEMENTS[] = {
    {"bool", "bool", 1},
    {"int8", "int8", 1},
    {"int16", "int16", 2},
    {"int32", "int32", 4},
    {"int64", "int64", 8},
    {"uint8", "uint8", 1},
    {"uint16", "uint16", 2},
    {"uint32", "uint32", 4},
    {"uint64", "uint64", 8},
    {"float16", "float16", 2},
    {"bfloat16", "bfloat16", 2},
    {"float32", "float32", 4},
    {"float64", "float64", 8},
    {"float8e4m3fn", "float8_e4m3fn", 1},
    {"float8e4m3fnuz", "float8_e4m3fnuz", 1},
    {"float8e5m2", "float8_e5m2", 1},
    {"float8e5m2fnuz", "float8_e5m2fnuz", 1},
    {"float8e8m0", "float8_e8m0fnu", 1},
    {"float4e2m1", "float4_e2m1fn", 1},
    {"int4", "int4", 1},
    {"uint4", "uint4", 1},
    {"int2", "int2", 1},
    {"uint2", "uint2", 1},
    {"complex64", "complex64", 8},
    {"string", "string", 0},
    {"", "", 0},
};

Element irregular_element(const char *name, bool packed) {
  int32_t i = 0;
  while (i < NO_ELEMENT && strcmp(packed ? IRREGULAR_ELEMENTS[i].packed : IRREGULAR_ELEMENTS[i].name, name) != 0) {
    i++;
  }
  return (Element)i;
}

/* ---- Reading ---- */

static bool take(Packed *from, size_t size, const unsigned char **place) {
  if ((size_t)(from->end - from->begin) < size) {
    return false;
  }
  *place = from->begin;
  from->begin += size;
  return true;
}

static bool take_number(Packed *from, uint64_t *number) {
  const unsigned char *place;
  if (!take(from, 8, &place)) {
    return false;
  }
  *number = 0;
  for (int i = 7; i >= 0; i--) {
    *number = *number << 8 | place[i];
  }
  return true;
}

static bool take_header(Packed *from, Array *array) {
  const unsigned char *tag, *length, *name, *rank;
  char text[32] = "";
  if (!take(from, 1, &tag) || *tag != TENSOR || !take(from, 1, &length) || *length >= sizeof text ||
      !take(from, *length, &name) || !take(from, 1, &rank) || *rank > MOST_RANK) {
    return false;
  }
  memcpy(text, name, *length);
  array->element = irregular_element(text, true);
  array->rank = *rank;
  array->count = 1;
  bool empty = false;
  for (int32_t i = 0; i < *rank; i++) {
    uint64_t extent;
    if (!take_number(from, &extent) || extent > INT64_MAX >> 8) {
      return false;
    }
    array->shape[i] = (int64_t)extent;
    empty |= extent == 0;
    if (extent && array->count > (INT64_MAX >> 8) / (int64_t)extent) {
      return false;
    }
    array->count *= extent ? (int64_t)extent : 1;
  }
  array->count = empty ? 0 : array->count;
  return array->element != NO_ELEMENT;
}

bool irregular_read_array(Packed *from, Array *array) {
  if (!take_header(from, array)) {
    return false;
  }
  array->data = from->begin;
  const unsigned char *place;
  if (array->element != STRING) {
    int64_t size = IRREGULAR_ELEMENTS[array->element].bytes;
    if (array->count > INT64_MAX / 16 || !take(from, (size_t)(array->count * size), &place)) {
      return false;
    }
  } else {
    for (int64_t i = 0; i < array->count; i++) {
      uint64_t length;
      if (!take_number(from, &length) || length > (uint64_t)(from->end - from->begin) ||
          !take(from, (size_t)length, &place)) {
        return false;
      }
    }
  }
  array->end = from->begin;
  return true;
}

bool irregular_is_absent(const Packed *value) { return value->begin < value->end && *value->begin == ABSENT; }

bool irregular_read_sequence(Packed *from, uint64_t *count) {
  const unsigned char *tag;
  return take(from, 1, &tag) && *tag == SEQUENCE && take_number(from, count) &&
         *count <= (uint64_t)(from->end - from->begin);
}

bool irregular_skip(Packed *from, int32_t depth) {
  const unsigned char *place;
  uint64_t count;
  Array array;
  if (from->begin == from->end || depth > MOST_DEPTH) {
    return false;
  }
  switch (*from->begin) {
    case ABSENT:
      return take(from, 1, &place);
    case TENSOR:
      return irregular_read_array(from, &array);
    case SEQUENCE:
      if (!irregular_read_sequence(from, &count)) {
        return false;
      }
      for (uint64_t i = 0; i < count; i++) {
        if (!irregular_skip(from, depth + 1)) {
          return false;
        }
      }
      return true;
    default:
      return false;
  }
}

Text irregular_text(const unsigned char **place) {
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) {
    length = length << 8 | (*place)[i];
  }
  Text text = {(const char *)*place + 8, (size_t)length};
  *place += 8 + length;
  return text;
}

/* ---- Writing ---- */

void irregular_write(Bytes *bytes, const void *data, size_t size) {
  if (bytes->failed || size == 0) {
    return;
  }
  if (bytes->room - bytes->size < size) {
    size_t room = bytes->room * 2 > bytes->size + size ? bytes->room * 2 : bytes->size + size + 64;
    unsigned char *grown = room < size ? NULL : realloc(bytes->data, room);
    if (!grown) {
      bytes->failed = true;
      return;
    }
    bytes->data = grown;
    bytes->room = room;
  }
  if (data) {
    memcpy(bytes->data + bytes->size, data, size);
  } else {
    memset(bytes->data + bytes->size, 0, size);
  }
  bytes->size += size;
}

void irregular_write_number(Bytes *bytes, uint64_t number) {
  unsigned char little[8];
  for (int i = 0; i < 8; i++) {
    little[i] = (unsigned char)(number >> 8 * i);
  }
  irregular_write(bytes, little, sizeof little);
}

void irregular_write_header(Bytes *bytes, Element element, int32_t rank, const int64_t *shape) {
  const char *name = IRREGULAR_ELEMENTS[element].packed;
  unsigned char head[2] = {TENSOR, (unsigned char)strlen(name)}, last = (unsigned char)rank;
  irregular_write(bytes, head, sizeof head);
  irregular_write(bytes, name, head[1]);
  irregular_write(bytes, &last, 1);
  for (int32_t i = 0; i < rank; i++) {
    irregular_write_number(bytes, (uint64_t)shape[i]);
  }
}

void irregular_write_array(Bytes *bytes, const Array *array) {
  irregular_write_header(bytes, array->element, array->rank, array->shape);
  irregular_write(bytes, array->data, (size_t)(array->end - array->data));
}

void irregular_write_sequence(Bytes *bytes, uint64_t count) {
  unsigned char tag = SEQUENCE;
  irregular_write(bytes, &tag, 1);
  irregular_write_number(bytes, count);
}

void irregular_write_text(Bytes *bytes, const char *text, size_t length) {
  irregular_write_number(bytes, length);
  irregular_write(bytes, text, length);
}
