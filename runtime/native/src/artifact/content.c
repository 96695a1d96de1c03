#include "artifact/content.h"

#include <string.h>

enum { LANES = 8, BLOCK = 8 * LANES };

/* The fractional bits of the golden ratio and of the square roots of 2 and 3, made odd. */
static const uint64_t MULTIPLIER = 0x9e3779b97f4a7c15u, START = 0x6a09e667f3bcc909u, SECOND = 0xbb67ae8584caa73bu;

/* Words go to lanes in turn. A lane changes whenever one of its words does; `sum` and `weighted` (Fletcher's sums, over
 * all words) notice where the changes of two words would cancel in a lane. */
typedef struct State {
  uint64_t lanes[LANES], sum, weighted;
} State;

static inline uint64_t read64(const uint8_t *bytes) {
  uint64_t value;
  memcpy(&value, bytes, sizeof value);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  value = __builtin_bswap64(value);
#endif
  return value;
}

static inline uint64_t rotate(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

/* A bijection of `state` for every word, and of the word for every state. */
static inline uint64_t mix(uint64_t state, uint64_t word) { return rotate((state ^ word) * MULTIPLIER, 29); }

/* Written out, so that everything stays in registers. */
static void absorb(State *state, const uint8_t *bytes, size_t blocks) {
  uint64_t a = state->lanes[0], b = state->lanes[1], c = state->lanes[2], d = state->lanes[3];
  uint64_t e = state->lanes[4], f = state->lanes[5], g = state->lanes[6], h = state->lanes[7];
  uint64_t sum = state->sum, weighted = state->weighted;
#define ABSORB(lane, number)                   \
  do {                                         \
    uint64_t word = read64(bytes + 8 * number); \
    lane = mix(lane, word);                    \
    sum += word;                               \
    weighted += sum;                           \
  } while (0)
  for (; blocks > 0; blocks--, bytes += BLOCK) {
    ABSORB(a, 0);
    ABSORB(b, 1);
    ABSORB(c, 2);
    ABSORB(d, 3);
    ABSORB(e, 4);
    ABSORB(f, 5);
    ABSORB(g, 6);
    ABSORB(h, 7);
  }
#undef ABSORB
  *state = (State){{a, b, c, d, e, f, g, h}, sum, weighted};
}

static uint64_t finish(uint64_t value) {
  value = (value ^ value >> 32) * MULTIPLIER;
  return value ^ value >> 29;
}

size_t graft_content_chunks(size_t size) {
  return size ? (size - 1) / GRAFT_CONTENT_CHUNK + 1 : 1;
}

ContentHash graft_content_chunk(const uint8_t *bytes, size_t size) {
  State state = {.sum = 0};
  uint8_t rest[BLOCK] = {0};
  size_t left = size % BLOCK;
  for (int i = 0; i < LANES; i++) {
    state.lanes[i] = START + (uint64_t)i;
  }
  absorb(&state, bytes, size / BLOCK);
  if (left) {
    memcpy(rest, bytes + size - left, left);
    absorb(&state, rest, 1);
  }
  ContentHash hash = {mix(START, size), mix(mix(mix(SECOND, size), state.sum), state.weighted)};
  for (int i = 0; i < LANES; i++) {
    hash.first = mix(hash.first, state.lanes[i]);
    hash.second = mix(hash.second, rotate(state.lanes[i], 32));
  }
  return (ContentHash){finish(hash.first), finish(hash.second)};
}

ContentHash graft_content_join(const ContentHash *chunks, size_t count) {
  ContentHash whole = chunks[0];
  for (size_t i = 1; i < count; i++) {
    whole.first = finish(mix(whole.first, chunks[i].first));
    whole.second = finish(mix(whole.second, chunks[i].second));
  }
  return whole;
}

void graft_content_text(ContentHash hash, char text[GRAFT_CONTENT_DIGITS + 1]) {
  for (int i = 0; i < GRAFT_CONTENT_DIGITS; i++) {
    uint64_t word = i < 16 ? hash.first : hash.second;
    text[i] = "0123456789abcdef"[word >> (60 - 4 * (i % 16)) & 15];
  }
  text[GRAFT_CONTENT_DIGITS] = 0;
}
