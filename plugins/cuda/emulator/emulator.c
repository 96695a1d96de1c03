/* A device without a device: runs the threads of a kernel's blocks one after the other, from barrier to barrier, and
 * watches what they read and write.
 *
 * Every access of device and shared memory is announced first. One outside of the kernel's buffers, and two of one byte
 * by different threads that nothing orders, one of which writes, end the launch: `graft_emulator_error` says where. A
 * thread is a context of its own where a kernel has barriers. Copies to shared memory happen when they are waited for.
 * Linked with the code of the kernels to one shared object.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { WARP = 32, THREADS = 1024, BUFFERS = 256, STACK = 128 * 1024, COPIES = 512, GROUPS = 16, SHARED = 256 * 1024 };
enum { WARPGROUP = 128, LINE = 128, PATTERN = 1024 }; /* threads; bytes of a swizzled line, and after which it repeats */
enum { RUNNING, AT_BLOCK_BARRIER, AT_WARP_BARRIER, ENDED };

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

typedef struct {
  ucontext_t context;
  int state;
  uint32_t index[3];
  Copy copies[COPIES];
  int ends[GROUPS]; /* of groups, in copies */
  int count, groups;
  uint16_t fences; /* from this thread's writes to what reads past the threads */
} Thread;

typedef void (*Kernel)(void **args);

static struct {
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
  char *rows[THREADS];
  uint32_t words[THREADS][6];
  Kernel kernel;
  void **args;
  ucontext_t scheduler;
  jmp_buf failure;
  char error[512];
} device;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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

/* Returns what went wrong in the last launch, NULL if nothing did, and forgets it. */
const char *graft_emulator_error(void) {
  static char said[512];
  pthread_mutex_lock(&lock);
  memcpy(said, device.error, sizeof said);
  device.error[0] = 0;
  pthread_mutex_unlock(&lock);
  return said[0] ? said : NULL;
}

static void fail(const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const uint32_t *thread = device.threads[device.current].index;
  snprintf(device.error, sizeof device.error, "kernel '%s': block (%u, %u, %u), thread (%u, %u, %u): %s", device.name,
           device.at[0], device.at[1], device.at[2], thread[0], thread[1], thread[2], text);
  if (device.uses_contexts)
    setcontext(&device.scheduler);
  longjmp(device.failure, 1);
}

void graft_emulator_begin(const char *name) {
  pthread_mutex_lock(&lock);
  device.name = name;
  device.buffer_count = 0;
  device.last = NULL;
}

void graft_emulator_end(void) {
  for (int i = 0; i < device.buffer_count; ++i)
    free(device.buffers[i].shadow);
  device.buffer_count = 0;
  pthread_mutex_unlock(&lock);
}

void graft_emulator_buffer(char *begin, int64_t bytes) {
  if (device.buffer_count == BUFFERS - 1)
    abort();
  for (int i = 0; i < device.buffer_count; ++i) { /* an output in the place of an input, views of one memory */
    Buffer *other = &device.buffers[i];
    if (begin < other->begin + other->bytes && other->begin < begin + bytes) {
      char *end = begin + bytes > other->begin + other->bytes ? begin + bytes : other->begin + other->bytes;
      other->begin = begin < other->begin ? begin : other->begin;
      other->bytes = (uint64_t)(end - other->begin);
      return;
    }
  }
  device.buffers[device.buffer_count++] = (Buffer){begin, (uint64_t)(bytes > 0 ? bytes : 0), NULL, 0};
}

static void run_thread(void) {
  device.kernel(device.args);
  device.threads[device.current].state = ENDED;
  setcontext(&device.scheduler);
}

/* Runs the threads that are in a state until each is in another one. */
static void run_those(int state) {
  for (volatile int turn = 0; turn < device.count; ++turn) {
    const int number = device.is_reversed ? device.count - 1 - turn : turn;
    Thread *thread = &device.threads[number];
    if (thread->state != state || device.error[0])
      continue;
    device.current = number;
    thread->state = RUNNING;
    swapcontext(&device.scheduler, &thread->context);
  }
}

static int all_in(int first, int last, int state) {
  int count = 0;
  for (int i = first; i < last; ++i)
    count += device.threads[i].state == state;
  return count == last - first;
}

