/* Several models as a server has them: threads that all share, memory that is counted, and the time of each kernel.
 *
 *   serve FIRST.graft SECOND.graft ...     every input is filled with a ramp; prints what each model's calls took.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

/* Blocks of the system's, with their number; one that would be beyond the limit is refused. */
typedef struct Budget {
  atomic_long blocks;
  long limit;
} Budget;

static void *take(void *user, size_t bytes) {
  Budget *budget = user;
  void *block = bytes < SIZE_MAX - 64 && atomic_fetch_add(&budget->blocks, 1) < budget->limit
                    ? aligned_alloc(64, (bytes + 63) / 64 * 64)
                    : NULL;
  if (!block) {
    atomic_fetch_sub(&budget->blocks, 1);
  }
  return block;
}

static void give_back(void *user, void *block) {
  atomic_fetch_sub(&((Budget *)user)->blocks, 1);
  free(block);
}

static void print_time(void *user, const GraftCallTime *time) {
  printf("%s %s %*s%s: %" PRId64 " ns\n", (const char *)user, time->kind ? time->kind : "runtime", 2 * time->depth, "",
         time->node_count ? time->nodes[0] : "", time->nanoseconds);
}

static int serve(const char *path, const GraftLoadOptions *options) {
  GraftProgram *program;
  GraftError error = {0};
  if (graft_program_load(path, options, &program, &error) != GRAFT_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  GraftRunOptions timed = {.size = sizeof timed, .timed = print_time, .user = (void *)(uintptr_t)path};
  int status = run_program(program, &timed, 1);
  graft_program_destroy(program);
  return status;
}

int main(int argc, char **argv) {
  Budget budget = {.limit = 1000};
  GraftAllocator allocator = {take, give_back, &budget};
  GraftThreadPool *pool;
  GraftError error = {0};
  if (graft_thread_pool_create(2, &allocator, &pool, &error) != GRAFT_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  GraftLoadOptions options = {.size = sizeof options, .allocator = &allocator, .thread_pool = pool};
  int status = 0;
  for (int i = 1; i < argc && !status; i++) {
    status = serve(argv[i], &options);
  }
  graft_thread_pool_destroy(pool);
  printf("%ld blocks left\n", atomic_load(&budget.blocks));
  return status;
}
