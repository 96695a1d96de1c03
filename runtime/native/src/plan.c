#include "plan.h"

#include <stdlib.h>

#define MAXIMUM_ARENA ((uint64_t)1 << 62)

enum { ALIGNMENT = 64 };

/* Items that stand on one another are one: the first of them, which lives as long as all. */
typedef struct Group {
  uint64_t bytes; /* a multiple of the alignment */
  int32_t first, last;
  int32_t item;
} Group;

/* A group that has its place. Those are kept in order of their offsets. */
typedef struct Placed {
  uint64_t begin, end;
  int32_t first, last;
} Placed;

size_t graft_plan_workspace(size_t count) {
  return count * (sizeof(Group) + sizeof(Placed) + 2 * sizeof(int32_t)) + sizeof(uint64_t);
}

/* The largest first; of one size in the order of their lives, so that the plan is the same everywhere. */
static int compare_groups(const void *left, const void *right) {
  const Group *a = left, *b = right;
  if (a->bytes != b->bytes) {
    return a->bytes > b->bytes ? -1 : 1;
  }
  if (a->first != b->first) {
    return a->first < b->first ? -1 : 1;
  }
  return a->item < b->item ? -1 : 1;
}

static size_t make_groups(const PlanItem *items, size_t count, Group *groups, int32_t *group_of) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    if (items[i].on >= 0) {
      group_of[i] = group_of[items[i].on];
      Group *group = groups + group_of[i];
      group->last = items[i].last > group->last ? items[i].last : group->last;
      continue;
    }
    uint64_t bytes = items[i].bytes ? (items[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
    group_of[i] = (int32_t)found;
    groups[found++] = (Group){bytes, items[i].first, items[i].last, (int32_t)i};
  }
  return found;
}

/* Numbers of those placed that are live together with the group. Without branches, for this is nearly all the work. */
static size_t find_rivals(const Placed *placed, size_t count, const Group *group, int32_t *rivals) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    rivals[found] = (int32_t)i;
    found += (size_t)((placed[i].first <= group->last) & (placed[i].last >= group->first));
  }
  return found;
}

static uint64_t tightest_gap(const Placed *placed, const int32_t *rivals, size_t count, uint64_t bytes) {
  uint64_t end = 0, best = UINT64_MAX, offset = 0;
  for (size_t i = 0; i < count; i++) {
    const Placed *rival = placed + rivals[i];
    if (rival->begin > end && rival->begin - end >= bytes && rival->begin - end < best) {
      best = rival->begin - end;
      offset = end;
    }
    end = rival->end > end ? rival->end : end;
  }
  return best == UINT64_MAX ? end : offset;
}

static void insert(Placed *placed, size_t count, Placed added) {
  size_t place = count;
  while (place > 0 && placed[place - 1].begin > added.begin) {
    placed[place] = placed[place - 1];
    place--;
  }
  placed[place] = added;
}

uint64_t graft_plan_memory(PlanItem *items, size_t count, void *workspace) {
  Group *groups = workspace;
  Placed *placed = (Placed *)(groups + count);
  int32_t *group_of = (int32_t *)(placed + count), *rivals = group_of + count;
  uint64_t arena = ALIGNMENT;
  size_t group_count = make_groups(items, count, groups, group_of);
  qsort(groups, group_count, sizeof *groups, compare_groups);
  for (size_t i = 0; i < group_count; i++) {
    const Group *group = groups + i;
    size_t rival_count = find_rivals(placed, i, group, rivals);
    uint64_t offset = tightest_gap(placed, rivals, rival_count, group->bytes);
    if (group->bytes > MAXIMUM_ARENA || offset > MAXIMUM_ARENA - group->bytes) {
      return 0;
    }
    insert(placed, i, (Placed){offset, offset + group->bytes, group->first, group->last});
    items[group->item].offset = offset;
    arena = offset + group->bytes > arena ? offset + group->bytes : arena;
  }
  for (size_t i = 0; i < count; i++) {
    if (items[i].on >= 0) {
      items[i].offset = items[items[i].on].offset;
    }
  }
  return arena;
}
