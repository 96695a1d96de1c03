/* Numbers in order: as unsigned keys that compare as they do, sorted by their bytes. */
#include <math.h>
#include <string.h>

#include "kernel.h"

enum { DIGITS = 8, VALUES = 256 };

/* Flags of elements of one width; the sign of a float does not count. */
#define WIDTH(NAME, TYPE)                                                             \
  static void NAME(const void *data, int64_t count, bool is_float, unsigned char *to) { \
    const TYPE *from = data;                                                          \
    if (is_float) {                                                                   \
      for (int64_t i = 0; i < count; i++) {                                           \
        to[i] = (TYPE)(from[i] << 1) != 0;                                            \
      }                                                                               \
    } else {                                                                          \
      for (int64_t i = 0; i < count; i++) {                                           \
        to[i] = from[i] != 0;                                                         \
      }                                                                               \
    }                                                                                 \
  }
WIDTH(flags_1, uint8_t)
WIDTH(flags_2, uint16_t)
WIDTH(flags_4, uint32_t)
WIDTH(flags_8, uint64_t)

void irregular_flags(Element element, const void *data, int64_t count, unsigned char *flags) {
  bool is_float = element == FLOAT16 || element == BFLOAT16 || element == FLOAT32 || element == FLOAT64;
  if (!is_float && (element > UINT64)) {
    for (int64_t i = 0; i < count; i++) {
      bool is_integer = irregular_is_integer(element);
      flags[i] = is_integer ? irregular_load_integer(element, data, i) != 0 : irregular_load(element, data, i) != 0;
    }
    return;
  }
  switch (IRREGULAR_ELEMENTS[element].bytes) {
    case 1:
      flags_1(data, count, is_float, flags);
      break;
    case 2:
      flags_2(data, count, is_float, flags);
      break;
    case 4:
      flags_4(data, count, is_float, flags);
      break;
    default:
      flags_8(data, count, is_float, flags);
      break;
  }
}

/* NaN comes last, and is equal to itself, as NumPy has it; both zeros are one. */
uint64_t irregular_key(Element element, const void *data, int64_t index) {
  const uint64_t sign = (uint64_t)1 << 63;
  if (irregular_is_integer(element)) {
    uint64_t value = (uint64_t)irregular_load_integer(element, data, index);
    return element == UINT64 ? value : value ^ sign;
  }
  double number = irregular_load(element, data, index);
  if (isnan(number)) {
    return UINT64_MAX;
  }
  number = number == 0 ? 0 : number;
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits & sign ? ~bits : bits | sign;
}

Keyed *irregular_sort(Keyed *items, Keyed *spare, int64_t count) {
  int64_t places[DIGITS][VALUES];
  memset(places, 0, sizeof places);
  for (int64_t i = 0; i < count; i++) {
    for (int digit = 0; digit < DIGITS; digit++) {
      places[digit][items[i].key >> (8 * digit) & 255]++;
    }
  }
  for (int digit = 0; digit < DIGITS && count; digit++) {
    int64_t *place = places[digit], before = 0;
    if (place[items[0].key >> (8 * digit) & 255] == count) {
      continue; /* all have the same */
    }
    for (int value = 0; value < VALUES; value++) {
      int64_t own = place[value];
      place[value] = before;
      before += own;
    }
    for (int64_t i = 0; i < count; i++) {
      spare[place[items[i].key >> (8 * digit) & 255]++] = items[i];
    }
    Keyed *swapped = items;
    items = spare;
    spare = swapped;
  }
  return items;
}
