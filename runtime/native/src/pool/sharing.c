#include "pool/sharing.h"

#include <stddef.h>

#include "base/platform.h"

const int32_t graft_sharing_scales[SHARING_WAYS] = {1, 4, 0};

enum {
  SLOTS = 8,     /* that a key may have; work without one is shared */
  TURN = 12,     /* runs that a way has when it is tried: workers sleep where the runs before did not want them */
  WARM = 4,      /* of these that are not timed */
  PERIOD = 1024  /* runs from one try to the next, after all ways have had a turn */
};
/* By way, the nanoseconds of a run that shares what it can from which on the way is not tried. */
static const unsigned LONG[SHARING_WAYS] = {UINT32_MAX, 20000000, 1000000};

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

static unsigned time_of(const SharingRecord *record, int way) {
  return atomic_load_explicit(&record->nanoseconds[way], memory_order_relaxed);
}

/* The way that took the least time when it was tried last. */
static int best_way(const SharingRecord *record) {
  int best = 0;
  for (int way = 1; way < SHARING_WAYS; way++) {
    best = time_of(record, way) && time_of(record, way) < time_of(record, best) ? way : best;
  }
  return best;
}

int graft_sharing_begin(Sharing *sharing, uintptr_t work, int64_t size, SharingTrial *trial) {
  SharingRecord *record = record_of(sharing, work, size);
  trial->record = NULL;
  trial->way = 0;
  if (!record) {
    return 0;
  }
  unsigned runs = atomic_load_explicit(&record->runs, memory_order_relaxed), turn = runs / PERIOD, place = runs % PERIOD;
  atomic_store_explicit(&record->runs, runs + 1, memory_order_relaxed);
  if (runs < SHARING_WAYS * TURN) {
    turn = runs / TURN;
    place = runs % TURN;
  }
  turn %= SHARING_WAYS;
  if (place < TURN && time_of(record, 0) < LONG[turn]) {
    trial->way = (int)turn;
    trial->record = place < WARM ? NULL : record;
    trial->first = place == WARM;
    trial->begun = place < WARM ? 0 : graft_nanoseconds();
  } else {
    trial->way = best_way(record);
  }
  if (!graft_sharing_scales[trial->way]) {
    atomic_store_explicit(&sharing->alone, atomic_load_explicit(&sharing->alone, memory_order_relaxed) + 1,
                          memory_order_relaxed);
  }
  return trial->way;
}

void graft_sharing_end(const SharingTrial *trial) {
  if (!trial->record) {
    return;
  }
  int64_t taken = graft_nanoseconds() - trial->begun, known = time_of(trial->record, trial->way);
  known = trial->first || taken < known ? taken : known;
  known = known < 1 ? 1 : known > INT32_MAX ? INT32_MAX : known;
  atomic_store_explicit(&trial->record->nanoseconds[trial->way], (unsigned)known, memory_order_relaxed);
}
