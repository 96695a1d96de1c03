/* Whether work is shared by threads or stays with its caller, whichever takes less time.
 *
 * Whether a short loop, or a short run, gains by more threads depends on what a compiler cannot know: how far the
 * processors are from each other (two core complexes, two sockets; virtual ones are moved from one to another), and who
 * wrote what it reads. So both ways take turns in its first calls, and it goes the one that took less time; the other is
 * tried again now and then. */
#ifndef GRAFT_SHARING_H
#define GRAFT_SHARING_H

#include <stdatomic.h>
#include <stdint.h>

enum { SHARING_RECORDS = 512 };

typedef struct SharingRecord {
  atomic_uint_fast64_t key; /* of the work and the magnitude of its size; 0 where nothing is */
  atomic_uint calls;
  atomic_uint nanoseconds[2]; /* alone, shared; 0 until known */
} SharingRecord;

/* All zero at first. Threads write it as they come: a lost update is a lost sample. */
typedef struct Sharing {
  SharingRecord records[SHARING_RECORDS];
  atomic_uint_fast64_t alone; /* calls of work that could be shared and was not */
} Sharing;

typedef struct SharingTrial {
  SharingRecord *record; /* NULL where the call is not timed */
  int shared;
  int64_t begun;
} SharingTrial;

/* Returns whether a call of what `work` points at is to be shared, of a size. Work that takes more than `longest`
 * nanoseconds where it is shared is always shared. `trial` goes to the end of the call. */
int graft_sharing_begin(Sharing *sharing, uintptr_t work, int64_t size, unsigned longest, SharingTrial *trial);
void graft_sharing_end(const SharingTrial *trial);

#endif
