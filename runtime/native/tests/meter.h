/* Memory that a host gives, counted. */
#ifndef GRAFT_TESTS_METER_H
#define GRAFT_TESTS_METER_H

#include "check.h"
#include "graft/runtime.h"

/* Counts what is not given back; the n-th allocation from now on (from 0) fails, once; -1: none. */
typedef struct Meter {
  atomic_int held, total, left;
} Meter;

static void *meter_allocate(void *user, size_t bytes) {
  Meter *meter = user;
  if (atomic_load(&meter->left) >= 0 && atomic_fetch_sub(&meter->left, 1) == 0) {
    return NULL;
  }
  void *block = aligned_alloc(64, (bytes + 63) / 64 * 64);
  CHECK(block && bytes > 0);
  memset(block, 0xAA, bytes); /* nobody may count on zeros */
  atomic_fetch_add(&meter->held, 1);
  atomic_fetch_add(&meter->total, 1);
  return block;
}

static void meter_release(void *user, void *block) {
  CHECK(block);
  atomic_fetch_sub(&((Meter *)user)->held, 1);
  free(block);
}

#endif
