/* Mapping a file on POSIX systems. */
#include "file_map.h"

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

int32_t graft_file_map(const char *path, FileMap *map, GraftError *error) {
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
    void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
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

void graft_file_unmap(FileMap *map) {
  if (map->bytes != NULL) munmap((void *)(uintptr_t)map->bytes, map->size);
  memset(map, 0, sizeof *map);
}
