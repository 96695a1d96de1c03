/* Semihosting calls and the CMSDK timer of the MPS2 board. */
#include "board.h"

static volatile uint32_t *const timer = (volatile uint32_t *)0x40000000; /* CTRL, VALUE, RELOAD, INTSTATUS */

static int semihosting(int operation, const void *argument) {
  register int number __asm__("r0") = operation;
  register const void *block __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(number) : "r"(block) : "memory");
  return number;
}

void board_text(const char *text) { semihosting(0x04 /* SYS_WRITE0 */, text); }

void board_number(const char *name, uint32_t value) {
  char digits[12] = {0};
  char *at = digits + sizeof digits - 2;
  *at = '\n';
  do *--at = (char)('0' + value % 10);
  while (value /= 10);
  board_text(name);
  board_text(" ");
  board_text(at);
}

void board_clock_start(void) {
  timer[0] = 0;
  timer[2] = UINT32_MAX;
  timer[1] = UINT32_MAX;
  timer[0] = 1;
}

uint32_t board_clock_ticks(void) { return UINT32_MAX - timer[1]; }

void board_exit(int status) {
  const uint32_t block[2] = {0x20026 /* ADP_Stopped_ApplicationExit */, (uint32_t)status};
  semihosting(0x20 /* SYS_EXIT_EXTENDED */, block);
  for (;;) {
  }
}
