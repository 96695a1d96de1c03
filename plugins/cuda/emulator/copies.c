/* Copies past the threads: they overwrite their target when they begin, land when they are waited for and not before, and
 * no byte of their source may change meanwhile. */
#define _GNU_SOURCE
#include "copies.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"

static char *in_shared(uint32_t at, uint32_t bytes, uint32_t line) {
  if ((uint64_t)at + bytes > emulated.shared_bytes)
    fail_launch(line, "it copies %u bytes to byte %u of shared memory of %llu bytes", bytes, at, (unsigned long long)emulated.shared_bytes);
  return emulated.shared + at;
}

static void begin(const Copy *copy, uint8_t how) {
  touch((char *)(uintptr_t)copy->source, copy->bytes, 0, copy->line);
  touch(copy->target, copy->bytes, WRITES, copy->line);
  memset(copy->target, 0xff, copy->bytes);
  memcpy(copy->first, copy->source, copy->bytes);
  for (uint32_t i = 0; i < copy->bytes; ++i)
    shadow_of(copy->target)[i].how = how;
}

/* Lands a copy; what it wrote is the thread's that waited. */
static void land(const Copy *copy, uint32_t line) {
  if (memcmp(copy->first, copy->source, copy->bytes))
    fail_launch(line, "it waits for the copy of %s, whose source has changed meanwhile", said_line(copy->line));
  touch((char *)(uintptr_t)copy->source, copy->bytes, 0, copy->line);
  memcpy(copy->target, copy->source, copy->bytes);
  Shadow *shadow = shadow_of(copy->target);
  for (uint32_t i = 0; i < copy->bytes; ++i) {
    const uint16_t self = (uint16_t)emulated.current;
    shadow[i].write = (Access){emulated.epoch, copy->line, self, emulated.steps[self / WARP]};
    shadow[i].how = BY_THREAD, shadow[i].fence = emulated.threads[self].fences;
  }
}

/* ---- cp.async ------------------------------------------------------------------------------------------------------ */

void graft_emulator_copy(uint32_t target, uint64_t source, uint32_t bytes, uint32_t line) {
  Thread *thread = &emulated.threads[emulated.current];
  if (target % bytes || source % bytes)
    fail_launch(line, "it copies %u bytes to or from an address that is no multiple of %u", bytes, bytes);
  if (thread->count == COPIES)
    fail_launch(line, "it has %d copies under way", COPIES);
  const Copy copy = {in_shared(target, bytes, line), (const char *)(uintptr_t)source, bytes, line, thread->early[thread->count]};
  begin(&copy, BY_COPY_UNDER_WAY);
  thread->copies[thread->count++] = copy;
}

void graft_emulator_commit(uint32_t line) {
  Thread *thread = &emulated.threads[emulated.current];
  if (thread->groups == GROUPS)
    fail_launch(line, "it has %d groups of copies under way", GROUPS);
  thread->ends[thread->groups++] = thread->count;
}

void graft_emulator_wait(uint32_t pending, uint32_t line) {
  Thread *thread = &emulated.threads[emulated.current];
  if (thread->groups <= (int)pending)
    return;
  const int done = thread->groups - (int)pending, end = thread->ends[done - 1];
  for (int i = 0; i < end; ++i)
    land(&thread->copies[i], line);
  for (int i = end; i < thread->count; ++i) {
    thread->copies[i - end] = thread->copies[i];
    thread->copies[i - end].first = memcpy(thread->early[i - end], thread->copies[i].first, thread->copies[i].bytes);
  }
  thread->count -= end;
  for (int i = done; i < thread->groups; ++i)
    thread->ends[i - done] = thread->ends[i] - end;
  thread->groups -= done;
}

/* ---- mbarriers and bulk copies ------------------------------------------------------------------------------------- */

void graft_emulator_fence_async(void) { emulated.threads[emulated.current].fences++; }

static Barrier *find(uint32_t at, uint32_t line) {
  for (int i = 0; i < emulated.barrier_count; ++i)
    if (emulated.barriers[i].at == emulated.shared + at)
      return &emulated.barriers[i];
  fail_launch(line, "byte %u of shared memory is no mbarrier: nothing has initialised it", at);
}

