/* Classifies a digit with the model as a shared library, in C++: what fails throws, and nothing has to be freed.
 *
 *   library_cpp [FILE]     as library.c
 */
#include <cstdio>
#include <vector>

#include "digit.h"
#include "graft/graft.hpp"

GRAFT_DECLARE_MODEL(digits)

int main(int argc, char **argv) try {
  std::vector<float> image(DIGIT_PIXELS);
  if (!read_digit(argc > 1 ? argv[1] : nullptr, image.data())) return 1;
  graft::Program program(*graft_model_digits());
  const auto outputs = program.run({graft::Tensor(image, {1, 1, 8, 8})});
  print_digit(outputs[0].values<float>().data());
} catch (const graft::Error &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
