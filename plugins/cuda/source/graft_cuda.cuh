/* What kernels in CUDA C need beside CUDA itself: the arithmetic of Graft's tensor IR (integers wrap, floats become
 * integers that saturate, NaN passes through extrema), values of several lanes, and the instructions of a block: copies
 * in stages and products by warps. Floats of 16 bits are kept as their bits.
 *
 * Whole by itself: nvcc and NVRTC compile it.
 */
#ifndef GRAFT_CUDA_CUH
#define GRAFT_CUDA_CUH

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t, uintptr_t;
#define INT8_MIN (-128)
#define INT16_MIN (-32768)
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_C(number) number##ll
#define UINT32_C(number) number##u
#define UINT64_C(number) number##ull
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#define GRAFT_INLINE static __device__ __forceinline__
/* A kernel by blocks of so many threads; without the least number of blocks, ptxas rather spills than has few of them. */
#define KERNEL(THREADS) KERNEL_BESIDE(THREADS, 1)
#define KERNEL_BESIDE(THREADS, BLOCKS) extern "C" __global__ __launch_bounds__(THREADS, BLOCKS)
#define THREAD(AXIS) ((int64_t)threadIdx.AXIS)
#define BLOCK(AXIS) ((int64_t)blockIdx.AXIS)
extern __shared__ __align__(128) unsigned char graft_shared[];
#define SHARED(OFFSET) (graft_shared + (OFFSET))
#define wait_for_block() __syncthreads()
#define wait_for_warp() __syncwarp()

/* ---- Lanes ------------------------------------------------------------------------------------------------------- */

template <class T, int N> struct Lanes {
  T lane[N];
};
#define EACH(RESULT, VALUE)                                                                                            \
  RESULT result;                                                                                                       \
  _Pragma("unroll") for (int i = 0; i < N; i++) result.lane[i] = VALUE;                                                \
  return result

template <int N, class T> GRAFT_INLINE Lanes<T, N> splat(T value) {
  typedef Lanes<T, N> Result;
  EACH(Result, value);
}
template <int N> GRAFT_INLINE Lanes<int64_t, N> ramp(int64_t base, int64_t step) {
  typedef Lanes<int64_t, N> Result;
  EACH(Result, base + i * step);
}
template <int... CHOSEN, class T, int N> GRAFT_INLINE Lanes<T, sizeof...(CHOSEN)> chosen(Lanes<T, N> a) {
  return {{a.lane[CHOSEN]...}};
}
template <class T, int N, int M> GRAFT_INLINE Lanes<T, N + M> joined(Lanes<T, N> a, Lanes<T, M> b) {
  Lanes<T, N + M> result;
  for (int i = 0; i < N + M; i++) result.lane[i] = i < N ? a.lane[i] : b.lane[i - N];
  return result;
}
template <class T> GRAFT_INLINE Lanes<T, 1> alone(T a) { return {{a}}; }

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

template <class To, class From> GRAFT_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
template <class T> struct Kind {
  static constexpr bool is_signed = T(-1) < T(0), is_float = T(0.5) != T(0);
  static constexpr int bits = 8 * sizeof(T);
};

/* ---- Integers: by their types, for literals have others ------------------------------------------------------------ */

