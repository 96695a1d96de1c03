/* Allocation through one door, so that the C tests can make the n-th allocation fail; and the host's memory. */
#ifndef GRAFT_MEMORY_H
#define GRAFT_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "graft/runtime.h"

#ifdef GRAFT_TEST_FAIL_ALLOCATION
int graft_test_allocation_fails(void); /* defined by the test program */
#else
static inline int graft_test_allocation_fails(void) { return 0; }
#endif

static inline void *graft_malloc(size_t bytes) {
  return graft_test_allocation_fails() ? NULL : malloc(bytes ? bytes : 1);
}

/* Zeroed memory for count items; NULL also when the product overflows. */
static inline void *graft_calloc(size_t count, size_t bytes) {
  return graft_test_allocation_fails() ? NULL : calloc(count ? count : 1, bytes ? bytes : 1);
}

static inline void *graft_realloc(void *block, size_t count, size_t bytes) {
  if (bytes && count > SIZE_MAX / bytes) {
    return NULL;
  }
  size_t total = count * bytes;
  return graft_test_allocation_fails() ? NULL : realloc(block, total ? total : 1);
}

/* 64-byte aligned; released with free. */
static inline void *graft_aligned_malloc(size_t bytes) {
  if (bytes > SIZE_MAX - 64) {
    return NULL;
  }
  size_t rounded = (bytes + 63) / 64 * 64;
  return graft_test_allocation_fails() ? NULL : aligned_alloc(64, rounded ? rounded : 64);
}

/* 64-byte aligned memory of the host; of the heap where `allocator` is NULL. */
static inline void *graft_allocate(const GraftAllocator *allocator, size_t bytes) {
  return allocator ? allocator->allocate(allocator->user, bytes ? bytes : 1) : graft_aligned_malloc(bytes);
}

static inline void graft_release(const GraftAllocator *allocator, void *block) {
  if (!allocator) {
    free(block);
  } else if (block) {
    allocator->release(allocator->user, block);
  }
}

#endif
