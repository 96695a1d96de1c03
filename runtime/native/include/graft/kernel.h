/* What kernels in C need of their host, and the arithmetic of Graft's tensor IR in portable C11: integers wrap, nothing
 * traps, and no library is called, neither libc nor libm. Floats of 16 bits are kept as their bits.
 *
 * A kernel is a plain function: the context, then a pointer to each tensor (behind it its shape and its strides, where
 * it reads these). It returns GRAFT_OK or an error number. There are two hosts. Compiled with GRAFT_PROJECT, this
 * header is all of Graft that a project has: loops run as they stand, scratch memory comes from a block that was
 * planned when the project was written, and an error is its number. Otherwise Graft's runtime is the host, by its
 * function table, and each kernel has an entry with the ABI of GraftFunction.
 */
#ifndef GRAFT_KERNEL_H
#define GRAFT_KERNEL_H

#if !defined(__STDC_VERSION__) || __STDC_VERSION__ < 201112L
#error "kernels need C11 (_Alignas, _Static_assert): compile with -std=c11, with GCC 4.9, Clang 3.6 or newer"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "weights have their lowest byte first: compile for a little-endian processor"
#endif

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAFT_INLINE static inline
#if defined(__GNUC__)
#define GRAFT_APART __attribute__((noinline)) /* `restrict` says most of parameters */
#else
#define GRAFT_APART
#endif
#ifndef GRAFT_KERNEL /* how a kernel is declared; a project may define it otherwise */
#define GRAFT_KERNEL static GRAFT_APART
#endif

#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 8)
#define GRAFT_PRAGMA(text) _Pragma(#text)
#define GRAFT_UNROLL(count) GRAFT_PRAGMA(GCC unroll count)
#else
#define GRAFT_UNROLL(count)
#endif

_Static_assert(CHAR_BIT == 8 && sizeof(bool) == 1u, "tensors of bool have a byte for each element");
_Static_assert(sizeof(float) == 4u && sizeof(double) == 8u, "float32 and float64 are IEEE 754's binary32 and binary64");
_Static_assert((int8_t)-1 == ~0 && -1 >> 1 == -1, "integers are two's complement, and shifts keep their sign");

/* ---- The host ------------------------------------------------------------------------------------------------- */

#ifdef GRAFT_PROJECT

#define GRAFT_OK 0
#define GRAFT_ERROR_MEMORY 1
#define GRAFT_ERROR_INPUT 4
#define GRAFT_ERROR_RUN 5

/* `scratch` is aligned to 64 bytes; `used` is 0 when a kernel is called. */
typedef struct GraftContext {
  unsigned char *scratch;
  uint64_t scratch_bytes, used;
} GraftContext;

typedef int32_t (*GraftTask)(GraftContext *context, void *closure, int64_t begin, int64_t end);

/* Returns 64-byte aligned memory that lives until the function or task ends, NULL if there is none left. */
GRAFT_INLINE void *graft_scratch(GraftContext *context, uint64_t bytes) {
  const uint64_t begin = context->used, left = context->scratch_bytes - begin;
  if (left < bytes || left - bytes < (64u - bytes % 64u) % 64u) return NULL;
  context->used = begin + (bytes + 63u) / 64u * 64u;
  return context->scratch + begin;
}

/* Bytes as functions of the library take them. */
GRAFT_INLINE size_t graft_size(int64_t bytes) { return (size_t)bytes; }

#ifdef GRAFT_PROJECT_THREADS /* the project has threads of its own */
int32_t graft_parallel_for(GraftContext *context, int64_t count, int64_t grain, GraftTask task, void *closure);
#else
GRAFT_INLINE int32_t graft_parallel_for(GraftContext *context, int64_t count, int64_t grain, GraftTask task,
                                        void *closure) {
  (void)grain;
  const uint64_t used = context->used;
  const int32_t status = count > 0 ? task(context, closure, 0, count) : GRAFT_OK;
  context->used = used;
  return status;
}
#endif

#define graft_fail(context, ...) ((void)(context), GRAFT_ERROR_RUN)

#else

#include "graft/runtime.h"

GRAFT_INLINE void *graft_scratch(GraftContext *context, uint64_t bytes) {
  return context->api->scratch(context, bytes);
}

GRAFT_INLINE int32_t graft_parallel_for(GraftContext *context, int64_t count, int64_t grain, GraftTask task,
                                        void *closure) {
  return context->api->parallel_for(context, count, grain, task, closure);
}

#define graft_allocate_output(context, ...) (context)->api->allocate_output(context, __VA_ARGS__)
#define graft_fail(context, ...) (context)->api->fail(context, __VA_ARGS__)

/* The entry of a kernel: what the runtime calls. An input that is absent is no tensor. */
#define GRAFT_ENTRY(KERNEL) KERNEL##_entry
#define GRAFT_DATA(TENSOR) ((TENSOR) == NULL ? NULL : (void *)((char *)(TENSOR)->data + (TENSOR)->byte_offset))
#define GRAFT_SHAPE(TENSOR) ((TENSOR) == NULL ? NULL : (TENSOR)->shape)
#define GRAFT_STRIDES(TENSOR) ((TENSOR) == NULL ? NULL : (TENSOR)->strides)

#endif

/* ---- Objects that calls keep ------------------------------------------------------------------------------------- */

#ifdef GRAFT_PROJECT
/* What one call of the model keeps from run to run: objects of a vendor's library, for as many threads. */
#define GRAFT_KEPT 8
typedef struct GraftKept {
  void *objects[GRAFT_KEPT];
  void (*destroy)(void *object);
} GraftKept;
#endif

/* Takes what an earlier run has kept, so that nobody else has it: NULL in a first run. */
GRAFT_INLINE void *graft_take(GraftKept *kept) {
#if defined(__GNUC__)
  for (int i = 0; kept && i < GRAFT_KEPT; i++) {
    void *const object = __atomic_exchange_n(kept->objects + i, NULL, __ATOMIC_ACQ_REL);
    if (object) return object;
  }
#endif
  return (void)kept, NULL;
}

