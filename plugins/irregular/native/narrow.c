/* Cast, QuantizeLinear and DequantizeLinear of types that generated code does not compute with. */
#include <math.h>
#include <string.h>

#include "kernel.h"

/* What elements of a byte are, by their byte. */
typedef struct Decoder {
  Element element;
  bool tabled;
  double table[256];
} Decoder;

static void start(Decoder *decoder, Element element, int64_t count) {
  decoder->element = element;
  decoder->tabled = IRREGULAR_ELEMENTS[element].bytes == 1 && count > 256;
  for (int i = 0; decoder->tabled && i < 256; i++) {
    unsigned char byte = (unsigned char)i;
    decoder->table[i] = irregular_load(element, &byte, 0);
  }
}

static double number_at(const Decoder *decoder, const unsigned char *data, int64_t index) {
  return decoder->tabled ? decoder->table[data[index]] : irregular_load(decoder->element, data, index);
}

/* ---- Casts ---- */

/* The power of two by ONNX's rules for E8M0: the exponent of the float32, rounded up, down or to nearest. */
static unsigned char to_e8m0(double value, const char *mode, bool saturate) {
  float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  uint32_t exponent = bits >> 23 & 255, fraction = bits & 0x7fffff;
  if (exponent == 255) {
    return 255;
  }
  bool up = fraction != 0 && strcmp(mode, "down") != 0;
  if (strcmp(mode, "nearest") == 0) {
    up = (fraction & 0x400000) != 0 && ((fraction & 0x3fffff) != 0 || exponent > 0);
  }
  return (unsigned char)(exponent + (up && !(saturate && exponent == 254)));
}

static int32_t cast(Call *call) {
  Array from;
  Decoder decoder;
  int32_t status = irregular_array(call, 0, &from);
  void *data = status ? NULL : irregular_output(call, 0, from.rank, from.shape);
  if (!data) {
    return GRAFT_ERROR_RUN;
  }
  Element to = irregular_output_type(call, 0).element;
  if (from.element == to) {
    memcpy(data, from.data, (size_t)(from.end - from.data));
    return GRAFT_OK;
  }
  bool saturate = irregular_integer_of(call, "saturate", 1) != 0;
  const char *mode = irregular_text_of(call, "round_mode", "up");
  bool exact = irregular_is_integer(from.element) && irregular_is_integer(to);
  start(&decoder, from.element, from.count);
  for (int64_t i = 0; i < from.count; i++) {
    if (exact) {
      irregular_store_integer(to, data, i, irregular_load_integer(from.element, from.data, i));
    } else if (to == FLOAT8E8M0) {
      ((unsigned char *)data)[i] = to_e8m0(number_at(&decoder, from.data, i), mode, saturate);
    } else {
      irregular_store(to, data, i, number_at(&decoder, from.data, i), saturate);
    }
  }
  return GRAFT_OK;
}

/* ---- Quantisation ---- */

/* Which scale belongs to an element: one for all, one for each place along an axis, or one for each block of places. */
typedef struct Blocks {
  int64_t inner, extent, scales, block;
  bool single;
} Blocks;

static bool blocks_of(const Call *call, const Array *source, const Array *scale, Blocks *blocks) {
  *blocks = (Blocks){1, 1, 1, 1, scale->count == 1};
  if (blocks->single) {
    return true;
  }
  int32_t axis = irregular_axis(irregular_integer_of(call, "axis", 1), source->rank);
  int64_t size = irregular_integer_of(call, "block_size", 0);
  if (axis < 0 || size < 0 || scale->rank < 1) {
    return false;
  }
  for (int32_t i = axis + 1; i < source->rank; i++) {
    blocks->inner *= source->shape[i];
  }
  blocks->extent = source->shape[axis];
  blocks->block = size ? size : 1;
  blocks->scales = scale->rank == source->rank ? scale->shape[axis] : scale->shape[0];
  int64_t outer = blocks->extent && blocks->inner ? source->count / blocks->extent / blocks->inner : 0;
  int64_t needed = scale->rank == source->rank ? outer * blocks->scales * blocks->inner : blocks->scales;
  bool fits = blocks->scales == (blocks->extent + blocks->block - 1) / blocks->block && scale->count == needed;
  if (scale->rank != source->rank || scale->rank == 1) {
    blocks->single = false;
    fits = fits && scale->rank == 1;
    blocks->block = -blocks->block; /* the same for all rows */
  }
  return fits;
}

static int64_t scale_of(const Blocks *blocks, int64_t index) {
  if (blocks->single) {
    return 0;
  }
  int64_t place = index / blocks->inner % blocks->extent;
  if (blocks->block < 0) {
    return place / -blocks->block;
  }
  int64_t outer = index / blocks->inner / blocks->extent;
  return (outer * blocks->scales + place / blocks->block) * blocks->inner + index % blocks->inner;
}

