/* A device without a device: runs the threads of a kernel's blocks one after the other, from barrier to barrier, and
 * watches what they read and write.
 *
 * Every access of device and shared memory is announced first. One outside of the kernel's buffers, and two of one byte
 * by different threads that nothing orders, one of which writes, end the launch: `graft_emulator_error` says where. A
 * thread is a context of its own where a kernel has barriers. Copies to shared memory happen when they are waited for, and
 * overwrite what was there as soon as they begin.
 * Linked with the code of the kernels to one shared object.
 */
#define _GNU_SOURCE
#include "emulator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Emulated emulated;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns what went wrong in the last launch, NULL if nothing did, and forgets it. */
const char *graft_emulator_error(void) {
  static char said[512];
  pthread_mutex_lock(&lock);
  memcpy(said, emulated.error, sizeof said);
  emulated.error[0] = 0;
  pthread_mutex_unlock(&lock);
  return said[0] ? said : NULL;
}

void fail_launch(const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const uint32_t *thread = emulated.threads[emulated.current].index;
  snprintf(emulated.error, sizeof emulated.error, "kernel '%s': block (%u, %u, %u), thread (%u, %u, %u): %s", emulated.name,
           emulated.at[0], emulated.at[1], emulated.at[2], thread[0], thread[1], thread[2], text);
  if (emulated.uses_contexts)
    setcontext(&emulated.scheduler);
  longjmp(emulated.failure, 1);
}

void graft_emulator_begin(const char *name) {
  pthread_mutex_lock(&lock);
  emulated.name = name;
  emulated.buffer_count = 0;
  emulated.last = NULL;
}

void graft_emulator_end(void) {
  for (int i = 0; i < emulated.buffer_count; ++i)
    free(emulated.buffers[i].shadow);
  emulated.buffer_count = 0;
  pthread_mutex_unlock(&lock);
}

void graft_emulator_buffer(char *begin, int64_t bytes) {
  if (emulated.buffer_count == BUFFERS - 1)
    abort();
  for (int i = 0; i < emulated.buffer_count; ++i) { /* an output in the place of an input, views of one memory */
    Buffer *other = &emulated.buffers[i];
    if (begin < other->begin + other->bytes && other->begin < begin + bytes) {
      char *end = begin + bytes > other->begin + other->bytes ? begin + bytes : other->begin + other->bytes;
      other->begin = begin < other->begin ? begin : other->begin;
      other->bytes = (uint64_t)(end - other->begin);
      return;
    }
  }
  emulated.buffers[emulated.buffer_count++] = (Buffer){begin, (uint64_t)(bytes > 0 ? bytes : 0), NULL, 0};
}

static void run_thread(void) {
  emulated.kernel(emulated.args);
  emulated.threads[emulated.current].state = ENDED;
  setcontext(&emulated.scheduler);
}

/* Runs a thread until it waits or ends. */
static void resume(int number) {
  emulated.current = number;
  emulated.threads[number].state = RUNNING;
  swapcontext(&emulated.scheduler, &emulated.threads[number].context);
}

/* Runs the threads that are in a state until each is in another one. */
static void run_those(int state) {
  for (volatile int turn = 0; turn < emulated.count; ++turn) {
    const int number = emulated.is_reversed ? emulated.count - 1 - turn : turn;
    if (emulated.threads[number].state == state && !emulated.error[0])
      resume(number);
  }
}

static int all_in(int first, int last, int state) {
  int count = 0;
  for (int i = first; i < last; ++i)
    count += emulated.threads[i].state == state;
  return count == last - first;
}

static void blame_waiting(void) {
  for (emulated.current = 0; emulated.threads[emulated.current].state == ENDED; ++emulated.current)
    ;
  for (int i = 0; i < emulated.count; ++i)
    emulated.current = emulated.threads[i].state == AT_BULK ? i : emulated.current;
  const int is_bulk = emulated.threads[emulated.current].state == AT_BULK;
  emulated.uses_contexts = 0;
  if (!setjmp(emulated.failure))
    fail_launch("it waits %s", is_bulk ? "for a bulk copy that nobody begins" : "at a barrier that other threads of its block never reach");
}