template <class T> GRAFT_INLINE T add(T a, T b) { return (T)((uint64_t)a + (uint64_t)b); }
template <class T> GRAFT_INLINE T sub(T a, T b) { return (T)((uint64_t)a - (uint64_t)b); }
template <class T> GRAFT_INLINE T mul(T a, T b) { return (T)((uint64_t)a * (uint64_t)b); }
template <class T> GRAFT_INLINE T bit_and(T a, T b) { return (T)(a & b); }
template <class T> GRAFT_INLINE T bit_or(T a, T b) { return (T)(a | b); }
template <class T> GRAFT_INLINE T bit_xor(T a, T b) { return (T)(a ^ b); }
template <class T> GRAFT_INLINE T bit_not(T a) { return (T)~a; }
template <class T> GRAFT_INLINE T div(T a, T b) {
  if (b == 0) return a;
  return Kind<T>::is_signed && b == (T)-1 ? sub<T>(0, a) : (T)(a / b);
}
template <class T> GRAFT_INLINE T mod(T a, T b) { return b == 0 || (Kind<T>::is_signed && b == (T)-1) ? (T)0 : (T)(a % b); }
template <class T> GRAFT_INLINE T shl(T a, T b) {
  return (uint64_t)b >= Kind<T>::bits ? (T)0 : (T)((uint64_t)a << (uint64_t)b);
}
template <class T> GRAFT_INLINE T shr(T a, T b) {
  return (uint64_t)b < Kind<T>::bits ? (T)(a >> b) : Kind<T>::is_signed && a < 0 ? (T)-1 : (T)0;
}
template <class T> GRAFT_INLINE T popcount(T a) {
  T set = 0;
  for (int bit = 0; bit < Kind<T>::bits; bit++) set += (T)((uint64_t)a >> bit & 1);
  return set;
}
template <class T> GRAFT_INLINE T clz(T a) {
  T zeros = Kind<T>::bits;
  for (int bit = 0; bit < Kind<T>::bits; bit++)
    if ((uint64_t)a >> bit & 1) zeros = (T)(Kind<T>::bits - 1 - bit);
  return zeros;
}

/* ---- Floats and integers ------------------------------------------------------------------------------------------- */

template <class T> GRAFT_INLINE T least(T a, T b) { return a != a ? a : a < b ? a : b; }
template <class T> GRAFT_INLINE T greatest(T a, T b) { return a != a ? a : a > b ? a : b; }
template <class T> GRAFT_INLINE T negated(T a) {
  if constexpr (Kind<T>::is_float) return -a;
  else return sub<T>(0, a);
}
template <class T> GRAFT_INLINE T magnitude(T a) {
  if constexpr (Kind<T>::is_float) return sizeof(T) == 4 ? (T)fabsf((float)a) : (T)fabs((double)a);
  else return Kind<T>::is_signed && a < 0 ? sub<T>(0, a) : a;
}
#define GRAFT_OF_FLOATS(NAME, OF_FLOAT, OF_DOUBLE)                                                                     \
  template <class T> GRAFT_INLINE T NAME(T a) {                                                                        \
    if constexpr (sizeof(T) == 4) return OF_FLOAT(a);                                                                  \
    else return OF_DOUBLE(a);                                                                                          \
  }
GRAFT_OF_FLOATS(root, sqrtf, sqrt)
GRAFT_OF_FLOATS(round_down, floorf, floor)
GRAFT_OF_FLOATS(round_up, ceilf, ceil)
GRAFT_OF_FLOATS(round_to_zero, truncf, trunc)
GRAFT_OF_FLOATS(round_even, rintf, rint)
template <class T> GRAFT_INLINE T fused(T a, T b, T c) {
  if constexpr (sizeof(T) == 4) return fmaf(a, b, c);
  else return fma(a, b, c);
}
template <class T> GRAFT_INLINE T modulus(T a, T b) {
  if constexpr (sizeof(T) == 4) return fmodf(a, b);
  else return fmod(a, b);
}

/* Products and sums that are rounded where they stand, never joined. */
GRAFT_INLINE float exact_add(float a, float b) { return __fadd_rn(a, b); }
GRAFT_INLINE float exact_mul(float a, float b) { return __fmul_rn(a, b); }
GRAFT_INLINE double exact_add(double a, double b) { return __dadd_rn(a, b); }
GRAFT_INLINE double exact_mul(double a, double b) { return __dmul_rn(a, b); }
template <class T> GRAFT_INLINE T exact_sub(T a, T b) { return exact_add(a, -b); }

