#include "sharing.h"

#include <stddef.h>

#include "platform.h"

enum {
  SLOTS = 8,        /* that a key may have; work without one is shared */
  FIRST_CALLS = 12, /* in which both ways take turns */
  TIMED_CALLS = 16, /* after them one call in so many is timed */
  TRIED_CALLS = 256 /* in one call in so many the other way is tried */
};

static SharingRecord *record_of(Sharing *sharing, uintptr_t work, int64_t size) {
  uint64_t key = (uint64_t)work << 6;
  for (int64_t rest = size; rest > 0; rest /= 2) {
    key++;
  }
  uint64_t slot = key * UINT64_C(0x9E3779B97F4A7C15) >> 32;
  for (uint64_t i = 0; i < SLOTS; i++) {
    SharingRecord *record = &sharing->records[(slot + i) % SHARING_RECORDS];
    uint_fast64_t found = atomic_load_explicit(&record->key, memory_order_relaxed);
    if (found == key || (!found && atomic_compare_exchange_strong(&record->key, &found, key)) || found == key) {
      return record;
    }
  }
  return NULL;
}

int graft_sharing_begin(Sharing *sharing, uintptr_t work, int64_t size, unsigned longest, SharingTrial *trial) {
  SharingRecord *record = record_of(sharing, work, size);
  trial->record = NULL;
  trial->shared = 1;
  if (!record) {
    return 1;
  }
  unsigned calls = atomic_load_explicit(&record->calls, memory_order_relaxed);
  unsigned alone = atomic_load_explicit(&record->nanoseconds[0], memory_order_relaxed);
  unsigned shared = atomic_load_explicit(&record->nanoseconds[1], memory_order_relaxed);
  atomic_store_explicit(&record->calls, calls + 1, memory_order_relaxed);
  int timed = calls < FIRST_CALLS || calls % TIMED_CALLS == 0;
  if (calls < FIRST_CALLS) {
    trial->shared = calls % 2 == 0 || shared > longest;
  } else if (shared <= longest || alone) {
    int gains = !alone || shared <= alone, tries = calls % TRIED_CALLS == 0;
    trial->shared = tries ? !gains || shared > longest : gains;
  }
  if (!trial->shared) {
    atomic_store_explicit(&sharing->alone, atomic_load_explicit(&sharing->alone, memory_order_relaxed) + 1,
                          memory_order_relaxed);
  }
  if (timed) {
    trial->record = record;
    trial->begun = graft_nanoseconds();
  }
  return trial->shared;
}

/* The least of the first times, of which some are those of a cold start; later one that moves towards what is measured,
 * where a thread that lost its processor meanwhile counts for little. */
void graft_sharing_end(const SharingTrial *trial) {
  if (!trial->record) {
    return;
  }
  int64_t taken = graft_nanoseconds() - trial->begun;
  atomic_uint *time = &trial->record->nanoseconds[trial->shared];
  int64_t known = atomic_load_explicit(time, memory_order_relaxed);
  if (!known || atomic_load_explicit(&trial->record->calls, memory_order_relaxed) <= FIRST_CALLS) {
    known = known && known < taken ? known : taken;
  } else {
    known += ((taken < 2 * known ? taken : 2 * known) - known) / 4;
  }
  known = known < 1 ? 1 : known > INT32_MAX ? INT32_MAX : known;
  atomic_store_explicit(time, (unsigned)known, memory_order_relaxed);
}
