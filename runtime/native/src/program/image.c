/* The built-in loaders: native images, which need no relocation, and those of kind "c_source", which call functions of
 * shared libraries through addresses that are written into them here. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/platform.h"
#include "program/program.h"

enum { HEADER_BYTES = 48, SYMBOL_BYTES = 24, IMAGE_VERSION = 1, IMPORTS_VERSION = 2 };
enum { IMAGE_ALIGNMENT = 4096, LONGEST_NAME = 255 };

#if defined(__x86_64__)
enum { MACHINE = 62 };
#elif defined(__aarch64__)
enum { MACHINE = 183 };
#elif defined(__riscv) && __riscv_xlen == 64
enum { MACHINE = 243 };
#else
enum { MACHINE = 0 };
#endif

typedef struct Symbol {
  const char *name; /* in the file; not terminated */
  size_t name_length;
  size_t offset;
} Symbol;

/* What one call keeps. */
typedef struct Keeper {
  GraftKept kept;
  struct Keeper *next;
} Keeper;

typedef struct Image {
  char *address;
  size_t size;
  Symbol *symbols;
  size_t symbol_count;
  Keeper *keepers;
  const GraftAllocator *memory; /* the program's, which outlives it */
} Image;

static uint64_t read_little_endian(const unsigned char *bytes, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; i--) {
    value = value << 8 | bytes[i];
  }
  return value;
}

static int inside(uint64_t offset, uint64_t length, uint64_t size) { return offset <= size && length <= size - offset; }

static int32_t out_of_memory(const GraftLoaderHost *host) {
  (void)host->fail(host, "out of memory");
  return GRAFT_ERROR_MEMORY;
}

/* ---- What an image calls outside: rows of version 2 whose offset is that of no code ------------------------------ */

/* A library of the image: its name is that of the row. */
#define LIBRARY_ROW UINT64_MAX

typedef struct Libraries {
  void **handles;
  size_t count;
  char names[512]; /* for messages */
} Libraries;

static int32_t add_library(const GraftLoaderHost *host, const char *name, Libraries *libraries) {
  char reason[384];
  void *handle = graft_open_library(name, reason, sizeof reason);
  if (!handle) {
    return host->fail(host, "it needs the library '%s', which cannot be opened: %s", name, reason);
  }
  libraries->handles[libraries->count++] = handle;
  graft_append(libraries->names, sizeof libraries->names, "%s'%s'", *libraries->names ? ", " : "", name);
  return GRAFT_OK;
}

static int32_t add_import(const GraftLoaderHost *host, const char *name, const Libraries *libraries, char *slot) {
  void *address = NULL;
  for (size_t i = 0; !address && i < libraries->count; i++) {
    address = graft_library_symbol(libraries->handles[i], name);
  }
  if (!address) {
    return host->fail(host, "it calls '%s', which none of its libraries has (%s)", name,
                      *libraries->names ? libraries->names : "it names none");
  }
  memcpy(slot, &address, sizeof address);
  return GRAFT_OK;
}