/* Keeps an object for later runs, and destroys it where there is no place left (or there are no atomic operations). */
GRAFT_INLINE void graft_keep(GraftKept *kept, void *object, void (*destroy)(void *object)) {
  if (!object) return;
#if defined(__GNUC__)
  if (kept) __atomic_store_n(&kept->destroy, destroy, __ATOMIC_RELAXED);
  for (int i = 0; kept && i < GRAFT_KEPT; i++) {
    void *empty = NULL;
    if (__atomic_compare_exchange_n(kept->objects + i, &empty, object, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
  }
#endif
  (void)kept;
  destroy(object);
}

/* ---- Integers ------------------------------------------------------------------------------------------------- */

#define GRAFT_INTEGER(NAME, T, BITS, IS_SIGNED)                                                                        \
  GRAFT_INLINE bool negative_##NAME(T a) { return IS_SIGNED && (uint64_t)a >> (BITS - 1) & 1; }                        \
  GRAFT_INLINE T add_##NAME(T a, T b) { return (T)((uint64_t)a + (uint64_t)b); }                                       \
  GRAFT_INLINE T sub_##NAME(T a, T b) { return (T)((uint64_t)a - (uint64_t)b); }                                       \
  GRAFT_INLINE T mul_##NAME(T a, T b) { return (T)((uint64_t)a * (uint64_t)b); }                                       \
  GRAFT_INLINE T neg_##NAME(T a) { return (T)(0 - (uint64_t)a); }                                                      \
  GRAFT_INLINE T bitnot_##NAME(T a) { return (T)~a; }                                                                  \
  GRAFT_INLINE T abs_##NAME(T a) { return negative_##NAME(a) ? neg_##NAME(a) : a; }                                    \
  GRAFT_INLINE T div_##NAME(T a, T b) {                                                                                \
    return b == 0 ? a : IS_SIGNED && b == (T)-1 ? neg_##NAME(a) : (T)(a / b);                                          \
  }                                                                                                                    \
  GRAFT_INLINE T mod_##NAME(T a, T b) { return b == 0 || (IS_SIGNED && b == (T)-1) ? 0 : (T)(a % b); }                 \
  GRAFT_INLINE T min_##NAME(T a, T b) { return a < b ? a : b; }                                                        \
  GRAFT_INLINE T max_##NAME(T a, T b) { return a > b ? a : b; }                                                        \
  GRAFT_INLINE T shl_##NAME(T a, T b) { return (uint64_t)b >= BITS ? 0 : (T)((uint64_t)a << (uint64_t)b); }            \
  GRAFT_INLINE T shr_##NAME(T a, T b) {                                                                                \
    return (uint64_t)b < BITS ? (T)(a >> b) : negative_##NAME(a) ? (T)-1 : 0;                                          \
  }                                                                                                                    \
  GRAFT_INLINE T bits_##NAME(T a, bool leading) { /* how many are set, or how many zeros lead */                       \
    T set = 0, zeros = BITS;                                                                                           \
    for (int bit = 0; bit < BITS; ++bit)                                                                               \
      if (((uint64_t)a >> bit) & 1) ++set, zeros = (T)(BITS - 1 - bit);                                                \
    return leading ? zeros : set;                                                                                      \
  }                                                                                                                    \
  GRAFT_INLINE T popcount_##NAME(T a) { return bits_##NAME(a, false); }                                                \
  GRAFT_INLINE T clz_##NAME(T a) { return bits_##NAME(a, true); }                                                      \
  GRAFT_OF_FLOAT(NAME, T, BITS, IS_SIGNED, double)                                                                     \
  GRAFT_OF_FLOAT(NAME, T, BITS, IS_SIGNED, float)

/* The integer that a float is nearest to, towards zero: 0 for NaN. Each in its own width, for machines that have floats
 * of 32 bits alone. */
#define GRAFT_OF_FLOAT(NAME, T, BITS, IS_SIGNED, FLOAT)                                                                \
  GRAFT_INLINE T NAME##_of_##FLOAT(FLOAT a) {                                                                          \
    const FLOAT low = IS_SIGNED ? -(FLOAT)((uint64_t)1 << (BITS - 1)) : (FLOAT)0;                                      \
    const FLOAT high = (IS_SIGNED ? (FLOAT)1 : (FLOAT)2) * (FLOAT)((uint64_t)1 << (BITS - 1));                         \
    if (a != a) return 0;                                                                                              \
    if (a >= high) return (T)(UINT64_MAX >> (64 - BITS + IS_SIGNED));                                                  \
    return a <= low ? (T)((uint64_t)IS_SIGNED << (BITS - 1)) : (T)a;                                                   \
  }

#define GRAFT_INTEGERS(BITS)                                                                                           \
  GRAFT_INTEGER(int##BITS, int##BITS##_t, BITS, 1) GRAFT_INTEGER(uint##BITS, uint##BITS##_t, BITS, 0)
GRAFT_INTEGERS(8)
GRAFT_INTEGERS(16)
GRAFT_INTEGERS(32)
GRAFT_INTEGERS(64)

/* ---- Words of four bytes ---------------------------------------------------------------------------------------- */

/* The word whose lowest byte is at a place, which need not be aligned. */
GRAFT_INLINE int32_t word_at(const void *place) {
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  int32_t word;
  __builtin_memcpy(&word, place, sizeof word);
  return word;
#else
  const uint8_t *const bytes = place;
  const uint32_t low = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
  const uint32_t high = (uint32_t)bytes[2] | (uint32_t)bytes[3] << 8;
  const uint32_t word = low | high << 16;
  return (int32_t)word;
#endif
}

GRAFT_INLINE int32_t low_s16(uint32_t word) { return (int16_t)word; }

/* c plus the products of the 16-bit numbers of a and b. */
GRAFT_INLINE int32_t dot2_s16(int32_t c, int32_t a, int32_t b) {
  const int32_t low = low_s16((uint32_t)a) * low_s16((uint32_t)b);
  const int32_t high = low_s16((uint32_t)a >> 16) * low_s16((uint32_t)b >> 16);
  const uint32_t sum = (uint32_t)c + (uint32_t)low + (uint32_t)high;
  return (int32_t)sum;
}

/* c plus the products of the unsigned bytes of a and the signed ones of b. */
GRAFT_INLINE int32_t dot4_u8s8(int32_t c, int32_t a, int32_t b) {
#if defined(__ARM_FEATURE_SIMD32) && defined(__GNUC__)
  int32_t a_even, a_odd, b_even, b_odd;
  __asm__("uxtb16 %0, %1" : "=r"(a_even) : "r"(a));
  __asm__("uxtb16 %0, %1, ror #8" : "=r"(a_odd) : "r"(a));
  __asm__("sxtb16 %0, %1" : "=r"(b_even) : "r"(b));
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(b_odd) : "r"(b));
  __asm__("smlad %0, %1, %2, %0" : "+r"(c) : "r"(a_even), "r"(b_even));
  __asm__("smlad %0, %1, %2, %0" : "+r"(c) : "r"(a_odd), "r"(b_odd));
  return c;
#else
  uint32_t sum = (uint32_t)c;
  for (int i = 0; i < 32; i += 8) {
    sum += (uint32_t)((int32_t)((uint32_t)a >> i & 255) * (int8_t)((uint32_t)b >> i & 255));
  }
  return (int32_t)sum;
#endif
}

/* ---- Floats: an operand that is NaN is the result, what is at least LIMIT is whole ------------------------------ */

