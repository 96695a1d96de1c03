/* Memory that runs out in a test; to be linked with -Wl,--wrap=malloc,--wrap=calloc. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Allocations that there still are. Where there are none, all fail from then on. */
enum { ENOUGH = -1, FAILED = -2 };
static int64_t allocations_left = ENOUGH;
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static bool has_memory(void) {
  if (allocations_left == 0) allocations_left = FAILED;
  return allocations_left == ENOUGH || (allocations_left > 0 && allocations_left--);
}

void *__wrap_malloc(size_t size) { return has_memory() ? __real_malloc(size) : NULL; }

void *__wrap_calloc(size_t count, size_t size) { return has_memory() ? __real_calloc(count, size) : NULL; }
