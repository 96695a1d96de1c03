/* SHA-256 after FIPS 180-4: padding, and which compression is used. */
#include "artifact/sha256.h"

#include <string.h>

void graft_sha256_hex(const void *data, size_t size, char digest[65]) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  void (*compress)(uint32_t[8], const uint8_t *, size_t) =
      graft_sha256_has_x86() ? graft_sha256_blocks_x86 : graft_sha256_blocks;
  size_t whole = size / 64;
  size_t rest = size % 64;
  compress(state, data, whole);
  uint8_t tail[128] = {0};
  if (rest > 0) memcpy(tail, (const uint8_t *)data + whole * 64, rest);
  tail[rest] = 0x80;
  size_t tail_blocks = rest < 56 ? 1 : 2;
  uint64_t bits = (uint64_t)size * 8;
  for (int i = 0; i < 8; i++) tail[tail_blocks * 64 - 1 - (size_t)i] = (uint8_t)(bits >> (8 * i));
  compress(state, tail, tail_blocks);
  for (int i = 0; i < 64; i++) {
    uint32_t nibble = state[i / 8] >> (28 - 4 * (i % 8)) & 15;
    digest[i] = "0123456789abcdef"[nibble];
  }
  digest[64] = 0;
}
