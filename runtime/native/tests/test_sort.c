/* Sorting: lists of every short length and long ones, with few and many equal keys, beside qsort. */
#include "base/sort.h"
#include "check.h"

typedef struct Item {
  int key, tag;
} Item;

static int compare(const void *left, const void *right) {
  int a = ((const Item *)left)->key, b = ((const Item *)right)->key;
  return (a > b) - (a < b);
}

static unsigned next(unsigned *state) { return *state = *state * 1664525u + 1013904223u; }

static void test_lists_are_sorted_and_keep_their_items(void) {
  static Item items[4000], sorted[4000];
  unsigned state = 1;
  for (size_t count = 0; count < 4000; count = count < 40 ? count + 1 : 2 * count) {
    for (int range = 1; range < 1 << 20; range *= 32) {
      int tags = 0;
      for (size_t i = 0; i < count; i++) {
        sorted[i] = items[i] = (Item){(int)(next(&state) >> 8) % range, (int)i};
      }
      graft_sort(items, count, sizeof(Item), compare);
      qsort(sorted, count, sizeof(Item), compare);
      for (size_t i = 0; i < count; i++) {
        CHECK(items[i].key == sorted[i].key);
        tags += items[i].tag - sorted[i].tag;
      }
      CHECK(tags == 0);
      graft_sort(items, count, sizeof(Item), compare); /* of what is sorted */
      CHECK(count == 0 || (items[0].key == sorted[0].key && items[count - 1].key == sorted[count - 1].key));
    }
  }
}

int main(void) {
  test_lists_are_sorted_and_keep_their_items();
  return 0;
}
