/* Packing: loops over places in DRAM, lane by lane. */
#include "border.h"

enum { MOST = 1 << 24 };

static bool in_range(int64_t number, int64_t least) { return number >= least && number <= MOST; }

static bool is_plain(const Border *b) {
  for (int i = 0; i < 2; i++)
    if (b->kernel[i] != 1 || b->strides[i] != 1 || b->pads[i]) return false;
  return !b->transposed && b->rows == b->height && b->columns == b->width;
}

int64_t border_bytes(const Border *b, bool is_output) {
  const int64_t counts[] = {b->batch, b->channels, b->height,     b->width,      b->lanes,        b->rows,
                            b->columns, b->kernel[0], b->kernel[1], b->strides[0], b->strides[1]};
  for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
    if (!in_range(counts[i], 1)) return -1;
  for (int i = 0; i < 2; i++)
    if (!in_range(b->dilations[i], 0) || !in_range(b->pads[i], 0)) return -1;
  for (int i = 0; i < 4; i++)
    if (!in_range(b->steps[i], 0)) return -1;
  int64_t last = (b->batch - 1) * b->steps[0] + (b->channels - 1) * b->steps[1] + (b->height - 1) * b->steps[2] +
                 (b->width - 1) * b->steps[3];
  if (last >= b->elements || b->elements > INT64_C(1) << 40) return -1;
  if (b->flip < 0 || b->flip > 255 || b->fill < -128 || b->fill > 255 || b->transposed < 0 || b->transposed > 1) return -1;
  if (is_output && !is_plain(b)) return -1;
  int64_t lanes = b->lanes * b->lanes;
  if (!b->transposed) {
    int64_t channels = b->channels * b->kernel[0];
    if (channels > MOST || channels * b->kernel[1] > MOST) return -1;
    lanes = (channels * b->kernel[1] + b->lanes - 1) / b->lanes * b->lanes;
  }
  int64_t places = b->batch * b->rows;
  if (lanes > INT64_C(1) << 32 || places > MOST || places * b->columns > MOST) return -1;
  int64_t bytes = places * b->columns * lanes;
  return bytes > INT64_C(1) << 32 ? -1 : bytes;
}

static void pack_transposed(const Border *b, const uint8_t *x, uint8_t *dram) {
  uint8_t flip = (uint8_t)b->flip;
  for (int64_t image = 0; image < b->batch; image++, x += b->steps[0])
    for (int64_t column = 0; column < b->columns; column++)
      for (int64_t row = 0; row < b->rows; row++)
        for (int64_t i = 0; i < b->lanes; i++)
          for (int64_t j = 0; j < b->lanes; j++) {
            int64_t n = column * b->lanes + i, k = row * b->lanes + j;
            bool inside = n < b->channels && k < b->height;
            *dram++ = inside ? x[n * b->steps[1] + k * b->steps[2]] ^ flip : (uint8_t)b->fill;
          }
}

/* One lane of a block: every place of a channel at a tap of the kernel. */
static void pack_lane(const Border *b, const uint8_t *x, int64_t channel, uint8_t *dram) {
  uint8_t flip = (uint8_t)b->flip;
  int64_t tap = channel / b->channels;
  bool is_channel = tap < b->kernel[0] * b->kernel[1];
  int64_t down = tap / b->kernel[1] * b->dilations[0] - b->pads[0];
  int64_t right = tap % b->kernel[1] * b->dilations[1] - b->pads[1];
  x += channel % b->channels * b->steps[1];
  for (int64_t row = 0; row < b->rows; row++) {
    int64_t h = row * b->strides[0] + down;
    for (int64_t column = 0; column < b->columns; column++, dram += b->lanes) {
      int64_t w = column * b->strides[1] + right;
      bool inside = is_channel && h >= 0 && h < b->height && w >= 0 && w < b->width;
      *dram = inside ? x[h * b->steps[2] + w * b->steps[3]] ^ flip : (uint8_t)b->fill;
    }
  }
}

void border_pack(const Border *b, const uint8_t *x, uint8_t *dram) {
  if (b->transposed) {
    pack_transposed(b, x, dram);
    return;
  }
  int64_t area = b->rows * b->columns * b->lanes;
  int64_t blocks = (b->channels * b->kernel[0] * b->kernel[1] + b->lanes - 1) / b->lanes;
  for (int64_t image = 0; image < b->batch; image++, x += b->steps[0])
    for (int64_t block = 0; block < blocks; block++, dram += area)
      for (int64_t lane = 0; lane < b->lanes; lane++) pack_lane(b, x, block * b->lanes + lane, dram + lane);
}

void border_unpack(const Border *b, const uint8_t *dram, uint8_t *y) {
  uint8_t flip = (uint8_t)b->flip;
  int64_t blocks = (b->channels + b->lanes - 1) / b->lanes;
  for (int64_t image = 0; image < b->batch; image++, y += b->steps[0])
    for (int64_t c = 0; c < b->channels; c++) {
      const uint8_t *x = dram + ((image * blocks + c / b->lanes) * b->height * b->width) * b->lanes + c % b->lanes;
      for (int64_t h = 0; h < b->height; h++)
        for (int64_t w = 0; w < b->width; w++, x += b->lanes)
          y[c * b->steps[1] + h * b->steps[2] + w * b->steps[3]] = *x ^ flip;
    }
}
