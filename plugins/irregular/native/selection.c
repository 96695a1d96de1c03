/* Operators whose data decide how many elements they make: NonZero, Compress, Unique, NonMaxSuppression. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

/* ---- NonZero and Compress ---- */

static bool is_nonzero(Element element, const unsigned char *data, int64_t index) {
  if (irregular_is_integer(element)) {
    return irregular_load_integer(element, data, index) != 0;
  }
  return irregular_load(element, data, index) != 0; /* NaN is not 0 */
}

static int32_t nonzero(Call *call) {
  Array source;
  if (irregular_array(call, 0, &source)) {
    return GRAFT_ERROR_RUN;
  }
  int64_t found = 0;
  for (int64_t i = 0; i < source.count; i++) {
    found += is_nonzero(source.element, source.data, i);
  }
  int32_t rank = source.rank;
  int64_t shape[2] = {rank, found}, column = 0;
  int64_t *places = irregular_output(call, 0, 2, shape);
  if (!places) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < source.count && column < found; i++) {
    if (is_nonzero(source.element, source.data, i)) {
      int64_t rest = i;
      for (int32_t axis = rank - 1; axis >= 0; axis--) {
        places[axis * found + column] = rest % source.shape[axis];
        rest /= source.shape[axis];
      }
      column++;
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
  if (irregular_array(call, 0, &source) || irregular_array(call, 1, &condition)) {
    return GRAFT_ERROR_RUN;
  }
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

/* NaN comes last, and is equal to itself: as NumPy has it. */
static int compare_numbers(Element element, const unsigned char *left, const unsigned char *right) {
  if (irregular_is_integer(element)) {
    int64_t a = irregular_load_integer(element, left, 0), b = irregular_load_integer(element, right, 0);
    if (element == UINT64) {
      return ((uint64_t)a > (uint64_t)b) - ((uint64_t)a < (uint64_t)b);
    }
    return (a > b) - (a < b);
  }
  double a = irregular_load(element, left, 0), b = irregular_load(element, right, 0);
  if (isnan(a) || isnan(b)) {
    return isnan(a) - isnan(b);
  }
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

static int by_number(const void *left, const void *right) {
  const int64_t *a = left, *b = right;
  return (*a > *b) - (*a < *b);
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
  if (irregular_array(call, 0, &source)) {
    return GRAFT_ERROR_RUN;
  }
  if (!slices_of(call, &source, &axis, &slices)) {
    return irregular_fail(call, "'axis' is out of range");
  }
  int64_t count = slices.count, found = 0;
  uint64_t bytes = (uint64_t)(count + 1) * sizeof(int64_t);
  int64_t *items = irregular_scratch(call, bytes), *spare = irregular_scratch(call, bytes);
  int64_t *first = irregular_scratch(call, bytes), *inverse = irregular_scratch(call, bytes);
  int64_t *counts = irregular_scratch(call, bytes), *rank = irregular_scratch(call, bytes);
  if (!items || !spare || !first || !inverse || !counts || !rank) {
    return GRAFT_ERROR_RUN;
  }
  Order order = {&source, &slices};
  for (int64_t i = 0; i < count; i++) {
    items[i] = i;
  }
  sort_slices(&order, items, spare, count);
  for (int64_t i = 0; i < count; i++) {
    if (i == 0 || compare_slices(&order, items[i - 1], items[i])) {
      first[found] = items[i];
      counts[found++] = 0;
    }
    counts[found - 1]++;
    inverse[items[i]] = found - 1;
  }
  if (!irregular_integer_of(call, "sorted", 1)) { /* in the order of their first occurrence */
    memcpy(items, first, (size_t)found * sizeof *items);
    qsort(items, (size_t)found, sizeof *items, by_number);
    for (int64_t i = 0; i < found; i++) {
      rank[inverse[items[i]]] = i;
      spare[i] = counts[inverse[items[i]]];
    }
    for (int64_t i = 0; i < count; i++) {
      inverse[i] = rank[inverse[i]];
    }
    memcpy(first, items, (size_t)found * sizeof *first);
    memcpy(counts, spare, (size_t)found * sizeof *counts);
  }
  int32_t status = irregular_wants(call, 0) ? give_slices(call, &source, axis, &slices, first, found) : GRAFT_OK;
  status = status ? status : give_numbers(call, 1, first, found);
  status = status ? status : give_numbers(call, 2, inverse, count);
  return status ? status : give_numbers(call, 3, counts, found);
}

/* ---- NonMaxSuppression ---- */

/* A candidate: the better one has the higher score, or the lower number of two that are equal. */
typedef struct Candidate {
  float score;
  int32_t box;
} Candidate;

typedef struct Box {
  float low[2], high[2], area;
} Box;

static int by_score(const void *left, const void *right) {
  const Candidate *a = left, *b = right;
  if (a->score != b->score) {
    return a->score > b->score ? -1 : 1;
  }
  return (a->box > b->box) - (a->box < b->box);
}

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

static int32_t read_suppression(Call *call, Suppression *wish) {
  Array boxes, scores, number;
  if (irregular_array(call, 0, &boxes) || irregular_array(call, 1, &scores)) {
    return GRAFT_ERROR_RUN;
  }
  bool fits = boxes.rank == 3 && scores.rank == 3 && boxes.shape[2] == 4 && boxes.shape[0] == scores.shape[0] &&
              boxes.shape[1] == scores.shape[2] && boxes.shape[1] <= INT32_MAX;
  if (!fits) {
    return irregular_fail(call, "the shapes of boxes and scores are not [batch, box, 4] and [batch, class, box]");
  }
  *wish = (Suppression){(const float *)boxes.data, (const float *)scores.data, scores.shape[0], scores.shape[1],
                        boxes.shape[1], 0, 0, 0, false, irregular_integer_of(call, "center_point_box", 0) != 0};
  if (irregular_has(call, 2) && !irregular_array(call, 2, &number) && number.count) {
    wish->most = irregular_load_integer(number.element, number.data, 0);
  }
  if (irregular_has(call, 3) && !irregular_array(call, 3, &number) && number.count) {
    wish->overlap = (float)irregular_load(number.element, number.data, 0);
  }
  if (irregular_has(call, 4) && !irregular_array(call, 4, &number) && number.count) {
    wish->least = (float)irregular_load(number.element, number.data, 0);
    wish->has_least = true;
  }
  return GRAFT_OK;
}

/* Keeps boxes of a class, best first; returns how many. */
static int64_t suppress(const Suppression *wish, const float *boxes, const float *scores, Candidate *candidates,
                        Box *kept, int64_t *chosen) {
  int64_t count = 0, found = 0;
  for (int64_t i = 0; i < wish->count; i++) {
    if (wish->has_least ? scores[i] > wish->least : !isnan(scores[i])) {
      candidates[count++] = (Candidate){scores[i], (int32_t)i};
    }
  }
  qsort(candidates, (size_t)count, sizeof *candidates, by_score);
  for (int64_t i = 0; i < count && found < wish->most; i++) {
    Box box = box_of(boxes + 4 * (int64_t)candidates[i].box, wish->is_centered);
    bool is_new = true;
    for (int64_t k = 0; k < found && is_new; k++) {
      is_new = !overlaps(&box, kept + k, wish->overlap);
    }
    if (is_new) {
      chosen[found] = candidates[i].box;
      kept[found++] = box;
    }
  }
  return found;
}

static int32_t non_max_suppression(Call *call) {
  Suppression wish = {0};
  if (read_suppression(call, &wish)) {
    return GRAFT_ERROR_RUN;
  }
  uint64_t count = (uint64_t)wish.count;
  Candidate *candidates = irregular_scratch(call, count * sizeof *candidates);
  Box *kept = irregular_scratch(call, count * sizeof *kept);
  int64_t *chosen = irregular_scratch(call, count * sizeof *chosen);
  if (!candidates || !kept || !chosen) {
    return GRAFT_ERROR_RUN;
  }
  Bytes rows = {0};
  int64_t shape[2] = {0, 3};
  for (int64_t batch = 0; batch < wish.batches; batch++) {
    for (int64_t kind = 0; kind < wish.classes; kind++) {
      const float *scores = wish.scores + (batch * wish.classes + kind) * wish.count;
      int64_t found = suppress(&wish, wish.boxes + 4 * batch * wish.count, scores, candidates, kept, chosen);
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
