/* What kernels in C need of their host, and the arithmetic of Graft's tensor IR in portable C11: integers wrap, nothing
 * traps, and no library is called, neither libc nor libm. Floats of 16 bits are kept as their bits.
 *
 * A kernel is a plain function: the context, then a pointer to each tensor (behind it its shape and its strides, where it
 * reads these). It returns GRAFT_OK or an error number. There are two hosts. Compiled with GRAFT_PROJECT, this header is
 * all of Graft that a project has: loops run as they stand, scratch memory comes from a block that was planned when the
 * project was written, and an error is its number. Otherwise Graft's runtime is the host, by its function table, and
 * each kernel has an entry with the ABI of GraftFunction.
 */
#ifndef GRAFT_KERNEL_H
#define GRAFT_KERNEL_H

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

_Static_assert(CHAR_BIT == 8 && sizeof(bool) == 1, "tensors of bool have a byte for each element");
_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "float32 and float64 are IEEE 754's binary32 and binary64");
_Static_assert((int8_t)-1 == ~0 && -1 >> 1 == -1, "integers are two's complement, and shifts keep their sign");

/* ---- The host ------------------------------------------------------------------------------------------------- */

#ifdef GRAFT_PROJECT

enum { GRAFT_OK = 0, GRAFT_ERROR_MEMORY = 1, GRAFT_ERROR_INPUT = 4, GRAFT_ERROR_RUN = 5 };

/* `scratch` is aligned to 64 bytes; `used` is 0 when a kernel is called. */
typedef struct GraftContext {
  unsigned char *scratch;
  uint64_t scratch_bytes, used;
} GraftContext;

typedef int32_t (*GraftTask)(GraftContext *context, void *closure, int64_t begin, int64_t end);

/* Returns 64-byte aligned memory that lives until the function or task ends, NULL if there is none left. */
GRAFT_INLINE void *graft_scratch(GraftContext *context, uint64_t bytes) {
  const uint64_t begin = context->used, left = context->scratch_bytes - begin;
  if (left < bytes || left - bytes < (64 - bytes % 64) % 64) return NULL;
  context->used = begin + (bytes + 63) / 64 * 64;
  return context->scratch + begin;
}

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

#define graft_scratch(context, bytes) (context)->api->scratch(context, bytes)
#define graft_parallel_for(context, ...) (context)->api->parallel_for(context, __VA_ARGS__)
#define graft_allocate_output(context, ...) (context)->api->allocate_output(context, __VA_ARGS__)
#define graft_fail(context, ...) (context)->api->fail(context, __VA_ARGS__)

/* The entry of a kernel: what the runtime calls. An input that is absent is no tensor. */
#define GRAFT_ENTRY(KERNEL) KERNEL##_entry
#define GRAFT_DATA(TENSOR) ((TENSOR) == NULL ? NULL : (void *)((char *)(TENSOR)->data + (TENSOR)->byte_offset))
#define GRAFT_SHAPE(TENSOR) ((TENSOR) == NULL ? NULL : (TENSOR)->shape)
#define GRAFT_STRIDES(TENSOR) ((TENSOR) == NULL ? NULL : (TENSOR)->strides)

#endif

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
  GRAFT_INLINE T NAME##_of_double(double a) {                                                                          \
    const double low = IS_SIGNED ? -(double)((uint64_t)1 << (BITS - 1)) : 0.0;                                         \
    const double high = (IS_SIGNED ? 1.0 : 2.0) * (double)((uint64_t)1 << (BITS - 1));                                 \
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

/* ---- Floats: an operand that is NaN is the result, what is at least LIMIT is whole ------------------------------ */

#define GRAFT_FLOAT(NAME, T, BITS, SUFFIX, LIMIT)                                                                      \
  GRAFT_INLINE BITS bits_of_##NAME(T a) { return (union { T in; BITS out; }){a}.out; }                                 \
  GRAFT_INLINE T NAME##_of_bits(BITS a) { return (union { BITS in; T out; }){a}.out; }                                 \
  GRAFT_INLINE T neg_##NAME(T a) { return -a; }                                                                        \
  GRAFT_INLINE T abs_##NAME(T a) { return fabs##SUFFIX(a); }                                                           \
  GRAFT_INLINE T sqrt_##NAME(T a) { return sqrt##SUFFIX(a); }                                                          \
  GRAFT_INLINE T min_##NAME(T a, T b) { return a != a ? a : a < b ? a : b; }                                           \
  GRAFT_INLINE T max_##NAME(T a, T b) { return a != a ? a : a > b ? a : b; }                                           \
  GRAFT_INLINE T round_even_##NAME(T a) {                                                                              \
    return fabs##SUFFIX(a) < LIMIT ? copysign##SUFFIX(fabs##SUFFIX(a) + LIMIT - LIMIT, a) : a;                         \
  }                                                                                                                    \
  GRAFT_INLINE T trunc_##NAME(T a) { return fabs##SUFFIX(a) < LIMIT ? copysign##SUFFIX((T)(int64_t)a, a) : a; }        \
  GRAFT_INLINE T floor_##NAME(T a) { return trunc_##NAME(a) > a ? trunc_##NAME(a) - 1 : trunc_##NAME(a); }             \
  GRAFT_INLINE T ceil_##NAME(T a) {                                                                                    \
    return trunc_##NAME(a) < a ? copysign##SUFFIX(trunc_##NAME(a) + 1, a) : trunc_##NAME(a);                           \
  }                                                                                                                    \
  GRAFT_INLINE T fma_##NAME(T a, T b, T c) { return fma##SUFFIX(a, b, c); }
#ifndef FP_FAST_FMAF
#define fmaf(a, b, c) ((a) * (b) + (c))
#endif
#ifndef FP_FAST_FMA
#define fma(a, b, c) ((a) * (b) + (c))
#endif
GRAFT_FLOAT(float32, float, uint32_t, f, 8388608.0f)
GRAFT_FLOAT(float64, double, uint64_t, , 4503599627370496.0)

/* C's fmod: long division of the significands, exact for every quotient. */
GRAFT_INLINE double fmod_float64(double x, double y) {
  const uint64_t sign = bits_of_float64(x) & ((uint64_t)1 << 63), one = (uint64_t)1 << 52;
  const uint64_t xm = bits_of_float64(x) & ~((uint64_t)1 << 63), ym = bits_of_float64(y) & ~((uint64_t)1 << 63);
  if (ym == 0 || y != y || xm >= (uint64_t)2047 << 52) return (x * y) / (x * y);
  if (xm < ym) return x;
  int64_t left = xm >> 52 ? (int64_t)(xm >> 52) : 1, exponent = ym >> 52 ? (int64_t)(ym >> 52) : 1;
  uint64_t rest = xm >> 52 ? (xm & (one - 1)) | one : xm, divisor = ym >> 52 ? (ym & (one - 1)) | one : ym;
  for (left -= exponent;; --left) {
    if (rest >= divisor) rest -= divisor;
    if (left == 0) break;
    rest <<= 1;
  }
  if (rest == 0) return float64_of_bits(sign);
  for (; rest < one && exponent > 1; --exponent) rest <<= 1;
  return float64_of_bits(sign | (rest < one ? rest : ((uint64_t)exponent << 52) + (rest - one)));
}
GRAFT_INLINE float fmod_float32(float x, float y) { return (float)fmod_float64((double)x, (double)y); }

#endif
