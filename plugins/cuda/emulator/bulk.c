/* Bulk copies: one thread begins a copy and tells an mbarrier of its bytes; whoever waits for that phase finds them. */
#define _GNU_SOURCE
#include "emulator.h"

#include <string.h>

static Bulk *find(const char *at) {
  for (int i = 0; i < emulated.bulk_count; ++i)
    if (emulated.bulks[i].at == at)
      return &emulated.bulks[i];
  fail_launch("byte %lld of shared memory is no mbarrier", (long long)(at - emulated.shared));
  return NULL;
}

void graft_emulator_open_bulk(char *at) {
  graft_emulator_access(at, 8, 1);
  if (emulated.bulk_count == BULKS || (uintptr_t)at % 8)
    fail_launch("it makes an mbarrier beside %d others, or at no multiple of 8 bytes", emulated.bulk_count);
  emulated.bulks[emulated.bulk_count++] = (Bulk){.at = at};
}

void graft_emulator_copy_bulk(char *target, char *source, char *at, uint32_t bytes) {
  Bulk *bulk = find(at);
  if ((uintptr_t)target % 16 || (uintptr_t)source % 16 || bytes % 16)
    fail_launch("it copies %u bytes in bulk, and all must be multiples of 16, addresses too", bytes);
  if (bulk->is_under_way)
    fail_launch("it begins a bulk copy while another of the same mbarrier is under way");
  graft_emulator_access(source, bytes, 0);
  graft_emulator_access(target, bytes, 1);
  memset(target, 0xff, bytes); /* NaN: nobody may read it before it is waited for */
  bulk->copy = (Copy){target, source, bytes};
  bulk->is_under_way = 1, bulk->by = emulated.current;
}

/* What a bulk copy writes needs no fence for what reads past the threads: it is written past them itself. */
static void finish(Bulk *bulk) {
  Shadow *shadow = &emulated.shared_shadow[bulk->copy.target - emulated.shared];
  memcpy(bulk->copy.target, bulk->copy.source, bulk->copy.bytes);
  for (uint32_t i = 0; i < bulk->copy.bytes; ++i, ++shadow) {
    shadow->write_epoch = emulated.epoch, shadow->write_thread = (uint16_t)bulk->by;
    shadow->write_step = emulated.steps[bulk->by / WARP];
    shadow->write_fence = (uint16_t)(emulated.threads[bulk->by].fences - 1);
  }
  bulk->is_under_way = 0, bulk->phase++;
}

void graft_emulator_wait_bulk(char *at, uint32_t parity) {
  Thread *thread = &emulated.threads[emulated.current];
  thread->awaited = find(at), thread->parity = parity;
  if (!has_bulk(thread)) {
    thread->state = AT_BULK;
    swapcontext(&thread->context, &emulated.scheduler);
  }
  if ((thread->awaited->phase & 1) == parity)
    finish(thread->awaited);
}