static int32_t read_outside(const GraftLoaderHost *host, const Symbol *row, uint64_t offset, uint64_t text_size,
                            Libraries *libraries, Image *image) {
  char name[LONGEST_NAME + 1];
  if (row->name_length == 0 || row->name_length > LONGEST_NAME || memchr(row->name, 0, row->name_length)) {
    return host->fail(host, "a name of what it calls outside is empty, longer than %d bytes or no text", LONGEST_NAME);
  }
  memcpy(name, row->name, row->name_length);
  name[row->name_length] = 0;
  if (offset == LIBRARY_ROW) {
    return add_library(host, name, libraries);
  }
  if (offset < text_size || !inside(offset, sizeof(void *), image->size) || offset % sizeof(void *)) {
    return host->fail(host, "the place of '%s' lies outside its data", name);
  }
  return add_import(host, name, libraries, image->address + offset);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static int32_t read_row(const GraftLoaderHost *host, const GraftModuleSource *source, size_t number,
                        uint64_t text_size, Libraries *libraries, Image *image) {
  const unsigned char *entry = (const unsigned char *)source->data + HEADER_BYTES + number * SYMBOL_BYTES;
  uint64_t offset = read_little_endian(entry, 8), name = read_little_endian(entry + 8, 8);
  uint64_t length = read_little_endian(entry + 16, 8);
  if ((offset >= text_size && !libraries) || !inside(name, length, source->size)) {
    return host->fail(host, "symbol %zu lies outside the code or the file", number);
  }
  Symbol row = {(const char *)source->data + name, (size_t)length, (size_t)offset};
  if (offset >= text_size) {
    return read_outside(host, &row, offset, text_size, libraries, image);
  }
  image->symbols[image->symbol_count++] = row;
  return GRAFT_OK;
}

static int32_t read_rows(const GraftLoaderHost *host, const GraftModuleSource *source, uint64_t text_size, int version,
                         Image *image) {
  uint64_t count = read_little_endian((const unsigned char *)source->data + 40, 8);
  if (count > (source->size - HEADER_BYTES) / SYMBOL_BYTES) {
    return host->fail(host, "its symbol table leaves the file");
  }
  Libraries libraries = {.handles = graft_allocate_zeroed(image->memory, (size_t)count, sizeof(void *))};
  image->symbols = graft_allocate_zeroed(image->memory, (size_t)count, sizeof(Symbol));
  int32_t status = GRAFT_OK;
  if (!image->symbols || !libraries.handles) {
    status = out_of_memory(host);
  }
  for (size_t i = 0; !status && i < count; i++) {
    status = read_row(host, source, i, text_size, version == IMPORTS_VERSION ? &libraries : NULL, image);
  }
  graft_release(image->memory, libraries.handles);
  return status;
}

static int32_t map_image(const GraftLoaderHost *host, const GraftModuleSource *source, int version, Image *image) {
  const unsigned char *data = source->data;
  uint64_t machine = read_little_endian(data + 12, 4), offset = read_little_endian(data + 16, 8);
  uint64_t size = read_little_endian(data + 24, 8), text_size = read_little_endian(data + 32, 8);
  if (machine != MACHINE) {
    return host->fail(host, "it holds code for ELF machine %" PRIu64 ", this is machine %d", machine, MACHINE);
  }
  if (!inside(offset, size, source->size) || text_size > size || size == 0 || size % IMAGE_ALIGNMENT ||
      text_size % IMAGE_ALIGNMENT) {
    return host->fail(host, "its sizes are wrong: %" PRIu64 " bytes at %" PRIu64 " in a file of %zu, %" PRIu64
                      " of them code",
                      size, offset, source->size, text_size);
  }
  if (text_size % graft_page_size()) {
    return host->fail(host, "its code does not end at a page of this system (%zu bytes)", graft_page_size());
  }
  image->size = (size_t)size;
  image->address = graft_map_image(data + offset, image->size);
  if (!image->address) {
    return host->fail(host, "the system refused memory (mmap of %" PRIu64 " bytes)", size);
  }
  GRAFT_TRY(read_rows(host, source, text_size, version, image));
  if (graft_seal_image(image->address, image->size, (size_t)text_size) != 0) {
    return host->fail(host, "the system refused executable memory (mprotect of %" PRIu64 " bytes)", size);
  }
  return GRAFT_OK;
}

static void unload(void *user, void *module) {
  (void)user;
  Image *image = module;
  for (Keeper *keeper = image->keepers, *next; keeper; keeper = next) {
    next = keeper->next;
    for (int i = 0; i < GRAFT_KEPT; i++) {
      if (keeper->kept.objects[i]) {
        keeper->kept.destroy(keeper->kept.objects[i]);
      }
    }
    graft_release(image->memory, keeper);
  }
  if (image->address) {
    graft_unmap_image(image->address, image->size);
  }
  graft_release(image->memory, image->symbols);
  graft_release(image->memory, image);
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **module) {
  const unsigned char *data = source->data;
  if (source->size < HEADER_BYTES || memcmp(data, "GRAFTIMG", 8) != 0) {
    return host->fail(host, "it is not a native image");
  }
  const int wanted = strcmp(source->kind, graft_c_source_loader.kind) == 0 ? IMPORTS_VERSION : IMAGE_VERSION;
  uint64_t version = read_little_endian(data + 8, 4);
  if (version != (uint64_t)wanted) {
    return host->fail(host, "it is a native image of version %" PRIu64 ", this runtime reads version %d", version,
                      wanted);
  }
  const GraftAllocator *memory = ((const LoadingHost *)host)->memory;
  Image *image = graft_allocate_zeroed(memory, 1, sizeof(Image));
  if (!image) {
    return out_of_memory(host);
  }
  image->memory = memory;
  int32_t status = map_image(host, source, wanted, image);
  if (status) {
    unload(user, image);
    return status;
  }
  *module = image;
  return GRAFT_OK;
}

static int32_t lookup(void *user, const GraftLoaderHost *host, void *module, const char *function,
                      GraftFunction *entry, void **state) {
  (void)user;
  const Image *image = module;
  size_t length = strlen(function);
  for (size_t i = 0; i < image->symbol_count; i++) {
    const Symbol *symbol = image->symbols + i;
    if (symbol->name_length == length && memcmp(symbol->name, function, length) == 0) {
      void *address = image->address + symbol->offset;
      memcpy(entry, &address, sizeof *entry); /* C11 has no cast from data to function */
      *state = NULL;
      return GRAFT_OK;
    }
  }
  return host->fail(host, "it has no function '%s'", function);
}

/* Each call has a state of its own: what it keeps may depend on the constants that it reads. */
static int32_t lookup_keeping(void *user, const GraftLoaderHost *host, void *module, const char *function,
                              GraftFunction *entry, void **state) {
  Image *image = module;
  GRAFT_TRY(lookup(user, host, module, function, entry, state));
  Keeper *keeper = graft_allocate_zeroed(image->memory, 1, sizeof(Keeper));
  if (!keeper) {
    return out_of_memory(host);
  }
  keeper->next = image->keepers;
  image->keepers = keeper;
  *state = &keeper->kept;
  return GRAFT_OK;
}

const GraftLoader graft_native_loader = {
    .abi_version = GRAFT_ABI_VERSION,
    .kind = "native",
    .load = load,
    .lookup = lookup,
    .unload = unload,
};

const GraftLoader graft_c_source_loader = {
    .abi_version = GRAFT_ABI_VERSION,
    .kind = "c_source",
    .load = load,
    .lookup = lookup_keeping,
    .unload = unload,
};
