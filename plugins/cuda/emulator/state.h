/* The state of a launch on the device that is none; how it fails, what is drawn, how a thread waits. */
#ifndef GRAFT_EMULATOR_STATE_H
#define GRAFT_EMULATOR_STATE_H

#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <ucontext.h>

enum { WARP = 32, THREADS = 1024, BUFFERS = 256, STACK = 128 * 1024, COPIES = 512, GROUPS = 16, SHARED = 256 * 1024 };
enum { BARRIERS = 16, BULKS = 16 }; /* mbarriers of a block; bulk copies of one phase of one of them */
enum { WARPGROUP = 128, LINE = 128, PATTERN = 1024 }; /* threads; bytes of a swizzled line, and after which it repeats */

/* What a thread waits for: nothing; the block; its warp, for a barrier or for a tensor instruction; its warpgroup; an
 * mbarrier. */
typedef enum { READY, AT_BARRIER, AT_WARP, AT_MATRICES, AT_EXCHANGE, AT_PRODUCT, AT_GROUP, AT_MBARRIER, ENDED } State;

enum { GENERIC, GLOBAL, SHARED_SPACE, LOCAL };          /* state spaces */
enum { WRITES = 4, IS_CONSTANT = 8, IS_ATOMIC = 16 }; /* of an access, beside its space */

/* One access: `epoch` counts barriers of blocks (and blocks), `step` those of the warp, `line` is of the PTX. */
typedef struct {
  uint32_t epoch, line;
  uint16_t thread, step;
} Access;

/* How the last write of a byte was made. */
enum { BY_THREAD, BY_COPY_UNDER_WAY, BY_BULK_UNDER_WAY, BY_BULK };

/* The last write of a byte, and two reads since: of different warps, if any are; the latest of the warp, otherwise. */
typedef struct {
  Access write, reads[2];
  uint16_t fence;   /* how many fences its thread had seen */
  uint8_t how, bulk; /* and the mbarrier of a bulk copy, whose phase is `fence` then */
} Shadow;

typedef struct {
  const char *name;
  char *begin;
  uint64_t bytes;
  Shadow *shadow;
  int is_shared;
} Buffer;

typedef struct {
  char *target;
  const char *source;
  uint32_t bytes, line;
  char *first; /* the source's bytes when the copy began */
} Copy;

typedef struct { /* an mbarrier of one arrival: its phase, and the copies that it counts the bytes of */
  char *at;
  Copy copies[BULKS];
  int copy_count, is_arrived, by;
  int64_t expected;
  uint32_t phase; /* how many are over */
} Barrier;

typedef struct {
  ucontext_t context;
  jmp_buf place;
  State state;
  int is_begun;
  uint32_t line; /* at which it waits */
  uint32_t index[3];
  Copy copies[COPIES];
  char early[COPIES][16];
  int ends[GROUPS]; /* of groups, in copies */
  int count, groups;
  Barrier *awaited; /* and in which phase */
  uint32_t parity;
  uint16_t fences, settled; /* from this thread's writes to the asynchronous proxy; those before the last barrier */
  uint16_t seen[BARRIERS];  /* phases of mbarriers that it knows to be over */
  uint64_t operands[2];     /* of a warp's or a warpgroup's instruction */
  const void *given;
  void *result;
  const uint32_t *numbers;
} Thread;

typedef void (*Kernel)(void **args);

typedef struct {
  const char *name, *ptx;
  Buffer buffers[BUFFERS];
  int buffer_count;
  Buffer *last;
  char shared[SHARED] __attribute__((aligned(1024)));
  Shadow shared_shadow[SHARED];
  uint64_t shared_bytes;
  Thread *threads;
  char *stacks;
  int count, current, uses_contexts;
  uint32_t random, until_switch;
  uint32_t block[3], grid[3], at[3];
  uint32_t first_epoch, block_epoch, epoch;
  uint16_t steps[THREADS / WARP];
  Barrier barriers[BARRIERS];
  int barrier_count;
  Access unwritten; /* the first read in a block of what nothing had written, if its epoch is not 0 */
  long long unwritten_byte;
  Kernel kernel;
  void **args;
  jmp_buf place, failure;
  char error[1024];
} Emulated;

#pragma GCC visibility push(hidden) /* each shared object has its own */
extern Emulated emulated;

/* Ends the launch with what the current thread does wrong at a line of the PTX; what it reads that nothing has written is
 * rather the cause. */
void fail_launch(uint32_t line, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* Lets others run until this thread is let on. */
void suspend(State state, uint32_t line);

/* A number below `count`, by the seed. */
uint32_t drawn(uint32_t count);

/* A line of the PTX, as a message has it; in one of a few buffers. */
const char *said_line(uint32_t line);
#pragma GCC visibility pop

const char *graft_emulator_error(void);
void graft_emulator_begin(const char *name, const char *ptx);
void graft_emulator_end(void);

/* What the PTX of a kernel becomes; `line` is the instruction's. */
uint32_t graft_emulator_unit(uint32_t which);

#endif
