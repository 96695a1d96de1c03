/* What the operating system gives; implemented once per system (platform_linux.c). */
#ifndef GRAFT_PLATFORM_H
#define GRAFT_PLATFORM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* The number of processors this process may use (affinity mask, then cgroup quota), at least 1. */
int32_t graft_processor_count(void);

/* A monotonic clock. */
int64_t graft_nanoseconds(void);

/* Sleeps until woken, if *word is still `expected`, and at most so long (0: without end); may return early. */
void graft_wait(atomic_uint *word, unsigned expected, int64_t nanoseconds);
void graft_wake(atomic_uint *word, int32_t count);

/* Maps a private copy of `image` that may be written; NULL if the system refuses. Sealed, its first text_size bytes are
 * readable and executable, the rest readable; sizes are multiples of the page size. -1: the system refuses. */
void *graft_map_image(const void *image, size_t size);
int graft_seal_image(void *address, size_t size, size_t text_size);
void graft_unmap_image(void *address, size_t size);

/* Opens a shared library, found as the system finds one that a program is linked with; NULL and the system's reason,
 * as far as it fits. It stays until the process ends: one that has threads of its own cannot be taken away. */
void *graft_open_library(const char *name, char *reason, size_t size);
/* What a library, or one that it needs, has under a name; NULL if there is none. */
void *graft_library_symbol(void *library, const char *name);
size_t graft_page_size(void);

/* Asks for huge pages over a block; without effect where there are none. */
void graft_advise_huge_pages(void *block, size_t bytes);

/* Brings the pages of a block of a mapped file in, many at a time; without effect where the system cannot. */
void graft_fetch_pages(const void *block, size_t bytes);

/* A word that is 1 in the process that made it and 0 in its forked children (where threads are gone); NULL if the
 * system cannot tell. */
atomic_uint *graft_create_fork_mark(void);
void graft_destroy_fork_mark(atomic_uint *mark);

#endif