template <class To, class From> GRAFT_INLINE To cast(From a) { return (To)a; }
/* The integer that a float is nearest to, towards zero: 0 for NaN. */
template <class To, class From> GRAFT_INLINE To saturated(From a) {
  const From half = (From)((uint64_t)1 << (Kind<To>::bits - 1));
  const From low = Kind<To>::is_signed ? -half : (From)0, high = Kind<To>::is_signed ? half : 2 * half;
  if (a != a) return 0;
  if (a >= high) return (To)(~(uint64_t)0 >> (64 - Kind<To>::bits + Kind<To>::is_signed));
  return a <= low ? (To)((uint64_t)Kind<To>::is_signed << (Kind<To>::bits - 1)) : (To)a;
}

/* Floats of 16 bits. */
GRAFT_INLINE float half_as_float(uint16_t a) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(a));
  return result;
}
GRAFT_INLINE uint16_t float_as_half(float a) {
  uint16_t result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(a));
  return result;
}
GRAFT_INLINE uint16_t float_as_bfloat(float a) {
  uint16_t result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(a));
  return result;
}

/* ---- The same, lane by lane ---------------------------------------------------------------------------------------- */

#define GRAFT_UNARY(NAME)                                                                                              \
  template <class T, int N> GRAFT_INLINE Lanes<T, N> NAME(Lanes<T, N> a) {                                             \
    typedef Lanes<T, N> Result;                                                                                        \
    EACH(Result, NAME<T>(a.lane[i]));                                                                                  \
  }
#define GRAFT_BINARY(NAME)                                                                                             \
  template <class T, int N> GRAFT_INLINE Lanes<T, N> NAME(Lanes<T, N> a, Lanes<T, N> b) {                              \
    typedef Lanes<T, N> Result;                                                                                        \
    EACH(Result, NAME<T>(a.lane[i], b.lane[i]));                                                                       \
  }                                                                                                                    \
  template <class T, int N> GRAFT_INLINE T across_##NAME(Lanes<T, N> a) {                                              \
    T result = a.lane[0];                                                                                              \
    _Pragma("unroll") for (int i = 1; i < N; i++) result = NAME<T>(result, a.lane[i]);                                 \
    return result;                                                                                                     \
  }
GRAFT_UNARY(negated) GRAFT_UNARY(magnitude) GRAFT_UNARY(bit_not) GRAFT_UNARY(popcount) GRAFT_UNARY(clz)
GRAFT_UNARY(root) GRAFT_UNARY(round_down) GRAFT_UNARY(round_up) GRAFT_UNARY(round_to_zero) GRAFT_UNARY(round_even)
GRAFT_BINARY(add) GRAFT_BINARY(sub) GRAFT_BINARY(mul) GRAFT_BINARY(div) GRAFT_BINARY(mod) GRAFT_BINARY(least)
GRAFT_BINARY(greatest) GRAFT_BINARY(shl) GRAFT_BINARY(shr) GRAFT_BINARY(bit_and) GRAFT_BINARY(bit_or)
GRAFT_BINARY(bit_xor) GRAFT_BINARY(modulus)
#define GRAFT_SIGN(NAME, SIGN, RESULT)                                                                                 \
  template <class T, int N> GRAFT_INLINE Lanes<RESULT, N> operator SIGN(Lanes<T, N> a, Lanes<T, N> b) {                \
    typedef Lanes<RESULT, N> Result;                                                                                   \
    EACH(Result, a.lane[i] SIGN b.lane[i]);                                                                            \
  }                                                                                                                    \
  template <class T, int N> GRAFT_INLINE T across_##NAME(Lanes<T, N> a) {                                              \
    T result = a.lane[0];                                                                                              \
    _Pragma("unroll") for (int i = 1; i < N; i++) result = (T)(result SIGN a.lane[i]);                                 \
    return result;                                                                                                     \
  }
