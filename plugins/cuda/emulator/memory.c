/* What each byte of device and shared memory was last touched by, and whether anything orders that before what comes. */
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>

void graft_emulator_buffer(const char *name, char *begin, int64_t bytes) {
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
  emulated.buffers[emulated.buffer_count++] = (Buffer){name, begin, (uint64_t)(bytes > 0 ? bytes : 0), NULL, 0};
}

Shadow *shadow_of(const char *at) { return &emulated.shared_shadow[at - emulated.shared]; }

static int is_of_block(const Access *access) { return access->epoch >= emulated.block_epoch; }

/* Whether an access before is ordered before one of the current thread now. */
static int is_ordered(const Buffer *buffer, const Access *access) {
  if (access->epoch < (buffer->is_shared ? emulated.block_epoch : emulated.first_epoch))
    return 1;
  if (!is_of_block(access))
    return 0; /* another block */
  if (access->epoch != emulated.epoch || access->thread == emulated.current)
    return 1;
  return access->thread / WARP == emulated.current / WARP && access->step != emulated.steps[emulated.current / WARP];
}

/* Keeps of all reads two by which any later write that is not ordered behind all of them is seen. */
static void remember_read(const Buffer *buffer, Shadow *shadow, const Access *now) {
  Access *one = &shadow->reads[0], *two = &shadow->reads[1];
  const uint32_t since = buffer->is_shared ? emulated.block_epoch : emulated.first_epoch;
  const int has_one = one->epoch == now->epoch || (one->epoch >= since && !is_of_block(one));
  const int has_two = two->epoch == now->epoch || (two->epoch >= since && !is_of_block(two));
  const int warp = now->thread / WARP;
  if (!has_one || (is_of_block(one) && one->thread == now->thread))
    *one = *now;
  else if (!has_two || (is_of_block(two) && two->thread == now->thread))
    *two = *now;
  else if (is_of_block(one) && is_of_block(two) && one->thread / WARP == two->thread / WARP) {
    if (one->thread / WARP == warp && one->step < two->step)
      *one = *now;
    else
      *two = *now;
  } else if (!is_of_block(one) && !is_of_block(two))
    *two = *now;
}

static void blame(const Buffer *buffer, const Access *other, const char *verb, const char *at, uint32_t how, uint32_t line) {
  const int is_block = !is_of_block(other);
  emulated.unwritten.epoch = 0;
  fail_launch(line, "it %s byte %lld of %s, which %s %u %s at %s, and nothing orders the two", how & WRITES ? "writes" : "reads",
              (long long)(at - buffer->begin), buffer->name,
              is_block ? "another block's thread" : "thread", other->thread, verb, said_line(other->line));
}

/* What copies that do not wait have written, or will. */
static void check_copied(const Shadow *shadow, const char *at, uint32_t how, uint32_t line) {
  const char *verb = how & WRITES ? "writes" : "reads";
  const long long byte = at - emulated.shared;
  if (shadow->how == BY_COPY_UNDER_WAY || shadow->how == BY_BULK_UNDER_WAY)
    fail_launch(line, "it %s byte %lld of shared memory, to which thread %u copies at %s, and no wait has covered that", verb, byte,
                shadow->write.thread, said_line(shadow->write.line));
  if (shadow->how == BY_BULK && (int16_t)(emulated.threads[emulated.current].seen[shadow->bulk] - shadow->fence) < 0)
    fail_launch(line, "it %s byte %lld of shared memory, to which thread %u copies at %s, and it has not waited for the mbarrier", verb,
                byte, shadow->write.thread, said_line(shadow->write.line));
}

static Buffer *buffer_of(const char *at) {
  Buffer *buffer = emulated.last;
  if (buffer != NULL && at >= buffer->begin && at < buffer->begin + buffer->bytes)
    return buffer;
  for (int i = 0; i < emulated.buffer_count; ++i)
    if (at >= emulated.buffers[i].begin && at < emulated.buffers[i].begin + emulated.buffers[i].bytes)
      return emulated.last = &emulated.buffers[i];
  return NULL;
}