#define GRAFT_FLOAT(NAME, T, BITS, SUFFIX, LIMIT)                                                                      \
  GRAFT_INLINE BITS bits_of_##NAME(T a) { return (union { T in; BITS out; }){a}.out; }                                 \
  GRAFT_INLINE T NAME##_of_bits(BITS a) { return (union { BITS in; T out; }){a}.out; }                                 \
  GRAFT_INLINE T neg_##NAME(T a) { return -a; }                                                                        \
  GRAFT_INLINE T abs_##NAME(T a) { return fabs##SUFFIX(a); }                                                           \
  GRAFT_INLINE T sqrt_##NAME(T a) { return sqrt##SUFFIX(a); }                                                          \
  GRAFT_INLINE T min_##NAME(T a, T b) { return a >= b ? b : b == b ? a : a != a ? a : b; }                             \
  GRAFT_INLINE T max_##NAME(T a, T b) { return a <= b ? b : b == b ? a : a != a ? a : b; }                             \
  GRAFT_INLINE T round_even_##NAME(T a) {                                                                              \
    return fabs##SUFFIX(a) < LIMIT ? copysign##SUFFIX(fabs##SUFFIX(a) + LIMIT - LIMIT, a) : a;                         \
  }                                                                                                                    \
  GRAFT_INLINE T trunc_##NAME(T a) { return fabs##SUFFIX(a) < LIMIT ? copysign##SUFFIX((T)(int64_t)a, a) : a; }        \
  GRAFT_INLINE T floor_##NAME(T a) { return trunc_##NAME(a) > a ? trunc_##NAME(a) - 1 : trunc_##NAME(a); }             \
  GRAFT_INLINE T ceil_##NAME(T a) {                                                                                    \
    return trunc_##NAME(a) < a ? copysign##SUFFIX(trunc_##NAME(a) + 1, a) : trunc_##NAME(a);                           \
  }                                                                                                                    \
  GRAFT_INLINE T fma_##NAME(T a, T b, T c) { return graft_fma##SUFFIX(a, b, c); }
#ifdef FP_FAST_FMAF
#define graft_fmaf(a, b, c) fmaf(a, b, c)
#else
#define graft_fmaf(a, b, c) ((a) * (b) + (c))
#endif
#ifdef FP_FAST_FMA
#define graft_fma(a, b, c) fma(a, b, c)
#else
#define graft_fma(a, b, c) ((a) * (b) + (c))
#endif
GRAFT_FLOAT(float32, float, uint32_t, f, 8388608.0f)
GRAFT_FLOAT(float64, double, uint64_t, , 4503599627370496.0)

/* ---- Remainders of floats ---------------------------------------------------------------------------------------- */

/* C's fmod: long division of the significands, exact for every quotient. */
GRAFT_INLINE double fmod_float64(double x, double y) {
  const uint64_t sign = bits_of_float64(x) & ((uint64_t)1 << 63), one = (uint64_t)1 << 52;
  const uint64_t xm = bits_of_float64(x) & ~((uint64_t)1 << 63), ym = bits_of_float64(y) & ~((uint64_t)1 << 63);
  if (ym == 0u || y != y || xm >= (uint64_t)2047 << 52) return (x * y) / (x * y);
  if (xm < ym) return x;
  int64_t left = (int64_t)(xm >> 52), exponent = (int64_t)(ym >> 52);
  uint64_t rest = left != 0 ? (xm & (one - 1u)) | one : xm << 1;
  uint64_t divisor = exponent != 0 ? (ym & (one - 1u)) | one : ym << 1;
  while (rest < one) rest <<= 1, --left; /* subnormal numbers as if exponents had no end */
  while (divisor < one) divisor <<= 1, --exponent;
  while (left > exponent) {
    if (rest >= divisor) rest -= divisor;
    rest <<= 1, --left;
  }
  if (rest >= divisor) rest -= divisor;
  if (rest == 0u) return float64_of_bits(sign);
  while (rest < one && exponent > 1) rest <<= 1, --exponent;
  while (exponent < 1) rest >>= 1, ++exponent; /* zeros */
  return float64_of_bits(sign | (rest < one ? rest : ((uint64_t)exponent << 52) + (rest - one)));
}
GRAFT_INLINE float fmod_float32(float x, float y) { return (float)fmod_float64((double)x, (double)y); }

/* ---- Vectors, of GCC 12 and Clang ------------------------------------------------------------------------------- */

#endif /* GRAFT_KERNEL_H */

#if defined(GRAFT_VECTORS) && !defined(GRAFT_VECTOR_TYPES)
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#error "vectors need GCC 12 (__builtin_shufflevector) or Clang: export with --target generic"
#endif
#define GRAFT_VECTOR_TYPES

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__) && (defined(__clang__) || __GNUC__ > 14)
#include <immintrin.h>
#define GRAFT_X86(NAME) NAME
#elif defined(__x86_64__) /* GCC's builtins: most kernels are compiled sooner than <immintrin.h> is read */
#define GRAFT_X86(NAME) graft##NAME
#define graft__m128i int32x4
#define graft__m256i int32x8
#define graft__m512i int32x16
#define graft_mm_min_ps(a, b) __builtin_ia32_minps(a, b)
#define graft_mm_max_ps(a, b) __builtin_ia32_maxps(a, b)
#define graft_mm_sqrt_ps(a) __builtin_ia32_sqrtps(a)
#define graft_mm_round_ps(a, how) __builtin_ia32_roundps(a, how)
#define graft_mm_fmadd_ps(a, b, c) __builtin_ia32_vfmaddps(a, b, c)
#define graft_mm256_min_ps(a, b) __builtin_ia32_minps256(a, b)
#define graft_mm256_max_ps(a, b) __builtin_ia32_maxps256(a, b)
#define graft_mm256_sqrt_ps(a) __builtin_ia32_sqrtps256(a)
#define graft_mm256_round_ps(a, how) __builtin_ia32_roundps256(a, how)
#define graft_mm256_fmadd_ps(a, b, c) __builtin_ia32_vfmaddps256(a, b, c)
#define graft_mm512_min_ps(a, b) __builtin_ia32_minps512_mask(a, b, (float32x16){0}, -1, 4)
#define graft_mm512_max_ps(a, b) __builtin_ia32_maxps512_mask(a, b, (float32x16){0}, -1, 4)
#define graft_mm512_sqrt_ps(a) __builtin_ia32_sqrtps512_mask(a, (float32x16){0}, -1, 4)
#define graft_mm512_roundscale_ps(a, how) __builtin_ia32_rndscaleps_mask(a, how, (float32x16){0}, -1, 4)
#define graft_mm512_fmadd_ps(a, b, c) __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4)
#define graft_mm_movepi32_mask(a) __builtin_ia32_cvtd2mask128(a)
#define graft_mm256_movepi32_mask(a) __builtin_ia32_cvtd2mask256(a)
#define graft_mm512_movepi32_mask(a) __builtin_ia32_cvtd2mask512(a)
#define graft_mm_maskz_loadu_epi32(on, p) __builtin_ia32_loaddqusi128_mask((const int *)(p), (int32x4){0}, on)
#define graft_mm256_maskz_loadu_epi32(on, p) __builtin_ia32_loaddqusi256_mask((const int *)(p), (int32x8){0}, on)
#define graft_mm512_maskz_loadu_epi32(on, p) __builtin_ia32_loaddqusi512_mask((const int *)(p), (int32x16){0}, on)
#define graft_mm_mask_storeu_epi32(p, on, a) __builtin_ia32_storedqusi128_mask((int *)(p), a, on)
#define graft_mm256_mask_storeu_epi32(p, on, a) __builtin_ia32_storedqusi256_mask((int *)(p), a, on)
#define graft_mm512_mask_storeu_epi32(p, on, a) __builtin_ia32_storedqusi512_mask((int *)(p), a, on)
#define graft_mm_mask_blend_epi32(on, a, b) __builtin_ia32_blendmd_128_mask(a, b, on)
#define graft_mm256_mask_blend_epi32(on, a, b) __builtin_ia32_blendmd_256_mask(a, b, on)
#define graft_mm512_mask_blend_epi32(on, a, b) __builtin_ia32_blendmd_512_mask(a, b, on)
#define graft_mm_maskload_epi32(p, on) __builtin_ia32_maskloadd((const int32x4 *)(p), on)
#define graft_mm256_maskload_epi32(p, on) __builtin_ia32_maskloadd256((const int32x8 *)(p), on)
#define graft_mm_maskstore_epi32(p, on, a) __builtin_ia32_maskstored((int32x4 *)(p), on, a)
#define graft_mm256_maskstore_epi32(p, on, a) __builtin_ia32_maskstored256((int32x8 *)(p), on, a)
#define graft_mm256_setzero_si256() ((int32x8){0})
#define graft_mm512_setzero_si512() ((int32x16){0})
#define graft_mm256_mask_i32gather_epi32(off, p, to, on, size) __builtin_ia32_gathersiv8si(off, p, to, on, size)
#define graft_mm512_mask_i32gather_epi32(off, on, to, p, size) \
  __builtin_ia32_gathersiv16si(off, p, to, (short)(on), size)
