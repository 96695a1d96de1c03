#include "base/platform.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Processors' worth of time that the control group grants; 0 if unlimited or unknown. */
static int32_t quota_processors(void) {
  FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
  if (!file) {
    return 0;
  }
  long long quota = 0, period = 0;
  int read = fscanf(file, "%lld %lld", &quota, &period);
  fclose(file);
  if (read != 2 || quota <= 0 || period <= 0 || quota / period > 4096) {
    return 0;
  }
  return (int32_t)((quota + period - 1) / period);
}

int32_t graft_processor_count(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int32_t count;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    count = (int32_t)CPU_COUNT(&set);
  } else {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    count = online > 0 ? (int32_t)online : 1;
  }
  int32_t quota = quota_processors();
  if (quota && quota < count) {
    count = quota;
  }
  return count > 0 ? count : 1;
}

int64_t graft_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void graft_wait(atomic_uint *word, unsigned expected, int64_t nanoseconds) {
  struct timespec time = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nanoseconds ? &time : NULL, NULL, 0);
}

void graft_wake(atomic_uint *word, int32_t count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

void *graft_map_image(const void *image, size_t size) {
  char *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? NULL : memcpy(address, image, size);
}

int graft_seal_image(void *address, size_t size, size_t text_size) {
  char *text = address;
  __builtin___clear_cache(text, text + text_size);
  int refused = (text_size && mprotect(text, text_size, PROT_READ | PROT_EXEC) != 0) ||
                (size > text_size && mprotect(text + text_size, size - text_size, PROT_READ) != 0);
  return refused ? -1 : 0;
}

void graft_unmap_image(void *address, size_t size) { munmap(address, size); }

void *graft_open_library(const char *name, char *reason, size_t size) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    const char *said = dlerror();
    snprintf(reason, size, "%s", said ? said : "the system gave no reason");
  }
  return library;
}

void *graft_library_symbol(void *library, const char *name) { return dlsym(library, name); }

size_t graft_page_size(void) {
  long size = sysconf(_SC_PAGESIZE);
  return size > 0 ? (size_t)size : 4096;
}

void graft_advise_huge_pages(void *block, size_t bytes) {
  size_t page = graft_page_size();
  uintptr_t start = ((uintptr_t)block + page - 1) / page * page, end = (uintptr_t)block + bytes;
  if (end > start) {
    madvise((void *)start, end - start, MADV_HUGEPAGE);
  }
}

void graft_fetch_pages(const void *block, size_t bytes) {
#ifdef MADV_POPULATE_READ
  uintptr_t start = (uintptr_t)block / graft_page_size() * graft_page_size(), end = (uintptr_t)block + bytes;
  madvise((void *)start, end - start, MADV_POPULATE_READ);
#else
  (void)block;
  (void)bytes;
#endif
}

atomic_uint *graft_create_fork_mark(void) {
  size_t page = graft_page_size();
  void *address = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return NULL;
  }
#ifdef MADV_WIPEONFORK
  if (madvise(address, page, MADV_WIPEONFORK) == 0) {
    atomic_uint *mark = address;
    atomic_init(mark, 1);
    return mark;
  }
#endif
  munmap(address, page);
  return NULL;
}

void graft_destroy_fork_mark(atomic_uint *mark) {
  if (mark) {
    munmap((void *)mark, graft_page_size());
  }
}
