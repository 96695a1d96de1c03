/* Classifies a digit with the model as a shared library, digits.so: program, weights and runtime in one file.
 *
 *   library [FILE]     an image as 64 numbers (8 rows of 8); without FILE, a nine that was written by hand
 */
#include <stdio.h>

#include "digit.h"
#include "graft/model.h"

GRAFT_DECLARE_MODEL(digits)

int main(int argc, char **argv) {
  float image[DIGIT_PIXELS], logits[DIGIT_CLASSES];
  if (!read_digit(argc > 1 ? argv[1] : NULL, image)) return 1;
  GraftProgram *program;
  GraftError error = {0};
  if (graft_model_digits_load(NULL, &program, &error) != GRAFT_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  int64_t input_shape[] = {1, 1, 8, 8}, output_shape[] = {1, DIGIT_CLASSES};
  DLTensor input = {
      .data = image, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = input_shape};
  DLTensor output = {
      .data = logits, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = output_shape};
  int32_t status = graft_model_digits_run(program, &input, &output, &error);
  graft_model_digits_destroy(program);
  if (status != GRAFT_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  print_digit(logits);
  return 0;
}
