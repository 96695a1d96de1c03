#include "base/scratch.h"

#include "base/memory.h"
#include "base/platform.h"

enum { FIRST_CHUNK_BYTES = 65536, HUGE_PAGE_BYTES = 2 << 20, HEADER_BYTES = 64 };

struct ScratchChunk {
  ScratchChunk *next;
  size_t size;
};

static ScratchChunk *create_chunk(const Scratch *scratch, size_t size) {
  ScratchChunk *chunk = graft_allocate(scratch->allocator, HEADER_BYTES + size);
  if (chunk) {
    *chunk = (ScratchChunk){.next = NULL, .size = size};
    if (size >= HUGE_PAGE_BYTES) {
      graft_advise_huge_pages(chunk, HEADER_BYTES + size);
    }
  }
  return chunk;
}

/* Chunks after the current one are empty: the next that is large enough serves, else a new one is put there. */
static int advance(Scratch *scratch, size_t bytes) {
  ScratchChunk **link = scratch->current ? &scratch->current->next : &scratch->first;
  while (*link && (*link)->size < bytes) {
    link = &(*link)->next;
  }
  if (!*link) {
    size_t total = FIRST_CHUNK_BYTES;
    for (const ScratchChunk *chunk = scratch->first; chunk; chunk = chunk->next) {
      total += chunk->size;
    }
    *link = create_chunk(scratch, bytes > total ? bytes : total);
    if (!*link && bytes < total) {
      *link = create_chunk(scratch, bytes);
    }
    if (!*link) {
      return 0;
    }
  }
  scratch->current = *link;
  scratch->used = 0;
  return 1;
}

void *graft_scratch_allocate(Scratch *scratch, uint64_t bytes) {
  if (bytes > SIZE_MAX / 4) {
    return NULL;
  }
  size_t rounded = bytes ? (size_t)(bytes + 63) / 64 * 64 : 64;
  if (!scratch->current || scratch->current->size - scratch->used < rounded) {
    if (!advance(scratch, rounded)) {
      return NULL;
    }
  }
  void *block = (char *)scratch->current + HEADER_BYTES + scratch->used;
  scratch->used += rounded;
  return block;
}

/* One chunk as large as all of them together, so that the next round finds everything in it. */
static void merge(Scratch *scratch) {
  size_t total = 0;
  for (const ScratchChunk *chunk = scratch->first; chunk; chunk = chunk->next) {
    total += chunk->size;
  }
  graft_scratch_destroy(scratch);
  scratch->first = create_chunk(scratch, total);
}

void graft_scratch_release(Scratch *scratch, ScratchMark mark) {
  scratch->current = mark.chunk;
  scratch->used = mark.used;
  if (!mark.chunk && scratch->first) {
    if (scratch->first->next) {
      merge(scratch);
    }
  }
}

void graft_scratch_destroy(Scratch *scratch) {
  for (ScratchChunk *chunk = scratch->first; chunk;) {
    ScratchChunk *next = chunk->next;
    graft_release(scratch->allocator, chunk);
    chunk = next;
  }
  *scratch = (Scratch){.allocator = scratch->allocator};
}
