/* The values of symbols and extents in a frame, and their texts. */
#ifndef GRAFT_EXTENTS_H
#define GRAFT_EXTENTS_H

#include "state/state.h"

static inline int64_t graft_value(const Frame *frame, Dimension dimension) {
  return dimension.place < 0 ? dimension.number : frame->values[dimension.place];
}

/* Evaluates the operations of a stage, whose symbols are bound; fails for numbers beyond 2**62 and divisions by 0. */
int32_t graft_evaluate(Context *context, Frame *frame, const Stage *stage);

/* Appends " (seq = 5, past = 4)": the symbols of an extent that is an operation. */
void graft_append_bindings(char *text, size_t size, const Frame *frame, Dimension dimension);

#endif