void graft_emulator_open_barrier(uint32_t at, uint32_t arrivals, uint32_t line) {
  if (emulated.barrier_count == BARRIERS || at % 8 || arrivals != 1)
    fail_launch(line, "it makes an mbarrier of %u arrivals beside %d others at byte %u of shared memory; the emulator has %d of one arrival, "
                "at multiples of 8", arrivals, emulated.barrier_count, at, BARRIERS);
  touch(in_shared(at, 8, line), 8, WRITES, line);
  for (int i = 0; i < emulated.barrier_count; ++i)
    if (emulated.barriers[i].at == emulated.shared + at)
      fail_launch(line, "byte %u of shared memory is an mbarrier already", at);
  emulated.barriers[emulated.barrier_count++] = (Barrier){.at = emulated.shared + at};
}

void graft_emulator_expect(uint32_t at, uint32_t bytes, uint32_t line) {
  Barrier *barrier = find(at, line);
  touch(barrier->at, 8, 0, line);
  if (barrier->is_arrived)
    fail_launch(line, "it arrives at an mbarrier whose phase is not over: nobody has waited for its copies");
  barrier->is_arrived = 1, barrier->by = emulated.current, barrier->expected = bytes;
}

void graft_emulator_copy_bulk(uint32_t target, uint64_t source, uint32_t bytes, uint32_t at, uint32_t line) {
  Barrier *barrier = find(at, line);
  const Shadow *opened = shadow_of(barrier->at);
  if (target % 16 || source % 16 || bytes % 16)
    fail_launch(line, "it copies %u bytes in bulk, and all must be multiples of 16, addresses too", bytes);
  if (barrier->copy_count == BULKS)
    fail_launch(line, "it begins more than %d bulk copies in one phase of an mbarrier", BULKS);
  touch(barrier->at, 8, 0, line);
  if (emulated.threads[opened->write.thread].fences == opened->fence)
    fail_launch(line, "it copies in bulk for the mbarrier of %s without a fence.proxy.async behind that", said_line(opened->write.line));
  Copy *copy = &barrier->copies[barrier->copy_count];
  *copy = (Copy){in_shared(target, bytes, line), (const char *)(uintptr_t)source, bytes, line, malloc(bytes + 1)};
  if (copy->first == NULL)
    abort();
  barrier->copy_count++;
  begin(copy, BY_BULK_UNDER_WAY);
}

/* Whether the phase that a thread waits for is over, or ends now that it is waited for. */
int is_over(const Thread *thread) {
  const Barrier *barrier = thread->awaited;
  int64_t bytes = 0;
  if ((barrier->phase & 1) != thread->parity)
    return 1;
  for (int i = 0; i < barrier->copy_count; ++i)
    bytes += barrier->copies[i].bytes;
  return barrier->is_arrived && bytes == barrier->expected;
}

/* What a bulk copy writes is ordered by its mbarrier alone, and needs no fence: it is written past the threads. */
void end_phase(Thread *thread) {
  Barrier *barrier = thread->awaited;
  const int number = (int)(barrier - emulated.barriers);
  if ((barrier->phase & 1) == thread->parity) {
    barrier->phase++;
    for (int i = 0; i < barrier->copy_count; ++i) {
      const Copy *copy = &barrier->copies[i];
      land(copy, thread->line);
      for (uint32_t k = 0; k < copy->bytes; ++k) {
        Shadow *shadow = &shadow_of(copy->target)[k];
        shadow->how = BY_BULK, shadow->bulk = (uint8_t)number, shadow->fence = (uint16_t)barrier->phase;
        shadow->write.thread = (uint16_t)barrier->by;
      }
      free(copy->first);
    }
    barrier->copy_count = barrier->is_arrived = 0;
  }
  thread->seen[number] = (uint16_t)barrier->phase;
}

void graft_emulator_wait_barrier(uint32_t at, uint32_t parity, uint32_t line) {
  Thread *thread = &emulated.threads[emulated.current];
  thread->awaited = find(at, line), thread->parity = parity & 1;
  touch(thread->awaited->at, 8, 0, line);
  suspend(AT_MBARRIER, line);
}
