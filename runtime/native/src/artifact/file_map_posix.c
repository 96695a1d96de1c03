/* Mapping a file on POSIX systems. */
#include "artifact/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int32_t refused(GraftError *error, const char *path, const char *why) {
  error->code = GRAFT_ERROR_SYSTEM;
  snprintf(error->message, sizeof error->message, "cannot open artifact '%.512s': %s", path, why);
  return GRAFT_ERROR_SYSTEM;
}

/* 0 where the file ends before `size`, or cannot be read. */
static int read_all(int file, char *bytes, size_t size) {
  while (size > 0) {
    ssize_t got = read(file, bytes, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    bytes += got;
    size -= (size_t)got;
  }
  return 1;
}

static void *map_or_copy(int file, size_t size, int is_copied) {
  if (!is_copied) return mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
  void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return bytes;
  errno = EIO; /* what a file says that ends too early */
  if (read_all(file, bytes, size) && mprotect(bytes, size, PROT_READ) == 0) return bytes;
  munmap(bytes, size);
  return MAP_FAILED;
}

static int32_t open_file(const char *path, int is_copied, FileMap *map, GraftError *error) {
  memset(map, 0, sizeof *map);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return refused(error, path, strerror(errno));
  struct stat status;
  int32_t code = GRAFT_OK;
  if (fstat(file, &status) != 0) {
    code = refused(error, path, strerror(errno));
  } else if (!S_ISREG(status.st_mode)) {
    code = refused(error, path, "it is not a regular file");
  } else if (status.st_size == 0) {
    code = refused(error, path, "it is empty");
  } else {
    void *bytes = map_or_copy(file, (size_t)status.st_size, is_copied);
    if (bytes == MAP_FAILED) {
      code = refused(error, path, strerror(errno));
    } else {
      map->bytes = bytes;
      map->size = (size_t)status.st_size;
    }
  }
  close(file);
  return code;
}

int32_t graft_file_map(const char *path, FileMap *map, GraftError *error) { return open_file(path, 0, map, error); }

int32_t graft_file_copy(const char *path, FileMap *map, GraftError *error) { return open_file(path, 1, map, error); }

void graft_file_unmap(FileMap *map) {
  if (map->bytes != NULL) munmap((void *)(uintptr_t)map->bytes, map->size);
  memset(map, 0, sizeof *map);
}
