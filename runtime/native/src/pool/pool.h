/* A few threads that run the parts of one job at a time; they spin shortly for the next job, then sleep.
 *
 * No call waits on a worker that the system lets stand. What no worker has begun the caller does itself; a worker that
 * lost its processor with a part begun gets the caller's while the caller sleeps, and is then left in peace for a while,
 * so that all this costs a small share of the time. Workers keep off the processors of those who call. */
#ifndef GRAFT_POOL_H
#define GRAFT_POOL_H

#include <stdint.h>

#include "graft/runtime.h"

/* Threads start with the first job. NULL when memory runs out. */
GraftThreadPool *graft_pool_create(int32_t thread_count, const GraftAllocator *allocator);
void graft_pool_destroy(GraftThreadPool *pool);

/* ---- What any pool does, a host's too ---- */

/* Around whatever may run jobs: who calls has a processor of its own, and workers only take what is left. Leaves only
 * if enter returned 1. */
static inline int graft_pool_enter(GraftThreadPool *pool) { return pool->enter ? pool->enter(pool) : 0; }

static inline void graft_pool_leave(GraftThreadPool *pool) {
  if (pool->leave) {
    pool->leave(pool);
  }
}

/* Into how many parts (at least 1, at most thread_count) a loop of `count` iterations may be split now, of at least
 * `grain` iterations each. */
static inline int32_t graft_pool_parts(GraftThreadPool *pool, int64_t count, int64_t grain) {
  int64_t most = count / (grain > 0 ? grain : 1);
  if (most < 2) {
    return 1;
  }
  int32_t threads = pool->free_threads ? pool->free_threads(pool) : pool->thread_count;
  return most < threads ? (int32_t)most : threads;
}

/* Runs parts 0 to parts-1 (parts <= thread_count) and returns 1 when all are done. The calling thread takes part 0 and
 * then whatever no worker has begun. Returns 0, having done nothing, if another thread's job is running. */
static inline int graft_pool_run(GraftThreadPool *pool, int32_t parts, GraftPart part, void *job) {
  return pool->run(pool, parts, part, job);
}

/* What happened so far in a pool that was created here. */
typedef struct PoolCounts {
  uint64_t jobs;   /* run by the pool */
  uint64_t helped; /* parts that workers ran */
  uint64_t parted; /* workers that were on their caller's processor and had to leave it */
  uint64_t lent;   /* workers without a processor that got the caller's */
} PoolCounts;

PoolCounts graft_pool_counts(const GraftThreadPool *pool);

#endif
