/* RoiAlign and MaxRoiPool, whose regions say what a bin has, and Det, whose pivots are where the data have them. */
#include <math.h>
#include <string.h>

#include "kernel.h"

/* ---- RoiAlign ---- */

enum { TOGETHER = 32 };

typedef struct Align {
  const float *image, *regions;
  const Array *batches;
  float *result;
  int64_t channels, height, width, rows, columns, samples;
  int64_t batch_count, region_size;
  float scale, offset;
  bool takes_most;
  float *last; /* A copy of the image in which the channels of a pixel are neighbours, NULL for none. */
} Align;

/* Four pixels around a sample, with their weights. */
typedef struct Sample {
  int64_t places[4];
  float weights[4];
} Sample;

static Sample sample_at(const Align *align, float y, float x) {
  Sample sample;
  memset(&sample, 0, sizeof sample);
  if (!(y >= -1 && y <= (float)align->height && x >= -1 && x <= (float)align->width)) {
    return sample;
  }
  y = y > 0 ? y : 0;
  x = x > 0 ? x : 0;
  int64_t top = (int64_t)y, left = (int64_t)x, bottom = top + 1, right = left + 1;
  if (top >= align->height - 1) {
    top = bottom = align->height - 1;
    y = (float)top;
  }
  if (left >= align->width - 1) {
    left = right = align->width - 1;
    x = (float)left;
  }
  float down = y - (float)top, across = x - (float)left;
  const int64_t rows[2] = {top, bottom}, columns[2] = {left, right};
  const float vertical[2] = {1 - down, down}, horizontal[2] = {1 - across, across};
  for (int i = 0; i < 4; i++) {
    sample.places[i] = rows[i / 2] * align->width + columns[i % 2];
    sample.weights[i] = vertical[i / 2] * horizontal[i % 2];
  }
  return sample;
}

/* Adds what a sample gives each of some channels, `apart` from each other, or keeps the greatest of its terms. */
static inline void take(const Align *align, const float *image, int64_t apart, int64_t count, const Sample *sample,
                        float *found) {
  int64_t pixel = align->last ? align->channels : 1;
  const float *one = image + sample->places[0] * pixel, *two = image + sample->places[1] * pixel;
  const float *three = image + sample->places[2] * pixel, *four = image + sample->places[3] * pixel;
  const float *weights = sample->weights;
  for (int64_t i = 0; i < count && !align->takes_most; i++) {
    found[i] += weights[0] * one[i * apart] + weights[1] * two[i * apart] + weights[2] * three[i * apart] +
                weights[3] * four[i * apart];
  }
  for (int64_t i = 0; i < count && align->takes_most; i++) {
    const float terms[4] = {weights[0] * one[i * apart], weights[1] * two[i * apart], weights[2] * three[i * apart],
                            weights[3] * four[i * apart]};
    for (int k = 0; k < 4; k++) {
      found[i] = terms[k] > found[i] ? terms[k] : found[i];
    }
  }
}

/* Pools a bin of `count` channels, at the most TOGETHER: in vectors, where they are neighbours. */
static void pool(const Align *align, const float *image, int64_t count, const Sample *samples, int64_t each,
                 float *results) {
  int64_t area = align->height * align->width, apart = align->last ? 1 : area;
  int64_t first = each > 0 ? samples[0].places[0] * (align->last ? align->channels : 1) : 0;
  float found[TOGETHER];
  for (int64_t i = 0; i < count; i++) {
    found[i] = align->takes_most && each > 0 ? samples[0].weights[0] * image[first + i * apart] : 0;
  }
  for (int64_t i = 0; i < each; i++) {
    if (align->last) {
      take(align, image, 1, count, samples + i, found);
    } else {
      take(align, image, area, count, samples + i, found);
    }
  }
  for (int64_t i = 0; i < count; i++) {
    results[i * align->rows * align->columns] =
        align->takes_most ? found[i] : found[i] / (float)(each > 1 ? each : 1);
  }
}

