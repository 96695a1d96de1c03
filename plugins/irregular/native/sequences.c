/* Sequences and optionals: packed values that are taken apart and put together. */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

/* ---- Whole values ---- */

/* Appends an input as it stands in a sequence or an optional. */
static int32_t write_input(Call *call, int32_t input, Bytes *bytes) {
  if (irregular_input_type(call, input).packed) {
    Packed packed;
    int32_t status = irregular_packed(call, input, &packed);
    if (!status) {
      irregular_write(bytes, packed.begin, (size_t)(packed.end - packed.begin));
    }
    return status;
  }
  Array array;
  int32_t status = irregular_array(call, input, &array);
  if (!status) {
    irregular_write_array(bytes, &array);
  }
  return status;
}

/* Gives what was written, or frees it after a failure. */
static int32_t give(Call *call, int32_t status, Bytes *bytes) {
  if (status) {
    free(bytes->data);
    return status;
  }
  return irregular_give(call, 0, bytes);
}

/* Gives an output the value that packed bytes hold. */
static int32_t give_packed(Call *call, Packed packed) {
  if (irregular_output_type(call, 0).packed) {
    Bytes bytes = {0};
    irregular_write(&bytes, packed.begin, (size_t)(packed.end - packed.begin));
    return irregular_give(call, 0, &bytes);
  }
  Array array;
  if (!irregular_read_array(&packed, &array)) {
    return irregular_fail(call, "a value is no tensor");
  }
  return irregular_give_array(call, 0, &array);
}

static int32_t identity(Call *call) {
  if (!irregular_input_type(call, 0).packed) {
    Array array;
    return irregular_array(call, 0, &array) ? GRAFT_ERROR_RUN : irregular_give_array(call, 0, &array);
  }
  Packed packed;
  return irregular_packed(call, 0, &packed) ? GRAFT_ERROR_RUN : give_packed(call, packed);
}

/* ---- Optionals ---- */

static int32_t optional(Call *call) {
  Bytes bytes = {0};
  static const unsigned char absent = 0;
  int32_t status = GRAFT_OK;
  if (irregular_has(call, 0)) {
    status = write_input(call, 0, &bytes);
  } else {
    irregular_write(&bytes, &absent, 1);
  }
  return give(call, status, &bytes);
}

static int32_t has_element(Call *call) {
  bool has = irregular_has(call, 0);
  if (has && irregular_input_type(call, 0).packed) {
    Packed packed;
    GRAFT_TRY(irregular_packed(call, 0, &packed));
    has = !irregular_is_absent(&packed);
  }
  unsigned char *data = irregular_output(call, 0, 0, NULL);
  if (data) {
    *data = has;
  }
  return data ? GRAFT_OK : GRAFT_ERROR_RUN;
}

static int32_t get_element(Call *call) {
  Packed packed;
  if (irregular_has(call, 0) && irregular_input_type(call, 0).packed) {
    GRAFT_TRY(irregular_packed(call, 0, &packed));
    if (irregular_is_absent(&packed)) {
      return irregular_fail(call, "the optional has no value");
    }
  }
  return identity(call);
}

/* ---- Sequences ---- */

/* A sequence opened: its elements one behind another. */
static int32_t open_sequence(Call *call, Packed *elements, uint64_t *count) {
  int32_t status = irregular_packed(call, 0, elements);
  if (!status && !irregular_read_sequence(elements, count)) {
    return irregular_fail(call, "the input is no sequence");
  }
  return status;
}

/* The place of an element: an input, or `absent`. The last one is -1. */
static int32_t place_of(Call *call, int32_t input, uint64_t count, uint64_t last, uint64_t absent, uint64_t *place) {
  Array array;
  *place = absent;
  if (!irregular_has(call, input)) {
    return GRAFT_OK;
  }
  GRAFT_TRY(irregular_array(call, input, &array));
  int64_t number = array.count ? irregular_load_integer(array.element, array.data, 0) : 0;
  number = number < 0 ? number + (int64_t)count : number;
  if (number < 0 || (uint64_t)number > last) {
    return irregular_fail(call, "the position is outside of the sequence");
  }
  *place = (uint64_t)number;
  return GRAFT_OK;
}

static Packed element_at(Packed elements, uint64_t place) {
  for (uint64_t i = 0; i < place; i++) {
    (void)irregular_skip(&elements, 0);
  }
  Packed found = {elements.begin, elements.begin};
  (void)irregular_skip(&elements, 0);
  found.end = elements.begin;
  return found;
}

