/* Work goes the way that takes less time, alone or shared; long work is shared, and what is new is tried both ways. */
#include "check.h"
#include "platform.h"
#include "sharing.h"

enum { LONG = 400000, SHORT = 10000, CALLS = 600 };

static void take(int64_t nanoseconds) {
  for (int64_t end = graft_nanoseconds() + nanoseconds; graft_nanoseconds() < end;) {
  }
}

/* Calls work that takes so long alone and shared; returns how many of the last half of the calls were shared. */
static int shared_calls(Sharing *sharing, uintptr_t work, int64_t size, int64_t alone, int64_t shared, int calls) {
  int found = 0;
  for (int call = 0; call < calls; call++) {
    SharingTrial trial;
    int is_shared = graft_sharing_begin(sharing, work, size, LONG, &trial);
    take(is_shared ? shared : alone);
    graft_sharing_end(&trial);
    found += call >= calls / 2 && is_shared;
  }
  return found;
}

static void test_work_goes_the_way_that_takes_less_time(void) {
  static Sharing sharing;
  CHECK(shared_calls(&sharing, 1, 10, SHORT, 8 * SHORT, CALLS) <= 2); /* tried again once in 256 calls */
  CHECK(shared_calls(&sharing, 2, 10, 8 * SHORT, SHORT, CALLS) >= CALLS / 2 - 2);
  CHECK(atomic_load(&sharing.alone) > CALLS / 2);
}

static void test_sizes_of_another_magnitude_are_other_work(void) {
  static Sharing sharing;
  CHECK(shared_calls(&sharing, 1, 10, SHORT, 8 * SHORT, CALLS) <= 2);
  CHECK(shared_calls(&sharing, 1, 1000, 8 * SHORT, SHORT, CALLS) >= CALLS / 2 - 2);
  CHECK(shared_calls(&sharing, 1, 11, SHORT, 8 * SHORT, CALLS) <= 3);
}

static void test_long_work_is_never_tried_alone(void) {
  static Sharing sharing;
  CHECK(shared_calls(&sharing, 1, 10, SHORT, LONG + SHORT, 30) == 15);
  CHECK(!atomic_load(&sharing.alone));
}

static void test_work_that_changes_its_mind_is_followed(void) {
  static Sharing sharing;
  CHECK(shared_calls(&sharing, 1, 10, 8 * SHORT, SHORT, CALLS) >= CALLS / 2 - 2);
  CHECK(shared_calls(&sharing, 1, 10, SHORT, 8 * SHORT, 6 * CALLS) <= CALLS / 2);
}

static void test_work_for_which_there_is_no_room_is_shared(void) {
  static Sharing sharing;
  int shared = 0;
  for (uintptr_t work = 1; work <= 2 * SHARING_RECORDS; work++) {
    SharingTrial trial;
    graft_sharing_begin(&sharing, work, 1, LONG, &trial);
    graft_sharing_end(&trial);
    shared += graft_sharing_begin(&sharing, work, 1, LONG, &trial);
    graft_sharing_end(&trial);
  }
  CHECK(shared >= SHARING_RECORDS);
}

int main(void) {
  test_work_goes_the_way_that_takes_less_time();
  test_sizes_of_another_magnitude_are_other_work();
  test_long_work_is_never_tried_alone();
  test_work_that_changes_its_mind_is_followed();
  test_work_for_which_there_is_no_room_is_shared();
  return 0;
}
