/* Operators whose data decide how many elements they make: NonZero, Compress, Unique, NonMaxSuppression. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

/* ---- NonZero and Compress ---- */

enum { WORD = 8 };

/* Writes the places of what is not 0 in a row, from `column` on, to `to`; returns where the next ones go. */
static int64_t write_row(const unsigned char *flags, int64_t extent, int64_t *to, int64_t column, int64_t found) {
  for (int64_t i = 0; i < extent && column < found;) {
    uint64_t word = 1;
    if (i + WORD <= extent) {
      memcpy(&word, flags + i, WORD);
    }
    int64_t end = i + WORD <= extent ? i + WORD : extent;
    if (!word) {
      i = end;
    }
    for (; i < end && column < found; i++) {
      to[column] = i;
      column += flags[i];
    }
  }
  return column;
}

static int32_t nonzero(Call *call) {
  Array source;
  GRAFT_TRY(irregular_array(call, 0, &source));
  unsigned char *flags = irregular_scratch(call, (uint64_t)source.count + 1);
  if (!flags) {
    return GRAFT_ERROR_RUN;
  }
  irregular_flags(source.element, source.data, source.count, flags);
  int64_t found = 0;
  for (int64_t i = 0; i < source.count; i++) {
    found += flags[i];
  }
  int32_t rank = source.rank;
  int64_t shape[2] = {rank, found};
  int64_t *places = irregular_output(call, 0, 2, shape);
  if (!places) {
    return GRAFT_ERROR_RUN;
  }
  int64_t extent = rank ? source.shape[rank - 1] : 1, outer[MOST_RANK] = {0}, column = 0;
  for (int64_t row = 0; rank && column < found; row++) {
    int64_t end = write_row(flags + row * extent, extent, places + (rank - 1) * found, column, found);
    for (int32_t axis = 0; axis < rank - 1; axis++) {
      for (int64_t i = column; i < end; i++) {
        places[axis * found + i] = outer[axis];
      }
    }
    column = end;
    for (int32_t axis = rank - 2; axis >= 0 && ++outer[axis] == source.shape[axis]; axis--) {
      outer[axis] = 0;
    }
  }
  return GRAFT_OK;
}

/* An array along an axis: `count` slices of `outer` pieces of `bytes`. Without an axis it is flat. */
typedef struct Slices {
  int64_t outer, count;
  size_t bytes;
} Slices;

static bool slices_of(const Call *call, const Array *array, int32_t *axis, Slices *slices) {
  size_t size = (size_t)IRREGULAR_ELEMENTS[array->element].bytes;
  *axis = -1;
  *slices = (Slices){1, array->count, size};
  if (!irregular_list_of(call, "axis")) {
    return true;
  }
  *axis = irregular_axis(irregular_integer_of(call, "axis", 0), array->rank);
  if (*axis < 0) {
    return false;
  }
  slices->count = array->shape[*axis];
  for (int32_t i = 0; i < array->rank; i++) {
    if (i < *axis) {
      slices->outer *= array->shape[i];
    } else if (i > *axis) {
      slices->bytes *= (size_t)array->shape[i];
    }
  }
  return true;
}

/* Makes output 0 of the chosen slices. */
static int32_t give_slices(Call *call, const Array *array, int32_t axis, const Slices *slices, const int64_t *chosen,
                           int64_t found) {
  int64_t shape[MOST_RANK];
  memcpy(shape, array->shape, sizeof shape);
  shape[axis < 0 ? 0 : axis] = found;
  unsigned char *data = irregular_output(call, 0, axis < 0 ? 1 : array->rank, shape);
  if (!data) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t outer = 0; outer < slices->outer; outer++) {
    const unsigned char *from = array->data + (size_t)(outer * slices->count) * slices->bytes;
    for (int64_t i = 0; i < found && slices->bytes; i++) {
      memcpy(data, from + (size_t)chosen[i] * slices->bytes, slices->bytes);
      data += slices->bytes;
    }
  }
  return GRAFT_OK;
}

