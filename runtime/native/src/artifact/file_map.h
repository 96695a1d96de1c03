/* Mapping a file into memory, read-only: the one thing about files that differs between systems. */
#ifndef GRAFT_FILE_MAP_H
#define GRAFT_FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "graft/runtime.h"

typedef struct FileMap {
  const uint8_t *bytes;
  size_t size;
} FileMap;

/* An empty file, a directory or a device is an error. */
int32_t graft_file_map(const char *path, FileMap *map, GraftError *error);
/* The same with the bytes copied, so that nobody who can write the file changes them any more. */
int32_t graft_file_copy(const char *path, FileMap *map, GraftError *error);
void graft_file_unmap(FileMap *map);

#endif
