/* Memory for what oneDNN reads and writes: constants, and one workspace for all intermediate values and scratchpads, in
 * which those alive at the same time do not overlap: largest first, each at the lowest offset that is free during its
 * whole life. */
#include <stdlib.h>
#include <sys/mman.h>

#include "module.h"

#define HUGE_PAGE ((uint64_t)2 << 20)

void *onednn_allocate(uint64_t bytes) {
  uint64_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
  if (bytes > SIZE_MAX - alignment) {
    return NULL;
  }
  uint64_t rounded = (bytes + alignment) / alignment * alignment;
  void *data = aligned_alloc((size_t)alignment, (size_t)rounded);
#ifdef MADV_HUGEPAGE
  if (data != NULL && bytes >= HUGE_PAGE) {
    (void)madvise(data, (size_t)rounded, MADV_HUGEPAGE); /* a hint: refusal costs speed only */
  }
#endif
  return data;
}

typedef struct Interval {
  int32_t buffer;
  int32_t first, last;
  uint64_t bytes, offset;
} Interval;

static int by_size(const void *left, const void *right) {
  const Interval *a = left;
  const Interval *b = right;
  if (a->bytes != b->bytes) {
    return a->bytes < b->bytes ? 1 : -1;
  }
  return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static int by_offset(const void *left, const void *right) {
  const Interval *a = *(const Interval *const *)left;
  const Interval *b = *(const Interval *const *)right;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static void place(Interval *intervals, size_t count, const Interval **alive) {
  Interval *placed = &intervals[count];
  size_t overlapping = 0;
  for (size_t i = 0; i < count; i++) {
    if (intervals[i].first <= placed->last && placed->first <= intervals[i].last) {
      alive[overlapping++] = &intervals[i];
    }
  }
  qsort(alive, overlapping, sizeof *alive, by_offset);
  placed->offset = 0;
  for (size_t i = 0; i < overlapping; i++) {
    if (placed->offset + placed->bytes <= alive[i]->offset) {
      break;
    }
    uint64_t end = alive[i]->offset + alive[i]->bytes;
    placed->offset = end > placed->offset ? end : placed->offset;
  }
}

static size_t collect(const Binding *binding, Interval *intervals) {
  size_t count = 0;
  for (size_t i = 0; i < binding->buffer_count; i++) {
    const Buffer *buffer = &binding->buffers[i];
    if (buffer->kind == BUFFER_WORKSPACE && buffer->last >= 0 && buffer->bytes > 0) {
      uint64_t rounded = (buffer->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      intervals[count++] = (Interval){(int32_t)i, buffer->first, buffer->last, rounded, 0};
    }
  }
  return count;
}

int32_t onednn_plan_workspace(Binding *binding) {
  Interval *intervals = calloc(binding->buffer_count + 1, sizeof *intervals);
  const Interval **alive = calloc(binding->buffer_count + 1, sizeof *alive);
  if (intervals == NULL || alive == NULL) {
    free(intervals);
    free(alive);
    return onednn_fail(binding, 0, "memory ran out", DNNL_SUCCESS);
  }
  size_t count = collect(binding, intervals);
  qsort(intervals, count, sizeof *intervals, by_size);
  for (size_t i = 0; i < count; i++) {
    place(intervals, i, alive);
    binding->buffers[intervals[i].buffer].offset = intervals[i].offset;
    uint64_t end = intervals[i].offset + intervals[i].bytes;
    binding->workspace_bytes = end > binding->workspace_bytes ? end : binding->workspace_bytes;
  }
  free(intervals);
  free(alive);
  return GRAFT_OK;
}
