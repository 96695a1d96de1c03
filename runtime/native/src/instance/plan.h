/* Memory plans: offsets in one arena for tensors with known lifetimes. */
#ifndef GRAFT_PLAN_H
#define GRAFT_PLAN_H

#include <stddef.h>
#include <stdint.h>

/* A tensor to place, live from call `first` to call `last`, both included. */
typedef struct PlanItem {
  uint64_t bytes;
  int32_t first, last;
  int32_t on;      /* an earlier item in whose place it stands, whose last call is `first`; -1: none */
  uint64_t offset; /* the result, a multiple of 64 */
} PlanItem;

/* The bytes of working memory that planning so many items takes. */
size_t graft_plan_workspace(size_t count);

/* Places all items, which are in the order of their first calls, so that no two that are live at one time overlap, and
 * returns the size of the arena; 0 if it would be beyond 2**62 (an arena without items has 64 bytes). Greedy by size,
 * each into the tightest gap that it fits. The time is n log n for tensors of short lives. */
uint64_t graft_plan_memory(PlanItem *items, size_t count, void *workspace);

#endif
