/* Reading the archive that graft.runtime.artifact writes: stored ZIP64, members one after another from byte 0, each
 * aligned to 64 bytes. Every header byte follows from names, sizes and checksums, so it is compared and not believed:
 * an archive has exactly one form, and no damaged bit goes unnoticed. */
#include "artifact/zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"

enum {
  LOCAL_SIZE = 30,
  LOCAL_EXTRA = 20 + 4, /* sizes in 64 bits, and the header of the padding field */
  CENTRAL_SIZE = 46,
  CENTRAL_EXTRA = 28,
  END64_SIZE = 56,
  LOCATOR_SIZE = 20,
  END_SIZE = 22,
  DATA_ALIGNMENT = 64,
  MAX_NAME = 1024,
  MAX_MEMBERS = 1 << 20
};

typedef struct Directory {
  uint64_t offset, end, count;
} Directory;

static uint16_t read16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static uint32_t read32(const uint8_t *p) { return (uint32_t)read16(p) | (uint32_t)read16(p + 2) << 16; }

static uint64_t read64(const uint8_t *p) { return (uint64_t)read32(p) | (uint64_t)read32(p + 4) << 32; }

/* Appends the `width` (at most 8) low bytes of `value`, lowest first. */
static uint8_t *put(uint8_t *to, uint64_t value, int width) {
  for (int i = 0; i < width; i++) *to++ = (uint8_t)(value >> (8 * i));
  return to;
}

static int32_t damaged(GraftError *error, const char *what, uint64_t offset) {
  error->code = GRAFT_ERROR_ARTIFACT;
  snprintf(error->message, sizeof error->message, "artifact is damaged: %s (at byte %" PRIu64 "); compile it again", what,
           offset);
  return GRAFT_ERROR_ARTIFACT;
}

/* ---- The one form of each header (PKWARE APPNOTE 6.3.9) -------------------------------------------------------- */

/* What local and central header share: version 4.5, UTF-8 names, stored, 1980-01-01, checksum, sizes in the extra. */
static uint8_t *put_common(uint8_t *to, uint32_t crc, size_t name_length, size_t extra_length) {
  to = put(to, 45, 2);
  to = put(to, 0x0800, 2);
  to = put(to, 0, 2);
  to = put(to, 0x00210000u, 4);
  to = put(to, crc, 4);
  to = put(to, UINT64_MAX, 8);
  to = put(to, name_length, 2);
  return put(to, extra_length, 2);
}

/* The local header up to the name, and from there to the data without the padding's zeros. */
static void local_header(uint8_t head[LOCAL_SIZE], uint8_t tail[LOCAL_EXTRA], const ZipMember *member,
                         size_t name_length, size_t padding) {
  put_common(put(head, 0x04034b50u, 4), member->crc, name_length, LOCAL_EXTRA + padding);
  uint8_t *to = put(put(tail, 1, 2), 16, 2);
  to = put(put(to, member->size, 8), member->size, 8);
  put(put(to, 0x4752, 2), padding, 2);
}

static void central_header(uint8_t head[CENTRAL_SIZE], uint8_t tail[CENTRAL_EXTRA], const ZipMember *member,
                           size_t name_length, uint64_t offset) {
  uint8_t *to = put_common(put(put(head, 0x02014b50u, 4), 45, 2), member->crc, name_length, CENTRAL_EXTRA);
  put(put(put(to, 0, 2), 0, 8), UINT32_MAX, 4); /* no comment, disk 0, no attributes; the offset is in the extra */
  to = put(put(tail, 1, 2), 24, 2);
  put(put(put(to, member->size, 8), member->size, 8), offset, 8);
}