static int32_t sequence_empty(Call *call) {
  Bytes bytes = {0};
  irregular_write_sequence(&bytes, 0);
  return irregular_give(call, 0, &bytes);
}

static int32_t sequence_construct(Call *call) {
  Bytes bytes = {0};
  int32_t status = GRAFT_OK;
  irregular_write_sequence(&bytes, (uint64_t)call->node->inputs);
  for (int32_t i = 0; i < call->node->inputs && !status; i++) {
    status = write_input(call, i, &bytes);
  }
  return give(call, status, &bytes);
}

static int32_t sequence_insert(Call *call) {
  Packed elements;
  uint64_t count, place;
  GRAFT_TRY(open_sequence(call, &elements, &count));
  GRAFT_TRY(place_of(call, 2, count, count, count, &place));
  Bytes bytes = {0};
  const unsigned char *middle = element_at(elements, place).begin;
  irregular_write_sequence(&bytes, count + 1);
  irregular_write(&bytes, elements.begin, (size_t)(middle - elements.begin));
  int32_t status = write_input(call, 1, &bytes);
  irregular_write(&bytes, middle, (size_t)(elements.end - middle));
  return give(call, status, &bytes);
}

static int32_t sequence_erase(Call *call) {
  Packed elements;
  uint64_t count, place;
  GRAFT_TRY(open_sequence(call, &elements, &count));
  GRAFT_TRY(place_of(call, 1, count, count - 1, count - 1, &place));
  if (count == 0) {
    return irregular_fail(call, "the sequence is empty");
  }
  Bytes bytes = {0};
  Packed erased = element_at(elements, place);
  irregular_write_sequence(&bytes, count - 1);
  irregular_write(&bytes, elements.begin, (size_t)(erased.begin - elements.begin));
  irregular_write(&bytes, erased.end, (size_t)(elements.end - erased.end));
  return irregular_give(call, 0, &bytes);
}

static int32_t sequence_at(Call *call) {
  Packed elements;
  uint64_t count, place;
  GRAFT_TRY(open_sequence(call, &elements, &count));
  if (count == 0) {
    return irregular_fail(call, "the sequence is empty");
  }
  GRAFT_TRY(place_of(call, 1, count, count - 1, 0, &place));
  return give_packed(call, element_at(elements, place));
}

static int32_t sequence_length(Call *call) {
  Packed elements;
  uint64_t count;
  GRAFT_TRY(open_sequence(call, &elements, &count));
  int64_t *data = irregular_output(call, 0, 0, NULL);
  if (data) {
    *data = (int64_t)count;
  }
  return data ? GRAFT_OK : GRAFT_ERROR_RUN;
}

/* ---- Tensors along an axis ---- */

static size_t bytes_behind(const Array *array, int32_t axis) {
  size_t bytes = (size_t)IRREGULAR_ELEMENTS[array->element].bytes;
  for (int32_t i = axis; i < array->rank; i++) {
    bytes *= (size_t)array->shape[i];
  }
  return bytes;
}

static int64_t rows_before(const Array *array, int32_t axis) {
  int64_t rows = 1;
  for (int32_t i = 0; i < axis; i++) {
    rows *= array->shape[i];
  }
  return rows;
}

/* The extent of part `number`: as it is given, else `even` but for the last. */
static int64_t part_extent(const Array *given, bool is_list, int64_t even, int64_t left, int64_t number) {
  int64_t extent = is_list ? irregular_load_integer(given->element, given->data, number) : even;
  return is_list || extent < left ? extent : left;
}

