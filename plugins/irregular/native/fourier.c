/* DFT and STFT of lengths that are known when they run: the factors of the length are the algorithm.
 *
 * Mixed radices in the order of Stockham, for `l` points left of n = l s: `y[q + s (r p + k)] = w(l)^(p k) sum over
 * j < r of x[q + s (p + l/r j)] w(r)^(j k)`. A length with a prime factor above `LARGEST` is a convolution with a
 * chirp, of a length that is a power of two (Bluestein 1970). All in float64; a transform back is the conjugate of that
 * of the conjugate.
 */
#include <math.h>
#include <string.h>

#include "kernel.h"

enum { LARGEST = 61, MOST_FACTORS = 64, CHUNKS = 64 };
#define LONGEST ((int64_t)1 << 32)
static const double HALF_PI = 1.57079632679489661923;

typedef struct Complex {
  double re, im;
} Complex;

typedef struct Transform {
  int64_t length, size; /* `size` is what is transformed by factors: the length, or that of the convolution */
  int32_t factors[MOST_FACTORS], count;
  Complex *roots;          /* exp(-2 pi i t / size) */
  Complex *chirp, *kernel; /* of a convolution, else NULL */
} Transform;

static Complex times(Complex x, Complex y) {
  return (Complex){x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

/* exp(-2 pi i turn / length), to the last bit: from the first octant. */
static Complex root(int64_t turn, int64_t length) {
  int64_t quarter = 4 * turn / length, rest = 4 * turn % length;
  double near = (double)(2 * rest <= length ? rest : length - rest) * (HALF_PI / (double)length);
  double c = 2 * rest <= length ? cos(near) : sin(near), s = 2 * rest <= length ? sin(near) : cos(near);
  switch (quarter) {
    case 0:
      return (Complex){c, -s};
    case 1:
      return (Complex){-s, -c};
    case 2:
      return (Complex){-c, s};
    default:
      return (Complex){s, c};
  }
}

/* Returns what is left of a length when its small factors are out. */
static int64_t factored(Transform *transform, int64_t length) {
  transform->count = 0;
  for (int32_t radix = 4; radix <= LARGEST && length > 1; radix = radix == 4 ? 2 : radix == 2 ? 3 : radix + 2) {
    for (; length % radix == 0; length /= radix) {
      transform->factors[transform->count++] = radix;
    }
  }
  return length;
}

/* The sum over a radix of products with its roots, which lie `apart` in those of the size. */
static Complex summed(const Complex *points, const Complex *roots, int32_t radix, int64_t apart, int32_t k) {
  Complex total = points[0];
  for (int32_t j = 1; j < radix; j++) {
    Complex term = times(points[j], roots[(int64_t)(j * k % radix) * apart]);
    total.re += term.re;
    total.im += term.im;
  }
  return total;
}

/* A stage of radix 4: its roots are 1, -i, -1 and i. */
static void stage_of_four(const Transform *transform, int64_t s, const Complex *restrict x, Complex *restrict y) {
  int64_t rest = transform->size / s / 4;
  for (int64_t p = 0; p < rest; p++) {
    Complex w1 = transform->roots[s * p], w2 = transform->roots[2 * s * p], w3 = transform->roots[3 * s * p];
    const Complex *x0 = x + s * p, *x1 = x0 + s * rest, *x2 = x1 + s * rest, *x3 = x2 + s * rest;
    Complex *y0 = y + 4 * s * p, *y1 = y0 + s, *y2 = y1 + s, *y3 = y2 + s;
    for (int64_t q = 0; q < s; q++) {
      Complex a = {x0[q].re + x2[q].re, x0[q].im + x2[q].im}, b = {x0[q].re - x2[q].re, x0[q].im - x2[q].im};
      Complex c = {x1[q].re + x3[q].re, x1[q].im + x3[q].im}, d = {x1[q].re - x3[q].re, x1[q].im - x3[q].im};
      y0[q] = (Complex){a.re + c.re, a.im + c.im};
      y1[q] = times((Complex){b.re + d.im, b.im - d.re}, w1);
      y2[q] = times((Complex){a.re - c.re, a.im - c.im}, w2);
      y3[q] = times((Complex){b.re - d.im, b.im + d.re}, w3);
    }
  }
}

static void stage(const Transform *transform, int32_t radix, int64_t s, const Complex *x, Complex *y) {
  const Complex *roots = transform->roots;
  int64_t rest = transform->size / s / radix, apart = transform->size / radix;
  for (int64_t p = 0; p < rest; p++) {
    for (int64_t q = 0; q < s; q++) {
      Complex points[LARGEST];
      for (int32_t j = 0; j < radix; j++) {
        points[j] = x[q + s * (p + rest * j)];
      }
      for (int32_t k = 0; k < radix; k++) {
        y[q + s * (radix * p + k)] = times(summed(points, roots, radix, apart, k), roots[s * p * k]);
      }
    }
  }
}

/* Transforms points with the help of as much memory; returns which of the two has the result. */
static Complex *by_factors(const Transform *transform, Complex *x, Complex *y) {
  int64_t done = 1;
  for (int32_t i = 0; i < transform->count; i++) {
    if (transform->factors[i] == 4) {
      stage_of_four(transform, done, x, y);
    } else {
      stage(transform, transform->factors[i], done, x, y);
    }
    done *= transform->factors[i];
    Complex *result = y;
    y = x;
    x = result;
  }
  return x;
}

/* Both have room for `size` points; the first `length` of `x` are given, and of what is returned the result. */
static Complex *transformed(const Transform *transform, Complex *x, Complex *y) {
  if (!transform->chirp) {
    return by_factors(transform, x, y);
  }
  for (int64_t i = 0; i < transform->size; i++) {
    x[i] = i < transform->length ? times(x[i], transform->chirp[i]) : (Complex){0, 0};
  }
  Complex *spectrum = by_factors(transform, x, y);
  for (int64_t i = 0; i < transform->size; i++) {
    spectrum[i] = times(spectrum[i], transform->kernel[i]);
    spectrum[i].im = -spectrum[i].im;
  }
  Complex *result = by_factors(transform, spectrum, spectrum == x ? y : x);
  for (int64_t i = 0; i < transform->length; i++) {
    Complex point = {result[i].re / (double)transform->size, -result[i].im / (double)transform->size};
    result[i] = times(point, transform->chirp[i]);
  }
  return result;
}

static Complex *points_of(Call *call, int64_t count) { return irregular_scratch(call, (uint64_t)count * sizeof(Complex)); }

/* `k l = (k k + l l - (k - l) (k - l)) / 2`: the roots of halves of squares, and the transform of their conjugates. */
static int32_t start_chirp(Call *call, Transform *transform) {
  Complex *kernel = points_of(call, transform->size), *spare = points_of(call, transform->size);
  transform->chirp = points_of(call, transform->length);
  if (!kernel || !spare || !transform->chirp) {
    return GRAFT_ERROR_RUN;
  }
  memset(kernel, 0, (size_t)transform->size * sizeof *kernel);
  int64_t square = 0, turns = 2 * transform->length;
  for (int64_t i = 0; i < transform->length; i++) {
    Complex own = root(square, turns);
    transform->chirp[i] = own;
    kernel[i] = kernel[i ? transform->size - i : 0] = (Complex){own.re, -own.im};
    square = (square + 2 * i + 1) % turns;
  }
  transform->kernel = by_factors(transform, kernel, spare);
  return GRAFT_OK;
}

static int32_t start(Call *call, Transform *transform, int64_t length) {
  memset(transform, 0, sizeof *transform);
  if (length < 1 || length > LONGEST) {
    return irregular_fail(call, length < 1 ? "a transform has no points" : "a transform has more than 2^32 points");
  }
  transform->length = transform->size = length;
  bool is_chirped = factored(transform, length) > 1;
  if (is_chirped) {
    for (transform->size = 1; transform->size < 2 * length - 1; transform->size *= 2) {
    }
    factored(transform, transform->size);
  }
  transform->roots = points_of(call, transform->size);
  if (!transform->roots) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < transform->size; i++) {
    transform->roots[i] = root(i, transform->size);
  }
  return is_chirped ? start_chirp(call, transform) : GRAFT_OK;
}

/* ---- Transforms of one node ---- */

/* Transform q reads from `(q / group) * extent * inner + (q % group) * step` on, each `inner` numbers apart. */
typedef struct Job {
  Transform transform;
  Array source, window;
  Element to;
  void *result;
  int64_t group, step, extent, inner; /* `extent` points are given, from the first of a group on */
  int64_t bins, parts, result_parts;
  bool inverse, mirrored, has_window;
} Job;

static Complex given(const Job *job, int64_t from, int64_t place, int64_t j) {
  Complex point = {0, 0};
  bool is_mirrored = job->mirrored && 2 * j > job->transform.length;
  int64_t k = is_mirrored ? job->transform.length - j : j;
  if (place + k >= job->extent) {
    return point;
  }
  int64_t index = (from + k * job->inner) * job->parts;
  point.re = irregular_load(job->source.element, job->source.data, index);
  point.im = job->parts == 2 ? irregular_load(job->source.element, job->source.data, index + 1) : 0;
  if (job->has_window) {
    double weight = irregular_load(job->window.element, job->window.data, j);
    point = (Complex){point.re * weight, point.im * weight};
  }
  point.im = is_mirrored != job->inverse ? -point.im : point.im;
  return point;
}

static void run_one(const Job *job, int64_t q, Complex *points, Complex *spare) {
  int64_t length = job->transform.length, place = job->inner == 1 ? q % job->group * job->step : 0;
  int64_t from = q / job->group * job->extent * job->inner + q % job->group * job->step;
  int64_t to = q / job->inner * job->bins * job->inner + q % job->inner;
  for (int64_t j = 0; j < length; j++) {
    points[j] = given(job, from, place, j);
  }
  const Complex *found = transformed(&job->transform, points, spare);
  double scale = job->inverse ? 1 / (double)length : 1;
  for (int64_t k = 0; k < job->bins; k++) {
    int64_t index = (to + k * job->inner) * job->result_parts;
    irregular_store(job->to, job->result, index, found[k].re * scale, false);
    if (job->result_parts == 2) {
      irregular_store(job->to, job->result, index + 1, (job->inverse ? -found[k].im : found[k].im) * scale, false);
    }
  }
}

static int32_t run_some(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  const Job *job = closure;
  Complex *points = context->api->scratch(context, 2 * (uint64_t)job->transform.size * sizeof *points);
  if (!points) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t q = begin; q < end; q++) {
    run_one(job, q, points, points + job->transform.size);
  }
  return GRAFT_OK;
}

