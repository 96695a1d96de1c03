/* ELF files of 64 bits, of any machine in little-endian order: read as bytes, never run. */
#include "artifact/elf.h"

#include <string.h>

#include "base/error.h"

enum { HEADER_SIZE = 64, ENTRY_SIZE = 64, CLASS_64 = 2, LITTLE_ENDIAN = 1, WITHOUT_BYTES = 8, EXTENDED = 0xffff };

static const char NAME[] = ".graft";

typedef struct Section {
  uint64_t name, type, offset, size, link;
} Section;

static uint64_t read_number(const uint8_t *p, int width) {
  uint64_t value = 0;
  for (int i = width - 1; i >= 0; i--) value = value << 8 | p[i];
  return value;
}

static int32_t damaged(GraftError *error, const char *what) {
  return graft_set_error(error, GRAFT_ERROR_ARTIFACT, "shared library is damaged: %s; export it again", what);
}

static Section read_section(const uint8_t *entry) {
  return (Section){.name = read_number(entry, 4),
                   .type = read_number(entry + 4, 4),
                   .offset = read_number(entry + 24, 8),
                   .size = read_number(entry + 32, 8),
                   .link = read_number(entry + 40, 4)};
}

static int lies_inside(const Section *section, size_t size) {
  return section->offset <= size && section->size <= size - section->offset;
}

static int is_wanted(const uint8_t *bytes, const Section *names, const Section *section) {
  return section->type != WITHOUT_BYTES && section->name <= names->size &&
         names->size - section->name >= sizeof NAME &&
         memcmp(bytes + names->offset + section->name, NAME, sizeof NAME) == 0;
}

int graft_is_elf(const uint8_t *bytes, size_t size) { return size >= 4 && memcmp(bytes, "\177ELF", 4) == 0; }

int32_t graft_elf_artifact(const uint8_t *bytes, size_t size, const uint8_t **section, size_t *section_size,
                           GraftError *error) {
  if (size < HEADER_SIZE) return damaged(error, "its header is cut off");
  if (bytes[4] != CLASS_64 || bytes[5] != LITTLE_ENDIAN) return damaged(error, "it is no ELF file of 64 bits");
  uint64_t table = read_number(bytes + 40, 8), count = read_number(bytes + 60, 2), names = read_number(bytes + 62, 2);
  if (table == 0 || table > size || size - table < ENTRY_SIZE || read_number(bytes + 58, 2) != ENTRY_SIZE) {
    return damaged(error, "it has no table of sections");
  }
  Section first = read_section(bytes + table); /* holds what has no room in the header */
  if (count == 0) count = first.size;
  if (names == EXTENDED) names = first.link;
  if (count > (size - table) / ENTRY_SIZE || names >= count) return damaged(error, "its table of sections is cut off");
  Section texts = read_section(bytes + table + names * ENTRY_SIZE);
  if (!lies_inside(&texts, size)) return damaged(error, "the names of its sections lie outside");
  for (uint64_t i = 1; i < count; i++) {
    Section found = read_section(bytes + table + i * ENTRY_SIZE);
    if (!is_wanted(bytes, &texts, &found)) continue;
    if (!lies_inside(&found, size)) return damaged(error, "its program lies outside");
    *section = bytes + found.offset;
    *section_size = (size_t)found.size;
    return GRAFT_OK;
  }
  return graft_set_error(error, GRAFT_ERROR_ARTIFACT,
                         "the shared library holds no Graft program: it has no section '%s'; give one that "
                         "`graft export` wrote", NAME);
}