/* A number rounded to a type of floats. */
static double rounded(Element element, double value) {
  unsigned char data[8];
  if (element != FLOAT32 && element != FLOAT16 && element != BFLOAT16) {
    return value;
  }
  irregular_store(element, data, 0, value, false);
  return irregular_load(element, data, 0);
}

static bool range_of(Element element, double *low, double *high) {
  static const struct {
    Element element;
    double low, high;
  } ROWS[] = {{UINT8, 0, 255},        {INT8, -128, 127}, {UINT16, 0, 65535}, {INT16, -32768, 32767},
              {UINT4, 0, 15},         {INT4, -8, 7},     {UINT2, 0, 3},      {INT2, -2, 1}};
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    if (ROWS[i].element == element) {
      *low = ROWS[i].low;
      *high = ROWS[i].high;
      return true;
    }
  }
  return false;
}

/* The type of a quotient: that which is asked for, else the wider one. */
static Element quotient_type(const Call *call, Element left, Element right) {
  switch (irregular_integer_of(call, "precision", 0)) { /* numbers of TensorProto.DataType */
    case 1:
      return FLOAT32;
    case 10:
      return FLOAT16;
    case 16:
      return BFLOAT16;
    default:
      return left == right && (left == FLOAT16 || left == BFLOAT16) ? left : FLOAT32;
  }
}

/* Reads the operands, `zero` where it is not NULL; returns the output's memory, NULL after a failure. */
static void *operands(Call *call, Array *source, Array *scale, Array *zero, Blocks *blocks) {
  if (irregular_array(call, 0, source) || irregular_array(call, 1, scale) ||
      (zero && irregular_array(call, 2, zero))) {
    return NULL;
  }
  if (!blocks_of(call, source, scale, blocks) || (zero && zero->count != scale->count)) {
    irregular_fail(call, "the shape of the scale does not fit the input");
    return NULL;
  }
  return irregular_output(call, 0, source->rank, source->shape);
}

static int32_t quantize(Call *call) {
  Array source, scale, zero = {0};
  Blocks blocks;
  Decoder zeros;
  bool shifts = irregular_has(call, 2);
  void *data = operands(call, &source, &scale, shifts ? &zero : NULL, &blocks);
  if (!data) {
    return GRAFT_ERROR_RUN;
  }
  Element to = irregular_output_type(call, 0).element, kind = quotient_type(call, source.element, scale.element);
  bool saturate = irregular_integer_of(call, "saturate", 1) != 0;
  double low = 0, high = 0;
  bool is_integer = range_of(to, &low, &high);
  shifts = shifts && (is_integer || to == FLOAT4E2M1);
  start(&zeros, shifts ? zero.element : UINT8, zero.count);
  for (int64_t i = 0; i < source.count; i++) {
    int64_t place = scale_of(&blocks, i);
    double value = irregular_load(source.element, source.data, i) / irregular_load(scale.element, scale.data, place);
    value = rounded(kind, value);
    value = is_integer ? nearbyint(value) : value;
    value += shifts ? number_at(&zeros, zero.data, place) : 0;
    if (is_integer) {
      value = value > low ? value < high ? value : high : low; /* NaN: the lowest */
    }
    irregular_store(to, data, i, value, saturate);
  }
  return GRAFT_OK;
}

static int32_t dequantize(Call *call) {
  Array source, scale, zero = {0};
  Blocks blocks;
  Decoder values, zeros;
  bool shifts = irregular_has(call, 2);
  void *data = operands(call, &source, &scale, shifts ? &zero : NULL, &blocks);
  if (!data) {
    return GRAFT_ERROR_RUN;
  }
  Element to = irregular_output_type(call, 0).element;
  shifts = shifts && irregular_is_integer(source.element);
  start(&values, source.element, source.count);
  start(&zeros, shifts ? zero.element : UINT8, zero.count);
  for (int64_t i = 0; i < source.count; i++) {
    int64_t place = scale_of(&blocks, i);
    double value = number_at(&values, source.data, i) - (shifts ? number_at(&zeros, zero.data, place) : 0);
    value = rounded(FLOAT32, value * irregular_load(scale.element, scale.data, place));
    irregular_store(to, data, i, value, false);
  }
  return GRAFT_OK;
}

const KernelRow IRREGULAR_NARROW[] = {
    {"Cast", cast, NULL},
    {"CastLike", cast, NULL},
    {"QuantizeLinear", quantize, NULL},
    {"DequantizeLinear", dequantize, NULL},
    {NULL, NULL, NULL}};
