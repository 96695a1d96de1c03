/* Arithmetic of Graft's tensor IR in portable C11: integers wrap, nothing traps, and no library is called.
 * Floats of 16 bits are kept as their bits. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "graft/runtime.h"

#define GRAFT_INLINE static inline

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
