/* Memory that lives as long as its owner and is freed all at once. */
#ifndef GRAFT_STORE_H
#define GRAFT_STORE_H

#include <stddef.h>

#include "graft/runtime.h"

typedef struct StoreBlock StoreBlock;

/* Zero-initialise, but for the allocator. */
typedef struct Store {
  const GraftAllocator *allocator; /* NULL: the heap */
  StoreBlock *blocks;
} Store;

/* Zeroed memory for count items, 64-byte aligned; NULL when it runs out or the product overflows. */
void *graft_store_allocate(Store *store, size_t count, size_t bytes);
void graft_store_destroy(Store *store);

#endif
