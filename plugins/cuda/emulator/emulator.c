/* A device without a device: runs the PTX of a kernel, compiled for this processor, and watches what its threads do.
 *
 * Threads are contexts. Which one runs, and for how long, is drawn at random from a seed (GRAFT_EMULATOR_SEED): they
 * change places at barriers, at instructions of warps, and between accesses of memory. Blocks run one after the other, in an
 * order that is drawn, too. What nothing orders is found whichever order was drawn (`memory.c`).
 * Linked with the code of the kernels to one shared object.
 */
#define _GNU_SOURCE
#include "emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copies.h"
#include "memory.h"
#include "products.h"

/* ---- The order of threads ------------------------------------------------------------------------------------------ */

static void shuffle(int *numbers, int count) {
  for (int i = 0; i < count; ++i)
    numbers[i] = i;
  for (int i = count - 1; i > 0; --i) {
    const int other = (int)drawn((uint32_t)i + 1), kept = numbers[i];
    numbers[i] = numbers[other], numbers[other] = kept;
  }
}

static void run_thread(void) { /* block after block */
  for (;;) {
    emulated.kernel(emulated.args);
    suspend(ENDED, 0);
  }
}

/* Runs a thread until it waits, ends, or another one's turn has come. */
static void resume(int number) {
  Thread *thread = &emulated.threads[number];
  emulated.current = number;
  if (_setjmp(emulated.place))
    return;
  if (thread->is_begun)
    _longjmp(thread->place, 1);
  thread->is_begun = 1;
  setcontext(&thread->context);
}

static int all_in(int first, int last, State state) {
  for (int i = first; i < last; ++i)
    if (emulated.threads[i].state != state)
      return 0;
  return 1;
}

/* Instructions of a warp must be the same one for all its threads. */
static void check_lines(int first, int last) {
  for (int i = first + 1; i < last; ++i)
    if (emulated.threads[i].line != emulated.threads[first].line) {
      emulated.current = i;
      fail_launch(emulated.threads[i].line, "it waits there while thread %d of its warp waits at %s", first,
                  said_line(emulated.threads[first].line));
    }
}

/* Lets threads on that all have come to an instruction of their warp or warpgroup; what it computes is computed here. */
static int meet(int first, int last, State state, void (*act)(int first)) {
  if (last > emulated.count || !all_in(first, last, state))
    return 0;
  check_lines(first, last);
  if (act != NULL)
    act(first);
  else
    emulated.steps[first / WARP]++;
  for (int i = first; i < last; ++i)
    emulated.threads[i].state = READY;
  return 1;
}

/* Runs what can run of a warp, in an order that is drawn; whether anything could. */
static int run_warp(int first) {
  const int last = first + WARP < emulated.count ? first + WARP : emulated.count;
  const int ahead = (int)drawn(WARP), by = (int)drawn(WARP) | 1;
  int moved = 0;
  for (int i = 0; i < WARP; ++i) {
    const int number = first + (i * by + ahead) % WARP;
    if (number >= last)
      continue;
    Thread *thread = &emulated.threads[number];
    if (thread->state == AT_MBARRIER && is_over(thread)) {
      emulated.current = number;
      end_phase(thread);
      thread->state = READY;
    }
    if (thread->state == READY) {
      resume(number);
      moved = 1;
    }
  }
  moved |= meet(first, last, AT_WARP, NULL);
  moved |= meet(first, first + WARP, AT_MATRICES, load_matrices);
  moved |= meet(first, first + WARP, AT_EXCHANGE, exchange);
  moved |= meet(first, first + WARP, AT_PRODUCT, multiply_by_warp);
  return moved;
}

static void release_block(void) {
  uint16_t seen[BARRIERS] = {0};
  for (int first = 0; first < emulated.count; first += WARP)
    check_lines(first, first + WARP < emulated.count ? first + WARP : emulated.count);
  for (int k = 0; k < emulated.barrier_count; ++k)
    for (int i = 0; i < emulated.count; ++i)
      seen[k] = emulated.threads[i].seen[k] > seen[k] ? emulated.threads[i].seen[k] : seen[k];
  for (int i = 0; i < emulated.count; ++i) {
    Thread *thread = &emulated.threads[i];
    thread->state = READY, thread->settled = thread->fences;
    memcpy(thread->seen, seen, sizeof seen);
  }
  emulated.epoch++;
  memset(emulated.steps, 0, sizeof emulated.steps);
}

static void blame_waiting(void) {
  int who = -1;
  for (int i = 0; i < emulated.count; ++i)
    if (emulated.threads[i].state != ENDED && (who < 0 || emulated.threads[i].state > emulated.threads[who].state))
      who = i;
  const Thread *thread = &emulated.threads[emulated.current = who];
  const Barrier *barrier = thread->awaited;
  int64_t copied = 0;
  if (thread->state != AT_MBARRIER)
    fail_launch(thread->line, "it waits for other threads of its %s, which never come there",
                thread->state == AT_BARRIER ? "block" : thread->state == AT_GROUP ? "warpgroup" : "warp");
  for (int i = 0; i < barrier->copy_count; ++i)
    copied += barrier->copies[i].bytes;
  fail_launch(thread->line, "it waits for an mbarrier that %s %lld bytes, of which bulk copies bring %lld",
              barrier->is_arrived ? "expects" : "nobody has told to expect bytes, or", (long long)barrier->expected, (long long)copied);
}