/* The samples of a bin along one axis: as many as the node says, else about one a pixel. */
static int64_t sample_count(const Align *align, float length, int64_t bins) {
  float wanted = ceilf(length / (float)bins);
  return align->samples > 0 ? align->samples : wanted >= 1 && wanted < 65536 ? (int64_t)wanted : 0;
}

static int32_t align_region(GraftContext *context, const Align *align, int64_t region) {
  const float *given = align->regions + region * align->region_size;
  int64_t batch = irregular_load_integer(align->batches->element, align->batches->data, region);
  if (batch < 0 || batch >= align->batch_count) {
    return context->api->fail(context, "a region is in image %lld, but there are %lld", (long long)batch,
                              (long long)align->batch_count);
  }
  float begin[2], length[2], bin[2]; /* rows, then columns */
  int64_t counts[2];
  for (int i = 0; i < 2; i++) {
    int64_t bins = i ? align->columns : align->rows;
    begin[i] = given[1 - i] * align->scale - align->offset;
    length[i] = given[3 - i] * align->scale - align->offset - begin[i];
    length[i] = align->offset == 0 && !(length[i] > 1) ? 1 : length[i];
    bin[i] = length[i] / (float)bins;
    counts[i] = sample_count(align, length[i], bins);
  }
  int64_t each = counts[0] * counts[1], bins = align->rows * align->columns, area = align->height * align->width;
  Sample *samples = context->api->scratch(context, (uint64_t)(bins * each + 1) * sizeof *samples);
  if (!samples) {
    return GRAFT_ERROR_RUN;
  }
  Sample *next = samples;
  for (int64_t place = 0; place < bins; place++) {
    float y = begin[0] + (float)(place / align->columns) * bin[0];
    float x = begin[1] + (float)(place % align->columns) * bin[1];
    for (int64_t i = 0; i < each; i++) {
      float down = ((float)(i / counts[1]) + 0.5F) * bin[0] / (float)counts[0];
      float across = ((float)(i % counts[1]) + 0.5F) * bin[1] / (float)counts[1];
      *next++ = sample_at(align, y + down, x + across);
    }
  }
  const float *image = (align->last ? align->last : align->image) + batch * align->channels * area;
  for (int64_t channel = 0; channel < align->channels; channel += TOGETHER) {
    int64_t left = align->channels - channel, count = left < TOGETHER ? left : TOGETHER;
    float *results = align->result + (region * align->channels + channel) * bins;
    for (int64_t place = 0; place < bins; place++) {
      pool(align, image + channel * (align->last ? 1 : area), count, samples + place * each, each, results + place);
    }
  }
  return GRAFT_OK;
}

static int32_t copy_rows(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  (void)context;
  const Align *align = closure;
  int64_t area = align->height * align->width;
  for (int64_t row = begin; row < end; row++) {
    int64_t place = row % align->height * align->width, plane = row / align->height * align->channels * area;
    for (int64_t pixel = place; pixel < place + align->width; pixel++) {
      for (int64_t channel = 0; channel < align->channels; channel++) {
        align->last[plane + pixel * align->channels + channel] = align->image[plane + channel * area + pixel];
      }
    }
  }
  return GRAFT_OK;
}

static int32_t align_regions(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  int32_t status = GRAFT_OK;
  for (int64_t i = begin; i < end && !status; i++) {
    status = align_region(context, closure, i);
  }
  return status;
}

