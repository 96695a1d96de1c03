/* Classifies a digit with the model as a C project: functions and weights, no runtime, no heap.
 *
 *   project [FILE]     as library.c
 */
#include <stdio.h>

#include "digit.h"
#include "digits.h"

int main(int argc, char **argv) {
  float image[DIGIT_PIXELS], logits[DIGIT_CLASSES];
  if (!read_digit(argc > 1 ? argv[1] : NULL, image)) return 1;
  const int status = digits_run(image, logits);
  if (status != DIGITS_OK) {
    fprintf(stderr, "error %d\n", status);
    return 1;
  }
  print_digit(logits);
  return 0;
}
