/* The state of a launch on the device that is none, and the functions that its parts and kernels call. */
#ifndef GRAFT_EMULATOR_H
#define GRAFT_EMULATOR_H

#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <ucontext.h>

enum { WARP = 32, THREADS = 1024, BUFFERS = 256, STACK = 128 * 1024, COPIES = 512, GROUPS = 16, SHARED = 256 * 1024 };
enum { BULKS = 16 }; /* mbarriers of a block */
enum { WARPGROUP = 128, LINE = 128, PATTERN = 1024 }; /* threads; bytes of a swizzled line, and after which it repeats */
enum { RUNNING, AT_BLOCK_BARRIER, AT_WARP_BARRIER, AT_BULK, ENDED };

/* Who has touched a byte last, and when: `epoch` counts barriers of blocks (and blocks), `step` those of the warp. */
typedef struct {
  uint32_t write_epoch, read_epoch;
  uint16_t write_thread, read_thread;
  uint16_t write_step, read_step;
  uint16_t write_fence; /* how many fences its thread had seen */
} Shadow;

typedef struct {
  char *begin;
  uint64_t bytes;
  Shadow *shadow;
  int is_shared;
} Buffer;

typedef struct {
  char *target;
  const char *source;
  uint32_t bytes;
} Copy;

typedef struct { /* an mbarrier, and the copy of its phase */
  char *at;
  Copy copy;
  int is_under_way, by;
  uint32_t phase; /* how many are over */
} Bulk;

typedef struct {
  ucontext_t context;
  int state;
  uint32_t index[3];
  Copy copies[COPIES];
  int ends[GROUPS]; /* of groups, in copies */
  int count, groups;
  Bulk *awaited; /* and in which phase */
  uint32_t parity;
  uint16_t fences; /* from this thread's writes to what reads past the threads */
} Thread;

typedef void (*Kernel)(void **args);

typedef struct {
  const char *name;
  Buffer buffers[BUFFERS];
  int buffer_count;
  Buffer *last;
  char shared[SHARED] __attribute__((aligned(1024)));
  Shadow shared_shadow[SHARED];
  uint64_t shared_bytes;
  Thread *threads;
  char *stacks;
  int count, current, uses_contexts, is_reversed;
  uint32_t block[3], grid[3], at[3];
  uint32_t first_epoch, block_epoch, epoch;
  uint16_t steps[THREADS / WARP];
  Bulk bulks[BULKS];
  int bulk_count;
  char *rows[THREADS];
  uint32_t words[THREADS][6];
  Kernel kernel;
  void **args;
  ucontext_t scheduler;
  jmp_buf failure;
  char error[512];
} Emulated;

#pragma GCC visibility push(hidden) /* each shared object has its own */
extern Emulated emulated;

/* Ends the launch with what this thread does wrong. */
void fail_launch(const char *format, ...) __attribute__((format(printf, 1, 2)));
#pragma GCC visibility pop

/* Whether the bulk copy that a thread waits for has begun, or is over. */
static inline int has_bulk(const Thread *thread) {
  return thread->awaited->is_under_way || (thread->awaited->phase & 1) != thread->parity;
}

const char *graft_emulator_error(void);
void graft_emulator_begin(const char *name);
void graft_emulator_end(void);
void graft_emulator_buffer(char *begin, int64_t bytes);
void graft_emulator_run(Kernel kernel, const int64_t *grid, const int64_t *block, void **args, int64_t shared);
uint32_t graft_emulator_unit(uint32_t which);
char *graft_emulator_shared(uint32_t offset);
void graft_emulator_barrier(uint32_t of_warp);
void graft_emulator_access(char *at, int64_t bytes, uint32_t writes);
void graft_emulator_load_matrices(char *row, uint32_t *words, uint32_t count, uint32_t is_turned);
void graft_emulator_multiply(uint32_t kind, const uint32_t *words, void *sums);
uint32_t graft_emulator_shared_address(const char *at);
void graft_emulator_fence_async(void);
void graft_emulator_multiply_group(uint64_t a, uint64_t b, void *sums, uint32_t kind, uint32_t columns, uint32_t steps,
                                   uint32_t a_turned, uint32_t b_turned, uint32_t a_ahead, uint32_t b_ahead);
void graft_emulator_copy(char *target, char *source, uint32_t bytes);
void graft_emulator_commit(void);
void graft_emulator_report(int64_t *words, int64_t code, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e);
void graft_emulator_wait(uint32_t pending);
void graft_emulator_open_bulk(char *at);
void graft_emulator_copy_bulk(char *target, char *source, char *at, uint32_t bytes);
void graft_emulator_wait_bulk(char *at, uint32_t parity);

#endif