static int32_t compress(Call *call) {
  Array source, condition;
  Slices slices;
  int32_t axis;
  GRAFT_TRY(irregular_array(call, 0, &source));
  GRAFT_TRY(irregular_array(call, 1, &condition));
  if (!slices_of(call, &source, &axis, &slices)) {
    return irregular_fail(call, "'axis' is out of range");
  }
  int64_t *chosen = irregular_scratch(call, (uint64_t)condition.count * sizeof *chosen), found = 0;
  if (!chosen) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < condition.count; i++) {
    if (condition.data[i] && i >= slices.count) {
      return irregular_fail(call, "the condition chooses what is behind the end of the input");
    }
    if (condition.data[i]) {
      chosen[found++] = i;
    }
  }
  return give_slices(call, &source, axis, &slices, chosen, found);
}

/* ---- Unique ---- */

typedef struct Order {
  const Array *array;
  const Slices *slices;
} Order;

static int compare_numbers(Element element, const unsigned char *left, const unsigned char *right) {
  uint64_t a = irregular_key(element, left, 0), b = irregular_key(element, right, 0);
  return (a > b) - (a < b);
}

static int compare_slices(const Order *order, int64_t left, int64_t right) {
  const Slices *slices = order->slices;
  size_t size = (size_t)IRREGULAR_ELEMENTS[order->array->element].bytes;
  for (int64_t outer = 0; outer < slices->outer; outer++) {
    const unsigned char *row = order->array->data + (size_t)(outer * slices->count) * slices->bytes;
    for (size_t at = 0; at < slices->bytes; at += size) {
      int found = compare_numbers(order->array->element, row + (size_t)left * slices->bytes + at,
                                  row + (size_t)right * slices->bytes + at);
      if (found) {
        return found;
      }
    }
  }
  return 0;
}

/* Sorts numbers of slices, equal ones by their number (they come in that order). */
static void sort_slices(const Order *order, int64_t *items, int64_t *spare, int64_t count) {
  for (int64_t width = 1; width < count; width *= 2) {
    for (int64_t begin = 0; begin < count; begin += 2 * width) {
      int64_t middle = begin + width < count ? begin + width : count;
      int64_t end = begin + 2 * width < count ? begin + 2 * width : count, left = begin, right = middle;
      for (int64_t at = begin; at < end; at++) {
        bool take_left = left < middle && (right >= end || compare_slices(order, items[left], items[right]) <= 0);
        spare[at] = take_left ? items[left++] : items[right++];
      }
    }
    memcpy(items, spare, (size_t)count * sizeof *items);
  }
}

/* Writes for each slice the number of its value, and for each value where it is first and how often; returns how many. */
static int64_t number_values(const Order *order, int64_t *items, int64_t *spare, int64_t *first, int64_t *inverse,
                             int64_t *counts) {
  int64_t count = order->slices->count, found = 0;
  for (int64_t i = 0; i < count; i++) {
    items[i] = i;
  }
  sort_slices(order, items, spare, count);
  for (int64_t i = 0; i < count; i++) {
    if (i == 0 || compare_slices(order, items[i - 1], items[i])) {
      first[found] = items[i];
      counts[found++] = 0;
    }
    counts[found - 1]++;
    inverse[items[i]] = found - 1;
  }
  return found;
}

/* The same of slices of one element. */
static int64_t number_elements(const Array *array, Keyed *items, Keyed *spare, int64_t *first, int64_t *inverse,
                               int64_t *counts) {
  int64_t found = 0;
  for (int64_t i = 0; i < array->count; i++) {
    items[i] = (Keyed){irregular_key(array->element, array->data, i), i};
  }
  const Keyed *sorted = irregular_sort(items, spare, array->count);
  for (int64_t i = 0; i < array->count; i++) {
    if (i == 0 || sorted[i - 1].key != sorted[i].key) {
      first[found] = sorted[i].number;
      counts[found++] = 0;
    }
    counts[found - 1]++;
    inverse[sorted[i].number] = found - 1;
  }
  return found;
}

