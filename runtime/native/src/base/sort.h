/* Sorting in place: libc's qsort takes memory of the heap for long lists. */
#ifndef GRAFT_SORT_H
#define GRAFT_SORT_H

#include <stddef.h>

/* Sorts items of at most 64 bytes as qsort does, in n log n steps at most; equal ones in any order. */
void graft_sort(void *items, size_t count, size_t bytes, int (*compare)(const void *left, const void *right));

#endif
