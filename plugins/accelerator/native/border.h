/* Tensors of a region's border: how an argument of the runtime becomes what lies in DRAM, and back. */
#ifndef GRAFT_ACCELERATOR_BORDER_H
#define GRAFT_ACCELERATOR_BORDER_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of `BORDER` in module.py. Element (b, c, h, w) of the argument is at b * steps[0] + c * steps[1] + ...;
 * the rest is what `Packing` in layers.py says. */
typedef struct {
  int64_t offset, size, argument, elements, flip;
  int64_t batch, channels, height, width, steps[4];
  int64_t lanes, rows, columns, kernel[2], strides[2], pads[2], dilations[2], fill, transposed;
} Border;

enum { BORDER_FIELDS = sizeof(Border) / sizeof(int64_t) };

/* The bytes that a border has in DRAM; -1 where its numbers make no sense. Outputs are blocks of channels as they are. */
int64_t border_bytes(const Border *border, bool is_output);
void border_pack(const Border *border, const uint8_t *argument, uint8_t *dram);
void border_unpack(const Border *border, const uint8_t *dram, uint8_t *argument);

#endif