#define graft_mm_dpbusd_epi32(c, a, b) __builtin_ia32_vpdpbusd_v4si(c, a, b)
#define graft_mm256_dpbusd_epi32(c, a, b) __builtin_ia32_vpdpbusd_v8si(c, a, b)
#define graft_mm512_dpbusd_epi32(c, a, b) __builtin_ia32_vpdpbusd_v16si(c, a, b)
#define graft_mm_madd_epi16(a, b) __builtin_ia32_pmaddwd128((int16x8)(a), (int16x8)(b))
#define graft_mm256_madd_epi16(a, b) __builtin_ia32_pmaddwd256((int16x16)(a), (int16x16)(b))
#define graft_mm_dpbusd_avx_epi32(c, a, b) __builtin_ia32_vpdpbusd_v4si(c, a, b)
#define graft_mm256_dpbusd_avx_epi32(c, a, b) __builtin_ia32_vpdpbusd_v8si(c, a, b)
#endif
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed to inline functions alone */

#define GRAFT_LANES GRAFT_INLINE __attribute__((always_inline))
#define GRAFT_PREFETCH(PLACE, LEVEL) __builtin_prefetch(PLACE, 0, LEVEL)

/* A vector type, the same anywhere in memory, and the vector of one number. A condition is -1 or 0 in an int32. */
#define GRAFT_VECTOR(NAME, T, LANES)                                                                                   \
  typedef T NAME##x##LANES __attribute__((vector_size(sizeof(T) * LANES)));                                            \
  typedef T NAME##x##LANES##_at __attribute__((vector_size(sizeof(T) * LANES), aligned(sizeof(T)), may_alias));        \
  GRAFT_LANES NAME##x##LANES splat_##NAME##x##LANES(T a) { return (NAME##x##LANES){GRAFT_SPLAT_##LANES(a)}; }
#define GRAFT_SPLAT_2(a) a, a
#define GRAFT_SPLAT_4(a) GRAFT_SPLAT_2(a), GRAFT_SPLAT_2(a)
#define GRAFT_SPLAT_8(a) GRAFT_SPLAT_4(a), GRAFT_SPLAT_4(a)
#define GRAFT_SPLAT_16(a) GRAFT_SPLAT_8(a), GRAFT_SPLAT_8(a)
#define GRAFT_SPLAT_32(a) GRAFT_SPLAT_16(a), GRAFT_SPLAT_16(a)
#define GRAFT_SPLAT_64(a) GRAFT_SPLAT_32(a), GRAFT_SPLAT_32(a)
#define GRAFT_COUNT_2(b) b, b + 1
#define GRAFT_COUNT_4(b) GRAFT_COUNT_2(b), GRAFT_COUNT_2(b + 2)
#define GRAFT_COUNT_8(b) GRAFT_COUNT_4(b), GRAFT_COUNT_4(b + 4)
#define GRAFT_COUNT_16(b) GRAFT_COUNT_8(b), GRAFT_COUNT_8(b + 8)
#define GRAFT_COUNT_32(b) GRAFT_COUNT_16(b), GRAFT_COUNT_16(b + 16)
#define GRAFT_COUNT_64(b) GRAFT_COUNT_32(b), GRAFT_COUNT_32(b + 32)

