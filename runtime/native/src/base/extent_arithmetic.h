/* Operations on extents, checked: the one meaning of the rows that manifests and JSON graphs have. */
#ifndef GRAFT_EXTENT_ARITHMETIC_H
#define GRAFT_EXTENT_ARITHMETIC_H

#include <stdint.h>
#include <string.h>

#define GRAFT_MAXIMUM_EXTENT ((int64_t)1 << 62)

typedef enum { EXTENT_ADD, EXTENT_SUB, EXTENT_MUL, EXTENT_FLOORDIV, EXTENT_MOD, EXTENT_MIN, EXTENT_MAX } ExtentOperator;

/* The operator of a row by its name; 0 if there is none. */
static inline int graft_extent_operator(const char *name, ExtentOperator *operator) {
  static const char *const names[] = {"add", "sub", "mul", "floordiv", "mod", "min", "max"};
  for (int i = 0; i < 7; i++) {
    if (!strcmp(names[i], name)) {
      *operator = (ExtentOperator)i;
      return 1;
    }
  }
  return 0;
}

/* All values lie within the limit, so what is checked here cannot overflow itself. */
static inline int graft_extent_add(int64_t left, int64_t right, int64_t *result) {
  if (right > 0 ? left > GRAFT_MAXIMUM_EXTENT - right : left < -GRAFT_MAXIMUM_EXTENT - right) {
    return 0;
  }
  *result = left + right;
  return 1;
}

static inline int64_t graft_extent_magnitude(int64_t value) { return value < 0 ? -value : value; }

static inline int graft_extent_multiply(int64_t left, int64_t right, int64_t *result) {
  if (left != 0 && graft_extent_magnitude(right) > GRAFT_MAXIMUM_EXTENT / graft_extent_magnitude(left)) {
    return 0;
  }
  *result = left * right;
  return 1;
}

/* Rounds towards minus infinity, as Python does. */
static inline int64_t graft_extent_divide(int64_t left, int64_t right) {
  int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

/* 0 for a number beyond 2**62, and a division by 0. */
static inline int graft_extent_apply(ExtentOperator operator, int64_t left, int64_t right, int64_t *result) {
  switch (operator) {
    case EXTENT_ADD:
      return graft_extent_add(left, right, result);
    case EXTENT_SUB:
      return graft_extent_add(left, -right, result);
    case EXTENT_MUL:
      return graft_extent_multiply(left, right, result);
    case EXTENT_FLOORDIV:
      *result = right ? graft_extent_divide(left, right) : 0;
      return right != 0;
    case EXTENT_MOD:
      *result = right ? left - graft_extent_divide(left, right) * right : 0;
      return right != 0;
    case EXTENT_MIN:
      *result = left < right ? left : right;
      return 1;
    case EXTENT_MAX:
      *result = left > right ? left : right;
      return 1;
  }
  return 0;
}

#endif
