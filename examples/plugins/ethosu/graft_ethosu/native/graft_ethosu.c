/* The hooks of a C project for Ethos-U, over Arm's driver (ethosu_driver.h). No part of it has been on a board. */
#include <string.h>

#include "ethosu_driver.h"
#include "graft/region.h"

enum { COMMANDS, WEIGHTS, PLACES, BLOBS, NO_DRIVER = 20, FAILED = 21, NO_REGION = 22 };

static const GraftBlob *blob(const GraftRegion *region, int which) {
  static const char *const names[] = {"commands", "weights", "places"};
  for (size_t i = 0; i < region->blob_count; ++i) {
    if (strcmp(region->blobs[i].name, names[which]) == 0) return &region->blobs[i];
  }
  return NULL;
}

/* Where tensor `number`, inputs before outputs, lies in the scratch memory; behind them where the fast part begins. */
static uint32_t place(const GraftRegion *region, size_t number) {
  uint32_t value;
  memcpy(&value, blob(region, PLACES)->data + 4 * number, sizeof value);
  return value;
}

int32_t graft_ethosu_init(const GraftRegion *region) {
  for (int which = 0; which < BLOBS; ++which) {
    if (blob(region, which) == NULL) return NO_REGION;
  }
  const size_t count = region->input_count + region->output_count + 1;
  return blob(region, PLACES)->bytes == 4 * count ? 0 : NO_REGION;
}

int32_t graft_ethosu_run(const GraftRegion *region, void *scratch, const void *const *inputs, void *const *outputs) {
  const GraftBlob *const commands = blob(region, COMMANDS), *const weights = blob(region, WEIGHTS);
  const size_t count = region->input_count, fast = place(region, count + region->output_count);
  unsigned char *const memory = scratch;
  uint64_t addresses[] = {(uintptr_t)weights->data, (uintptr_t)memory, (uintptr_t)(memory + fast)};
  const size_t sizes[] = {weights->bytes, fast, region->scratch_bytes - fast};
  struct ethosu_driver *const driver = ethosu_reserve_driver();
  if (driver == NULL) return NO_DRIVER;
  for (size_t i = 0; i < count; ++i) memcpy(memory + place(region, i), inputs[i], region->input_bytes[i]);
  const int failed = ethosu_invoke_v3(driver, commands->data, (int)commands->bytes, addresses, sizes, 3, (void *)region);
  ethosu_release_driver(driver);
  if (failed) return FAILED;
  for (size_t i = 0; i < region->output_count; ++i) {
    memcpy(outputs[i], memory + place(region, count + i), region->output_bytes[i]);
  }
  return 0;
}