#define GRAFT_VECTOR_FLOAT(NAME, T, BITS, LANES, LIMIT)                                                                \
  GRAFT_LANES NAME##x##LANES choose_##NAME##x##LANES(int##BITS##x##LANES on, NAME##x##LANES a, NAME##x##LANES b) {     \
    return (NAME##x##LANES)((on & (int##BITS##x##LANES)a) | (~on & (int##BITS##x##LANES)b));                           \
  }                                                                                                                    \
  GRAFT_LANES NAME##x##LANES abs_##NAME##x##LANES(NAME##x##LANES a) {                                                  \
    return (NAME##x##LANES)((int##BITS##x##LANES)a & INT##BITS##_MAX);                                                 \
  }                                                                                                                    \
  GRAFT_LANES NAME##x##LANES sign_of_##NAME##x##LANES(NAME##x##LANES a, NAME##x##LANES b) {                            \
    return (NAME##x##LANES)(((int##BITS##x##LANES)a & INT##BITS##_MAX) | ((int##BITS##x##LANES)b & INT##BITS##_MIN));  \
  }                                                                                                                    \
  GRAFT_LANES NAME##x##LANES min_##NAME##x##LANES(NAME##x##LANES a, NAME##x##LANES b) {                            \
    return choose_##NAME##x##LANES(a < b, a, b);                                                                       \
  }                                                                                                                    \
  GRAFT_LANES NAME##x##LANES max_##NAME##x##LANES(NAME##x##LANES a, NAME##x##LANES b) {                            \
    return choose_##NAME##x##LANES(a > b, a, b);                                                                       \
  }                                                                                                                    \
  GRAFT_LANES NAME##x##LANES sqrt_##NAME##x##LANES(NAME##x##LANES a) {                                             \
    NAME##x##LANES b = a;                                                                                              \
    for (int lane = 0; lane < LANES; ++lane) b[lane] = sqrt_##NAME(a[lane]);                                           \
    return b;                                                                                                          \
  }                                                                                                                    \
  GRAFT_LANES NAME##x##LANES fma_##NAME##x##LANES(NAME##x##LANES a, NAME##x##LANES b, NAME##x##LANES c) {          \
    NAME##x##LANES d = c;                                                                                              \
    for (int lane = 0; lane < LANES; ++lane) d[lane] = fma_##NAME(a[lane], b[lane], c[lane]);                          \
    return d;                                                                                                          \
  }                                                                                                                    \
  GRAFT_LANES NAME##x##LANES round_even_##NAME##x##LANES(NAME##x##LANES a) {                                       \
    const NAME##x##LANES size = abs_##NAME##x##LANES(a);                                                               \
    return choose_##NAME##x##LANES(size < LIMIT, sign_of_##NAME##x##LANES(size + LIMIT - LIMIT, a), a);                \
  }                                                                                                                    \
  GRAFT_LANES NAME##x##LANES trunc_##NAME##x##LANES(NAME##x##LANES a) {                                            \
    const NAME##x##LANES size = abs_##NAME##x##LANES(a), near = size + LIMIT - LIMIT;                                  \
    const NAME##x##LANES below = near - choose_##NAME##x##LANES(near > size, near - near + 1, near - near);            \
    return choose_##NAME##x##LANES(size < LIMIT, sign_of_##NAME##x##LANES(below, a), a);                               \
  }                                                                                                                    \
  GRAFT_LANES NAME##x##LANES floor_##NAME##x##LANES(NAME##x##LANES a) {                                            \
    const NAME##x##LANES near = trunc_##NAME##x##LANES(a);                                                         \
    return choose_##NAME##x##LANES(near > a, near - 1, near);                                                          \
  }                                                                                                                    \
  GRAFT_LANES NAME##x##LANES ceil_##NAME##x##LANES(NAME##x##LANES a) {                                             \
    const NAME##x##LANES near = trunc_##NAME##x##LANES(a);                                                         \
    return choose_##NAME##x##LANES(near < a, sign_of_##NAME##x##LANES(near + 1, a), near);                             \
  }

/* GCC makes of a masked load whose mask it knows a blend of all of the memory, also of what is on no page (GCC bug 97642,
   of 32-bit elements alone mended). Prefixes of more lanes than a register has are no such blends. */
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#define GRAFT_UNKNOWN(mask) \
  if (sizeof(mask) <= 64) __asm__("" : "+v"(mask))
#else
#define GRAFT_UNKNOWN(mask) (void)(mask)
#endif
/* A mask of the first lanes; and accesses that touch only the lanes that are on. */
#define GRAFT_VECTOR_MASK(LANES)                                                                                       \
  GRAFT_LANES int32x##LANES first_x##LANES(int64_t count) {                                                            \
    const int32_t some = (int32_t)(count < 0 ? 0 : count > LANES ? LANES : count);                                     \
    return (int32x##LANES){GRAFT_COUNT_##LANES(0)} < splat_int32x##LANES(some);                                        \
  }
#define GRAFT_VECTOR_ACCESS(NAME, T, LANES)                                                                            \
  GRAFT_LANES NAME##x##LANES load_##NAME##x##LANES(const T *from, int32x##LANES on) {                              \
    NAME##x##LANES a = {0};                                                                                            \
    GRAFT_UNKNOWN(on);                                                                                                 \
    for (int lane = 0; lane < LANES; ++lane) a[lane] = on[lane] ? from[lane] : 0;                                      \
    return a;                                                                                                          \
  }                                                                                                                    \
  GRAFT_LANES void store_##NAME##x##LANES(T *to, int32x##LANES on, NAME##x##LANES a) {                             \
    for (int lane = 0; lane < LANES; ++lane)                                                                           \
      if (on[lane]) to[lane] = a[lane];                                                                                \
  }

/* Elements of which the next lane's is `step` further. */
#define GRAFT_VECTOR_STEP(NAME, T, LANES)                                                                              \
  GRAFT_LANES NAME##x##LANES step_##NAME##x##LANES(const T *from, const int step, int32x##LANES on) {                  \
    NAME##x##LANES a = {0};                                                                                            \
    GRAFT_UNKNOWN(on);                                                                                                 \
    for (int lane = 0; lane < LANES; ++lane) a[lane] = on[lane] ? from[lane * step] : 0;                               \
    return a;                                                                                                          \
  }

#define GRAFT_VECTORS_OF(LANES)                                                                                        \
  GRAFT_VECTOR(int32, int32_t, LANES) GRAFT_VECTOR(uint32, uint32_t, LANES)                                            \
  GRAFT_VECTOR(int64, int64_t, LANES) GRAFT_VECTOR(uint64, uint64_t, LANES)                                            \
  GRAFT_VECTOR(int16, int16_t, LANES) GRAFT_VECTOR(uint16, uint16_t, LANES)                                            \
  GRAFT_VECTOR(int8, int8_t, LANES) GRAFT_VECTOR(uint8, uint8_t, LANES)                                                \
  GRAFT_VECTOR(float32, float, LANES) GRAFT_VECTOR(float64, double, LANES)                                             \
  GRAFT_VECTOR_FLOAT(float32, float, 32, LANES, 8388608.0f)                                                            \
  GRAFT_VECTOR_FLOAT(float64, double, 64, LANES, 4503599627370496.0)                                                   \
  GRAFT_VECTOR_MASK(LANES)                                                                                             \
  GRAFT_VECTOR_ACCESS(int8, int8_t, LANES) GRAFT_VECTOR_ACCESS(uint8, uint8_t, LANES)                                  \
  GRAFT_VECTOR_ACCESS(int16, int16_t, LANES) GRAFT_VECTOR_ACCESS(uint16, uint16_t, LANES)                              \
  GRAFT_VECTOR_ACCESS(int32, int32_t, LANES) GRAFT_VECTOR_ACCESS(uint32, uint32_t, LANES)                              \
  GRAFT_VECTOR_ACCESS(int64, int64_t, LANES) GRAFT_VECTOR_ACCESS(uint64, uint64_t, LANES)                              \
  GRAFT_VECTOR_ACCESS(float32, float, LANES) GRAFT_VECTOR_ACCESS(float64, double, LANES)                               \
  GRAFT_VECTOR_STEP(int32, int32_t, LANES) GRAFT_VECTOR_STEP(float32, float, LANES)
