/* SHA-256 (FIPS 180-4), with the processor's own instructions where it has them. */
#ifndef GRAFT_SHA256_H
#define GRAFT_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* Writes the digest of `size` bytes as 64 lower-case hexadecimal digits and a terminating zero. */
void graft_sha256_hex(const void *data, size_t size, char digest[65]);

/* The round constants: the first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
extern const uint32_t graft_sha256_constants[64];

/* The portable compression of `blocks` 64-byte blocks into `state`, and the one by x86 SHA instructions. */
void graft_sha256_blocks(uint32_t state[8], const uint8_t *data, size_t blocks);
int graft_sha256_has_x86(void);
void graft_sha256_blocks_x86(uint32_t state[8], const uint8_t *data, size_t blocks);

#endif
