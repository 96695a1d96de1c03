/* Regions of a model that a driver of the firmware runs: what a C project hands to it.
 *
 * For each driver the application defines two functions, which a project declares:
 *
 *   int32_t graft_<driver>_init(const GraftRegion *region);   once for each region, from <model>_init
 *   int32_t graft_<driver>_run(const GraftRegion *region, void *scratch, const void *const *inputs,
 *                              void *const *outputs);         once for each call
 *
 * Both return 0, or an error that <model>_init and <model>_run hand on. Tensors are contiguous and in row-major order;
 * `scratch` has region->scratch_bytes, aligned to 64, until the call returns. Blobs lie in sections of their own,
 * .rodata.graft_<driver>_<blob>, which a linker script may place.
 */
#ifndef GRAFT_REGION_H
#define GRAFT_REGION_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) && defined(__ELF__)
#define GRAFT_SECTION(name) __attribute__((section(name)))
#else
#define GRAFT_SECTION(name)
#endif

typedef struct {
  const char *name;
  const unsigned char *data;
  size_t bytes;
} GraftBlob;

typedef struct {
  const char *name; /* as the model's artifact has it */
  const GraftBlob *blobs;
  size_t blob_count;
  const size_t *input_bytes;
  size_t input_count;
  const size_t *output_bytes;
  size_t output_count;
  size_t scratch_bytes;
} GraftRegion;

#endif