static void run_block(void) {
  for (int i = 0; i < device.count; ++i) {
    Thread *thread = &device.threads[i];
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = device.stacks + (size_t)i * STACK;
    thread->context.uc_stack.ss_size = STACK;
    thread->context.uc_link = NULL;
    makecontext(&thread->context, run_thread, 0);
    thread->state = AT_BLOCK_BARRIER;
  }
  run_those(AT_BLOCK_BARRIER);
  while (!device.error[0]) {
    int moved = 0;
    for (int first = 0; first < device.count; first += WARP) { /* a warp goes on when all its threads are there */
      const int last = first + WARP < device.count ? first + WARP : device.count;
      if (!all_in(first, last, AT_WARP_BARRIER))
        continue;
      device.steps[first / WARP]++;
      for (int i = first; i < last && !device.error[0]; ++i) {
        device.current = device.is_reversed ? last - 1 - (i - first) : i;
        device.threads[device.current].state = RUNNING;
        swapcontext(&device.scheduler, &device.threads[device.current].context);
      }
      moved = 1;
    }
    if (moved)
      continue;
    if (all_in(0, device.count, ENDED))
      return;
    if (!all_in(0, device.count, AT_BLOCK_BARRIER)) {
      for (device.current = 0; device.threads[device.current].state == ENDED; ++device.current)
        ;
      device.uses_contexts = 0;
      if (!setjmp(device.failure))
        fail("it waits at a barrier that other threads of its block never reach");
      return;
    }
    device.epoch++;
    memset(device.steps, 0, sizeof device.steps);
    run_those(AT_BLOCK_BARRIER);
  }
}

static void run_blocks(int has_barriers) {
  for (uint32_t z = 0; z < device.grid[2]; ++z)
    for (uint32_t y = 0; y < device.grid[1]; ++y)
      for (uint32_t x = 0; x < device.grid[0]; ++x) {
        device.at[0] = x, device.at[1] = y, device.at[2] = z;
        device.block_epoch = ++device.epoch;
        memset(device.steps, 0, sizeof device.steps);
        memset(device.shared, 0xff, device.shared_bytes); /* NaN: nothing is there at first */
        device.uses_contexts = has_barriers;
        if (has_barriers)
          run_block();
        else
          for (device.current = 0; device.current < device.count; ++device.current)
            device.kernel(device.args);
        if (device.error[0])
          return;
      }
}

void graft_emulator_run(Kernel kernel, const int64_t *grid, const int64_t *block, void **args, int64_t shared) {
  const int has_barriers = shared < 0 ? 0 : 1;
  device.kernel = kernel, device.args = args, device.error[0] = 0;
  device.shared_bytes = shared < 0 ? 0 : (uint64_t)shared;
  device.is_reversed = getenv("GRAFT_EMULATOR_REVERSED") != NULL;
  for (int i = 0; i < 3; ++i)
    device.grid[i] = (uint32_t)grid[i], device.block[i] = (uint32_t)block[i];
  device.count = (int)(block[0] * block[1] * block[2]);
  if (device.count > THREADS || device.shared_bytes > SHARED || device.count < 1) {
    snprintf(device.error, sizeof device.error, "kernel '%s': %d threads and %lld bytes of shared memory; a block has at most %d and %d",
             device.name, device.count, (long long)shared, THREADS, SHARED);
    return;
  }
  device.buffers[device.buffer_count++] = (Buffer){device.shared, device.shared_bytes, device.shared_shadow, 1};
  device.threads = calloc((size_t)device.count, sizeof *device.threads);
  device.stacks = has_barriers ? malloc((size_t)device.count * STACK) : NULL;
  for (int i = 0; i + 1 < device.buffer_count; ++i) {
    device.buffers[i].shadow = calloc(device.buffers[i].bytes + 1, sizeof(Shadow));
    if (device.buffers[i].shadow == NULL)
      abort();
  }
  if (device.threads == NULL || (has_barriers && device.stacks == NULL))
    abort();
  for (int i = 0; i < device.count; ++i) {
    const uint32_t number = (uint32_t)i;
    device.threads[i].index[0] = number % device.block[0];
    device.threads[i].index[1] = number / device.block[0] % device.block[1];
    device.threads[i].index[2] = number / device.block[0] / device.block[1];
  }
  device.first_epoch = device.epoch + 1;
  if (!setjmp(device.failure))
    run_blocks(has_barriers);
  free(device.threads);
  free(device.stacks);
  device.buffers[--device.buffer_count].shadow = NULL; /* shared memory is no buffer of the next launch */
}

