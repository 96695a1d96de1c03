/* Allocation through one door: the host's memory, or the heap, of which the C tests can make the n-th allocation fail. */
#ifndef GRAFT_MEMORY_H
#define GRAFT_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "graft/runtime.h"

#ifdef GRAFT_TEST_FAIL_ALLOCATION
int graft_test_allocation_fails(void); /* defined by the test program */
#else
static inline int graft_test_allocation_fails(void) { return 0; }
#endif

/* 64-byte aligned memory of the host; of the heap where `allocator` is NULL. NULL when there is none. */
static inline void *graft_allocate(const GraftAllocator *allocator, size_t bytes) {
  if (allocator) {
    return allocator->allocate(allocator->user, bytes ? bytes : 1);
  }
  if (bytes > SIZE_MAX - 64 || graft_test_allocation_fails()) {
    return NULL;
  }
  return aligned_alloc(64, bytes ? (bytes + 63) / 64 * 64 : 64);
}

static inline void graft_release(const GraftAllocator *allocator, void *block) {
  if (!allocator) {
    free(block);
  } else if (block) {
    allocator->release(allocator->user, block);
  }
}

/* Zeroed memory for count items; NULL also when the product overflows. */
static inline void *graft_allocate_zeroed(const GraftAllocator *allocator, size_t count, size_t bytes) {
  void *block = bytes && count > SIZE_MAX / bytes ? NULL : graft_allocate(allocator, count * bytes);
  return block ? memset(block, 0, count * bytes) : NULL;
}

/* Makes room for `wanted` items where there were `count`, which are kept: a new block, or NULL and the old one stays. */
static inline void *graft_grow(const GraftAllocator *allocator, void *block, size_t count, size_t wanted, size_t bytes) {
  void *grown = bytes && wanted > SIZE_MAX / bytes ? NULL : graft_allocate(allocator, wanted * bytes);
  if (grown && count) {
    memcpy(grown, block, count * bytes);
  }
  if (grown) {
    graft_release(allocator, block);
  }
  return grown;
}

#endif