static void end_records(uint8_t record[END64_SIZE + LOCATOR_SIZE + END_SIZE], const Directory *directory) {
  uint8_t *to = put(put(record, 0x06064b50u, 4), 44, 8);
  to = put(put(put(to, 45, 2), 45, 2), 0, 8);
  to = put(put(to, directory->count, 8), directory->count, 8);
  to = put(put(to, directory->end - directory->offset, 8), directory->offset, 8);
  to = put(put(put(put(to, 0x07064b50u, 4), 0, 4), directory->end, 8), 1, 4);
  to = put(put(put(to, 0x06054b50u, 4), 0, 4), UINT32_MAX, 4);
  put(put(to, UINT64_MAX, 8), 0, 2);
}

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

/* Finds the directory through the records at the end. */
static int32_t find_directory(const uint8_t *bytes, size_t size, Directory *directory, GraftError *error) {
  uint8_t expected[END64_SIZE + LOCATOR_SIZE + END_SIZE];
  if (size < sizeof expected) return damaged(error, "it is too short to be an archive", size);
  const uint8_t *record = bytes + size - sizeof expected;
  directory->end = size - sizeof expected;
  directory->count = read64(record + 32);
  directory->offset = read64(record + 48);
  end_records(expected, directory);
  if (memcmp(record, expected, sizeof expected) != 0 || directory->offset > directory->end) {
    return damaged(error, "it does not end as an artifact does; it may be truncated", directory->end);
  }
  if (directory->count > MAX_MEMBERS || directory->count > (directory->end - directory->offset) / CENTRAL_SIZE) {
    return damaged(error, "the directory counts more members than it can hold", directory->end);
  }
  return GRAFT_OK;
}

/* A relative path without empty or dotted parts, and without what other systems read as a path. */
static int valid_name(const char *name, size_t length) {
  if (length == 0 || length > MAX_NAME || name[length - 1] == '/') return 0;
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)name[i];
    if (c < 0x20 || c == 0x7f || c == '\\' || c == ':') return 0;
    if ((i == 0 || name[i - 1] == '/') && (c == '/' || c == '.')) return 0;
  }
  return 1;
}

/* Reads the directory entry at `at`, whose member's header must start at `start`; `name` is of `name_length` bytes. */
static int32_t read_entry(const uint8_t *bytes, const Directory *directory, uint64_t at, uint64_t start,
                          ZipMember *member, size_t *name_length, GraftError *error) {
  uint8_t head[CENTRAL_SIZE], tail[CENTRAL_EXTRA];
  const uint8_t *entry = bytes + at;
  uint64_t left = directory->end - at;
  if (left < CENTRAL_SIZE + CENTRAL_EXTRA) return damaged(error, "a directory entry is cut off", at);
  *name_length = read16(entry + 28);
  if (left - CENTRAL_SIZE - CENTRAL_EXTRA < *name_length) return damaged(error, "a directory entry is cut off", at);
  const uint8_t *extra = entry + CENTRAL_SIZE + *name_length;
  member->crc = read32(entry + 16);
  member->size = read64(extra + 4);
  central_header(head, tail, member, *name_length, start);
  if (memcmp(entry, head, sizeof head) != 0 || memcmp(extra, tail, sizeof tail) != 0) {
    return damaged(error, "a directory entry is not as it was written", at);
  }
  return valid_name((const char *)entry + CENTRAL_SIZE, *name_length)
             ? GRAFT_OK
             : damaged(error, "a member's name is not allowed", at);
}

/* Checks the member's own header at `start` against its directory entry and finds its bytes. */
static int32_t locate(const uint8_t *bytes, const Directory *directory, uint64_t start, const uint8_t *name,
                      size_t name_length, ZipMember *member, GraftError *error) {
  uint8_t head[LOCAL_SIZE], tail[LOCAL_EXTRA];
  uint64_t fixed = start + LOCAL_SIZE + name_length + LOCAL_EXTRA;
  size_t padding = (size_t)(-fixed % DATA_ALIGNMENT);
  if (fixed + padding > directory->offset || member->size > directory->offset - fixed - padding) {
    return damaged(error, "a member lies outside", start);
  }
  const uint8_t *local = bytes + start, *extra = local + LOCAL_SIZE + name_length;
  local_header(head, tail, member, name_length, padding);
  int same = memcmp(local, head, sizeof head) == 0 && memcmp(local + LOCAL_SIZE, name, name_length) == 0 &&
             memcmp(extra, tail, sizeof tail) == 0;
  for (size_t i = 0; i < padding; i++) same &= bytes[fixed + i] == 0;
  member->data = bytes + fixed + padding;
  return same ? GRAFT_OK : damaged(error, "a member's header does not match the directory", start);
}

