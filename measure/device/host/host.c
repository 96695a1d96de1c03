/* A session's host for a process of this machine: the serial line is standard input and output, a tick a nanosecond. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "graft_session.h"

void graft_session_read(void *data, uint32_t bytes) {
  if (fread(data, 1, bytes, stdin) != bytes) exit(0); /* whoever was at the other end has gone */
}

void graft_session_write(const void *data, uint32_t bytes) {
  fwrite(data, 1, bytes, stdout);
  fflush(stdout);
}

uint64_t graft_session_ticks(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int main(void) { return graft_session(); }
