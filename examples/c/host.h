/* What both example hosts share: a loaded program is run on inputs that are filled with a ramp. */
#ifndef EXAMPLE_HOST_H
#define EXAMPLE_HOST_H

#include "graft/runtime.h"

/* Runs the program `repeat` times, prints the outputs of the last run, and returns an exit status. `options` may be NULL. */
int run_program(GraftProgram *program, const GraftRunOptions *options, long repeat);

#endif
