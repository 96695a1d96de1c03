/* A few threads that run the parts of one job at a time; they spin shortly for the next job, then sleep.
 *
 * No call waits on a worker that the system lets stand. What no worker has begun the caller does itself; a worker that
 * lost its processor with a part begun gets the caller's while the caller sleeps, and is then left in peace for a while,
 * so that all this costs a small share of the time. Workers keep off the processors of those who call. */
#ifndef GRAFT_POOL_H
#define GRAFT_POOL_H

#include <stdint.h>

#include "pool/sharing.h"

typedef struct Pool Pool;

/* Runs part `part` of a job; `worker` is 0 for the calling thread, else 1 to thread_count - 1. */
typedef void (*PoolFunction)(void *job, int32_t worker, int32_t part);

/* Threads start with the first job. NULL when memory runs out. */
Pool *graft_pool_create(int32_t thread_count);
void graft_pool_destroy(Pool *pool);

/* Around whatever may run jobs: who calls has a processor of its own, and workers only take what is left. Leaves only
 * if enter returned 1. */
int graft_pool_enter(Pool *pool);
void graft_pool_leave(Pool *pool);

/* Into how many parts (at least 1, at most thread_count) a loop of `count` iterations may be split now, of at least
 * `grain` iterations each. */
int32_t graft_pool_parts(Pool *pool, int64_t count, int64_t grain);

/* What its runs took so far. */
Sharing *graft_pool_sharing(Pool *pool);

/* Runs parts 0 to parts-1 (parts <= thread_count) and returns 1 when all are done. The calling thread takes part 0 and
 * then whatever no worker has begun. Returns 0, having done nothing, if another thread's job is running. */
int graft_pool_run(Pool *pool, int32_t parts, PoolFunction function, void *job);

/* What happened so far. */
typedef struct PoolCounts {
  uint64_t jobs;   /* run by the pool */
  uint64_t helped; /* parts that workers ran */
  uint64_t parted; /* workers that were on their caller's processor and had to leave it */
  uint64_t lent;   /* workers without a processor that got the caller's */
  uint64_t alone;  /* runs whose loops stayed with their caller: they take less time so, or it was tried */
} PoolCounts;

PoolCounts graft_pool_counts(const Pool *pool);

#endif