static int32_t run(Call *call, Job *job, int64_t transforms, int32_t rank, const int64_t *shape) {
  job->to = irregular_output_type(call, 0).element;
  job->result = irregular_output(call, 0, rank, shape);
  if (!job->result) {
    return GRAFT_ERROR_RUN;
  }
  return call->context->api->parallel_for(call->context, transforms, transforms / CHUNKS + 1, run_some, job);
}

/* Gives a scalar, as it is where nobody gives one. */
static int32_t scalar(Call *call, int32_t input, int64_t *value) {
  Array array;
  if (!irregular_has(call, input)) {
    return GRAFT_OK;
  }
  GRAFT_TRY(irregular_array(call, input, &array));
  if (array.count != 1) {
    return irregular_fail(call, "its length, axis or step is no scalar");
  }
  *value = irregular_load_integer(array.element, array.data, 0);
  return GRAFT_OK;
}

static int32_t dft(Call *call) {
  Job job;
  memset(&job, 0, sizeof job);
  int64_t given_axis = irregular_integer_of(call, "axis", -2), shape[MOST_RANK];
  GRAFT_TRY(irregular_array(call, 0, &job.source));
  GRAFT_TRY(scalar(call, 2, &given_axis));
  int32_t rank = job.source.rank, axis = irregular_axis(given_axis, rank);
  if (rank < 2 || axis < 0 || axis == rank - 1 || job.source.shape[rank - 1] < 1 || job.source.shape[rank - 1] > 2) {
    return irregular_fail(call, "its axis is out of range, or its last axis has other than 1 or 2 parts");
  }
  bool is_half = irregular_integer_of(call, "onesided", 0) != 0;
  job.inverse = irregular_integer_of(call, "inverse", 0) != 0;
  job.mirrored = is_half && job.inverse;
  job.extent = job.source.shape[axis], job.parts = job.source.shape[rank - 1];
  int64_t length = job.mirrored ? 2 * (job.extent - 1) : job.extent, outer = 1;
  GRAFT_TRY(scalar(call, 1, &length));
  GRAFT_TRY(start(call, &job.transform, length));
  memcpy(shape, job.source.shape, sizeof shape);
  job.inner = job.step = 1;
  for (int32_t i = 0; i < rank - 1; i++) {
    *(i < axis ? &outer : &job.inner) *= i == axis ? 1 : shape[i];
  }
  job.group = job.inner;
  job.bins = shape[axis] = is_half && !job.inverse ? length / 2 + 1 : length;
  job.result_parts = shape[rank - 1] = job.mirrored ? 1 : 2;
  return run(call, &job, outer * job.inner, rank, shape);
}

