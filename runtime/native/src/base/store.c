#include "base/store.h"

#include <string.h>

#include "base/memory.h"
#include "base/platform.h"

enum { CHUNK_BYTES = 32768, HEADER_BYTES = 64, HUGE_PAGE_BYTES = 2 << 20 };

struct StoreBlock {
  StoreBlock *next;
  size_t size;
  size_t used;
};

static StoreBlock *create_block(Store *store, size_t size) {
  StoreBlock *block = graft_allocate(store->allocator, HEADER_BYTES + size);
  if (!block) {
    return NULL;
  }
  *block = (StoreBlock){.next = store->blocks, .size = size};
  if (size >= HUGE_PAGE_BYTES) {
    graft_advise_huge_pages(block, HEADER_BYTES + size);
  }
  store->blocks = block;
  return block;
}

void *graft_store_allocate(Store *store, size_t count, size_t bytes) {
  if (bytes && count > (SIZE_MAX / 4) / bytes) {
    return NULL;
  }
  size_t total = (count * bytes + 63) / 64 * 64;
  StoreBlock *block = store->blocks;
  if (!block || block->size - block->used < total) {
    block = create_block(store, total > CHUNK_BYTES / 4 ? total : CHUNK_BYTES);
    if (!block) {
      return NULL;
    }
  }
  void *result = (char *)block + HEADER_BYTES + block->used;
  block->used += total;
  return memset(result, 0, total);
}

void graft_store_destroy(Store *store) {
  for (StoreBlock *block = store->blocks; block;) {
    StoreBlock *next = block->next;
    graft_release(store->allocator, block);
    block = next;
  }
  store->blocks = NULL;
}
