/* Reading the directory of a stored ZIP64 archive. Every offset is checked before it is followed. */
#include "zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

enum {
  END_SIZE = 22,
  END64_SIZE = 56,
  LOCATOR_SIZE = 20,
  CENTRAL_SIZE = 46,
  LOCAL_SIZE = 30,
  DATA_ALIGNMENT = 64,
  MAX_MEMBERS = 1 << 20
};

#define END_SIGNATURE 0x06054b50u
#define END64_SIGNATURE 0x06064b50u
#define LOCATOR_SIGNATURE 0x07064b50u
#define CENTRAL_SIGNATURE 0x02014b50u
#define LOCAL_SIGNATURE 0x04034b50u

typedef struct Directory {
  uint64_t offset, size, count;
} Directory;

static uint16_t read16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static uint32_t read32(const uint8_t *p) { return (uint32_t)read16(p) | (uint32_t)read16(p + 2) << 16; }

static uint64_t read64(const uint8_t *p) { return (uint64_t)read32(p) | (uint64_t)read32(p + 4) << 32; }

static int32_t damaged(GraftError *error, const char *what, uint64_t offset) {
  error->code = GRAFT_ERROR_ARTIFACT;
  snprintf(error->message, sizeof error->message, "artifact is damaged: %s (at byte %" PRIu64 "); compile it again", what,
           offset);
  return GRAFT_ERROR_ARTIFACT;
}

/* Finds the directory through the end record, or its 64-bit form. */
static int32_t find_directory(const uint8_t *bytes, size_t size, Directory *directory, GraftError *error) {
  if (size < END_SIZE) return damaged(error, "it is too short to be an archive", size);
  uint64_t end = size - END_SIZE;
  if (read32(bytes + end) != END_SIGNATURE || read16(bytes + end + 20) != 0) {
    return damaged(error, "it does not end with an archive's end record; it may be truncated", end);
  }
  directory->count = read16(bytes + end + 10);
  directory->size = read32(bytes + end + 12);
  directory->offset = read32(bytes + end + 16);
  if (directory->count == 0xffff || directory->size == 0xffffffffu || directory->offset == 0xffffffffu) {
    if (end < LOCATOR_SIZE + END64_SIZE) return damaged(error, "the 64-bit end record is missing", end);
    end -= LOCATOR_SIZE;
    if (read32(bytes + end) != LOCATOR_SIGNATURE) return damaged(error, "the 64-bit end record is missing", end);
    uint64_t end64 = read64(bytes + end + 8);
    if (end64 != end - END64_SIZE || read32(bytes + end64) != END64_SIGNATURE) {
      return damaged(error, "the 64-bit end record is misplaced", end);
    }
    directory->count = read64(bytes + end64 + 32);
    directory->size = read64(bytes + end64 + 40);
    directory->offset = read64(bytes + end64 + 48);
    end = end64;
  }
  if (directory->offset > end || directory->size != end - directory->offset) {
    return damaged(error, "the directory does not end at the end record", end);
  }
  if (directory->count > MAX_MEMBERS || directory->count > directory->size / CENTRAL_SIZE) {
    return damaged(error, "the directory counts more members than it can hold", end);
  }
  return GRAFT_OK;
}

/* Reads size and offset from the ZIP64 extra field where the 32-bit fields are saturated. */
static int32_t read_extra64(const uint8_t *extra, size_t length, uint64_t *size, uint64_t *offset, uint64_t at,
                            GraftError *error) {
  while (length >= 4) {
    size_t field = read16(extra + 2);
    if (field > length - 4) break;
    if (read16(extra) == 1) {
      const uint8_t *p = extra + 4;
      size_t want = (*size == 0xffffffffu ? 16u : 0u) + (*offset == 0xffffffffu ? 8u : 0u);
      if (field < want) break;
      if (*size == 0xffffffffu) {
        *size = read64(p);
        p += 16; /* the compressed size stands between and equals it: members are stored */
      }
      if (*offset == 0xffffffffu) *offset = read64(p);
      return GRAFT_OK;
    }
    extra += 4 + field;
    length -= 4 + field;
  }
  return damaged(error, "a 64-bit size is missing", at);
}

static int valid_name(const char *name, size_t length) {
  if (length == 0 || length > 1024 || name[0] == '/') return 0;
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)name[i];
    if (c < 0x20 || c == 0x7f || c == '\\' || c == ':') return 0;
    int starts = i == 0 || name[i - 1] == '/';
    if (starts && name[i] == '.' && (i + 1 == length || name[i + 1] == '/' || name[i + 1] == '.')) return 0;
    if (starts && name[i] == '/') return 0;
  }
  return 1;
}