GRAFT_SIGN(sum, +, T) GRAFT_SIGN(difference, -, T) GRAFT_SIGN(product, *, T) GRAFT_SIGN(quotient, /, T)
GRAFT_SIGN(eq, ==, bool) GRAFT_SIGN(ne, !=, bool) GRAFT_SIGN(lt, <, bool) GRAFT_SIGN(le, <=, bool)
GRAFT_SIGN(gt, >, bool) GRAFT_SIGN(ge, >=, bool) GRAFT_SIGN(all, &&, bool) GRAFT_SIGN(any, ||, bool)
template <class T, int N> GRAFT_INLINE Lanes<T, N> exact_add(Lanes<T, N> a, Lanes<T, N> b) {
  typedef Lanes<T, N> Result;
  EACH(Result, exact_add(a.lane[i], b.lane[i]));
}
template <class T, int N> GRAFT_INLINE Lanes<T, N> exact_mul(Lanes<T, N> a, Lanes<T, N> b) {
  typedef Lanes<T, N> Result;
  EACH(Result, exact_mul(a.lane[i], b.lane[i]));
}
template <class T, int N> GRAFT_INLINE Lanes<T, N> exact_sub(Lanes<T, N> a, Lanes<T, N> b) {
  typedef Lanes<T, N> Result;
  EACH(Result, exact_add(a.lane[i], -b.lane[i]));
}
template <int N> GRAFT_INLINE Lanes<bool, N> operator!(Lanes<bool, N> a) {
  typedef Lanes<bool, N> Result;
  EACH(Result, !a.lane[i]);
}
template <class T, int N> GRAFT_INLINE Lanes<T, N> fused(Lanes<T, N> a, Lanes<T, N> b, Lanes<T, N> c) {
  typedef Lanes<T, N> Result;
  EACH(Result, fused<T>(a.lane[i], b.lane[i], c.lane[i]));
}
template <class T, int N> GRAFT_INLINE Lanes<T, N> choice(Lanes<bool, N> c, Lanes<T, N> a, Lanes<T, N> b) {
  typedef Lanes<T, N> Result;
  EACH(Result, c.lane[i] ? a.lane[i] : b.lane[i]);
}
template <class T, int N> GRAFT_INLINE Lanes<T, N> choice(bool c, Lanes<T, N> a, Lanes<T, N> b) {
  typedef Lanes<T, N> Result;
  EACH(Result, c ? a.lane[i] : b.lane[i]);
}
template <class To, class From, int N> GRAFT_INLINE Lanes<To, N> cast(Lanes<From, N> a) {
  typedef Lanes<To, N> Result;
  EACH(Result, (To)a.lane[i]);
}
template <class To, class From, int N> GRAFT_INLINE Lanes<To, N> saturated(Lanes<From, N> a) {
  typedef Lanes<To, N> Result;
  EACH(Result, (saturated<To, From>(a.lane[i])));
}
template <int N> GRAFT_INLINE Lanes<float, N> half_as_float(Lanes<uint16_t, N> a) {
  typedef Lanes<float, N> Result;
  EACH(Result, half_as_float(a.lane[i]));
}
template <int N> GRAFT_INLINE Lanes<uint16_t, N> float_as_half(Lanes<float, N> a) {
  typedef Lanes<uint16_t, N> Result;
  EACH(Result, float_as_half(a.lane[i]));
}
template <int N> GRAFT_INLINE Lanes<uint16_t, N> float_as_bfloat(Lanes<float, N> a) {
  typedef Lanes<uint16_t, N> Result;
  EACH(Result, float_as_bfloat(a.lane[i]));
}

/* ---- Memory: neighbours in pieces of ALIGN bytes, single lanes, lanes that are switched on --------------------------- */