static int32_t split_to_sequence(Call *call) {
  Array source, given = {0};
  if (irregular_array(call, 0, &source) || (irregular_has(call, 1) && irregular_array(call, 1, &given))) {
    return GRAFT_ERROR_RUN;
  }
  int32_t axis = irregular_axis(irregular_integer_of(call, "axis", 0), source.rank);
  if (axis < 0) {
    return irregular_fail(call, "'axis' is out of range");
  }
  bool has = irregular_has(call, 1), is_list = has && given.rank > 0;
  bool drops = !has && !irregular_integer_of(call, "keepdims", 1);
  int64_t whole = source.shape[axis], begin = 0, rows = rows_before(&source, axis);
  int64_t even = has && !is_list ? irregular_load_integer(given.element, given.data, 0) : 1;
  if (even < 1) {
    return irregular_fail(call, "'split' is not positive");
  }
  int64_t count = is_list ? given.count : (whole + even - 1) / even;
  size_t step = bytes_behind(&source, axis + 1);
  Bytes bytes = {0};
  irregular_write_sequence(&bytes, (uint64_t)count);
  for (int64_t i = 0; i < count; i++) {
    int64_t extent = part_extent(&given, is_list, even, whole - begin, i), shape[MOST_RANK];
    if (extent < 0 || extent > whole - begin) {
      free(bytes.data);
      return irregular_fail(call, "the parts are together not as long as the axis");
    }
    memcpy(shape, source.shape, sizeof shape);
    shape[axis] = extent;
    if (drops) {
      memmove(shape + axis, shape + axis + 1, sizeof *shape * (size_t)(source.rank - axis - 1));
    }
    irregular_write_header(&bytes, source.element, source.rank - drops, shape);
    for (int64_t row = 0; row < rows; row++) {
      irregular_write(&bytes, source.data + (size_t)(row * whole + begin) * step, (size_t)extent * step);
    }
    begin += extent;
  }
  if (begin != whole) {
    free(bytes.data);
    return irregular_fail(call, "the parts are together not as long as the axis");
  }
  return irregular_give(call, 0, &bytes);
}

/* Whether an element joins those before it along an axis, whose extents add up in `total`. */
static bool joins(const Array *array, int32_t axis, Array *total, bool is_first) {
  if (is_first) {
    *total = *array;
    return true;
  }
  bool fits = array->rank == total->rank && array->element == total->element;
  for (int32_t i = 0; i < array->rank && fits; i++) {
    fits = i == axis || array->shape[i] == total->shape[i];
  }
  if (fits && axis < array->rank) {
    total->shape[axis] += array->shape[axis];
  }
  return fits;
}

/* Puts an axis of extent 1 in the shape of an element. */
static bool widen(Array *array, int32_t axis) {
  if (array->rank >= MOST_RANK) {
    return false;
  }
  memmove(array->shape + axis + 1, array->shape + axis, sizeof *array->shape * (size_t)(array->rank - axis));
  array->shape[axis] = 1;
  array->rank++;
  return true;
}

static int32_t concat_from_sequence(Call *call) {
  Packed elements;
  uint64_t count;
  GRAFT_TRY(open_sequence(call, &elements, &count));
  if (count == 0) {
    return irregular_fail(call, "the sequence is empty");
  }
  bool is_new = irregular_integer_of(call, "new_axis", 0) != 0;
  Array *arrays = irregular_scratch(call, count * sizeof *arrays), total = {0};
  if (!arrays) {
    return GRAFT_ERROR_RUN;
  }
  int32_t axis = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (!irregular_read_array(&elements, arrays + i) || arrays[i].element == STRING) {
      return irregular_fail(call, "an element is no tensor of numbers");
    }
    axis = irregular_axis(irregular_integer_of(call, "axis", 0), arrays[i].rank + is_new);
    if (axis < 0 || (is_new && !widen(arrays + i, axis)) || !joins(arrays + i, axis, &total, i == 0)) {
      return irregular_fail(call, "the shapes of the elements do not go together along 'axis'");
    }
  }
  unsigned char *data = irregular_output(call, 0, total.rank, total.shape);
  if (!data || irregular_output_type(call, 0).element != total.element) {
    return data ? irregular_fail(call, "the elements are of another type than the model says") : GRAFT_ERROR_RUN;
  }
  int64_t rows = rows_before(&total, axis);
  for (int64_t row = 0; row < rows; row++) {
    for (uint64_t i = 0; i < count; i++) {
      size_t step = bytes_behind(arrays + i, axis);
      if (step) {
        memcpy(data, arrays[i].data + (size_t)row * step, step);
      }
      data += step;
    }
  }
  return GRAFT_OK;
}

const KernelRow IRREGULAR_SEQUENCES[] = {{"Identity", identity, NULL},
                                         {"Optional", optional, NULL},
                                         {"OptionalHasElement", has_element, NULL},
                                         {"OptionalGetElement", get_element, NULL},
                                         {"SequenceEmpty", sequence_empty, NULL},
                                         {"SequenceConstruct", sequence_construct, NULL},
                                         {"SequenceInsert", sequence_insert, NULL},
                                         {"SequenceErase", sequence_erase, NULL},
                                         {"SequenceAt", sequence_at, NULL},
                                         {"SequenceLength", sequence_length, NULL},
                                         {"SplitToSequence", split_to_sequence, NULL},
                                         {"ConcatFromSequence", concat_from_sequence, NULL},
                                         {NULL, NULL, NULL}};