/* Follows a directory entry to the member's bytes. */
static int32_t locate(const uint8_t *bytes, uint64_t offset, uint64_t limit, const uint8_t *name, size_t name_length,
                      ZipMember *member, GraftError *error) {
  if (offset > limit || limit - offset < LOCAL_SIZE) return damaged(error, "a member lies outside", offset);
  const uint8_t *local = bytes + offset;
  if (read32(local) != LOCAL_SIGNATURE || read16(local + 8) != 0 || read16(local + 26) != name_length) {
    return damaged(error, "a member's header does not match the directory", offset);
  }
  uint64_t start = offset + LOCAL_SIZE + name_length + read16(local + 28);
  if (start > limit || member->size > limit - start) return damaged(error, "a member lies outside", offset);
  if (memcmp(local + LOCAL_SIZE, name, name_length) != 0) {
    return damaged(error, "a member's header does not match the directory", offset);
  }
  if (start % DATA_ALIGNMENT != 0) return damaged(error, "a member is not aligned to 64 bytes", offset);
  member->data = bytes + start;
  return GRAFT_OK;
}

static int by_data(const void *left, const void *right) {
  const ZipMember *a = left, *b = right;
  return (a->data > b->data) - (a->data < b->data);
}

static int by_name(const void *left, const void *right) {
  return strcmp(((const ZipMember *)left)->name, ((const ZipMember *)right)->name);
}

/* Members may neither overlap nor share a name; leaves them sorted by name. */
static int32_t check_members(const uint8_t *bytes, ZipArchive *archive, GraftError *error) {
  qsort(archive->members, archive->count, sizeof *archive->members, by_data);
  for (size_t i = 1; i < archive->count; i++) {
    const ZipMember *before = &archive->members[i - 1], *member = &archive->members[i];
    if (before->data + before->size > member->data) {
      return damaged(error, "two members overlap", (uint64_t)(member->data - bytes));
    }
  }
  qsort(archive->members, archive->count, sizeof *archive->members, by_name);
  for (size_t i = 1; i < archive->count; i++) {
    if (by_name(&archive->members[i - 1], &archive->members[i]) == 0) {
      return damaged(error, "two members have one name", (uint64_t)(archive->members[i].data - bytes));
    }
  }
  return GRAFT_OK;
}

static int32_t read_entries(const uint8_t *bytes, const Directory *directory, ZipArchive *archive, GraftError *error) {
  uint64_t at = directory->offset, end = directory->offset + directory->size;
  char *names = archive->names;
  for (uint64_t i = 0; i < directory->count; i++) {
    const uint8_t *entry = bytes + at;
    if (end - at < CENTRAL_SIZE || read32(entry) != CENTRAL_SIGNATURE) {
      return damaged(error, "a directory entry is cut off", at);
    }
    size_t name_length = read16(entry + 28), extra_length = read16(entry + 30);
    if (end - at - CENTRAL_SIZE < name_length + extra_length || read16(entry + 32) != 0) {
      return damaged(error, "a directory entry is cut off", at);
    }
    if ((read16(entry + 8) & ~0x0800) != 0 || read16(entry + 10) != 0) {
      return damaged(error, "a member is compressed or encrypted", at);
    }
    ZipMember *member = &archive->members[i];
    uint64_t stored = read32(entry + 20), offset = read32(entry + 42);
    member->size = read32(entry + 24);
    member->crc = read32(entry + 16);
    if (stored != member->size) return damaged(error, "a member is compressed", at);
    if (member->size == 0xffffffffu || offset == 0xffffffffu) {
      int32_t code =
          read_extra64(entry + CENTRAL_SIZE + name_length, extra_length, &member->size, &offset, at, error);
      if (code != GRAFT_OK) return code;
    }
    if (!valid_name((const char *)entry + CENTRAL_SIZE, name_length)) {
      return damaged(error, "a member's name is not allowed", at);
    }
    memcpy(names, entry + CENTRAL_SIZE, name_length);
    names[name_length] = 0;
    member->name = names;
    names += name_length + 1;
    int32_t code = locate(bytes, offset, directory->offset, entry + CENTRAL_SIZE, name_length, member, error);
    if (code != GRAFT_OK) return code;
    at += CENTRAL_SIZE + name_length + extra_length;
  }
  return at == end ? GRAFT_OK : damaged(error, "the directory has more bytes than members", at);
}

int32_t graft_zip_read(const uint8_t *bytes, size_t size, ZipArchive *archive, GraftError *error) {
  memset(archive, 0, sizeof *archive);
  Directory directory = {0};
  int32_t code = find_directory(bytes, size, &directory, error);
  if (code != GRAFT_OK) return code;
  archive->members = graft_calloc(directory.count, sizeof *archive->members);
  archive->names = graft_malloc(directory.size); /* an entry is longer than its name and a zero */
  if (archive->members == NULL || archive->names == NULL) {
    error->code = GRAFT_ERROR_MEMORY;
    snprintf(error->message, sizeof error->message, "out of memory while reading the artifact's directory");
    return GRAFT_ERROR_MEMORY;
  }
  archive->count = directory.count;
  code = read_entries(bytes, &directory, archive, error);
  return code != GRAFT_OK ? code : check_members(bytes, archive, error);
}

void graft_zip_free(ZipArchive *archive) {
  free(archive->members);
  free(archive->names);
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
