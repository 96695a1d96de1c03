/* Reset of a Cortex-M4: memory as C expects it, the floating-point unit on, then main; its result ends the run. */
#include "board.h"

extern uint32_t _data[], _data_end[], _data_image[], _bss[], _bss_end[], _stack_limit[], _stack[];
int main(void);

enum { PAINT = 0x5a5a5a5a };

__attribute__((noreturn)) void reset(void) {
  *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20; /* CPACR: full access to coprocessors 10 and 11, the FPU */
  __asm__ volatile("dsb\n\tisb");
  for (uint32_t *to = _data, *from = _data_image; to < _data_end;) *to++ = *from++;
  for (uint32_t *to = _bss; to < _bss_end;) *to++ = 0;
  for (volatile uint32_t *to = _stack_limit, *here = (uint32_t *)__builtin_frame_address(0) - 16; to < here;) *to++ = PAINT;
  board_exit(main());
}

uint32_t board_stack_bytes(void) {
  const volatile uint32_t *deepest = _stack_limit;
  while (deepest < _stack && *deepest == PAINT) ++deepest;
  return (uint32_t)((const volatile uint8_t *)_stack - (const volatile uint8_t *)deepest);
}

static void fault(void) {
  board_text("fault\n");
  board_exit(1);
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
  _stack, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
};