static int32_t give_numbers(Call *call, int32_t output, const int64_t *numbers, int64_t count) {
  if (!irregular_wants(call, output)) {
    return GRAFT_OK;
  }
  int64_t *data = irregular_output(call, output, 1, &count);
  if (data) {
    memcpy(data, numbers, (size_t)count * sizeof *numbers);
  }
  return data ? GRAFT_OK : GRAFT_ERROR_RUN;
}

static int32_t unique(Call *call) {
  Array source;
  Slices slices;
  int32_t axis;
  GRAFT_TRY(irregular_array(call, 0, &source));
  if (!slices_of(call, &source, &axis, &slices)) {
    return irregular_fail(call, "'axis' is out of range");
  }
  int64_t count = slices.count;
  uint64_t bytes = (uint64_t)(count + 1) * sizeof(int64_t);
  int64_t *items = irregular_scratch(call, 2 * bytes), *spare = irregular_scratch(call, 2 * bytes);
  int64_t *first = irregular_scratch(call, bytes), *inverse = irregular_scratch(call, bytes);
  int64_t *counts = irregular_scratch(call, bytes);
  if (!items || !spare || !first || !inverse || !counts) {
    return GRAFT_ERROR_RUN;
  }
  Order order = {&source, &slices};
  bool has_keys = count == source.count;
  int64_t found = has_keys ? number_elements(&source, (Keyed *)items, (Keyed *)spare, first, inverse, counts)
                           : number_values(&order, items, spare, first, inverse, counts);
  if (!irregular_integer_of(call, "sorted", 1)) { /* in the order of their first occurrence */
    int64_t *rank = items, *sorted = spare, *in_order = spare + count, next = 0;
    for (int64_t i = 0; i < count; i++) {
      int64_t value = inverse[i];
      if (first[value] == i) {
        rank[value] = next;
        sorted[next] = counts[value];
        in_order[next++] = i;
      }
      inverse[i] = rank[value];
    }
    memcpy(first, in_order, (size_t)found * sizeof *first);
    memcpy(counts, sorted, (size_t)found * sizeof *counts);
  }
  int32_t status = irregular_wants(call, 0) ? give_slices(call, &source, axis, &slices, first, found) : GRAFT_OK;
  status = status ? status : give_numbers(call, 1, first, found);
  status = status ? status : give_numbers(call, 2, inverse, count);
  return status ? status : give_numbers(call, 3, counts, found);
}

/* ---- NonMaxSuppression ---- */

typedef struct Box {
  float low[2], high[2], area;
} Box;

static Box box_of(const float *data, bool is_centered) {
  Box box;
  for (int i = 0; i < 2; i++) {
    float first = is_centered ? data[i] - data[2 + i] / 2 : data[i];
    float last = is_centered ? data[i] + data[2 + i] / 2 : data[2 + i];
    box.low[i] = !is_centered && first > last ? last : first;
    box.high[i] = !is_centered && first > last ? first : last;
  }
  box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
  return box;
}

static bool overlaps(const Box *a, const Box *b, float threshold) {
  float area = 1;
  for (int i = 0; i < 2; i++) {
    float low = a->low[i] > b->low[i] ? a->low[i] : b->low[i];
    float high = a->high[i] < b->high[i] ? a->high[i] : b->high[i];
    if (!(high > low)) {
      return false;
    }
    area *= high - low;
  }
  float whole = a->area + b->area - area;
  return area > 0 && a->area > 0 && b->area > 0 && whole > 0 && area / whole > threshold;
}

typedef struct Suppression {
  const float *boxes, *scores;
  int64_t batches, classes, count, most;
  float overlap, least;
  bool has_least, is_centered;
} Suppression;

