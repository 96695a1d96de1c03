/* Runs the check of one model on the board and says what it took. MODEL is the model's name in C. */
#include "board.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define CHECK JOINED(MODEL, _check)
#define REAL_RUN JOINED(__real_, JOINED(MODEL, _run))
#define TIMED_RUN JOINED(__wrap_, JOINED(MODEL, _run))

long CHECK(void);
int REAL_RUN(const void *first, void *second, void *third, void *fourth);
int TIMED_RUN(const void *first, void *second, void *third, void *fourth);

/* The linker puts this in the place of the model's entry (--wrap): up to four tensors, which are pointers. */
int TIMED_RUN(const void *first, void *second, void *third, void *fourth) {
  board_clock_start();
  const int status = REAL_RUN(first, second, third, fourth);
  board_number("ticks", board_clock_ticks());
  return status;
}

int main(void) {
  const long wrong = CHECK();
  board_number("stack", board_stack_bytes());
  board_text(wrong == 0 ? "check passed\n" : "check failed\n");
  return wrong != 0;
}
