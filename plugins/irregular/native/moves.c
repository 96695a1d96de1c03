/* Operators that move elements to where numbers say that are computed: Slice, Expand, Tile, Pad, ConstantOfShape, Range;
 * and Shape of what they make. */
#include <math.h>
#include <string.h>

#include "kernel.h"

enum { OUTSIDE = -1 };

/* An axis of a result: how many places it has, which place of the source each is read from, how far those are apart. */
typedef struct Axis {
  int64_t extent, source_extent;
  int64_t *from;
  size_t stride;
} Axis;

/* A result, axis by axis; `fill` is what stands where nothing is read, of `size` bytes. */
typedef struct Move {
  int32_t rank;
  size_t size;
  Axis axes[MOST_RANK];
  const unsigned char *fill;
} Move;

static int64_t clamped(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

/* Makes room for where an axis is read from. */
static int32_t set_axis(Call *call, Axis *axis, int64_t extent, int64_t source_extent) {
  *axis = (Axis){.extent = extent < 0 ? 0 : extent, .source_extent = source_extent};
  if ((uint64_t)axis->extent > INT64_MAX / sizeof *axis->from) {
    return irregular_no_memory(call);
  }
  axis->from = irregular_scratch(call, (uint64_t)axis->extent * sizeof *axis->from);
  return axis->from ? GRAFT_OK : irregular_no_memory(call);
}

static bool is_whole(const Axis *axis) {
  bool whole = axis->extent == axis->source_extent;
  for (int64_t i = 0; whole && i < axis->extent; i++) {
    whole = axis->from[i] == i;
  }
  return whole;
}

/* Writes the elements of an axis and of those behind it; a source of NULL lies outside. */
static unsigned char *write_axis(const Move *move, int32_t number, const unsigned char *source, unsigned char *to,
                                 size_t size) {
  if (number == move->rank) {
    if (source) {
      memcpy(to, source, size);
      return to + size;
    }
    for (size_t done = 0; done < size; done += move->size) {
      memcpy(to + done, move->fill, move->size);
    }
    return to + size;
  }
  const Axis *axis = move->axes + number;
  for (int64_t i = 0; i < axis->extent; i++) {
    bool outside = !source || axis->from[i] == OUTSIDE;
    to = write_axis(move, number + 1, outside ? NULL : source + (size_t)axis->from[i] * axis->stride, to, size);
  }
  return to;
}

/* Makes output 0: axes at the end that are read whole are copied as one. */
static int32_t give(Call *call, Move *move, const Array *source) {
  int64_t shape[MOST_RANK];
  bool empty = false;
  for (int32_t i = 0; i < move->rank; i++) {
    shape[i] = move->axes[i].extent;
    empty = empty || !shape[i];
  }
  unsigned char *data = irregular_output(call, 0, move->rank, shape);
  if (!data || empty) {
    return data ? GRAFT_OK : GRAFT_ERROR_RUN;
  }
  size_t stride = move->size, size = move->size;
  for (int32_t i = move->rank - 1; i >= 0; i--) {
    move->axes[i].stride = stride;
    stride *= (size_t)move->axes[i].source_extent;
  }
  while (move->rank && is_whole(move->axes + move->rank - 1)) {
    size *= (size_t)move->axes[--move->rank].extent;
  }
  write_axis(move, 0, source ? source->data : NULL, data, size);
  return GRAFT_OK;
}

/* Reads the source and an input of whole numbers that says where its elements go. */
static int32_t begin(Call *call, Array *source, Array *numbers, Move *move) {
  GRAFT_TRY(irregular_array(call, 0, source));
  GRAFT_TRY(irregular_array(call, 1, numbers));
  *move = (Move){.rank = source->rank, .size = (size_t)IRREGULAR_ELEMENTS[source->element].bytes};
  return GRAFT_OK;
}

static int64_t number_at(const Array *array, int64_t index) {
  return irregular_load_integer(array->element, array->data, index);
}

/* Gives which axis each number is about, by the optional input that lists them. */
static int32_t axes_of(Call *call, int32_t input, int32_t rank, int64_t count, int32_t *axes) {
  Array given = {0};
  if (irregular_has(call, input) && irregular_array(call, input, &given)) {
    return GRAFT_ERROR_RUN;
  }
  if (count > rank || (given.data && given.count != count)) {
    return irregular_fail(call, "there are more numbers than axes");
  }
  for (int64_t i = 0; i < count; i++) {
    axes[i] = given.data ? irregular_axis(number_at(&given, i), rank) : (int32_t)i;
    if (axes[i] < 0) {
      return irregular_fail(call, "an axis is out of range");
    }
  }
  return GRAFT_OK;
}

/* ---- Slice ---- */

static int32_t slice_axis(Call *call, Axis *axis, int64_t extent, int64_t start, int64_t end, int64_t step) {
  if (!step) {
    return irregular_fail(call, "a step is 0");
  }
  step = step < -INT64_MAX ? -INT64_MAX : step;
  start = clamped(start < 0 ? start + extent : start, 0, step > 0 ? extent : extent - 1);
  end = clamped(end < 0 ? end + extent : end, step > 0 ? 0 : -1, step > 0 ? extent : extent - 1);
  int64_t distance = step > 0 ? end - start : start - end;
  int64_t count = distance > 0 && extent ? (distance - 1) / (step > 0 ? step : -step) + 1 : 0;
  GRAFT_TRY(set_axis(call, axis, count, extent));
  for (int64_t i = 0; i < count; i++) {
    axis->from[i] = start + i * step;
  }
  return GRAFT_OK;
}

static int32_t slice(Call *call) {
  Array source, starts, ends, steps = {0};
  Move move;
  int32_t axes[MOST_RANK];
  if (begin(call, &source, &starts, &move) || irregular_array(call, 2, &ends) ||
      (irregular_has(call, 4) && irregular_array(call, 4, &steps)) ||
      axes_of(call, 3, source.rank, starts.count, axes)) {
    return GRAFT_ERROR_RUN;
  }
  if (ends.count != starts.count || (steps.data && steps.count != starts.count)) {
    return irregular_fail(call, "there are not as many starts as ends and steps");
  }
  int32_t status = GRAFT_OK;
  for (int32_t axis = 0; !status && axis < source.rank; axis++) {
    int64_t start = 0, end = source.shape[axis], step = 1;
    for (int64_t i = 0; i < starts.count; i++) {
      if (axes[i] == axis) {
        start = number_at(&starts, i);
        end = number_at(&ends, i);
        step = steps.data ? number_at(&steps, i) : 1;
      }
    }
    status = slice_axis(call, move.axes + axis, source.shape[axis], start, end, step);
  }
  return status ? status : give(call, &move, &source);
}

/* ---- Expand and Tile ---- */

static int32_t expand(Call *call) {
  Array source, shape;
  Move move;
  GRAFT_TRY(begin(call, &source, &shape, &move));
  if (shape.count > MOST_RANK) {
    return irregular_fail(call, "a shape has too many axes");
  }
  move.rank = source.rank > shape.count ? source.rank : (int32_t)shape.count;
  int32_t more = move.rank - source.rank, missing = move.rank - (int32_t)shape.count;
  for (int32_t axis = 0; axis < move.rank; axis++) {
    int64_t own = axis < more ? 1 : source.shape[axis - more];
    int64_t wanted = axis < missing ? 1 : number_at(&shape, axis - missing);
    if (wanted < 0 || (own != wanted && own != 1 && wanted != 1)) {
      return irregular_fail(call, "a shape does not broadcast");
    }
    int64_t extent = own == 1 ? wanted : own;
    GRAFT_TRY(set_axis(call, move.axes + axis, extent, own));
    for (int64_t i = 0; i < extent; i++) {
      move.axes[axis].from[i] = own == 1 ? 0 : i;
    }
  }
  return give(call, &move, &source);
}

static int32_t tile(Call *call) {
  Array source, repeats;
  Move move;
  GRAFT_TRY(begin(call, &source, &repeats, &move));
  if (repeats.count != source.rank) {
    return irregular_fail(call, "there are not as many repeats as axes");
  }
  for (int32_t axis = 0; axis < source.rank; axis++) {
    int64_t times = number_at(&repeats, axis), own = source.shape[axis];
    if (times < 0 || (own && times > INT64_MAX / own)) {
      return irregular_fail(call, "a number of repeats is out of range");
    }
    GRAFT_TRY(set_axis(call, move.axes + axis, times * own, own));
    for (int64_t i = 0; i < times * own; i++) {
      move.axes[axis].from[i] = i % own;
    }
  }
  return give(call, &move, &source);
}

/* ---- Pad ---- */

/* Where what is at a place before or behind an axis is read from. */
static int64_t padded_from(char mode, int64_t place, int64_t extent) {
  if (place >= 0 && place < extent) {
    return place;
  }
  int64_t period = mode == 'r' ? 2 * (extent - 1) : extent;
  if (mode == 'c') {
    return OUTSIDE;
  }
  if (mode == 'e') {
    return clamped(place, 0, extent - 1);
  }
  int64_t rest = period > 0 ? place % period : 0;
  rest = rest < 0 ? rest + period : rest;
  return rest < extent ? rest : period - rest;
}

static int32_t pad(Call *call) {
  static const unsigned char zeros[16] = {0};
  Array source, pads, value;
  Move move;
  int32_t axes[MOST_RANK];
  GRAFT_TRY(begin(call, &source, &pads, &move));
  GRAFT_TRY(axes_of(call, 3, source.rank, pads.count / 2, axes));
  move.fill = zeros;
  if (irregular_has(call, 2)) {
    if (irregular_array(call, 2, &value) || value.count != 1 || value.element != source.element) {
      return irregular_fail(call, "what is padded with is not one element");
    }
    move.fill = value.data;
  }
  char mode = irregular_text_of(call, "mode", "constant")[0];
  int64_t count = pads.count / 2;
  for (int32_t axis = 0; axis < source.rank; axis++) {
    int64_t before = 0, behind = 0, own = source.shape[axis], most = INT64_MAX / 4;
    for (int64_t i = 0; i < count; i++) {
      before = axes[i] == axis ? clamped(number_at(&pads, i), -most, most) : before;
      behind = axes[i] == axis ? clamped(number_at(&pads, i + count), -most, most) : behind;
    }
    int64_t extent = own + before + behind;
    if (!own && extent > 0 && mode != 'c') {
      return irregular_fail(call, "an axis without elements cannot be padded with its own");
    }
    GRAFT_TRY(set_axis(call, move.axes + axis, extent, own));
    for (int64_t i = 0; i < extent; i++) {
      move.axes[axis].from[i] = padded_from(mode, i - before, own);
    }
  }
  return give(call, &move, &source);
}

/* ---- ConstantOfShape ---- */

static int32_t constant_of_shape(Call *call) {
  Array shape;
  GRAFT_TRY(irregular_array(call, 0, &shape));
  if (shape.count > MOST_RANK) {
    return irregular_fail(call, "a shape has too many axes");
  }
  Element element = irregular_output_type(call, 0).element;
  const JsonValue *value = irregular_list_of(call, "value");
  uint64_t fill[2] = {0};
  if (value && irregular_is_integer(element)) {
    irregular_store_integer(element, fill, 0, graft_json_integer(graft_json_item(value, 0), 0));
  } else if (value) {
    irregular_store(element, fill, 0, irregular_item_number(value, 0), false);
  }
  Move move = {.rank = (int32_t)shape.count, .size = (size_t)IRREGULAR_ELEMENTS[element].bytes,
               .fill = (const unsigned char *)fill};
  for (int32_t axis = 0; axis < move.rank; axis++) {
    int64_t extent = number_at(&shape, axis);
    if (extent < 0) {
      return irregular_fail(call, "an extent is negative");
    }
    GRAFT_TRY(set_axis(call, move.axes + axis, extent, 0));
    for (int64_t i = 0; i < extent; i++) {
      move.axes[axis].from[i] = OUTSIDE;
    }
  }
  return give(call, &move, NULL);
}

/* ---- Range and Shape ---- */

static int32_t range(Call *call) {
  Array bounds[3];
  for (int32_t i = 0; i < 3; i++) {
    GRAFT_TRY(irregular_array(call, i, bounds + i));
    if (bounds[i].count != 1) {
      return irregular_fail(call, "a bound is not one number");
    }
  }
  Element element = bounds[0].element;
  bool whole = irregular_is_integer(element);
  double start = irregular_load(element, bounds[0].data, 0), step = irregular_load(element, bounds[2].data, 0);
  double count = ceil((irregular_load(element, bounds[1].data, 0) - start) / step);
  int64_t most = INT64_MAX / 16, first = whole ? number_at(bounds, 0) : 0, each = whole ? number_at(bounds + 2, 0) : 0;
  if (step == 0 || isnan(count) || count > (double)most) {
    return irregular_fail(call, "the bounds and the step say no number of elements");
  }
  int64_t extent = count > 0 ? (int64_t)count : 0;
  void *data = irregular_output(call, 0, 1, &extent);
  for (int64_t i = 0; data && i < extent; i++) {
    if (whole) {
      irregular_store_integer(element, data, i, first + i * each);
    } else {
      irregular_store(element, data, i, start + (double)i * step, false);
    }
  }
  return data ? GRAFT_OK : GRAFT_ERROR_RUN;
}

static int32_t shape(Call *call) {
  Array source;
  GRAFT_TRY(irregular_array(call, 0, &source));
  int64_t start = irregular_integer_of(call, "start", 0), end = irregular_integer_of(call, "end", source.rank);
  start = clamped(start < 0 ? start + source.rank : start, 0, source.rank);
  end = clamped(end < 0 ? end + source.rank : end, start, source.rank);
  int64_t count = end - start;
  int64_t *data = irregular_output(call, 0, 1, &count);
  for (int64_t i = 0; data && i < count; i++) {
    data[i] = source.shape[start + i];
  }
  return data ? GRAFT_OK : GRAFT_ERROR_RUN;
}

static int32_t size(Call *call) {
  Array source;
  GRAFT_TRY(irregular_array(call, 0, &source));
  int64_t *data = irregular_output(call, 0, 0, source.shape);
  if (!data) {
    return GRAFT_ERROR_RUN;
  }
  *data = source.count;
  return GRAFT_OK;
}

const KernelRow IRREGULAR_MOVES[] = {{"Slice", slice, NULL},
                                     {"Expand", expand, NULL},
                                     {"Tile", tile, NULL},
                                     {"Pad", pad, NULL},
                                     {"Range", range, NULL},
                                     {"Shape", shape, NULL},
                                     {"Size", size, NULL},
                                     {"ConstantOfShape", constant_of_shape, NULL},
                                     {NULL, NULL, NULL}};