GRAFT_VECTORS_OF(2)
GRAFT_VECTORS_OF(4)
GRAFT_VECTORS_OF(8)
GRAFT_VECTORS_OF(16)
GRAFT_VECTORS_OF(32)
GRAFT_VECTORS_OF(64)

/* The bytes of `b`, four to a word, times those of `a`, added to `c`; and pairs of int16, of bfloat16. */
#define GRAFT_VECTOR_DOT(LANES, WIDE, PAIRS)                                                                           \
  GRAFT_LANES int32x##LANES dot4_u8s8_x##LANES(int32x##LANES c, uint8x##WIDE a, int8x##WIDE b) {                       \
    const uint32x##LANES u = (uint32x##LANES)a, s = (uint32x##LANES)b;                                                 \
    const uint32x##LANES low = (u & 255) * (uint32x##LANES)((int32x##LANES)(s << 24) >> 24);                           \
    const uint32x##LANES second = (u >> 8 & 255) * (uint32x##LANES)((int32x##LANES)(s << 16) >> 24);                   \
    const uint32x##LANES third = (u >> 16 & 255) * (uint32x##LANES)((int32x##LANES)(s << 8) >> 24);                    \
    const uint32x##LANES high = (u >> 24) * (uint32x##LANES)((int32x##LANES)s >> 24);                                  \
    return (int32x##LANES)((uint32x##LANES)c + low + second + third + high);                                           \
  }                                                                                                                    \
  GRAFT_LANES int32x##LANES dot2_s16_x##LANES(int32x##LANES c, int16x##PAIRS a, int16x##PAIRS b) {                     \
    const uint32x##LANES u = (uint32x##LANES)a, v = (uint32x##LANES)b;                                                 \
    const uint32x##LANES low = (uint32x##LANES)(((int32x##LANES)(u << 16) >> 16) * ((int32x##LANES)(v << 16) >> 16));  \
    const uint32x##LANES high = (uint32x##LANES)(((int32x##LANES)u >> 16) * ((int32x##LANES)v >> 16));                 \
    return (int32x##LANES)((uint32x##LANES)c + low + high);                                                            \
  }                                                                                                                    \
  GRAFT_LANES float32x##LANES dot2_bf16_x##LANES(float32x##LANES c, uint16x##PAIRS a, uint16x##PAIRS b) {              \
    const uint32x##LANES u = (uint32x##LANES)a, v = (uint32x##LANES)b;                                                 \
    c = fma_float32x##LANES((float32x##LANES)(u << 16), (float32x##LANES)(v << 16), c);                                \
    return fma_float32x##LANES((float32x##LANES)(u & 0xffff0000u), (float32x##LANES)(v & 0xffff0000u), c);             \
  }

/* What a machine has an instruction for is that; the rest is as above. */
#ifdef __SSE4_1__
#define min_float32x4(a, b) ((float32x4)GRAFT_X86(_mm_min_ps)(a, b))
#define max_float32x4(a, b) ((float32x4)GRAFT_X86(_mm_max_ps)(a, b))
#define sqrt_float32x4(a) ((float32x4)GRAFT_X86(_mm_sqrt_ps)(a))
#define round_even_float32x4(a) ((float32x4)GRAFT_X86(_mm_round_ps)(a, 8))
#define floor_float32x4(a) ((float32x4)GRAFT_X86(_mm_round_ps)(a, 9))
#define ceil_float32x4(a) ((float32x4)GRAFT_X86(_mm_round_ps)(a, 10))
#define trunc_float32x4(a) ((float32x4)GRAFT_X86(_mm_round_ps)(a, 11))
#endif
#ifdef __FMA__
#define fma_float32x4(a, b, c) ((float32x4)GRAFT_X86(_mm_fmadd_ps)(a, b, c))
#endif
#ifdef __AVX__
#define min_float32x8(a, b) ((float32x8)GRAFT_X86(_mm256_min_ps)(a, b))
#define max_float32x8(a, b) ((float32x8)GRAFT_X86(_mm256_max_ps)(a, b))
#define sqrt_float32x8(a) ((float32x8)GRAFT_X86(_mm256_sqrt_ps)(a))
#define round_even_float32x8(a) ((float32x8)GRAFT_X86(_mm256_round_ps)(a, 8))
#define floor_float32x8(a) ((float32x8)GRAFT_X86(_mm256_round_ps)(a, 9))
#define ceil_float32x8(a) ((float32x8)GRAFT_X86(_mm256_round_ps)(a, 10))
#define trunc_float32x8(a) ((float32x8)GRAFT_X86(_mm256_round_ps)(a, 11))
#endif
#ifdef __FMA__
#define fma_float32x8(a, b, c) ((float32x8)GRAFT_X86(_mm256_fmadd_ps)(a, b, c))
#endif
#ifdef __AVX512F__
#define min_float32x16(a, b) ((float32x16)GRAFT_X86(_mm512_min_ps)(a, b))
#define max_float32x16(a, b) ((float32x16)GRAFT_X86(_mm512_max_ps)(a, b))
#define sqrt_float32x16(a) ((float32x16)GRAFT_X86(_mm512_sqrt_ps)(a))
#define round_even_float32x16(a) ((float32x16)GRAFT_X86(_mm512_roundscale_ps)(a, 8))
#define floor_float32x16(a) ((float32x16)GRAFT_X86(_mm512_roundscale_ps)(a, 9))
#define ceil_float32x16(a) ((float32x16)GRAFT_X86(_mm512_roundscale_ps)(a, 10))
#define trunc_float32x16(a) ((float32x16)GRAFT_X86(_mm512_roundscale_ps)(a, 11))
#endif
#ifdef __AVX512F__
#define fma_float32x16(a, b, c) ((float32x16)GRAFT_X86(_mm512_fmadd_ps)(a, b, c))
#endif
#if defined(__AVX512VL__) && defined(__AVX512DQ__)
#define load_float32x4(from, on) \
  ((float32x4)GRAFT_X86(_mm_maskz_loadu_epi32)(GRAFT_X86(_mm_movepi32_mask)((GRAFT_X86(__m128i))(on)), from))
#define store_float32x4(to, on, a) \
  GRAFT_X86(_mm_mask_storeu_epi32)(to, GRAFT_X86(_mm_movepi32_mask)((GRAFT_X86(__m128i))(on)), \
      (GRAFT_X86(__m128i))(a))
#define load_int32x4(from, on) \
  ((int32x4)GRAFT_X86(_mm_maskz_loadu_epi32)(GRAFT_X86(_mm_movepi32_mask)((GRAFT_X86(__m128i))(on)), from))
#define store_int32x4(to, on, a) \
  GRAFT_X86(_mm_mask_storeu_epi32)(to, GRAFT_X86(_mm_movepi32_mask)((GRAFT_X86(__m128i))(on)), \
      (GRAFT_X86(__m128i))(a))
#define load_uint32x4(from, on) \
  ((uint32x4)GRAFT_X86(_mm_maskz_loadu_epi32)(GRAFT_X86(_mm_movepi32_mask)((GRAFT_X86(__m128i))(on)), from))
