/* Classifies a digit with the model as a C project, in C++, in an arena of the caller's.
 *
 *   project_cpp [FILE]     as library.c
 */
#include <array>
#include <cstdio>
#include <memory>

#include "digit.h"
#include "digits.h"

struct alignas(64) Arena {
  unsigned char bytes[DIGITS_ARENA_BYTES];
};

int main(int argc, char **argv) {
  std::array<float, DIGIT_PIXELS> image;
  std::array<float, DIGIT_CLASSES> logits;
  if (!read_digit(argc > 1 ? argv[1] : nullptr, image.data())) return 1;
  const auto arena = std::make_unique<Arena>();
  const int status = digits_run_in(arena->bytes, image.data(), logits.data());
  if (status != DIGITS_OK) {
    std::fprintf(stderr, "error %d\n", status);
    return 1;
  }
  print_digit(logits.data());
  return 0;
}
