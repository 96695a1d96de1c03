/* Loads an artifact and runs it from C: no Python, no compiler.
 *
 *   run FILE.graft [REPEAT]     every input is filled with a ramp; prints each output's shape and first values.
 */
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: %s FILE.graft [REPEAT]\n", argv[0]);
    return 2;
  }
  GraftProgram *program;
  GraftError error = {0};
  if (graft_program_load(argv[1], NULL, &program, &error) != GRAFT_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  int status = run_program(program, NULL, argc == 3 ? atol(argv[2]) : 1);
  graft_program_destroy(program);
  return status;
}
