/* A reader of stored (uncompressed) ZIP64 archives in memory: what a .graft file is.
 *
 * Reads the one form (of PKWARE's APPNOTE 6.3.9) in which graft.runtime.artifact writes it, and refuses everything else:
 * compression, comments, gaps, overlapping or misaligned members, names that leave the archive, any other header byte.
 */
#ifndef GRAFT_ZIP_H
#define GRAFT_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "graft/runtime.h"

typedef struct ZipMember {
  const char *name; /* zero-terminated */
  const uint8_t *data;
  uint64_t size;
  uint32_t crc;
} ZipMember;

typedef struct ZipArchive {
  ZipMember *members; /* sorted by name */
  size_t count;
  char *names;
  const GraftAllocator *memory; /* NULL: the heap */
} ZipArchive;

/* Reads the directory of `bytes`; the members point into them. Free with graft_zip_free, also after an error. */
int32_t graft_zip_read(const uint8_t *bytes, size_t size, const GraftAllocator *memory, ZipArchive *archive,
                       GraftError *error);
void graft_zip_free(ZipArchive *archive);

/* NULL if there is no such member. */
const ZipMember *graft_zip_find(const ZipArchive *archive, const char *name);

/* CRC-32 (ISO-HDLC, polynomial 0xedb88320). */
uint32_t graft_crc32(const uint8_t *data, size_t size);

#endif
