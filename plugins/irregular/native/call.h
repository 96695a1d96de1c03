/* A region as its loader has read it, and its values while it runs. */
#ifndef GRAFT_IRREGULAR_CALL_H
#define GRAFT_IRREGULAR_CALL_H

#include <stdatomic.h>

#include "kernel.h"

struct Module {
  JsonDocument *document;
  const char *name;
  int32_t input_count, output_count, constant_count, value_count, node_count;
  ValueType *types;                 /* of the values: inputs first, then constants */
  int32_t *returned;                /* by value: the number among the outputs of the region, or -1 */
  const DLTensor **constants;
  Node *nodes;
  int32_t *places;                  /* those of all nodes */
  atomic_uint_fast64_t draws;
  bool lacks_memory;                /* while it is read */
};

struct Value {
  const unsigned char *data;
  void *owned;
  int32_t rank;
  int64_t shape[MOST_RANK];
};

#endif
