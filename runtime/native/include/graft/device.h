/* Devices: memories that the host does not see, and the streams that work in them.
 *
 * A plugin whose modules compute in such a memory fills a table for it. The runtime allocates arenas and outputs there,
 * copies between it and main memory, and gives modules the stream that their launches go to; nothing of a device is
 * linked. Functions return GRAFT_OK, or an error code with a text in `error`; GRAFT_ERROR_MEMORY says that memory ran
 * out, after which all else must go on working. Threads call them at the same time.
 */
#ifndef GRAFT_DEVICE_H
#define GRAFT_DEVICE_H

#include <stddef.h>

#include "graft/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GRAFT_DEVICE_VERSION 1

typedef enum { GRAFT_TO_DEVICE = 0, GRAFT_TO_HOST = 1, GRAFT_WITHIN_DEVICE = 2 } GraftCopyDirection;

/* Entries are only ever appended; `size` is sizeof(GraftDevice) of who filled it, and what lies behind it is taken for
 * NULL. Those from begin_capture on may be NULL. What is created is destroyed or released before the last `close`. */
typedef struct GraftDevice {
  uint32_t version; /* GRAFT_DEVICE_VERSION */
  uint32_t size;
  const char *name; /* as the manifest names it: "cuda" */
  DLDevice device;  /* what tensors in its memory carry */
  void *user;

  /* Each program that uses the device opens it first and closes it last. */
  int32_t (*open)(void *user, GraftError *error);
  void (*close)(void *user);

  /* At least one byte, at a multiple of 64. */
  int32_t (*allocate)(void *user, uint64_t bytes, void **memory, GraftError *error);
  void (*release)(void *user, void *memory);

  /* What is put on one stream is done in order. `synchronize` waits for all of it, and gives the error of whatever
   * failed there; the same holds for `wait`, which waits for what was on a stream when an event was last recorded. */
  int32_t (*create_stream)(void *user, void **stream, GraftError *error);
  void (*destroy_stream)(void *user, void *stream);
  int32_t (*synchronize)(void *user, void *stream, GraftError *error);
  int32_t (*create_event)(void *user, void **event, GraftError *error);
  void (*destroy_event)(void *user, void *event);
  int32_t (*record)(void *user, void *event, void *stream, GraftError *error);
  int32_t (*wait)(void *user, void *event, GraftError *error);

  /* Puts a copy on the stream. The runtime leaves both memories as they are until the stream has done it. */
  int32_t (*copy)(void *user, GraftCopyDirection direction, void *target, const void *source, uint64_t bytes,
                  void *stream, GraftError *error);

  /* What is put on a stream between the first two is not done but recorded, and done with each launch. Nothing is
   * allocated and nobody waits between them. */
  int32_t (*begin_capture)(void *user, void *stream, GraftError *error);
  int32_t (*end_capture)(void *user, void *stream, void **graph, GraftError *error);
  int32_t (*launch)(void *user, void *graph, void *stream, GraftError *error);
  void (*destroy_graph)(void *user, void *graph);

  /* Lets the device reach main memory by itself until `unpin`, so that copies of it go on beside the host. Where that
   * fails all else works as before. */
  int32_t (*pin)(void *user, void *memory, uint64_t bytes, GraftError *error);
  void (*unpin)(void *user, void *memory);
} GraftDevice;

/* The bytes of a table that ends before `pin`. */
#define GRAFT_DEVICE_LEAST offsetof(GraftDevice, pin)

/* A shared library that provides a device exports: const GraftDevice *graft_device(int32_t id);
 * It gives NULL for an id that it cannot have. */
typedef const GraftDevice *(*GraftDeviceEntry)(int32_t id);

/* graft_program_load, for a program that computes on devices: the table of each that its manifest names. They stay valid
 * until the program is destroyed. */
int32_t graft_program_load_on(const char *path, const GraftLoadOptions *options, const GraftDevice *const *devices,
                              size_t device_count, GraftProgram **program, GraftError *error);

#ifdef __cplusplus
}
#endif
#endif