#define store_uint32x4(to, on, a) \
  GRAFT_X86(_mm_mask_storeu_epi32)(to, GRAFT_X86(_mm_movepi32_mask)((GRAFT_X86(__m128i))(on)), \
      (GRAFT_X86(__m128i))(a))
#define choose_float32x4(on, a, b) \
  ((float32x4)GRAFT_X86(_mm_mask_blend_epi32)(GRAFT_X86(_mm_movepi32_mask)((GRAFT_X86(__m128i))(on)), \
      (GRAFT_X86(__m128i))(b), (GRAFT_X86(__m128i))(a)))
#define load_float32x8(from, on) \
  ((float32x8)GRAFT_X86(_mm256_maskz_loadu_epi32)(GRAFT_X86(_mm256_movepi32_mask)((GRAFT_X86(__m256i))(on)), from))
#define store_float32x8(to, on, a) \
  GRAFT_X86(_mm256_mask_storeu_epi32)(to, GRAFT_X86(_mm256_movepi32_mask)((GRAFT_X86(__m256i))(on)), \
      (GRAFT_X86(__m256i))(a))
#define load_int32x8(from, on) \
  ((int32x8)GRAFT_X86(_mm256_maskz_loadu_epi32)(GRAFT_X86(_mm256_movepi32_mask)((GRAFT_X86(__m256i))(on)), from))
#define store_int32x8(to, on, a) \
  GRAFT_X86(_mm256_mask_storeu_epi32)(to, GRAFT_X86(_mm256_movepi32_mask)((GRAFT_X86(__m256i))(on)), \
      (GRAFT_X86(__m256i))(a))
#define load_uint32x8(from, on) \
  ((uint32x8)GRAFT_X86(_mm256_maskz_loadu_epi32)(GRAFT_X86(_mm256_movepi32_mask)((GRAFT_X86(__m256i))(on)), from))
#define store_uint32x8(to, on, a) \
  GRAFT_X86(_mm256_mask_storeu_epi32)(to, GRAFT_X86(_mm256_movepi32_mask)((GRAFT_X86(__m256i))(on)), \
      (GRAFT_X86(__m256i))(a))
#define choose_float32x8(on, a, b) \
  ((float32x8)GRAFT_X86(_mm256_mask_blend_epi32)(GRAFT_X86(_mm256_movepi32_mask)((GRAFT_X86(__m256i))(on)), \
      (GRAFT_X86(__m256i))(b), (GRAFT_X86(__m256i))(a)))
#define load_float32x16(from, on) \
  ((float32x16)GRAFT_X86(_mm512_maskz_loadu_epi32)(GRAFT_X86(_mm512_movepi32_mask)((GRAFT_X86(__m512i))(on)), from))
#define store_float32x16(to, on, a) \
  GRAFT_X86(_mm512_mask_storeu_epi32)(to, GRAFT_X86(_mm512_movepi32_mask)((GRAFT_X86(__m512i))(on)), \
      (GRAFT_X86(__m512i))(a))
#define load_int32x16(from, on) \
  ((int32x16)GRAFT_X86(_mm512_maskz_loadu_epi32)(GRAFT_X86(_mm512_movepi32_mask)((GRAFT_X86(__m512i))(on)), from))
#define store_int32x16(to, on, a) \
  GRAFT_X86(_mm512_mask_storeu_epi32)(to, GRAFT_X86(_mm512_movepi32_mask)((GRAFT_X86(__m512i))(on)), \
      (GRAFT_X86(__m512i))(a))
#define load_uint32x16(from, on) \
  ((uint32x16)GRAFT_X86(_mm512_maskz_loadu_epi32)(GRAFT_X86(_mm512_movepi32_mask)((GRAFT_X86(__m512i))(on)), from))
#define store_uint32x16(to, on, a) \
  GRAFT_X86(_mm512_mask_storeu_epi32)(to, GRAFT_X86(_mm512_movepi32_mask)((GRAFT_X86(__m512i))(on)), \
      (GRAFT_X86(__m512i))(a))
#define choose_float32x16(on, a, b) \
  ((float32x16)GRAFT_X86(_mm512_mask_blend_epi32)(GRAFT_X86(_mm512_movepi32_mask)((GRAFT_X86(__m512i))(on)), \
      (GRAFT_X86(__m512i))(b), (GRAFT_X86(__m512i))(a)))
#elif defined(__AVX2__)
#define load_float32x4(from, on) \
  ((float32x4)GRAFT_X86(_mm_maskload_epi32)((const int *)(from), (GRAFT_X86(__m128i))(on)))
#define store_float32x4(to, on, a) \
  GRAFT_X86(_mm_maskstore_epi32)((int *)(to), (GRAFT_X86(__m128i))(on), (GRAFT_X86(__m128i))(a))
#define load_int32x4(from, on) ((int32x4)GRAFT_X86(_mm_maskload_epi32)((const int *)(from), (GRAFT_X86(__m128i))(on)))
#define store_int32x4(to, on, a) \
  GRAFT_X86(_mm_maskstore_epi32)((int *)(to), (GRAFT_X86(__m128i))(on), (GRAFT_X86(__m128i))(a))
#define load_uint32x4(from, on) ((uint32x4)GRAFT_X86(_mm_maskload_epi32)((const int *)(from), (GRAFT_X86(__m128i))(on)))
#define store_uint32x4(to, on, a) \
  GRAFT_X86(_mm_maskstore_epi32)((int *)(to), (GRAFT_X86(__m128i))(on), (GRAFT_X86(__m128i))(a))
#define load_float32x8(from, on) \
  ((float32x8)GRAFT_X86(_mm256_maskload_epi32)((const int *)(from), (GRAFT_X86(__m256i))(on)))
#define store_float32x8(to, on, a) \
  GRAFT_X86(_mm256_maskstore_epi32)((int *)(to), (GRAFT_X86(__m256i))(on), (GRAFT_X86(__m256i))(a))
#define load_int32x8(from, on) \
  ((int32x8)GRAFT_X86(_mm256_maskload_epi32)((const int *)(from), (GRAFT_X86(__m256i))(on)))
#define store_int32x8(to, on, a) \
  GRAFT_X86(_mm256_maskstore_epi32)((int *)(to), (GRAFT_X86(__m256i))(on), (GRAFT_X86(__m256i))(a))
#define load_uint32x8(from, on) \
  ((uint32x8)GRAFT_X86(_mm256_maskload_epi32)((const int *)(from), (GRAFT_X86(__m256i))(on)))
#define store_uint32x8(to, on, a) \
  GRAFT_X86(_mm256_maskstore_epi32)((int *)(to), (GRAFT_X86(__m256i))(on), (GRAFT_X86(__m256i))(a))
