/* How far the loops of a run are shared by threads: the way in which the run takes the least time.
 *
 * Whether short loops gain by more threads depends on what a compiler cannot know: how far the processors are from each
 * other (two core complexes, two sockets; virtual ones are moved from one to another), and where what a loop reads was
 * written. That of single loops says little, for what one gains the next may lose; so whole runs are timed. Each way
 * has a turn of some runs, then they go the one that took the least time; each is tried again now and then. */
#ifndef GRAFT_SHARING_H
#define GRAFT_SHARING_H

#include <stdatomic.h>
#include <stdint.h>

enum { SHARING_WAYS = 3, SHARING_RECORDS = 64 };

/* By way, how many times as large as a loop asks for its parts are at least; 0: no loop is shared. */
extern const int32_t graft_sharing_scales[SHARING_WAYS];

typedef struct SharingRecord {
  atomic_uint_fast64_t key; /* of the work and the magnitude of its size; 0 where nothing is */
  atomic_uint runs;
  atomic_uint nanoseconds[SHARING_WAYS]; /* the least of the last turn; 0 until known */
} SharingRecord;

/* All zero at first. Threads write it as they come: a lost update is a lost sample. */
typedef struct Sharing {
  SharingRecord records[SHARING_RECORDS];
  atomic_uint_fast64_t alone; /* runs whose loops were not shared */
} Sharing;

typedef struct SharingTrial {
  SharingRecord *record; /* NULL where the run is not timed */
  int way;
  int first; /* what was timed before does not count any more */
  int64_t begun;
} SharingTrial;

/* Returns the way of a run of what `work` points at, of a size. `trial` goes to the end of the run. */
int graft_sharing_begin(Sharing *sharing, uintptr_t work, int64_t size, SharingTrial *trial);
void graft_sharing_end(const SharingTrial *trial);

#endif
