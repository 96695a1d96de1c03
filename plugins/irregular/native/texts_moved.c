/* Strings that move: other shapes of the same ones (Reshape, Flatten, Squeeze, Unsqueeze), and those of places (Gather). */
#include "kernel.h"

static int64_t number_at(const Array *array, int64_t index) {
  return irregular_load_integer(array->element, array->data, index);
}

/* Gives input 0, of strings. */
static int32_t read_texts(Call *call, Array *source) {
  GRAFT_TRY(irregular_array(call, 0, source));
  return source->element == STRING ? GRAFT_OK : irregular_fail(call, "an input holds no strings");
}

/* How many elements the axes of a range have together. */
static int64_t count_of(const Array *array, int32_t from, int32_t to) {
  int64_t count = 1;
  for (int32_t axis = from; axis < to; axis++) {
    count *= array->shape[axis];
  }
  return count;
}

/* Marks the axes of a rank that input 1 lists; a list that is left out marks none, and `*given` is false. */
static int32_t marked_axes(Call *call, int32_t rank, bool *marked, bool *given) {
  Array axes = {0};
  for (int32_t axis = 0; axis < MOST_RANK; axis++) {
    marked[axis] = false;
  }
  *given = irregular_has(call, 1);
  if (*given && irregular_array(call, 1, &axes)) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < axes.count; i++) {
    int32_t axis = irregular_axis(number_at(&axes, i), rank);
    if (axis < 0 || marked[axis]) {
      return irregular_fail(call, "an axis is out of range, or listed twice");
    }
    marked[axis] = true;
  }
  return GRAFT_OK;
}

static int32_t reshape(Call *call) {
  Array source, shape;
  GRAFT_TRY(read_texts(call, &source));
  GRAFT_TRY(irregular_array(call, 1, &shape));
  if (shape.count > MOST_RANK) {
    return irregular_fail(call, "a shape has too many axes");
  }
  bool zeros = irregular_integer_of(call, "allowzero", 0) != 0;
  Array result = source;
  int32_t open = -1;
  int64_t count = 1;
  result.rank = (int32_t)shape.count;
  for (int32_t axis = 0; axis < result.rank; axis++) {
    int64_t extent = number_at(&shape, axis);
    extent = extent == 0 && !zeros ? (axis < source.rank ? source.shape[axis] : -2) : extent;
    if (extent < -1 || (extent == -1 && open >= 0) || (extent > 0 && count > INT64_MAX / extent)) {
      return irregular_fail(call, "a shape says no number of elements");
    }
    open = extent == -1 ? axis : open;
    result.shape[axis] = extent;
    count *= extent == -1 ? 1 : extent;
  }
  if (open >= 0) {
    result.shape[open] = count ? source.count / count : 0;
    count *= result.shape[open];
  }
  if (count != source.count) {
    return irregular_fail(call, "a shape has not as many elements as there are");
  }
  return irregular_give_array(call, 0, &result);
}

static int32_t flatten(Call *call) {
  Array source;
  GRAFT_TRY(read_texts(call, &source));
  int64_t axis = irregular_integer_of(call, "axis", 1);
  axis = axis < 0 ? axis + source.rank : axis;
  if (axis < 0 || axis > source.rank) {
    return irregular_fail(call, "an axis is out of range");
  }
  Array result = source;
  result.rank = 2;
  result.shape[0] = count_of(&source, 0, (int32_t)axis);
  result.shape[1] = count_of(&source, (int32_t)axis, source.rank);
  return irregular_give_array(call, 0, &result);
}

static int32_t squeeze(Call *call) {
  Array source;
  bool marked[MOST_RANK], given;
  GRAFT_TRY(read_texts(call, &source));
  GRAFT_TRY(marked_axes(call, source.rank, marked, &given));
  Array result = source;
  result.rank = 0;
  for (int32_t axis = 0; axis < source.rank; axis++) {
    if (marked[axis] && source.shape[axis] != 1) {
      return irregular_fail(call, "an axis that goes has more than one place");
    }
    if (given ? !marked[axis] : source.shape[axis] != 1) {
      result.shape[result.rank++] = source.shape[axis];
    }
  }
  return irregular_give_array(call, 0, &result);
}

static int32_t unsqueeze(Call *call) {
  Array source, axes;
  bool marked[MOST_RANK], given;
  GRAFT_TRY(read_texts(call, &source));
  GRAFT_TRY(irregular_array(call, 1, &axes));
  if (axes.count > MOST_RANK - source.rank) {
    return irregular_fail(call, "a shape has too many axes");
  }
  Array result = source;
  result.rank = source.rank + (int32_t)axes.count;
  GRAFT_TRY(marked_axes(call, result.rank, marked, &given));
  for (int32_t axis = 0, from = 0; axis < result.rank; axis++) {
    result.shape[axis] = marked[axis] ? 1 : source.shape[from++];
  }
  return irregular_give_array(call, 0, &result);
}

static int32_t gather(Call *call) {
  Array source, places;
  GRAFT_TRY(read_texts(call, &source));
  GRAFT_TRY(irregular_array(call, 1, &places));
  int32_t along = irregular_axis(irregular_integer_of(call, "axis", 0), source.rank);
  if (along < 0 || source.rank - 1 + places.rank > MOST_RANK) {
    return irregular_fail(call, "an axis is out of range");
  }
  int64_t shape[MOST_RANK], extent = source.shape[along];
  int32_t rank = 0;
  for (int32_t axis = 0; axis < source.rank; axis++) {
    for (int32_t inner = 0; axis == along && inner < places.rank; inner++) {
      shape[rank++] = places.shape[inner];
    }
    if (axis != along) {
      shape[rank++] = source.shape[axis];
    }
  }
  for (int64_t i = 0; i < places.count; i++) {
    int64_t place = number_at(&places, i);
    if (place < -extent || place >= extent) {
      return irregular_fail(call, "an index is out of range");
    }
  }
  Text *texts = irregular_texts(call, &source);
  if (!texts) {
    return GRAFT_ERROR_RUN;
  }
  Bytes bytes = {0};
  int64_t before = count_of(&source, 0, along), behind = count_of(&source, along + 1, source.rank);
  irregular_write_header(&bytes, STRING, rank, shape);
  for (int64_t row = 0; row < before; row++) {
    for (int64_t i = 0; i < places.count; i++) {
      int64_t place = number_at(&places, i);
      const Text *from = texts + (row * extent + (place < 0 ? place + extent : place)) * behind;
      for (int64_t column = 0; column < behind; column++) {
        irregular_write_text(&bytes, from[column].begin, from[column].length);
      }
    }
  }
  return irregular_give(call, 0, &bytes);
}

const KernelRow IRREGULAR_TEXTS_MOVED[] = {{"Reshape", reshape, NULL},     {"Flatten", flatten, NULL},
                                           {"Squeeze", squeeze, NULL},     {"Unsqueeze", unsqueeze, NULL},
                                           {"Gather", gather, NULL},       {NULL, NULL, NULL}};