static int32_t roi_align(Call *call) {
  Array image, regions, batches;
  GRAFT_TRY(irregular_array(call, 0, &image));
  GRAFT_TRY(irregular_array(call, 1, &regions));
  GRAFT_TRY(irregular_array(call, 2, &batches));
  if (image.rank != 4 || regions.rank != 2 || regions.shape[1] < 4 || batches.count != regions.shape[0]) {
    return irregular_fail(call, "the shapes are not [batch, channel, row, column], [region, 4] and [region]");
  }
  Align align = {(const float *)image.data,
                 (const float *)regions.data,
                 &batches,
                 NULL,
                 image.shape[1],
                 image.shape[2],
                 image.shape[3],
                 irregular_integer_of(call, "output_height", 1),
                 irregular_integer_of(call, "output_width", 1),
                 irregular_integer_of(call, "sampling_ratio", 0),
                 image.shape[0],
                 regions.shape[1],
                 (float)irregular_number_of(call, "spatial_scale", 1),
                 0,
                 strcmp(irregular_text_of(call, "mode", "avg"), "max") == 0,
                 NULL};
  const char *mode = irregular_text_of(call, "coordinate_transformation_mode", "half_pixel");
  align.offset = strcmp(mode, "half_pixel") == 0 ? 0.5F : 0;
  int64_t shape[4] = {regions.shape[0], align.channels, align.rows, align.columns};
  align.result = irregular_output(call, 0, 4, shape);
  if (!align.result || align.height < 1 || align.width < 1) {
    return align.result ? irregular_fail(call, "the image is empty") : GRAFT_ERROR_RUN;
  }
  double bins = (double)(shape[0] * align.rows * align.columns), each = align.samples > 0 ? (double)align.samples : 2;
  if (bins * each * each >= (double)(align.batch_count * align.height * align.width)) { /* as many pixels as copied */
    align.last = call->context->api->scratch(call->context, (uint64_t)image.count * sizeof *align.last);
    if (!align.last) {
      return GRAFT_ERROR_RUN;
    }
    GRAFT_TRY(call->context->api->parallel_for(call->context, align.batch_count * align.height, 1, copy_rows, &align));
  }
  return call->context->api->parallel_for(call->context, shape[0], 1, align_regions, &align);
}

/* ---- MaxRoiPool ---- */

typedef struct Pools {
  const float *image;
  const float *regions; /* [region, 5]: the image, then left, top, right and bottom */
  float *result;
  int64_t images, channels, height, width, rows, columns;
  float scale;
} Pools;

/* The pixel of a coordinate; one that is none, or far outside, is as far outside as an index can be. */
static int64_t pixel_of(float coordinate, float scale) {
  const float most = 1 << 30;
  float place = roundf(coordinate * scale);
  return place > -most && place < most ? (int64_t)place : place > 0 ? (int64_t)most : -(int64_t)most;
}

/* Where a bin begins and ends along an axis, within the image. */
static void bin_range(int64_t first, int64_t last, int64_t bins, int64_t number, int64_t extent, int64_t range[2]) {
  int64_t length = last - first + 1 > 1 ? last - first + 1 : 1;
  float size = (float)length / (float)bins;
  range[0] = first + (int64_t)floorf((float)number * size);
  range[1] = first + (int64_t)ceilf((float)(number + 1) * size);
  for (int i = 0; i < 2; i++) {
    range[i] = range[i] < 0 ? 0 : range[i] > extent ? extent : range[i];
  }
}

/* The largest pixel of a bin; 0 where it has none. */
static float most_of(const float *plane, int64_t width, const int64_t down[2], const int64_t across[2]) {
  if (down[0] >= down[1] || across[0] >= across[1]) {
    return 0;
  }
  float most = plane[down[0] * width + across[0]];
  for (int64_t y = down[0]; y < down[1]; y++) {
    for (int64_t x = across[0]; x < across[1]; x++) {
      float pixel = plane[y * width + x];
      most = pixel > most ? pixel : most;
    }
  }
  return most;
}

static int32_t pool_regions(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  const Pools *pools = closure;
  for (int64_t region = begin; region < end; region++) {
    const float *given = pools->regions + region * 5;
    if (!(given[0] >= 0 && given[0] < (float)pools->images)) {
      return context->api->fail(context, "a region is in an image that is none of %lld", (long long)pools->images);
    }
    const float *image = pools->image + (int64_t)given[0] * pools->channels * pools->height * pools->width;
    int64_t left = pixel_of(given[1], pools->scale), top = pixel_of(given[2], pools->scale);
    int64_t right = pixel_of(given[3], pools->scale), bottom = pixel_of(given[4], pools->scale);
    float *result = pools->result + region * pools->channels * pools->rows * pools->columns;
    for (int64_t place = 0; place < pools->rows * pools->columns; place++) {
      int64_t down[2], across[2];
      bin_range(top, bottom, pools->rows, place / pools->columns, pools->height, down);
      bin_range(left, right, pools->columns, place % pools->columns, pools->width, across);
      for (int64_t channel = 0; channel < pools->channels; channel++) {
        const float *plane = image + channel * pools->height * pools->width;
        result[channel * pools->rows * pools->columns + place] = most_of(plane, pools->width, down, across);
      }
    }
  }
  return GRAFT_OK;
}