#endif
#ifdef __AVX2__
/* Of every second element, two vectors of which the wanted lanes are on; of others, a gather. */
#define GRAFT_VECTOR_GATHER(NAME, T, LANES, LOW, HIGH, EVEN, GATHER)                                                   \
  GRAFT_LANES NAME##x##LANES gather_##NAME##x##LANES(const T *from, const int step, int32x##LANES on) {                \
    const int32x##LANES off = {0}, to = (int32x##LANES){GRAFT_COUNT_##LANES(0)} * step;                                \
    if (step != 2) return (NAME##x##LANES)GATHER;                                                                      \
    const NAME##x##LANES low = load_##NAME##x##LANES(from, __builtin_shufflevector(on, off, LOW));                     \
    const NAME##x##LANES high = load_##NAME##x##LANES(from + LANES, __builtin_shufflevector(on, off, HIGH));           \
    return __builtin_shufflevector(low, high, EVEN);                                                                   \
  }
#define GRAFT_LOW_8 0, 8, 1, 8, 2, 8, 3, 8
#define GRAFT_HIGH_8 4, 8, 5, 8, 6, 8, 7, 8
#define GRAFT_EVEN_8 0, 2, 4, 6, 8, 10, 12, 14
#define GRAFT_GATHER_8                                                                                                 \
  GRAFT_X86(_mm256_mask_i32gather_epi32)(GRAFT_X86(_mm256_setzero_si256)(), (const int *)from, \
      (GRAFT_X86(__m256i))to, (GRAFT_X86(__m256i))on, 4)
GRAFT_VECTOR_GATHER(int32, int32_t, 8, GRAFT_LOW_8, GRAFT_HIGH_8, GRAFT_EVEN_8, GRAFT_GATHER_8)
GRAFT_VECTOR_GATHER(float32, float, 8, GRAFT_LOW_8, GRAFT_HIGH_8, GRAFT_EVEN_8, GRAFT_GATHER_8)
#define step_int32x8(from, step, on) gather_int32x8(from, step, on)
#define step_float32x8(from, step, on) gather_float32x8(from, step, on)
#endif
#if defined(__AVX512VL__) && defined(__AVX512DQ__)
#define GRAFT_LOW_16 0, 16, 1, 16, 2, 16, 3, 16, 4, 16, 5, 16, 6, 16, 7, 16
#define GRAFT_HIGH_16 8, 16, 9, 16, 10, 16, 11, 16, 12, 16, 13, 16, 14, 16, 15, 16
#define GRAFT_EVEN_16 GRAFT_EVEN_8, 16, 18, 20, 22, 24, 26, 28, 30
#define GRAFT_GATHER_16                                                                                                \
  GRAFT_X86(_mm512_mask_i32gather_epi32)(GRAFT_X86(_mm512_setzero_si512)(), \
      GRAFT_X86(_mm512_movepi32_mask)((GRAFT_X86(__m512i))on), (GRAFT_X86(__m512i))to, from, 4)
GRAFT_VECTOR_GATHER(int32, int32_t, 16, GRAFT_LOW_16, GRAFT_HIGH_16, GRAFT_EVEN_16, GRAFT_GATHER_16)
GRAFT_VECTOR_GATHER(float32, float, 16, GRAFT_LOW_16, GRAFT_HIGH_16, GRAFT_EVEN_16, GRAFT_GATHER_16)
#define step_int32x16(from, step, on) gather_int32x16(from, step, on)
#define step_float32x16(from, step, on) gather_float32x16(from, step, on)
#endif
#ifdef __aarch64__
#define fma_float32x4(a, b, c) ((float32x4)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define sqrt_float32x4(a) ((float32x4)vsqrtq_f32((float32x4_t)(a)))
#define round_even_float32x4(a) ((float32x4)vrndnq_f32((float32x4_t)(a)))
#define floor_float32x4(a) ((float32x4)vrndmq_f32((float32x4_t)(a)))
#endif
GRAFT_VECTOR_DOT(4, 16, 8)
GRAFT_VECTOR_DOT(8, 32, 16)
GRAFT_VECTOR_DOT(16, 64, 32)
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define dot4_u8s8_x4(c, a, b) \
  ((int32x4)GRAFT_X86(_mm_dpbusd_epi32)((GRAFT_X86(__m128i))(c), (GRAFT_X86(__m128i))(a), (GRAFT_X86(__m128i))(b)))
#define dot4_u8s8_x8(c, a, b) \
  ((int32x8)GRAFT_X86(_mm256_dpbusd_epi32)((GRAFT_X86(__m256i))(c), (GRAFT_X86(__m256i))(a), (GRAFT_X86(__m256i))(b)))
#define dot4_u8s8_x16(c, a, b) \
  ((int32x16)GRAFT_X86(_mm512_dpbusd_epi32)((GRAFT_X86(__m512i))(c), (GRAFT_X86(__m512i))(a), \
      (GRAFT_X86(__m512i))(b)))
#elif defined(__AVXVNNI__)
#define dot4_u8s8_x4(c, a, b) \
  ((int32x4)GRAFT_X86(_mm_dpbusd_avx_epi32)((GRAFT_X86(__m128i))(c), (GRAFT_X86(__m128i))(a), \
      (GRAFT_X86(__m128i))(b)))
#define dot4_u8s8_x8(c, a, b) \
  ((int32x8)GRAFT_X86(_mm256_dpbusd_avx_epi32)((GRAFT_X86(__m256i))(c), (GRAFT_X86(__m256i))(a), \
      (GRAFT_X86(__m256i))(b)))
#endif
#if defined(__SSE2__)
#define dot2_s16_x4(c, a, b) \
  ((int32x4)((uint32x4)(c) + (uint32x4)GRAFT_X86(_mm_madd_epi16)((GRAFT_X86(__m128i))(a), (GRAFT_X86(__m128i))(b))))
#endif
#if defined(__AVX2__)
#define dot2_s16_x8(c, a, b) \
  ((int32x8)((uint32x8)(c) + (uint32x8)GRAFT_X86(_mm256_madd_epi16)((GRAFT_X86(__m256i))(a), (GRAFT_X86(__m256i))(b))))
#endif
#ifdef __AVX512BF16__
#if defined(__clang__) || __GNUC__ > 14
#define dot2_bf16_x16(c, a, b) ((float32x16)_mm512_dpbf16_ps((__m512)(c), (__m512bh)(a), (__m512bh)(b)))
#elif __GNUC__ > 12
typedef __bf16 graft_bfloat16x32 __attribute__((vector_size(64)));
#define dot2_bf16_x16(c, a, b) __builtin_ia32_dpbf16ps_v16sf(c, (graft_bfloat16x32)(a), (graft_bfloat16x32)(b))
#else
#define dot2_bf16_x16(c, a, b) __builtin_ia32_dpbf16ps_v16sf(c, (int16x32)(a), (int16x32)(b))
#endif
#endif

#endif /* GRAFT_VECTORS */
