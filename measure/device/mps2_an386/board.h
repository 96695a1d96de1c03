/* What a program has on the board: text and an end by semihosting, a clock, the depth of its stack. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

void board_text(const char *text);
void board_number(const char *name, uint32_t value);
void board_clock_start(void);
/* Ticks of 25 MHz since the start: with `-icount shift=0` of QEMU one tick is 40 instructions. */
uint32_t board_clock_ticks(void);
/* The most bytes of stack that were ever in use. */
uint32_t board_stack_bytes(void);
__attribute__((noreturn)) void board_exit(int status);

#endif