static int32_t read_suppression(Call *call, Suppression *options) {
  Array boxes, scores, number;
  GRAFT_TRY(irregular_array(call, 0, &boxes));
  GRAFT_TRY(irregular_array(call, 1, &scores));
  bool fits = boxes.rank == 3 && scores.rank == 3 && boxes.shape[2] == 4 && boxes.shape[0] == scores.shape[0] &&
              boxes.shape[1] == scores.shape[2] && boxes.shape[1] <= INT32_MAX;
  if (!fits) {
    return irregular_fail(call, "the shapes of boxes and scores are not [batch, box, 4] and [batch, class, box]");
  }
  *options = (Suppression){(const float *)boxes.data, (const float *)scores.data, scores.shape[0], scores.shape[1],
                        boxes.shape[1], 0, 0, 0, false, irregular_integer_of(call, "center_point_box", 0) != 0};
  if (irregular_has(call, 2) && !irregular_array(call, 2, &number) && number.count) {
    options->most = irregular_load_integer(number.element, number.data, 0);
  }
  if (irregular_has(call, 3) && !irregular_array(call, 3, &number) && number.count) {
    options->overlap = (float)irregular_load(number.element, number.data, 0);
  }
  if (irregular_has(call, 4) && !irregular_array(call, 4, &number) && number.count) {
    options->least = (float)irregular_load(number.element, number.data, 0);
    options->has_least = true;
  }
  return GRAFT_OK;
}

/* What is smaller for a higher score. */
static uint64_t key_of_score(float score) {
  const uint32_t sign = UINT32_C(1) << 31;
  uint32_t bits;
  score = score == 0 ? 0 : score;
  memcpy(&bits, &score, sizeof bits);
  return bits & sign ? bits : ~(bits | sign);
}

/* Keeps boxes of a class, those of the highest scores first, of equal ones as they come; returns how many. */
static int64_t suppress(const Suppression *options, const float *boxes, const float *scores, Keyed *candidates,
                        Keyed *spare, Box *kept, int64_t *chosen) {
  int64_t count = 0, found = 0;
  for (int64_t i = 0; i < options->count; i++) {
    if (options->has_least ? scores[i] > options->least : !isnan(scores[i])) {
      candidates[count++] = (Keyed){key_of_score(scores[i]), i};
    }
  }
  const Keyed *best = irregular_sort(candidates, spare, count);
  for (int64_t i = 0; i < count && found < options->most; i++) {
    Box box = box_of(boxes + 4 * best[i].number, options->is_centered);
    bool is_new = true;
    for (int64_t k = 0; k < found && is_new; k++) {
      is_new = !overlaps(&box, kept + k, options->overlap);
    }
    if (is_new) {
      chosen[found] = best[i].number;
      kept[found++] = box;
    }
  }
  return found;
}

static int32_t non_max_suppression(Call *call) {
  Suppression options = {0};
  GRAFT_TRY(read_suppression(call, &options));
  uint64_t count = (uint64_t)options.count;
  Keyed *candidates = irregular_scratch(call, count * sizeof *candidates);
  Keyed *spare = irregular_scratch(call, count * sizeof *spare);
  Box *kept = irregular_scratch(call, count * sizeof *kept);
  int64_t *chosen = irregular_scratch(call, count * sizeof *chosen);
  if (!candidates || !spare || !kept || !chosen) {
    return GRAFT_ERROR_RUN;
  }
  Bytes rows = {0};
  int64_t shape[2] = {0, 3};
  for (int64_t batch = 0; batch < options.batches; batch++) {
    for (int64_t kind = 0; kind < options.classes; kind++) {
      const float *scores = options.scores + (batch * options.classes + kind) * options.count;
      int64_t found = suppress(&options, options.boxes + 4 * batch * options.count, scores, candidates, spare, kept, chosen);
      for (int64_t i = 0; i < found; i++) {
        int64_t row[3] = {batch, kind, chosen[i]};
        irregular_write(&rows, row, sizeof row);
      }
      shape[0] += found;
    }
  }
  void *data = rows.failed ? NULL : irregular_output(call, 0, 2, shape);
  if (data && rows.size) {
    memcpy(data, rows.data, rows.size);
  }
  int32_t status = data ? GRAFT_OK : rows.failed ? irregular_no_memory(call) : GRAFT_ERROR_RUN;
  free(rows.data);
  return status;
}

const KernelRow IRREGULAR_SELECTION[] = {{"NonZero", nonzero, NULL},
                                         {"Compress", compress, NULL},
                                         {"Unique", unique, NULL},
                                         {"NonMaxSuppression", non_max_suppression, NULL},
                                         {NULL, NULL, NULL}};