static void touch_byte(const Buffer *buffer, Shadow *shadow, char *at, uint32_t how, const Access *now) {
  const int is_now = is_of_block(&shadow->write);
  if (buffer->is_shared && !is_now && !(how & WRITES) && !emulated.unwritten.epoch)
    emulated.unwritten = *now, emulated.unwritten_byte = at - buffer->begin;
  if (how & IS_CONSTANT && shadow->write.epoch >= emulated.first_epoch)
    blame(buffer, &shadow->write, "writes", at, how, now->line);
  if (shadow->how != BY_THREAD && is_now)
    check_copied(shadow, at, how, now->line);
  else if (!is_ordered(buffer, &shadow->write))
    blame(buffer, &shadow->write, "writes", at, how, now->line);
  if (!(how & WRITES)) {
    remember_read(buffer, shadow, now);
    return;
  }
  for (int i = 0; i < 2; ++i)
    if (!is_ordered(buffer, &shadow->reads[i]))
      blame(buffer, &shadow->reads[i], "reads", at, how, now->line);
  shadow->write = *now, shadow->how = BY_THREAD, shadow->fence = emulated.threads[now->thread].fences;
}

void touch(char *at, uint64_t bytes, uint32_t how, uint32_t line) {
  Buffer *buffer = buffer_of(at);
  if (buffer == NULL)
    fail_launch(line, "it %s %llu bytes outside of all buffers", how & WRITES ? "writes" : "reads", (unsigned long long)bytes);
  if (at + bytes > buffer->begin + buffer->bytes)
    fail_launch(line, "it %s %llu bytes at byte %lld of %s, which has %lld", how & WRITES ? "writes" : "reads",
                (unsigned long long)bytes, (long long)(at - buffer->begin), buffer->name, (long long)buffer->bytes);
  Shadow *shadow = buffer->shadow + (at - buffer->begin);
  const uint16_t self = (uint16_t)emulated.current;
  const Access now = {emulated.epoch, line, self, emulated.steps[self / WARP]};
  for (uint64_t i = 0; i < bytes; ++i)
    touch_byte(buffer, &shadow[i], at + i, how, &now);
}

uint64_t graft_emulator_shared(void) { return (uint64_t)(uintptr_t)emulated.shared; }

/* Whether a place is a thread's own memory. */
static int is_own(const char *at) {
  const char here = 0;
  const uintptr_t place = (uintptr_t)at, near = (uintptr_t)&here;
  const uintptr_t stack = (uintptr_t)emulated.stacks + (size_t)emulated.current * STACK;
  return emulated.uses_contexts ? place - stack < STACK : place - near + (1 << 20) < 9 << 20;
}

char *checked(uint64_t address, uint32_t bytes, uint32_t how, uint32_t line) {
  const uint32_t space = how & 3;
  if (address % bytes)
    fail_launch(line, "it %s %u bytes at an address that is no multiple of %u", how & WRITES ? "writes" : "reads", bytes, bytes);
  if (space == SHARED_SPACE && (uint32_t)address + (uint64_t)bytes > emulated.shared_bytes)
    fail_launch(line, "it %s %u bytes at byte %u of shared memory of %llu bytes", how & WRITES ? "writes" : "reads", bytes,
                (uint32_t)address, (unsigned long long)emulated.shared_bytes);
  char *at = space == SHARED_SPACE ? emulated.shared + (uint32_t)address : (char *)(uintptr_t)address;
  if (space == GENERIC && buffer_of(at) == NULL && is_own(at))
    return at;
  if (space == GLOBAL && at >= emulated.shared && at < emulated.shared + SHARED)
    fail_launch(line, "it takes an address of shared memory for one of device memory");
  if (how & IS_ATOMIC) {
    if (buffer_of(at) == NULL)
      fail_launch(line, "it changes %u bytes outside of all buffers", bytes);
    return at;
  }
  touch(at, bytes, how, line);
  return at;
}

char *graft_emulator_access(uint64_t address, uint32_t bytes, uint32_t how, uint32_t line) {
  if (emulated.uses_contexts && --emulated.until_switch == 0) { /* another thread's turn */
    emulated.until_switch = 16 + drawn(512);
    suspend(READY, line);
  }
  return checked(address, bytes, how, line);
}