static int32_t max_roi_pool(Call *call) {
  Array image, regions;
  GRAFT_TRY(irregular_array(call, 0, &image));
  GRAFT_TRY(irregular_array(call, 1, &regions));
  const JsonValue *bins = irregular_list_of(call, "pooled_shape");
  if (image.rank != 4 || regions.rank != 2 || regions.shape[1] != 5 || graft_json_count(bins) != 2) {
    return irregular_fail(call, "the shapes are not [batch, channel, row, column], [region, 5] and two of bins");
  }
  Pools pools = {(const float *)image.data,
                 (const float *)regions.data,
                 NULL,
                 image.shape[0],
                 image.shape[1],
                 image.shape[2],
                 image.shape[3],
                 graft_json_integer(graft_json_item(bins, 0), 0),
                 graft_json_integer(graft_json_item(bins, 1), 0),
                 (float)irregular_number_of(call, "spatial_scale", 1)};
  int64_t shape[4] = {regions.shape[0], pools.channels, pools.rows, pools.columns};
  pools.result = irregular_output(call, 0, 4, shape);
  if (!pools.result) {
    return GRAFT_ERROR_RUN;
  }
  return call->context->api->parallel_for(call->context, shape[0], 1, pool_regions, &pools);
}

/* ---- Det ---- */

/* Gauss's elimination with the largest pivot of each column. */
static double determinant(double *matrix, int64_t size) {
  double result = 1;
  for (int64_t column = 0; column < size; column++) {
    int64_t pivot = column;
    for (int64_t row = column + 1; row < size; row++) {
      pivot = fabs(matrix[row * size + column]) > fabs(matrix[pivot * size + column]) ? row : pivot;
    }
    double *upper = matrix + column * size, *best = matrix + pivot * size;
    if (best[column] == 0) {
      return 0;
    }
    for (int64_t i = column; i < size && pivot != column; i++) {
      double value = upper[i];
      upper[i] = best[i];
      best[i] = value;
    }
    result *= pivot == column ? upper[column] : -upper[column];
    for (int64_t row = column + 1; row < size; row++) {
      double factor = matrix[row * size + column] / upper[column];
      for (int64_t i = column + 1; i < size; i++) {
        matrix[row * size + i] -= factor * upper[i];
      }
    }
  }
  return result;
}

static int32_t det(Call *call) {
  Array source;
  GRAFT_TRY(irregular_array(call, 0, &source));
  if (source.rank < 2 || source.shape[source.rank - 1] != source.shape[source.rank - 2]) {
    return irregular_fail(call, "the input holds no square matrices");
  }
  int64_t size = source.shape[source.rank - 1], count = 1;
  for (int32_t i = 0; i < source.rank - 2; i++) {
    count *= source.shape[i];
  }
  void *data = irregular_output(call, 0, source.rank - 2, source.shape);
  double *matrix = data ? irregular_scratch(call, (uint64_t)(size * size) * sizeof *matrix) : NULL;
  if (!matrix) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < count; i++) {
    for (int64_t k = 0; k < size * size; k++) {
      matrix[k] = irregular_load(source.element, source.data, i * size * size + k);
    }
    irregular_store(source.element, data, i, determinant(matrix, size), false);
  }
  return GRAFT_OK;
}

const KernelRow IRREGULAR_IMAGES[] = {{"RoiAlign", roi_align, NULL},
                                      {"MaxRoiPool", max_roi_pool, NULL},
                                      {"Det", det, NULL},
                                      {NULL, NULL, NULL}};