uint32_t graft_emulator_unit(uint32_t which) {
  return which < 3 ? device.threads[device.current].index[which] : device.at[which - 3];
}

char *graft_emulator_shared(uint32_t offset) { return device.shared + offset; }

void graft_emulator_barrier(uint32_t of_warp) {
  Thread *thread = &device.threads[device.current];
  thread->state = of_warp ? AT_WARP_BARRIER : AT_BLOCK_BARRIER;
  swapcontext(&thread->context, &device.scheduler);
}

/* Whether an access before, by `thread` in `epoch` at `step` of its warp, is ordered before one now. */
static int is_ordered(const Buffer *buffer, uint32_t epoch, uint16_t thread, uint16_t step) {
  if (epoch < device.first_epoch || epoch < (buffer->is_shared ? device.block_epoch : device.first_epoch))
    return 1;
  if (epoch < device.block_epoch)
    return 0; /* another block */
  if (epoch != device.epoch || thread == device.current)
    return 1;
  return thread / WARP == device.current / WARP && step != device.steps[device.current / WARP];
}

void graft_emulator_access(char *at, int64_t bytes, uint32_t writes) {
  Buffer *buffer = device.last;
  if (buffer == NULL || at < buffer->begin || at >= buffer->begin + buffer->bytes) {
    buffer = NULL;
    for (int i = 0; i < device.buffer_count && buffer == NULL; ++i)
      if (at >= device.buffers[i].begin && at < device.buffers[i].begin + device.buffers[i].bytes)
        buffer = &device.buffers[i];
    if (buffer == NULL) { /* its own memory */
      char here;
      const char *low = device.uses_contexts ? device.stacks + (size_t)device.current * STACK : &here - (1 << 20);
      const char *high = device.uses_contexts ? low + STACK : &here + (8 << 20);
      if (at >= low && at < high)
        return;
      fail("it %s %lld bytes outside of all buffers", writes ? "writes" : "reads", (long long)bytes);
    }
    device.last = buffer;
  }
  if (at + bytes > buffer->begin + buffer->bytes)
    fail("it %s %lld bytes at byte %lld of a buffer of %lld", writes ? "writes" : "reads", (long long)bytes,
         (long long)(at - buffer->begin), (long long)buffer->bytes);
  Shadow *shadow = buffer->shadow + (at - buffer->begin);
  const uint16_t step = device.steps[device.current / WARP], self = (uint16_t)device.current;
  for (int64_t i = 0; i < bytes; ++i, ++shadow) {
    if (!is_ordered(buffer, shadow->write_epoch, shadow->write_thread, shadow->write_step) ||
        (writes && !is_ordered(buffer, shadow->read_epoch, shadow->read_thread, shadow->read_step)))
      fail("it %s byte %lld of %s memory, which thread %u %s, and nothing orders the two", writes ? "writes" : "reads",
           (long long)(at + i - buffer->begin), buffer->is_shared ? "shared" : "device",
           writes && is_ordered(buffer, shadow->write_epoch, shadow->write_thread, shadow->write_step) ? shadow->read_thread
                                                                                                         : shadow->write_thread,
           writes && is_ordered(buffer, shadow->write_epoch, shadow->write_thread, shadow->write_step) ? "reads" : "writes");
    if (writes)
      shadow->write_epoch = device.epoch, shadow->write_thread = self, shadow->write_step = step,
      shadow->write_fence = device.threads[self].fences;
    else if (shadow->read_epoch != device.epoch || shadow->read_thread == self || shadow->read_thread / WARP == self / WARP)
      shadow->read_epoch = device.epoch, shadow->read_thread = self, shadow->read_step = step;
  }
}

void graft_emulator_report(int64_t *words, int64_t code, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
  const int64_t all[] = {code, a, b, c, d, e};
  if (!words[0])
    memcpy(words, all, sizeof all);
}

void graft_emulator_copy(char *target, char *source, uint32_t bytes) {
  Thread *thread = &device.threads[device.current];
  if ((uintptr_t)target % bytes || (uintptr_t)source % bytes)
    fail("it copies %u bytes to or from an address that is no multiple of %u", bytes, bytes);
  if (thread->count == COPIES)
    fail("it has %d copies under way", COPIES);
  thread->copies[thread->count++] = (Copy){target, source, bytes};
}

