/* A session: a model on a device, driven over a serial line.
 *
 * A request is three words, little endian: what to do, a number, how many bytes follow. An answer is two: 0 or an
 * error, and how many bytes follow. The device's part is generated with the model; the board's are the three functions
 * below.
 */
#ifndef GRAFT_SESSION_H
#define GRAFT_SESSION_H

#include <stdint.h>

enum {
  GRAFT_SESSION_SIZES = 1, /* the bytes of each input, then of each output */
  GRAFT_SESSION_WRITE = 2, /* fills an input */
  GRAFT_SESSION_RUN = 3,   /* the ticks of a run and of each call in it, 64 bits each */
  GRAFT_SESSION_READ = 4,  /* an output */
  GRAFT_SESSION_END = 5,
  GRAFT_SESSION_REFUSED = 100 /* what is asked for is not there */
};

/* Of the board: wait for bytes, send bytes, and a clock. */
void graft_session_read(void *data, uint32_t bytes);
void graft_session_write(const void *data, uint32_t bytes);
uint64_t graft_session_ticks(void);

/* Serves requests until the last one; returns 0. */
int graft_session(void);

/* Around each call of a kernel. */
void graft_session_begin(void);
int32_t graft_session_end(int32_t status);
#define GRAFT_TIMED(call) (graft_session_begin(), graft_session_end(call))
#define GRAFT_TIMED_PLAIN(call) (graft_session_begin(), (call), (void)graft_session_end(0))

#endif