static void run_block(void) {
  int warps[THREADS / WARP];
  const int count = (emulated.count + WARP - 1) / WARP;
  for (int i = 0; i < emulated.count; ++i) {
    Thread *thread = &emulated.threads[i];
    thread->state = READY, thread->count = thread->groups = 0;
    memset(thread->seen, 0, sizeof thread->seen);
  }
  while (!all_in(0, emulated.count, ENDED)) {
    int moved = 0;
    shuffle(warps, count);
    for (int i = 0; i < count; ++i)
      for (int turns = 1 + (int)drawn(4); turns > 0 && run_warp(warps[i] * WARP); --turns)
        moved = 1;
    for (int first = 0; first + WARPGROUP <= emulated.count; first += WARPGROUP)
      moved |= meet(first, first + WARPGROUP, AT_GROUP, multiply_by_group);
    if (moved)
      continue;
    if (!all_in(0, emulated.count, AT_BARRIER) && !all_in(0, emulated.count, ENDED))
      blame_waiting();
    release_block();
  }
}

static void run_blocks(void) {
  const uint32_t blocks = emulated.grid[0] * emulated.grid[1] * emulated.grid[2], from = drawn(blocks);
  const int backwards = (int)drawn(2);
  for (uint32_t turn = 0; turn < blocks; ++turn) {
    const uint32_t number = (backwards ? from + blocks - turn : from + turn) % blocks;
    emulated.at[0] = number % emulated.grid[0], emulated.at[1] = number / emulated.grid[0] % emulated.grid[1];
    emulated.at[2] = number / emulated.grid[0] / emulated.grid[1];
    emulated.block_epoch = ++emulated.epoch;
    memset(emulated.steps, 0, sizeof emulated.steps);
    emulated.barrier_count = 0;
    memset(emulated.shared, 0xff, emulated.shared_bytes);
    if (emulated.uses_contexts)
      run_block();
    else
      for (emulated.current = 0; emulated.current < emulated.count; ++emulated.current)
        emulated.kernel(emulated.args);
    if (emulated.unwritten.epoch)
      fail_launch(0, "it reads what nothing has written");
  }
}

static void prepare_threads(void) {
  emulated.threads = calloc((size_t)emulated.count, sizeof *emulated.threads);
  emulated.stacks = emulated.uses_contexts ? malloc((size_t)emulated.count * STACK) : NULL;
  if (emulated.threads == NULL || (emulated.uses_contexts && emulated.stacks == NULL))
    abort();
  for (int i = 0; i < emulated.count; ++i) {
    Thread *thread = &emulated.threads[i];
    const uint32_t number = (uint32_t)i;
    thread->index[0] = number % emulated.block[0];
    thread->index[1] = number / emulated.block[0] % emulated.block[1];
    thread->index[2] = number / emulated.block[0] / emulated.block[1];
    if (!emulated.uses_contexts)
      continue;
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = emulated.stacks + (size_t)i * STACK;
    thread->context.uc_stack.ss_size = STACK;
    thread->context.uc_link = NULL;
    makecontext(&thread->context, run_thread, 0);
  }
}

void graft_emulator_run(Kernel kernel, const int64_t *grid, const int64_t *block, void **args, int64_t shared) {
  const char *seed = getenv("GRAFT_EMULATOR_SEED");
  emulated.kernel = kernel, emulated.args = args, emulated.error[0] = 0;
  emulated.uses_contexts = shared >= 0;
  emulated.shared_bytes = shared < 0 ? 0 : (uint64_t)shared;
  emulated.random = 2654435769u * (seed == NULL ? 1 : (uint32_t)atoi(seed) + 1) | 1;
  emulated.until_switch = 64, emulated.unwritten.epoch = 0;
  for (int i = 0; i < 3; ++i)
    emulated.grid[i] = (uint32_t)grid[i], emulated.block[i] = (uint32_t)block[i];
  emulated.count = (int)(block[0] * block[1] * block[2]);
  if (emulated.count > THREADS || emulated.shared_bytes > SHARED || emulated.count < 1) {
    snprintf(emulated.error, sizeof emulated.error, "kernel '%s': %d threads and %lld bytes of shared memory; a block has at most %d and %d",
             emulated.name, emulated.count, (long long)shared, THREADS, SHARED);
    return;
  }
  for (int i = 0; i < emulated.buffer_count; ++i)
    if ((emulated.buffers[i].shadow = calloc(emulated.buffers[i].bytes + 1, sizeof(Shadow))) == NULL)
      abort();
  emulated.buffers[emulated.buffer_count++] = (Buffer){"shared memory", emulated.shared, emulated.shared_bytes, emulated.shared_shadow, 1};
  prepare_threads();
  emulated.first_epoch = emulated.epoch + 1;
  if (!_setjmp(emulated.failure))
    run_blocks();
  for (int i = 0; i < emulated.barrier_count; ++i)
    while (emulated.barriers[i].copy_count > 0)
      free(emulated.barriers[i].copies[--emulated.barriers[i].copy_count].first);
  free(emulated.threads);
  free(emulated.stacks);
  emulated.buffers[--emulated.buffer_count].shadow = NULL; /* shared memory is no buffer of the next launch */
}

void graft_emulator_barrier(uint32_t line) { suspend(AT_BARRIER, line); }

void graft_emulator_warp_barrier(uint32_t line) { suspend(AT_WARP, line); }