void graft_emulator_commit(void) {
  Thread *thread = &device.threads[device.current];
  if (thread->groups == GROUPS)
    fail("it has %d groups of copies under way", GROUPS);
  thread->ends[thread->groups++] = thread->count;
}

void graft_emulator_wait(uint32_t pending) {
  Thread *thread = &device.threads[device.current];
  if (thread->groups <= (int)pending)
    return;
  const int done = thread->groups - (int)pending, end = thread->ends[done - 1];
  for (int i = 0; i < end; ++i) {
    graft_emulator_access((char *)thread->copies[i].source, thread->copies[i].bytes, 0);
    graft_emulator_access(thread->copies[i].target, thread->copies[i].bytes, 1);
    memcpy(thread->copies[i].target, thread->copies[i].source, thread->copies[i].bytes);
  }
  memmove(thread->copies, thread->copies + end, (size_t)(thread->count - end) * sizeof(Copy));
  thread->count -= end;
  for (int i = done; i < thread->groups; ++i)
    thread->ends[i - done] = thread->ends[i] - end;
  thread->groups -= done;
}

/* ldmatrix: thread t names row t % 8 of matrix t / 8, and gets word t % 4 of row t / 4 of each. Turned,
 * it gets elements of 16 bits of column t / 4, those of rows 2 * (t % 4) and the next. */
void graft_emulator_load_matrices(char *row, uint32_t *words, uint32_t count, uint32_t is_turned) {
  const int self = device.current, first = self / WARP * WARP, lane = self % WARP;
  device.rows[self] = row;
  graft_emulator_barrier(1);
  for (uint32_t i = 0; i < count && is_turned; ++i)
    for (int part = 0; part < 2; ++part) {
      char *at = device.rows[first + (int)i * 8 + lane % 4 * 2 + part] + lane / 4 * 2;
      graft_emulator_access(at, 2, 0);
      memcpy((char *)&words[i] + 2 * part, at, 2);
    }
  for (uint32_t i = 0; i < count && !is_turned; ++i) {
    char *at = device.rows[first + (int)i * 8 + lane / 4] + lane % 4 * 4;
    graft_emulator_access(at, 4, 0);
    memcpy(&words[i], at, 4);
  }
  graft_emulator_barrier(1);
}

