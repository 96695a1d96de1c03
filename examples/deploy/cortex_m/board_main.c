/* Runs the check of one model on the board and says what it took. MODEL is the model's name in C. */
#include "board.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define CHECK JOINED(MODEL, _check)
#define REAL_RUN JOINED(__real_, JOINED(MODEL, _run))
#define TIMED_RUN JOINED(__wrap_, JOINED(MODEL, _run))

long CHECK(void);

/* Whatever the model takes, tensors and sizes: a structure of so many words passes them on where they lie, in registers
 * and on the stack. */
typedef struct {
  const void *words[PARAMETERS];
} Parameters;
int REAL_RUN(Parameters given);
int TIMED_RUN(Parameters given);

/* The linker puts this in the place of the model's entry (--wrap). */
int TIMED_RUN(Parameters given) {
  board_clock_start();
  const int status = REAL_RUN(given);
  board_number("ticks", board_clock_ticks());
  return status;
}

int main(void) {
  const long wrong = CHECK();
  board_number("stack", board_stack_bytes());
  board_text(wrong == 0 ? "check passed\n" : "check failed\n");
  return wrong != 0;
}