static void run_block(void) {
  for (int i = 0; i < emulated.count; ++i) {
    Thread *thread = &emulated.threads[i];
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = emulated.stacks + (size_t)i * STACK;
    thread->context.uc_stack.ss_size = STACK;
    thread->context.uc_link = NULL;
    makecontext(&thread->context, run_thread, 0);
    thread->state = AT_BLOCK_BARRIER;
  }
  run_those(AT_BLOCK_BARRIER);
  while (!emulated.error[0]) {
    int moved = 0;
    for (int first = 0; first < emulated.count; first += WARP) { /* a warp goes on when all its threads are there */
      const int last = first + WARP < emulated.count ? first + WARP : emulated.count;
      if (!all_in(first, last, AT_WARP_BARRIER))
        continue;
      emulated.steps[first / WARP]++;
      for (int i = first; i < last && !emulated.error[0]; ++i)
        resume(emulated.is_reversed ? last - 1 - (i - first) : i);
      moved = 1;
    }
    for (int i = 0; i < emulated.count && !emulated.error[0]; ++i)
      if (emulated.threads[i].state == AT_BULK && has_bulk(&emulated.threads[i])) {
        resume(i);
        moved = 1;
      }
    if (moved)
      continue;
    if (all_in(0, emulated.count, ENDED))
      return;
    if (!all_in(0, emulated.count, AT_BLOCK_BARRIER)) {
      blame_waiting();
      return;
    }
    emulated.epoch++;
    memset(emulated.steps, 0, sizeof emulated.steps);
    run_those(AT_BLOCK_BARRIER);
  }
}

static void run_blocks(int has_barriers) {
  for (uint32_t z = 0; z < emulated.grid[2]; ++z)
    for (uint32_t y = 0; y < emulated.grid[1]; ++y)
      for (uint32_t x = 0; x < emulated.grid[0]; ++x) {
        emulated.at[0] = x, emulated.at[1] = y, emulated.at[2] = z;
        emulated.block_epoch = ++emulated.epoch;
        memset(emulated.steps, 0, sizeof emulated.steps);
        emulated.bulk_count = 0;
        memset(emulated.shared, 0xff, emulated.shared_bytes); /* NaN: nothing is there at first */
        emulated.uses_contexts = has_barriers;
        if (has_barriers)
          run_block();
        else
          for (emulated.current = 0; emulated.current < emulated.count; ++emulated.current)
            emulated.kernel(emulated.args);
        if (emulated.error[0])
          return;
      }
}

void graft_emulator_run(Kernel kernel, const int64_t *grid, const int64_t *block, void **args, int64_t shared) {
  const int has_barriers = shared < 0 ? 0 : 1;
  emulated.kernel = kernel, emulated.args = args, emulated.error[0] = 0;
  emulated.shared_bytes = shared < 0 ? 0 : (uint64_t)shared;
  emulated.is_reversed = getenv("GRAFT_EMULATOR_REVERSED") != NULL;
  for (int i = 0; i < 3; ++i)
    emulated.grid[i] = (uint32_t)grid[i], emulated.block[i] = (uint32_t)block[i];
  emulated.count = (int)(block[0] * block[1] * block[2]);
  if (emulated.count > THREADS || emulated.shared_bytes > SHARED || emulated.count < 1) {
    snprintf(emulated.error, sizeof emulated.error, "kernel '%s': %d threads and %lld bytes of shared memory; a block has at most %d and %d",
             emulated.name, emulated.count, (long long)shared, THREADS, SHARED);
    return;
  }
  emulated.buffers[emulated.buffer_count++] = (Buffer){emulated.shared, emulated.shared_bytes, emulated.shared_shadow, 1};
  emulated.threads = calloc((size_t)emulated.count, sizeof *emulated.threads);
  emulated.stacks = has_barriers ? malloc((size_t)emulated.count * STACK) : NULL;
  for (int i = 0; i + 1 < emulated.buffer_count; ++i) {
    emulated.buffers[i].shadow = calloc(emulated.buffers[i].bytes + 1, sizeof(Shadow));
    if (emulated.buffers[i].shadow == NULL)
      abort();
  }
  if (emulated.threads == NULL || (has_barriers && emulated.stacks == NULL))
    abort();
  for (int i = 0; i < emulated.count; ++i) {
    const uint32_t number = (uint32_t)i;
    emulated.threads[i].index[0] = number % emulated.block[0];
    emulated.threads[i].index[1] = number / emulated.block[0] % emulated.block[1];
    emulated.threads[i].index[2] = number / emulated.block[0] / emulated.block[1];
  }
  emulated.first_epoch = emulated.epoch + 1;
  if (!setjmp(emulated.failure))
    run_blocks(has_barriers);
  free(emulated.threads);
  free(emulated.stacks);
  emulated.buffers[--emulated.buffer_count].shadow = NULL; /* shared memory is no buffer of the next launch */
}

uint32_t graft_emulator_unit(uint32_t which) {
  return which < 3 ? emulated.threads[emulated.current].index[which] : emulated.at[which - 3];
}

char *graft_emulator_shared(uint32_t offset) { return emulated.shared + offset; }