static int32_t stft(Call *call) {
  Job job;
  memset(&job, 0, sizeof job);
  GRAFT_TRY(irregular_array(call, 0, &job.source));
  job.has_window = irregular_has(call, 2);
  if (job.has_window && irregular_array(call, 2, &job.window)) {
    return GRAFT_ERROR_RUN;
  }
  int64_t length = job.has_window ? job.window.count : 0;
  GRAFT_TRY(scalar(call, 1, &job.step));
  GRAFT_TRY(scalar(call, 3, &length));
  int32_t rank = job.source.rank;
  job.parts = rank == 3 ? job.source.shape[2] : 1;
  job.extent = rank < 2 ? 0 : job.source.shape[1];
  if (rank < 2 || rank > 3 || job.parts < 1 || job.parts > 2 || job.step < 1 || job.extent < length ||
      (job.has_window && job.window.count != length)) {
    return irregular_fail(call, "a frame is longer than the signal or of another length than the window, or the step is not positive");
  }
  GRAFT_TRY(start(call, &job.transform, length));
  job.inner = 1, job.result_parts = 2;
  job.group = (job.extent - length) / job.step + 1;
  job.bins = irregular_integer_of(call, "onesided", 1) ? length / 2 + 1 : length;
  int64_t shape[] = {job.source.shape[0], job.group, job.bins, 2};
  return run(call, &job, shape[0] * shape[1], 4, shape);
}

const KernelRow IRREGULAR_FOURIER[] = {{"DFT", dft, NULL}, {"STFT", stft, NULL}, {NULL, NULL, NULL}};
