/* A bump allocator for one thread: blocks are given back all at once by returning to a mark. */
#ifndef GRAFT_SCRATCH_H
#define GRAFT_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "graft/runtime.h"

typedef struct ScratchChunk ScratchChunk;

/* Zero-initialise, but for the allocator. */
typedef struct Scratch {
  const GraftAllocator *allocator; /* NULL: the heap */
  ScratchChunk *first;
  ScratchChunk *current;
  size_t used; /* of the current chunk */
} Scratch;

typedef struct ScratchMark {
  ScratchChunk *chunk;
  size_t used;
} ScratchMark;

static inline ScratchMark graft_scratch_mark(const Scratch *scratch) {
  return (ScratchMark){scratch->current, scratch->used};
}

/* 64-byte aligned; NULL when memory runs out. */
void *graft_scratch_allocate(Scratch *scratch, uint64_t bytes);

/* Frees the blocks made since the mark; the memory stays for the next ones. */
void graft_scratch_release(Scratch *scratch, ScratchMark mark);
void graft_scratch_destroy(Scratch *scratch);

#endif
