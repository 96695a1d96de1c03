/* What a vendor implements for a device: a table of functions. The simulators are two such tables.
 *
 * A shared library that is named by GRAFT_ACCELERATOR_DEVICE exports
 *   const GraftAcceleratorDriver *graft_accelerator_driver(void);
 * A C program hands its table to `graft_accelerator_loader` instead. */
#ifndef GRAFT_ACCELERATOR_DRIVER_H
#define GRAFT_ACCELERATOR_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "graft/runtime.h"

/* In the order of the fields of `Configuration` in configuration.py. */
typedef struct {
  int64_t batch, block_in, block_out;
  int64_t input_bytes, weight_bytes, accumulator_bytes, micro_op_bytes;
  int64_t queue_depth, token_depth;
  int64_t port_bytes, burst_bytes, latency, pipeline, alu_interval, accumulator_latency;
} AcceleratorConfiguration;

enum { ACCELERATOR_CONFIGURATION_FIELDS = 15, ACCELERATOR_MEANING_FIELDS = 9, GRAFT_ACCELERATOR_DRIVER_VERSION = 2 };

/* Where a function leaves the text of a failure. */
typedef struct {
  char text[256];
} GraftAcceleratorMessage;

typedef struct {
  uint32_t version; /* GRAFT_ACCELERATOR_DRIVER_VERSION */
  const char *name;
  void *user;
  /* What programs must be compiled for, up to the times; NULL where any will do. */
  const AcceleratorConfiguration *configuration;
  /* Takes a program: instructions, which stay where they are, and how much DRAM it needs. Gives the state of the
   * device and memory of that size, aligned to 64 bytes, which processor and device both see: constants are written
   * there once, inputs before each run. Returns 0, or another number and a message. */
  int32_t (*open)(void *user, const AcceleratorConfiguration *configuration, const uint8_t *stream, size_t stream_bytes,
                  size_t dram_bytes, void **device, uint8_t **dram, GraftAcceleratorMessage *message);
  /* Runs the program from its first instruction to FINISH; what it stored is in DRAM then. One call at a time. */
  int32_t (*run)(void *device, GraftAcceleratorMessage *message);
  void (*close)(void *device);
} GraftAcceleratorDriver;

typedef const GraftAcceleratorDriver *(*GraftAcceleratorEntry)(void);

/* The loader of module kind "accelerator" for a C program that brings its own device: register it in
 * GraftLoadOptions. The table must live as long as the programs. */
GraftLoader graft_accelerator_loader(const GraftAcceleratorDriver *driver);

/* The simulators: `name` is "functional" or "cycles"; NULL for others. */
const GraftAcceleratorDriver *graft_accelerator_simulator(const char *name);

#endif
