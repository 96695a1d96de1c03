/* The built-in loader: native images, which need no relocation. */
#include <inttypes.h>
#include <string.h>

#include "memory.h"
#include "platform.h"
#include "program.h"

enum { HEADER_BYTES = 48, SYMBOL_BYTES = 24, IMAGE_VERSION = 1, IMAGE_ALIGNMENT = 4096 };

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

typedef struct Image {
  char *address;
  size_t size;
  Symbol *symbols;
  size_t symbol_count;
} Image;

static uint64_t read_little_endian(const unsigned char *bytes, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; i--) {
    value = value << 8 | bytes[i];
  }
  return value;
}

static int inside(uint64_t offset, uint64_t length, uint64_t size) { return offset <= size && length <= size - offset; }

static int32_t read_symbols(const GraftLoaderHost *host, const GraftModuleSource *source, uint64_t text_size,
                            Image *image) {
  const unsigned char *data = source->data;
  uint64_t count = read_little_endian(data + 40, 8);
  if (count > (source->size - HEADER_BYTES) / SYMBOL_BYTES) {
    return host->fail(host, "its symbol table leaves the file");
  }
  image->symbol_count = (size_t)count;
  image->symbols = graft_calloc(image->symbol_count, sizeof(Symbol));
  if (!image->symbols) {
    return host->fail(host, "out of memory");
  }
  for (size_t i = 0; i < image->symbol_count; i++) {
    const unsigned char *entry = data + HEADER_BYTES + i * SYMBOL_BYTES;
    uint64_t offset = read_little_endian(entry, 8), name = read_little_endian(entry + 8, 8);
    uint64_t length = read_little_endian(entry + 16, 8);
    if (offset >= text_size || !inside(name, length, source->size)) {
      return host->fail(host, "symbol %zu lies outside the code or the file", i);
    }
    image->symbols[i] = (Symbol){(const char *)data + name, (size_t)length, (size_t)offset};
  }
  return GRAFT_OK;
}

static int32_t map_image(const GraftLoaderHost *host, const GraftModuleSource *source, Image *image) {
  const unsigned char *data = source->data;
  uint64_t machine = read_little_endian(data + 12, 4), offset = read_little_endian(data + 16, 8);
  uint64_t size = read_little_endian(data + 24, 8), text_size = read_little_endian(data + 32, 8);
  const char *failed;
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
  image->address = graft_map_image(data + offset, image->size, (size_t)text_size, &failed);
  if (!image->address) {
    return host->fail(host, "the system refused executable memory (%s of %" PRIu64 " bytes)", failed, size);
  }
  return read_symbols(host, source, text_size, image);
}

static void unload(void *user, void *module) {
  (void)user;
  Image *image = module;
  if (image->address) {
    graft_unmap_image(image->address, image->size);
  }
  free(image->symbols);
  free(image);
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **module) {
  const unsigned char *data = source->data;
  if (source->size < HEADER_BYTES || memcmp(data, "GRAFTIMG", 8) != 0) {
    return host->fail(host, "it is not a native image");
  }
  uint64_t version = read_little_endian(data + 8, 4);
  if (version != IMAGE_VERSION) {
    return host->fail(host, "it is a native image of version %" PRIu64 ", this runtime reads version %d", version,
                      IMAGE_VERSION);
  }
  Image *image = graft_calloc(1, sizeof(Image));
  if (!image) {
    return host->fail(host, "out of memory");
  }
  int32_t status = map_image(host, source, image);
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

const GraftLoader graft_native_loader = {
    .abi_version = GRAFT_ABI_VERSION,
    .kind = "native",
    .load = load,
    .lookup = lookup,
    .unload = unload,
};
