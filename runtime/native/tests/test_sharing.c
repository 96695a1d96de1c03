/* Runs go the way that takes the least time; a long one is shared, and what changes is followed. */
#include "base/platform.h"
#include "check.h"
#include "pool/sharing.h"

enum { SHORT = 2000, TRIES = 36, PERIOD = 1024 };

static void take(int64_t nanoseconds) {
  for (int64_t end = graft_nanoseconds() + nanoseconds; graft_nanoseconds() < end;) {
  }
}

/* Runs work that takes so long by way, and counts the ways. */
static void run(Sharing *sharing, uintptr_t work, int64_t size, const int64_t *times, int runs, int *ways) {
  for (int i = 0; i < runs; i++) {
    SharingTrial trial;
    int way = graft_sharing_begin(sharing, work, size, &trial);
    take(times[way]);
    graft_sharing_end(&trial);
    ways[way]++;
  }
}

static void test_runs_go_the_way_that_takes_the_least_time(void) {
  for (int best = 0; best < SHARING_WAYS; best++) {
    static Sharing sharing;
    int64_t times[] = {16 * SHORT, 16 * SHORT, 16 * SHORT};
    int first[SHARING_WAYS] = {0}, then[SHARING_WAYS] = {0};
    times[best] = SHORT;
    run(&sharing, (uintptr_t)best + 1, 10, times, TRIES, first);
    CHECK(first[0] == first[1] && first[1] == first[2]);
    run(&sharing, (uintptr_t)best + 1, 10, times, PERIOD - TRIES, then);
    CHECK(then[best] == PERIOD - TRIES);
    CHECK((atomic_load(&sharing.alone) > PERIOD / 2) == (best == 2));
  }
}

static void test_sizes_of_another_magnitude_are_other_work(void) {
  static Sharing sharing;
  int64_t alone[] = {16 * SHORT, 16 * SHORT, SHORT}, shared[] = {SHORT, 16 * SHORT, 16 * SHORT};
  int ways[SHARING_WAYS] = {0}, same[SHARING_WAYS] = {0}, other[SHARING_WAYS] = {0};
  run(&sharing, 1, 10, alone, TRIES, ways);
  run(&sharing, 1, 11, alone, 100, same);
  CHECK(same[2] == 100);
  run(&sharing, 1, 1000, shared, TRIES + 100, other);
  CHECK(other[0] == TRIES / 3 + 100);
}

static void test_long_runs_are_never_tried_alone(void) {
  static Sharing sharing;
  int64_t times[] = {1200000, 1200000, SHORT};
  int ways[SHARING_WAYS] = {0};
  run(&sharing, 1, 10, times, TRIES + 4, ways);
  CHECK(ways[2] == 0);
}

static void test_runs_that_change_are_followed(void) {
  static Sharing sharing;
  int64_t before[] = {16 * SHORT, 16 * SHORT, SHORT}, after[] = {SHORT, 16 * SHORT, 16 * SHORT};
  int ways[SHARING_WAYS] = {0}, last[SHARING_WAYS] = {0};
  run(&sharing, 1, 10, before, TRIES, ways);
  run(&sharing, 1, 10, after, 4 * PERIOD - TRIES, ways);
  run(&sharing, 1, 10, after, PERIOD, last);
  CHECK(last[0] >= PERIOD - TRIES);
}

static void test_work_for_which_there_is_no_room_is_shared(void) {
  static Sharing sharing;
  int64_t times[] = {16 * SHORT, 16 * SHORT, 0};
  for (uintptr_t work = 1; work <= 4 * SHARING_RECORDS; work++) {
    int ways[SHARING_WAYS] = {0};
    run(&sharing, work, 1, times, 1, ways);
    CHECK(ways[0] == 1);
  }
}

int main(void) {
  test_runs_go_the_way_that_takes_the_least_time();
  test_sizes_of_another_magnitude_are_other_work();
  test_long_runs_are_never_tried_alone();
  test_runs_that_change_are_followed();
  test_work_for_which_there_is_no_room_is_shared();
  return 0;
}
