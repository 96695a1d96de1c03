/* A session's host for the MPS2 board: the serial line is UART 0, a tick that of the board's 25 MHz timer. */
#include "board.h"
#include "graft_session.h"

static volatile uint32_t *const uart = (volatile uint32_t *)0x40004000; /* DATA, STATE, CTRL, INTSTATUS, BAUDDIV */
enum { DATA = 0, STATE = 1, CTRL = 2, BAUDDIV = 4, FULL = 1, FILLED = 2 };

void graft_session_read(void *data, uint32_t bytes) {
  for (uint8_t *at = data; bytes > 0; --bytes) {
    while (!(uart[STATE] & FILLED)) {
    }
    *at++ = (uint8_t)uart[DATA];
  }
}

void graft_session_write(const void *data, uint32_t bytes) {
  for (const uint8_t *at = data; bytes > 0; --bytes) {
    while (uart[STATE] & FULL) {
    }
    uart[DATA] = *at++;
  }
}

uint64_t graft_session_ticks(void) { return board_clock_ticks(); }

int main(void) {
  uart[BAUDDIV] = 16;
  uart[CTRL] = 3; /* send and receive */
  board_clock_start();
  return graft_session();
}
