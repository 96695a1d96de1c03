/* Assertions that stay on in every build, and the hook that makes the n-th allocation fail. */
#ifndef GRAFT_TESTS_CHECK_H
#define GRAFT_TESTS_CHECK_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                 \
    }                                                                          \
  } while (0)

#define CHECK_TEXT(actual, expected)                                                                         \
  do {                                                                                                       \
    const char *actual_ = (actual), *expected_ = (expected);                                                 \
    if (strcmp(actual_, expected_) != 0) {                                                                   \
      fprintf(stderr, "%s:%d:\n  got      %s\n  expected %s\n", __FILE__, __LINE__, actual_, expected_);     \
      abort();                                                                                               \
    }                                                                                                        \
  } while (0)

static atomic_int allocations_left = -1;

/* The n-th allocation from now on (from 0) fails, once; -1: none. */
static inline void fail_allocation(int n) { atomic_store(&allocations_left, n); }

int graft_test_allocation_fails(void);

int graft_test_allocation_fails(void) {
  if (atomic_load(&allocations_left) < 0) {
    return 0;
  }
  return atomic_fetch_sub(&allocations_left, 1) == 0;
}

#endif
