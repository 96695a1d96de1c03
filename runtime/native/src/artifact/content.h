/* The hash that names a constant by its content: 128 bits, as fast as memory, not cryptographic. It tells damage and
 * finds equal constants; whoever can choose the bytes can also choose the hash, so equality is decided by the bytes. */
#ifndef GRAFT_CONTENT_H
#define GRAFT_CONTENT_H

#include <stddef.h>
#include <stdint.h>

enum {
  GRAFT_CONTENT_CHUNK = 1 << 20, /* bytes that are hashed apart from the others, so that threads can share the work */
  GRAFT_CONTENT_DIGITS = 32      /* hexadecimal digits of the hash */
};

typedef struct ContentHash {
  uint64_t first, second;
} ContentHash;

/* The number of chunks of so many bytes: at least one. */
size_t graft_content_chunks(size_t size);

/* The hash of one chunk. Any change within eight aligned bytes changes it. */
ContentHash graft_content_chunk(const uint8_t *bytes, size_t size);

/* The hash of a whole from those of its chunks, in order. */
ContentHash graft_content_join(const ContentHash *chunks, size_t count);

/* The hash as lower-case hexadecimal digits with a zero behind them. */
void graft_content_text(ContentHash hash, char text[GRAFT_CONTENT_DIGITS + 1]);

#endif