void graft_emulator_barrier(uint32_t of_warp) {
  Thread *thread = &emulated.threads[emulated.current];
  thread->state = of_warp ? AT_WARP_BARRIER : AT_BLOCK_BARRIER;
  swapcontext(&thread->context, &emulated.scheduler);
}

/* Whether an access before, by `thread` in `epoch` at `step` of its warp, is ordered before one now. */
static int is_ordered(const Buffer *buffer, uint32_t epoch, uint16_t thread, uint16_t step) {
  if (epoch < emulated.first_epoch || epoch < (buffer->is_shared ? emulated.block_epoch : emulated.first_epoch))
    return 1;
  if (epoch < emulated.block_epoch)
    return 0; /* another block */
  if (epoch != emulated.epoch || thread == emulated.current)
    return 1;
  return thread / WARP == emulated.current / WARP && step != emulated.steps[emulated.current / WARP];
}

static void blame(const Buffer *buffer, const Shadow *shadow, const char *at, uint32_t writes) {
  const int is_read = writes && is_ordered(buffer, shadow->write_epoch, shadow->write_thread, shadow->write_step);
  fail_launch("it %s byte %lld of %s memory, which thread %u %s, and nothing orders the two", writes ? "writes" : "reads",
              (long long)(at - buffer->begin), buffer->is_shared ? "shared" : "device",
              is_read ? shadow->read_thread : shadow->write_thread, is_read ? "reads" : "writes");
}

void graft_emulator_access(char *at, int64_t bytes, uint32_t writes) {
  Buffer *buffer = emulated.last;
  if (buffer == NULL || at < buffer->begin || at >= buffer->begin + buffer->bytes) {
    buffer = NULL;
    for (int i = 0; i < emulated.buffer_count && buffer == NULL; ++i)
      if (at >= emulated.buffers[i].begin && at < emulated.buffers[i].begin + emulated.buffers[i].bytes)
        buffer = &emulated.buffers[i];
    if (buffer == NULL) { /* its own memory */
      char here;
      const char *low = emulated.uses_contexts ? emulated.stacks + (size_t)emulated.current * STACK : &here - (1 << 20);
      const char *high = emulated.uses_contexts ? low + STACK : &here + (8 << 20);
      if (at >= low && at < high)
        return;
      fail_launch("it %s %lld bytes outside of all buffers", writes ? "writes" : "reads", (long long)bytes);
    }
    emulated.last = buffer;
  }
  if (at + bytes > buffer->begin + buffer->bytes)
    fail_launch("it %s %lld bytes at byte %lld of a buffer of %lld", writes ? "writes" : "reads", (long long)bytes,
                (long long)(at - buffer->begin), (long long)buffer->bytes);
  Shadow *shadow = buffer->shadow + (at - buffer->begin);
  const uint16_t step = emulated.steps[emulated.current / WARP], self = (uint16_t)emulated.current;
  for (int64_t i = 0; i < bytes; ++i, ++shadow) {
    if (!is_ordered(buffer, shadow->write_epoch, shadow->write_thread, shadow->write_step) ||
        (writes && !is_ordered(buffer, shadow->read_epoch, shadow->read_thread, shadow->read_step)))
      blame(buffer, shadow, at + i, writes);
    if (writes)
      shadow->write_epoch = emulated.epoch, shadow->write_thread = self, shadow->write_step = step,
      shadow->write_fence = emulated.threads[self].fences;
    else if (shadow->read_epoch != emulated.epoch || shadow->read_thread == self || shadow->read_thread / WARP == self / WARP)
      shadow->read_epoch = emulated.epoch, shadow->read_thread = self, shadow->read_step = step;
  }
}

void graft_emulator_report(int64_t *words, int64_t code, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
  const int64_t all[] = {code, a, b, c, d, e};
  if (!words[0])
    memcpy(words, all, sizeof all);
}

void graft_emulator_copy(char *target, char *source, uint32_t bytes) {
  Thread *thread = &emulated.threads[emulated.current];
  if ((uintptr_t)target % bytes || (uintptr_t)source % bytes)
    fail_launch("it copies %u bytes to or from an address that is no multiple of %u", bytes, bytes);
  if (thread->count == COPIES)
    fail_launch("it has %d copies under way", COPIES);
  graft_emulator_access(target, bytes, 1);
  memset(target, 0xff, bytes); /* NaN: nobody may read it before it is waited for */
  thread->copies[thread->count++] = (Copy){target, source, bytes};
}

void graft_emulator_commit(void) {
  Thread *thread = &emulated.threads[emulated.current];
  if (thread->groups == GROUPS)
    fail_launch("it has %d groups of copies under way", GROUPS);
  thread->ends[thread->groups++] = thread->count;
}

void graft_emulator_wait(uint32_t pending) {
  Thread *thread = &emulated.threads[emulated.current];
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
