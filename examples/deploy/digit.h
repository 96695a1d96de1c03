/* What the examples share: an image to classify, and how the answer is printed. */
#ifndef EXAMPLE_DIGIT_H
#define EXAMPLE_DIGIT_H

#include <stdio.h>

enum { DIGIT_PIXELS = 64, DIGIT_CLASSES = 10 };

/* Reads 64 numbers from a file, or gives a digit that is known. 0 if that fails. */
static inline int read_digit(const char *path, float *image) {
  static const float nine[DIGIT_PIXELS] = {/* of 16: how dark each pixel is */
       0,  0,  3, 12,  5,  0,  0,  0,
       0,  1, 15, 14, 16,  6,  0,  0,
       0,  6, 16,  0,  6, 16,  6,  0,
       0,  5, 16, 11, 14, 16,  4,  0,
       0,  0,  8, 10, 12, 16,  0,  0,
       0,  0,  1,  1,  7, 15,  1,  0,
       0,  0,  8, 10, 10, 16,  2,  0,
       0,  0,  2, 13, 14,  7,  0,  0};
  FILE *file = path ? fopen(path, "r") : NULL;
  int complete = !path || file;
  for (int i = 0; complete && i < DIGIT_PIXELS; i++) {
    image[i] = nine[i] / 16.0f;
    if (path) complete = fscanf(file, "%f", &image[i]) == 1;
  }
  if (file) fclose(file);
  if (!complete) fprintf(stderr, "%s: 64 numbers were expected\n", path);
  return complete;
}

static inline void print_digit(const float *logits) {
  int best = 0;
  for (int i = 1; i < DIGIT_CLASSES; i++) best = logits[i] > logits[best] ? i : best;
  printf("digit %d\n", best);
  for (int i = 0; i < DIGIT_CLASSES; i++) printf("%d %.6g\n", i, (double)logits[i]);
}

#endif