static float half_to_float(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float magnitude = exponent == 0    ? ldexpf((float)mantissa, -24)
                          : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                           : ldexpf((float)(mantissa + 1024), exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

static float of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The number that bits are, of the left or the right factor. */
static double number_of(uint32_t kind, int is_left, uint32_t bits) {
  switch (kind) {
  case 0: return (double)half_to_float((uint16_t)bits);
  case 1: return (double)of_bits(bits << 16);
  case 2: return (double)of_bits(bits & 0xffffe000u); /* what is behind the ten bits of a tf32 is not looked at */
  case 3: return (double)(int8_t)bits;
  case 4: return is_left ? (double)(uint8_t)bits : (double)(int8_t)bits;
  default: return is_left ? (double)(int8_t)bits : (double)(uint8_t)bits;
  }
}

static int size_of(uint32_t kind) { return kind < 2 ? 2 : kind == 2 ? 4 : 1; }

/* Element `k` of a row (of a) or column (of b) of 32 bytes. `words` are those of its thread, `low` and `high` of them. */
static double element(uint32_t kind, int is_left, int row, int k) {
  const int byte = k * size_of(kind), is_high = byte >= 16, lane = row % 8 * 4 + byte % 16 / 4;
  const int first = device.current / WARP * WARP;
  const uint32_t *words = device.words[first + lane];
  const uint32_t word = is_left ? words[(row >= 8) + 2 * is_high] : words[4 + is_high];
  return number_of(kind, is_left, word >> byte % 4 * 8);
}

/* mma.sync: this thread's sums are at the rows t / 4 and t / 4 + 8, and the columns 2 * (t % 4) and the next. */
void graft_emulator_multiply(uint32_t kind, const uint32_t *words, void *sums) {
  const int self = device.current, lane = self % WARP, depth = kind < 2 ? 16 : kind == 2 ? 8 : 32;
  memcpy(device.words[self], words, sizeof device.words[self]);
  graft_emulator_barrier(1);
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
    double total = 0;
    for (int k = 0; k < depth; ++k)
      total += element(kind, 1, row, k) * element(kind, 0, column, k);
    if (kind >= 3)
      ((int32_t *)sums)[i] = (int32_t)((uint32_t)((int32_t *)sums)[i] + (uint32_t)(int64_t)total);
    else
      ((float *)sums)[i] = (float)((double)((float *)sums)[i] + total);
  }
  graft_emulator_barrier(1);
}

/* ---- wgmma ---- */

uint32_t graft_emulator_shared_address(const char *at) { return (uint32_t)(at - device.shared); }

void graft_emulator_fence_async(void) { device.threads[device.current].fences++; }

/* The address that a matrix descriptor gives element `k` of row (or column) `row` (PTX ISA, "Matrix Descriptor Format"
 * and canonical layouts with 128-byte swizzle): bits 0-13 are the address, 16-29 the leading offset, 32-45 the stride, all
 * in units of 16 bytes, and 62-63 the swizzle, which exchanges bits 4-6 of an address by bits 7-9 of it. */
static uint32_t described(uint64_t descriptor, int is_turned, int size, int row, int k) {
  const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4, leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
                 stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
  const uint32_t own = (uint32_t)row, term = (uint32_t)k, wide = LINE / (uint32_t)size;
  const uint32_t place = is_turned ? own / wide * leading + term / 8 * stride + term % 8 * LINE + own % wide * (uint32_t)size
                                   : own / 8 * stride + own % 8 * LINE + term * (uint32_t)size;
  const uint32_t address = start + place;
  return address ^ (address >> 7 & 7) << 4;
}

/* What one instruction reads of a factor is there, is ordered before it, and was fenced by those who wrote it. */
static void read_factor(uint64_t descriptor, int is_turned, int size, int rows, int depth) {
  const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4;
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
    fail("it multiplies what a descriptor gives with another swizzle than of 128 bytes, or with a base offset");
  if (start % PATTERN >= (is_turned ? 1 : LINE))
    fail("it multiplies what begins at byte %u of shared memory, within a pattern of %d bytes", start, PATTERN);
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < depth; ++k) {
      const uint32_t at = described(descriptor, is_turned, size, row, k);
      graft_emulator_access(device.shared + at, size, 0);
      const Shadow *shadow = &device.shared_shadow[at];
      if (shadow->write_epoch >= device.block_epoch && device.threads[shadow->write_thread].fences == shadow->write_fence)
        fail("it multiplies byte %u of shared memory, which thread %u writes without a fence for it", at,
             shadow->write_thread);
    }
}

/* wgmma.mma_async, as often as there are steps, and the wait for it: a warpgroup's sums of 64 rows, of which a warp has 16
 * as mma.sync lays them, eight columns after the other. */
void graft_emulator_multiply_group(uint64_t a, uint64_t b, void *sums, uint32_t kind, uint32_t columns, uint32_t steps,
                                   uint32_t a_turned, uint32_t b_turned, uint32_t a_ahead, uint32_t b_ahead) {
  const int self = device.current, lane = self % WARP, size = size_of(kind), depth = 32 / size;
  if (device.count % WARPGROUP || (size != 2 && (a_turned || b_turned)))
    fail("it multiplies with %d threads, or with factors that lie so only of 16 bits", device.count);
  graft_emulator_barrier(1);
  for (uint32_t step = 0; step < steps; ++step, a += a_ahead >> 4, b += b_ahead >> 4) {
    if (self % WARPGROUP == 0) {
      read_factor(a, (int)a_turned, size, 64, depth);
      read_factor(b, (int)b_turned, size, (int)columns, depth);
    }
    for (int i = 0; i < (int)columns / 2; ++i) {
      const int row = self % WARPGROUP / WARP * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      double total = 0;
      for (int k = 0; k < depth; ++k) {
        uint32_t left = 0, right = 0;
        memcpy(&left, device.shared + described(a, (int)a_turned, size, row, k), (size_t)size);
        memcpy(&right, device.shared + described(b, (int)b_turned, size, column, k), (size_t)size);
        total += number_of(kind, 1, left) * number_of(kind, 0, right);
      }
      if (kind >= 3)
        ((int32_t *)sums)[i] = (int32_t)((uint32_t)((int32_t *)sums)[i] + (uint32_t)(int64_t)total);
      else
        ((float *)sums)[i] = (float)((double)((float *)sums)[i] + total);
    }
  }
  graft_emulator_barrier(1);
}
