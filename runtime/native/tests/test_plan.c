/* Memory plans: nothing that lives at one time overlaps, and little is wasted. */
#include "check.h"
#include "instance/plan.h"

enum { MOST = 200 };

static uint64_t seed = 1;

static uint64_t random_below(uint64_t limit) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (seed >> 33) % limit;
}

static uint64_t plan(PlanItem *items, size_t count) {
  void *workspace = malloc(graft_plan_workspace(count) + 1);
  CHECK(workspace);
  uint64_t arena = graft_plan_memory(items, count, workspace);
  free(workspace);
  return arena;
}

static uint64_t rounded(uint64_t bytes) { return bytes ? (bytes + 63) / 64 * 64 : 64; }

static int stands_on(const PlanItem *items, size_t upper, size_t lower) {
  for (int32_t i = items[upper].on; i >= 0; i = items[i].on) {
    if ((size_t)i == lower) {
      return 1;
    }
  }
  return 0;
}

static void check_plan(const PlanItem *items, size_t count, uint64_t arena) {
  for (size_t i = 0; i < count; i++) {
    CHECK(items[i].offset % 64 == 0 && items[i].offset + rounded(items[i].bytes) <= arena);
    CHECK(items[i].on < 0 || items[i].offset == items[items[i].on].offset);
    for (size_t k = 0; k < i; k++) {
      int apart = items[i].last < items[k].first || items[k].last < items[i].first || stands_on(items, i, k);
      int beside = items[i].offset + rounded(items[i].bytes) <= items[k].offset ||
                   items[k].offset + rounded(items[k].bytes) <= items[i].offset;
      CHECK(apart || beside);
    }
  }
}

/* The largest sum of bytes that live at one time; what stands on another has none of its own where both live. */
static uint64_t lower_bound(const PlanItem *items, size_t count, int32_t calls) {
  uint64_t most = 0;
  for (int32_t call = 0; call < calls; call++) {
    uint64_t live = 0;
    for (size_t i = 0; i < count; i++) {
      int shares = items[i].on >= 0 && items[i].first == call;
      live += items[i].first <= call && call <= items[i].last && !shares ? rounded(items[i].bytes) : 0;
    }
    most = live > most ? live : most;
  }
  return most;
}

static void test_random_plans_are_valid_and_tight(void) {
  double wasted = 0;
  for (int round = 0; round < 300; round++) {
    PlanItem items[MOST];
    size_t count = 1 + random_below(MOST);
    int32_t calls = (int32_t)(1 + random_below(60));
    for (size_t i = 0; i < count; i++) { /* in the order of the first calls */
      int32_t first = (int32_t)((uint64_t)calls * i / count), length = (int32_t)random_below(round % 3 ? 4 : 40);
      items[i] = (PlanItem){random_below(20) ? random_below(10000) : 0, first, first + length, -1, 0};
    }
    for (size_t i = 1; i < count; i++) {
      size_t below = random_below(i);
      int is_taken = 0;
      for (size_t k = 0; k < count; k++) {
        is_taken |= items[k].on == (int32_t)below;
      }
      if (items[below].last == items[i].first && items[below].first < items[i].first && !is_taken) {
        items[i].on = (int32_t)below;
        items[i].bytes = items[below].bytes;
      }
    }
    uint64_t arena = plan(items, count), bound = lower_bound(items, count, calls + 40);
    check_plan(items, count, arena);
    CHECK(arena >= bound);
    wasted += (double)arena / (double)(bound ? bound : 64) - 1;
  }
  CHECK(wasted / 300 < 0.1);
}

static void test_what_dies_makes_room(void) {
  PlanItem chain[] = {{1000, 0, 1, -1, 0}, {2000, 1, 2, -1, 0}, {1000, 2, 3, -1, 0}, {2000, 3, 4, -1, 0}};
  CHECK(plan(chain, 4) == 3072);
  PlanItem gap[] = {{640, 0, 1, -1, 0}, {128, 0, 9, -1, 0}, {640, 0, 1, -1, 0}, {64, 2, 3, -1, 0}, {640, 2, 3, -1, 0}};
  CHECK(plan(gap, 5) == 1408);
  check_plan(gap, 5, 1408);
}

static void test_a_result_stands_on_what_dies(void) {
  PlanItem items[] = {{640, 0, 1, -1, 0}, {640, 1, 2, 0, 0}, {640, 2, 3, 1, 0}};
  CHECK(plan(items, 3) == 640);
  CHECK(items[2].offset == 0);
}

static void test_the_largest_arena(void) {
  const uint64_t half = (uint64_t)1 << 61;
  PlanItem items[] = {{half, 0, 1, -1, 0}, {half, 0, 1, -1, 0}, {0, 0, 1, -1, 0}};
  CHECK(plan(items, 2) == 2 * half);
  CHECK(plan(items, 3) == 0);
  items[0].bytes = 2 * half + 64;
  CHECK(plan(items, 1) == 0);
  CHECK(plan(items, 0) == 64);
}

int main(void) {
  test_random_plans_are_valid_and_tight();
  test_what_dies_makes_room();
  test_a_result_stands_on_what_dies();
  test_the_largest_arena();
  return 0;
}
