/* Memory for what oneDNN reads and writes. */
#include <stdlib.h>
#include <sys/mman.h>

#include "module.h"

#define HUGE_PAGE ((uint64_t)2 << 20)

void *onednn_allocate(uint64_t bytes) {
  uint64_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
  if (bytes > SIZE_MAX - alignment) {
    return NULL;
  }
  uint64_t rounded = (bytes + alignment) / alignment * alignment;
  void *data = aligned_alloc((size_t)alignment, (size_t)rounded);
#ifdef MADV_HUGEPAGE
  if (data != NULL && bytes >= HUGE_PAGE) {
    (void)madvise(data, (size_t)rounded, MADV_HUGEPAGE); /* a hint: refusal costs speed only */
  }
#endif
  return data;
}