template <int BYTES> struct Piece;
template <> struct Piece<1> { uint8_t bits; };
template <> struct Piece<2> { uint16_t bits; };
template <> struct Piece<4> { uint32_t bits; };
template <> struct Piece<8> { uint64_t bits; };
template <> struct alignas(16) Piece<16> { uint64_t bits[2]; };
template <int N, int ALIGN, class T> struct Pieces {
  static constexpr int whole = N * (int)sizeof(T);
  static constexpr int bytes = ALIGN >= 16 && whole % 16 == 0 ? 16 : ALIGN >= 8 && whole % 8 == 0 ? 8
                               : ALIGN >= 4 && whole % 4 == 0 ? 4 : ALIGN >= 2 && whole % 2 == 0 ? 2 : 1;
  static constexpr int size = bytes < (int)sizeof(T) ? (int)sizeof(T) : bytes;
};
template <int N, int ALIGN, class T> GRAFT_INLINE Lanes<T, N> load(const T *at) {
  typedef Pieces<N, ALIGN, T> P;
  Piece<P::size> pieces[P::whole / P::size];
  Lanes<T, N> result;
  _Pragma("unroll") for (int i = 0; i < P::whole / P::size; i++) pieces[i] = ((const Piece<P::size> *)at)[i];
  memcpy(&result, pieces, sizeof result);
  return result;
}
template <int ALIGN, class T, int N> GRAFT_INLINE void store(T *at, Lanes<T, N> value) {
  typedef Pieces<N, ALIGN, T> P;
  Piece<P::size> pieces[P::whole / P::size];
  memcpy(pieces, &value, sizeof value);
  _Pragma("unroll") for (int i = 0; i < P::whole / P::size; i++) ((Piece<P::size> *)at)[i] = pieces[i];
}
template <class T, int N> GRAFT_INLINE Lanes<T, N> load_where(const T *at, int64_t step, Lanes<bool, N> on) {
  typedef Lanes<T, N> Result;
  EACH(Result, on.lane[i] ? at[i * step] : (T)0);
}
template <class T, int N> GRAFT_INLINE void store_where(T *at, Lanes<T, N> value, Lanes<bool, N> on) {
  _Pragma("unroll") for (int i = 0; i < N; i++) if (on.lane[i]) at[i] = value.lane[i];
}
template <class T, int N> GRAFT_INLINE Lanes<T, N> gather(const T *from, Lanes<int64_t, N> places, Lanes<bool, N> on) {
  typedef Lanes<T, N> Result;
  EACH(Result, on.lane[i] ? from[places.lane[i]] : (T)0);
}
template <class T, int N>
GRAFT_INLINE void scatter(T *to, Lanes<int64_t, N> places, Lanes<T, N> value, Lanes<bool, N> on) {
  _Pragma("unroll") for (int i = 0; i < N; i++) if (on.lane[i]) to[places.lane[i]] = value.lane[i];
}

/* ---- Reports ------------------------------------------------------------------------------------------------------- */

/* Says what is wrong, unless another thread has said something. */
GRAFT_INLINE void report(int64_t *words, int64_t code, int64_t a, int64_t b, int64_t c, int64_t d = 0, int64_t e = 0) {
  if (atomicCAS((unsigned long long *)words, 0ull, (unsigned long long)code) == 0) {
    words[1] = a, words[2] = b, words[3] = c, words[4] = d, words[5] = e;
  }
}

/* ---- Copies from the device's memory to shared memory, in groups ------------------------------------------------------ */

/* Begins to copy; what is not aligned is copied at once. */
template <int BYTES, bool IS_ALIGNED, class T> GRAFT_INLINE void copy_async(T *to, const T *from) {
  if (IS_ALIGNED) {
    const uint32_t near = (uint32_t)__cvta_generic_to_shared(to);
    if (BYTES == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(near), "l"(from) : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(near), "l"(from), "n"(BYTES) : "memory");
    }
  } else {
    for (int i = 0; i < BYTES / (int)sizeof(T); i++) to[i] = from[i];
  }
}
#define commit_copies() asm volatile("cp.async.commit_group;" ::: "memory")
#define wait_copies(PENDING) asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory")

