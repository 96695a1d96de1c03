/* A few threads that run the parts of one job at a time; they spin shortly for the next job, then sleep. */
#ifndef GRAFT_POOL_H
#define GRAFT_POOL_H

#include <stdint.h>

typedef struct Pool Pool;

/* Runs part `part` of a job; `worker` is 0 for the calling thread, else 1 to thread_count - 1. */
typedef void (*PoolFunction)(void *job, int32_t worker, int32_t part);

/* Threads start with the first job. NULL when memory runs out. */
Pool *graft_pool_create(int32_t thread_count);
void graft_pool_destroy(Pool *pool);

/* Runs parts 0 to parts-1 (parts <= thread_count) and returns 1 when all are done. The calling thread takes part 0 and
 * then whatever no worker has begun. Returns 0, having done nothing, if another thread's job is running. */
int graft_pool_run(Pool *pool, int32_t parts, PoolFunction function, void *job);

#endif
