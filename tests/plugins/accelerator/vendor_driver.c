/* A vendor's driver. With SIMULATED it runs programs and counts them; other macros say what is wrong with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#ifndef VERSION
#define VERSION GRAFT_ACCELERATOR_DRIVER_VERSION
#endif
#ifndef LETTER
#define LETTER 0
#endif

extern int64_t vendor_runs, vendor_opened;
int64_t vendor_runs, vendor_opened;

static int32_t open_vendor(void *user, const AcceleratorConfiguration *configuration, const uint8_t *stream,
                           size_t stream_bytes, size_t dram_bytes, void **device, uint8_t **dram,
                           GraftAcceleratorMessage *message) {
  (void)user, (void)configuration, (void)stream;
#ifdef OPEN_FAILS
  (void)device, (void)dram;
  snprintf(message->text, sizeof message->text, "%zu bytes of instructions, %zu of DRAM: no board is plugged in",
           stream_bytes, dram_bytes);
  return 7;
#elif defined(SIMULATED)
  vendor_opened++;
  return graft_accelerator_simulator("functional")->open(NULL, configuration, stream, stream_bytes, dram_bytes, device,
                                                         dram, message);
#else
  (void)stream_bytes, (void)message;
  vendor_opened++;
  *device = calloc(dram_bytes, 1);
  *dram = *device;
#ifdef NO_MEMORY
  *dram = NULL;
#endif
  return *device == NULL;
#endif
}

static int32_t run_vendor(void *device, GraftAcceleratorMessage *message) {
  vendor_runs++;
#ifdef SIMULATED
  return graft_accelerator_simulator("functional")->run(device, message);
#else
  (void)device;
  memset(message->text, LETTER, sizeof message->text); /* a text without an end, or none */
  return -1;
#endif
}

static void close_vendor(void *device) {
  vendor_opened--;
#ifdef SIMULATED
  graft_accelerator_simulator("functional")->close(device);
#else
  free(device);
#endif
}

const GraftAcceleratorDriver *graft_accelerator_driver(void);

#ifndef NO_ENTRY
const GraftAcceleratorDriver *graft_accelerator_driver(void) {
  static const AcceleratorConfiguration LARGER = {1, 16, 16, 65536, 262144, 131072, 32768, 512, 256, 8, 256, 64, 4, 2, 1};
  static GraftAcceleratorDriver driver = {VERSION, "vendor", NULL, NULL, open_vendor, run_vendor, close_vendor};
#ifdef NO_RUN
  driver.run = NULL;
#endif
#ifdef OTHER_SIZES
  driver.configuration = &LARGER;
#endif
  (void)LARGER;
#ifdef NO_DRIVER
  return NULL;
#endif
  return &driver;
}
#endif
