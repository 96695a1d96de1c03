/* Elements of every type as numbers: the small floats by their formats, integers with the bits that they have. */
#include <math.h>
#include <string.h>

#include "kernel.h"

typedef enum { IEEE, FINITE_NAN, UNSIGNED_ZERO, FINITE } Specials;

/* Floats below 32 bits: exponent and fraction, and what their last codes are.
 * FINITE_NAN has no infinity and one NaN of each sign (OCP), UNSIGNED_ZERO has one NaN where -0 would be (FNUZ). */
typedef struct Format {
  int exponent, fraction, bias;
  Specials specials;
} Format;

static bool format_of(Element element, Format *format) {
  static const Format FORMATS[] = {
      [FLOAT16] = {5, 10, 15, IEEE},
      [BFLOAT16] = {8, 7, 127, IEEE},
      [FLOAT8E4M3FN] = {4, 3, 7, FINITE_NAN},
      [FLOAT8E4M3FNUZ] = {4, 3, 8, UNSIGNED_ZERO},
      [FLOAT8E5M2] = {5, 2, 15, IEEE},
      [FLOAT8E5M2FNUZ] = {5, 2, 16, UNSIGNED_ZERO},
      [FLOAT4E2M1] = {2, 1, 1, FINITE},
  };
  *format = (size_t)element < sizeof FORMATS / sizeof *FORMATS ? FORMATS[element] : (Format){0};
  return format->exponent != 0;
}

/* The largest code of a finite number, without its sign. */
static uint32_t largest_code(Format format) {
  uint32_t all = (1u << (format.exponent + format.fraction)) - 1;
  switch (format.specials) {
    case IEEE:
      return all - (1u << format.fraction);
    case FINITE_NAN:
      return all - 1;
    default:
      return all;
  }
}

static double decode(Format format, uint32_t code) {
  uint32_t sign = code >> (format.exponent + format.fraction) & 1;
  uint32_t magnitude = code & ((1u << (format.exponent + format.fraction)) - 1);
  if (format.specials == UNSIGNED_ZERO && sign && !magnitude) {
    return NAN;
  }
  uint32_t fraction = magnitude & ((1u << format.fraction) - 1);
  int exponent = (int)(magnitude >> format.fraction);
  if (magnitude > largest_code(format)) {
    return format.specials != IEEE || fraction ? NAN : sign ? -INFINITY : INFINITY;
  }
  double value = exponent ? ldexp(fraction + (double)(1u << format.fraction), exponent - format.bias - format.fraction)
                          : ldexp(fraction, 1 - format.bias - format.fraction);
  return sign ? -value : value;
}

/* The code of what is beyond the largest number. */
static uint32_t overflow(Format format, bool saturate) {
  uint32_t largest = largest_code(format), top = 1u << (format.exponent + format.fraction);
  return saturate || format.specials == FINITE ? largest : format.specials == UNSIGNED_ZERO ? top : largest + 1;
}

static uint32_t encode(Format format, double value, bool saturate) {
  uint32_t top = 1u << (format.exponent + format.fraction), sign = signbit(value) ? top : 0;
  if (isnan(value)) {
    switch (format.specials) {
      case IEEE:
        return sign | (top - 1 - (1u << format.fraction) / 2 + (format.fraction > 1 ? 0 : 1));
      case FINITE_NAN:
        return sign | (top - 1);
      case UNSIGNED_ZERO:
        return top;
      case FINITE:
        return top;
    }
  }
  double magnitude = fabs(value);
  uint32_t code = 0;
  if (isinf(value)) {
    code = overflow(format, saturate);
  } else if (magnitude > 0) {
    int exponent;
    (void)frexp(magnitude, &exponent);
    int least = 1 - format.bias, own = exponent - 1 < least ? least : exponent - 1;
    double steps = nearbyint(ldexp(magnitude, format.fraction - own)); /* to even */
    /* The code of a normal number has its hidden bit in the exponent: a carry goes where it belongs. */
    double wide = steps + (double)(own - least) * (double)(1u << format.fraction);
    code = wide > largest_code(format) ? overflow(format, saturate) : (uint32_t)wide;
  }
  if (format.specials == UNSIGNED_ZERO && (code == 0 || code == top)) {
    return code;
  }
  return sign | code;
}

static int64_t sign_extended(unsigned char byte, int bits) {
  int value = byte & ((1 << bits) - 1);
  return value >= 1 << (bits - 1) ? value - (1 << bits) : value;
}

bool irregular_is_integer(Element element) {
  return element <= UINT64 || (element >= INT4 && element <= UINT2);
}

union Any {
  int8_t int8_value;
  int16_t int16_value;
  int32_t int32_value;
  int64_t int64_value;
  uint8_t uint8_value;
  uint16_t uint16_value;
  uint32_t uint32_value;
  uint64_t uint64_value;
  float float32_value;
  double float64_value;
};

