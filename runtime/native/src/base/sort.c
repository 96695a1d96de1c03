/* Heapsort. */
#include "base/sort.h"

#include <assert.h>
#include <string.h>

enum { LARGEST_ITEM = 64 };

static void exchange(char *left, char *right, size_t bytes) {
  char kept[LARGEST_ITEM];
  memcpy(kept, left, bytes);
  memcpy(left, right, bytes);
  memcpy(right, kept, bytes);
}

/* Moves the item at `place` down among the first `count`, until none below it is larger. */
static void sink(char *items, size_t place, size_t count, size_t bytes, int (*compare)(const void *, const void *)) {
  for (size_t child = 2 * place + 1; child < count; child = 2 * place + 1) {
    if (child + 1 < count && compare(items + child * bytes, items + (child + 1) * bytes) < 0) {
      child++;
    }
    if (compare(items + place * bytes, items + child * bytes) >= 0) {
      return;
    }
    exchange(items + place * bytes, items + child * bytes, bytes);
    place = child;
  }
}

void graft_sort(void *items, size_t count, size_t bytes, int (*compare)(const void *left, const void *right)) {
  assert(bytes <= LARGEST_ITEM);
  for (size_t place = count / 2; place > 0; place--) {
    sink(items, place - 1, count, bytes, compare);
  }
  for (size_t left = count; left > 1; left--) {
    exchange(items, (char *)items + (left - 1) * bytes, bytes);
    sink(items, 0, left - 1, bytes, compare);
  }
}