static int32_t read_entries(const uint8_t *bytes, const Directory *directory, ZipArchive *archive, GraftError *error) {
  uint64_t at = directory->offset, start = 0;
  char *names = archive->names;
  for (uint64_t i = 0; i < directory->count; i++) {
    ZipMember *member = &archive->members[i];
    size_t name_length = 0;
    int32_t code = read_entry(bytes, directory, at, start, member, &name_length, error);
    if (code != GRAFT_OK) return code;
    const uint8_t *name = bytes + at + CENTRAL_SIZE;
    code = locate(bytes, directory, start, name, name_length, member, error);
    if (code != GRAFT_OK) return code;
    member->name = memcpy(names, name, name_length);
    names[name_length] = 0;
    names += name_length + 1;
    start = (uint64_t)(member->data - bytes) + member->size;
    at += CENTRAL_SIZE + name_length + CENTRAL_EXTRA;
  }
  if (start != directory->offset) return damaged(error, "there are bytes that belong to no member", start);
  return at == directory->end ? GRAFT_OK : damaged(error, "the directory has more bytes than members", at);
}

static int by_name(const void *left, const void *right) {
  return strcmp(((const ZipMember *)left)->name, ((const ZipMember *)right)->name);
}

/* Members may not share a name; leaves them sorted by name. */
static int32_t sort_members(const uint8_t *bytes, ZipArchive *archive, GraftError *error) {
  graft_sort(archive->members, archive->count, sizeof *archive->members, by_name);
  for (size_t i = 1; i < archive->count; i++) {
    if (by_name(&archive->members[i - 1], &archive->members[i]) == 0) {
      return damaged(error, "two members have one name", (uint64_t)(archive->members[i].data - bytes));
    }
  }
  return GRAFT_OK;
}

int32_t graft_zip_read(const uint8_t *bytes, size_t size, const GraftAllocator *memory, ZipArchive *archive,
                       GraftError *error) {
  *archive = (ZipArchive){.memory = memory};
  Directory directory = {0};
  int32_t code = find_directory(bytes, size, &directory, error);
  if (code != GRAFT_OK) return code;
  archive->members = graft_allocate_zeroed(memory, directory.count, sizeof *archive->members);
  /* An entry is longer than its name and a zero. */
  archive->names = graft_allocate(memory, directory.end - directory.offset);
  if (archive->members == NULL || archive->names == NULL) {
    error->code = GRAFT_ERROR_MEMORY;
    snprintf(error->message, sizeof error->message, "out of memory while reading the artifact's directory");
    return GRAFT_ERROR_MEMORY;
  }
  archive->count = directory.count;
  code = read_entries(bytes, &directory, archive, error);
  return code != GRAFT_OK ? code : sort_members(bytes, archive, error);
}

void graft_zip_free(ZipArchive *archive) {
  graft_release(archive->memory, archive->members);
  graft_release(archive->memory, archive->names);
  memset(archive, 0, sizeof *archive);
}

const ZipMember *graft_zip_find(const ZipArchive *archive, const char *name) {
  ZipMember key = {.name = name};
  if (archive->count == 0) return NULL;
  return bsearch(&key, archive->members, archive->count, sizeof key, by_name);
}

uint32_t graft_crc32(const uint8_t *data, size_t size) {
  uint32_t table[16];
  for (uint32_t i = 0; i < 16; i++) {
    uint32_t value = i;
    for (int bit = 0; bit < 4; bit++) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
    table[i] = value;
  }
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < size; i++) {
    crc ^= data[i];
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return ~crc;
}