int64_t irregular_load_integer(Element element, const void *data, int64_t index) {
  const unsigned char *place = (const unsigned char *)data + index * IRREGULAR_ELEMENTS[element].bytes;
  union Any any;
  memset(&any, 0, sizeof any);
  memcpy(&any, place, (size_t)IRREGULAR_ELEMENTS[element].bytes);
  switch (element) {
    case BOOL:
      return any.uint8_value != 0;
    case INT8:
      return any.int8_value;
    case INT16:
      return any.int16_value;
    case INT32:
      return any.int32_value;
    case UINT8:
      return any.uint8_value;
    case UINT16:
      return any.uint16_value;
    case UINT32:
      return any.uint32_value;
    case INT64:
    case UINT64:
      return any.int64_value;
    case INT4:
      return sign_extended(*place, 4);
    case UINT4:
      return *place & 15;
    case INT2:
      return sign_extended(*place, 2);
    case UINT2:
      return *place & 3;
    default: {
      double value = irregular_load(element, data, index);
      return value >= -9223372036854775808.0 && value < 9223372036854775808.0 ? (int64_t)value : 0;
    }
  }
}

double irregular_load(Element element, const void *data, int64_t index) {
  const unsigned char *place = (const unsigned char *)data + index * IRREGULAR_ELEMENTS[element].bytes;
  union Any any;
  Format format;
  if (element == FLOAT32) {
    memcpy(&any.float32_value, place, sizeof any.float32_value);
    return any.float32_value;
  }
  if (element == FLOAT64) {
    memcpy(&any.float64_value, place, sizeof any.float64_value);
    return any.float64_value;
  }
  if (format_of(element, &format)) {
    if (IRREGULAR_ELEMENTS[element].bytes == 1) {
      return decode(format, *place);
    }
    memcpy(&any.uint16_value, place, sizeof any.uint16_value);
    return decode(format, any.uint16_value);
  }
  if (element == FLOAT8E8M0) {
    return *place == 255 ? NAN : ldexp(1, *place - 127);
  }
  int64_t value = irregular_load_integer(element, data, index);
  return element == UINT64 ? (double)(uint64_t)value : (double)value;
}

/* Stores the low bits of an integer. */
static void store_integer(Element element, unsigned char *place, int64_t value) {
  union Any any;
  switch (IRREGULAR_ELEMENTS[element].bytes) {
    case 1:
      any.uint8_value = (uint8_t)value;
      break;
    case 2:
      any.uint16_value = (uint16_t)value;
      break;
    case 4:
      any.uint32_value = (uint32_t)value;
      break;
    default:
      any.int64_value = value;
      break;
  }
  switch (element) {
    case BOOL:
      any.uint8_value = value != 0;
      break;
    case INT4: /* the upper bits are 0, as those of ml_dtypes */
    case UINT4:
      any.uint8_value = (uint8_t)(value & 15);
      break;
    case INT2:
    case UINT2:
      any.uint8_value = (uint8_t)(value & 3);
      break;
    default:
      break;
  }
  memcpy(place, &any, (size_t)IRREGULAR_ELEMENTS[element].bytes);
}

void irregular_store_integer(Element element, void *data, int64_t index, int64_t value) {
  store_integer(element, (unsigned char *)data + index * IRREGULAR_ELEMENTS[element].bytes, value);
}

void irregular_store(Element element, void *data, int64_t index, double value, bool saturate) {
  unsigned char *place = (unsigned char *)data + index * IRREGULAR_ELEMENTS[element].bytes;
  union Any any;
  Format format;
  if (element == FLOAT32) {
    any.float32_value = (float)value;
    memcpy(place, &any.float32_value, sizeof any.float32_value);
  } else if (element == FLOAT64) {
    memcpy(place, &value, sizeof value);
  } else if (format_of(element, &format)) {
    bool is_narrow = IRREGULAR_ELEMENTS[element].bytes == 1; /* wider ones have infinities, whatever `saturate` says */
    any.uint16_value = (uint16_t)encode(format, value, saturate && is_narrow);
    if (IRREGULAR_ELEMENTS[element].bytes == 1) {
      *place = (unsigned char)any.uint16_value;
    } else {
      memcpy(place, &any.uint16_value, sizeof any.uint16_value);
    }
  } else if (element == BOOL) {
    *place = value != 0;
  } else if (element == UINT64 && value >= 9223372036854775808.0) {
    store_integer(element, place, value < 18446744073709551616.0 ? (int64_t)(uint64_t)value : 0);
  } else {
    bool fits = value >= -9223372036854775808.0 && value < 9223372036854775808.0;
    store_integer(element, place, fits ? (int64_t)value : 0);
  }
}

int32_t irregular_axis(int64_t axis, int32_t rank) {
  int64_t normal = axis < 0 ? axis + rank : axis;
  return normal >= 0 && normal < rank ? (int32_t)normal : -1;
}