/* ---- Products of tiles by a warp -------------------------------------------------------------------------------------- */

/* A thread's words of a factor: of 16 rows of 32 bytes (four matrices of 8 rows of 16 bytes), or of 8 (two). Turned, the
 * rows in memory, `pitch` bytes apart, are the terms, and the factor's own rows are 16 bits wide. */
template <int COUNT, bool IS_TRANSPOSED> GRAFT_INLINE Lanes<uint32_t, COUNT> matrices(const void *first, int64_t pitch) {
  const int64_t lane = THREAD(x) & 31, high = lane >> (COUNT == 4 ? 4 : 3) & 1;
  const int64_t row = IS_TRANSPOSED ? (lane & 7) + 8 * high : lane & (COUNT == 4 ? 15 : 7);
  const int64_t half = !IS_TRANSPOSED ? high : COUNT == 4 ? lane >> 3 & 1 : 0;
  const char *const near = (const char *)first + row * pitch + 16 * half;
  Lanes<uint32_t, COUNT> result;
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(near);
  uint32_t *const w = result.lane;
  if (COUNT == 4 && IS_TRANSPOSED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[COUNT - 2]), "=r"(w[COUNT - 1]) : "r"(at) : "memory");
  } else if (COUNT == 4) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[COUNT - 2]), "=r"(w[COUNT - 1]) : "r"(at) : "memory");
  } else if (IS_TRANSPOSED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(w[0]), "=r"(w[1]) : "r"(at) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(w[0]), "=r"(w[1]) : "r"(at) : "memory");
  }
  return result;
}

/* The words of a factor that lie as another product's sums do, in a thread's registers. */
template <int COUNT> GRAFT_INLINE Lanes<uint32_t, COUNT> words_of(const void *at) {
  Lanes<uint32_t, COUNT> result;
  memcpy(&result, at, sizeof result);
  return result;
}

/* What the thread of the warp has whose number is this one's xor a mask, and 2 to a power, as the device approximates it. */
#define exchange(VALUE, MASK) __shfl_xor_sync(0xffffffffu, VALUE, MASK)
GRAFT_INLINE float power_of_2(float exponent) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

/* Adds the product of 16 rows and 8 columns to a thread's four sums. */
#define GRAFT_MMA(NAME, NUMBER, T, CONSTRAINT, TEXT)                                                                   \
  GRAFT_INLINE void NAME(T *c, Lanes<uint32_t, 4> a, Lanes<uint32_t, 2> b) {                                           \
    asm volatile("mma.sync.aligned." TEXT " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"           \
                 : "+" CONSTRAINT(c[0]), "+" CONSTRAINT(c[1]), "+" CONSTRAINT(c[2]), "+" CONSTRAINT(c[3])              \
                 : "r"(a.lane[0]), "r"(a.lane[1]), "r"(a.lane[2]), "r"(a.lane[3]), "r"(b.lane[0]), "r"(b.lane[1]));    \
  }
GRAFT_MMA(mma_float16, 0, float, "f", "m16n8k16.row.col.f32.f16.f16.f32")
GRAFT_MMA(mma_bfloat16, 1, float, "f", "m16n8k16.row.col.f32.bf16.bf16.f32")
GRAFT_MMA(mma_tf32, 2, float, "f", "m16n8k8.row.col.f32.tf32.tf32.f32")
GRAFT_MMA(mma_int8, 3, int32_t, "r", "m16n8k32.row.col.s32.s8.s8.s32")
GRAFT_MMA(mma_uint8_int8, 4, int32_t, "r", "m16n8k32.row.col.s32.u8.s8.s32")
GRAFT_MMA(mma_int8_uint8, 5, int32_t, "r", "m16n8k32.row.col.s32.s8.u8.s32")

#endif
