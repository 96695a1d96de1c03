/* SHA-256 compression by the x86 SHA extensions (Intel SDM, SHA256RNDS2, SHA256MSG1, SHA256MSG2). */
#include "artifact/sha256.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <immintrin.h>

int graft_sha256_has_x86(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 19 & 1)) return 0; /* SSE4.1 */
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
  return b >> 29 & 1;
}

__attribute__((target("sha,sse4.1"))) void graft_sha256_blocks_x86(uint32_t state[8], const uint8_t *data,
                                                                    size_t blocks) {
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  /* The instructions want the state as (A,B,E,F) and (C,D,G,H), highest lane first. */
  __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);       /* C D A B */
  __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b); /* E F G H */
  __m128i abef = _mm_alignr_epi8(abcd, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, abcd, 0xf0);
  for (; blocks > 0; blocks--, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; i++) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), order);
    }
    for (int i = 0; i < 16; i++) {
      __m128i words = w[i & 3];
      __m128i sum = _mm_add_epi32(words, _mm_loadu_si128((const __m128i *)(graft_sha256_constants + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (i < 12) {
        __m128i last = w[(i + 3) & 3];
        __m128i next = _mm_sha256msg1_epu32(words, w[(i + 1) & 3]);
        next = _mm_add_epi32(next, _mm_alignr_epi8(last, w[(i + 2) & 3], 4));
        w[i & 3] = _mm_sha256msg2_epu32(next, last);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#else

int graft_sha256_has_x86(void) { return 0; }

void graft_sha256_blocks_x86(uint32_t state[8], const uint8_t *data, size_t blocks) {
  graft_sha256_blocks(state, data, blocks);
}

#endif
