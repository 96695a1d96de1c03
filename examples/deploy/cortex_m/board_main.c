/* Runs the check of one model on the board and says what it took. MODEL is the model's name in C. */
#include "board.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define CHECK JOINED(MODEL, _check)
#define REAL_RUN JOINED(__real_, JOINED(MODEL, _run))
#define TIMED_RUN JOINED(__wrap_, JOINED(MODEL, _run))

long CHECK(void);

/* Whatever the model takes, tensors and sizes: so many words pass them on where they lie, in registers and on the stack.
 * More than eight are a structure, which the compiler copies there. */
#ifdef WORDS
typedef struct {
  const void *words[WORDS];
} Words;
#define PARAMETERS Words given
#define GIVEN given
#else
#define PARAMETERS \
  const void *a, const void *b, const void *c, const void *d, const void *e, const void *f, const void *g, const void *h
#define GIVEN a, b, c, d, e, f, g, h
#endif
int REAL_RUN(PARAMETERS);
int TIMED_RUN(PARAMETERS);

/* The linker puts this in the place of the model's entry (--wrap). */
int TIMED_RUN(PARAMETERS) {
  board_clock_start();
  const int status = REAL_RUN(GIVEN);
  board_number("ticks", board_clock_ticks());
  return status;
}

int main(void) {
  const long wrong = CHECK();
  board_number("stack", board_stack_bytes());
  board_text(wrong == 0 ? "check passed\n" : "check failed\n");
  return wrong != 0;
}
