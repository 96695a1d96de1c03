/* The device's part of a session: requests over the inputs and outputs of one model. */
#include "graft_session.h"

#include "session_model.h"

static uint64_t began, ticks[1 + GRAFT_CALLS];
static uint32_t calls;

void graft_session_begin(void) { began = graft_session_ticks(); }

int32_t graft_session_end(int32_t status) {
  const uint64_t taken = graft_session_ticks() - began;
  if (calls < GRAFT_CALLS) ticks[1 + calls++] = taken;
  return status;
}

static void answer(uint32_t status, const void *data, uint32_t bytes) {
  const uint32_t head[2] = {status, bytes};
  graft_session_write(head, sizeof head);
  graft_session_write(data, bytes);
}

static void run(void) {
  calls = 0;
  const uint64_t start = graft_session_ticks();
  const int status = graft_model_run();
  ticks[0] = graft_session_ticks() - start;
  answer((uint32_t)status, ticks, status ? 0 : sizeof ticks);
}

static void fill(uint32_t number, uint32_t bytes) {
  if (number < GRAFT_INPUTS && graft_sizes[number] == bytes) {
    graft_session_read(graft_tensors[number], bytes);
    answer(0, 0, 0);
    return;
  }
  for (uint8_t skipped; bytes > 0; --bytes) graft_session_read(&skipped, 1);
  answer(GRAFT_SESSION_REFUSED, 0, 0);
}

int graft_session(void) {
  for (;;) {
    uint32_t request[3];
    graft_session_read(request, sizeof request);
    const uint32_t number = request[1];
    if (request[0] == GRAFT_SESSION_WRITE) {
      fill(number, request[2]);
    } else if (request[0] == GRAFT_SESSION_RUN) {
      run();
    } else if (request[0] == GRAFT_SESSION_SIZES) {
      answer(0, graft_sizes, sizeof graft_sizes);
    } else if (request[0] == GRAFT_SESSION_READ && number < GRAFT_OUTPUTS) {
      answer(0, graft_tensors[GRAFT_INPUTS + number], graft_sizes[GRAFT_INPUTS + number]);
    } else if (request[0] == GRAFT_SESSION_END) {
      answer(0, 0, 0);
      return 0;
    } else {
      answer(GRAFT_SESSION_REFUSED, 0, 0);
    }
  }
}
