#include "instance/plan.h"

#include "base/sort.h"

#define MAXIMUM_ARENA ((uint64_t)1 << 62)

enum { ALIGNMENT = 64, FEW = 24 };

/* Items that stand on one another are one: the first of them, which lives as long as all. */
typedef struct Group {
  uint64_t bytes; /* a multiple of the alignment */
  uint64_t begin; /* once it is placed */
  int32_t first, last;
  int32_t item;
} Group;

typedef struct Rank {
  uint64_t bytes;
  int32_t group;
} Rank;

typedef struct Extent {
  uint64_t begin, end;
} Extent;

/* `latest` is a tree over the groups in order of their first calls: node 1 is the root, the children of node n are 2n
 * and 2n + 1, the leaves from `leaves` on are the groups. Each has the largest last call of the placed ones below it. */
typedef struct Planner {
  Group *groups;
  Rank *ranks;
  Extent *rivals;
  int32_t *latest, *group_of;
  size_t count, leaves, rival_count;
} Planner;

static size_t leaves_of(size_t count) {
  size_t leaves = 1;
  while (leaves < count) {
    leaves *= 2;
  }
  return leaves;
}

size_t graft_plan_workspace(size_t count) {
  size_t each = sizeof(Group) + sizeof(Rank) + sizeof(Extent) + sizeof(int32_t);
  return count * each + 2 * leaves_of(count) * sizeof(int32_t);
}

static void make_groups(Planner *planner, const PlanItem *items, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (items[i].on >= 0) {
      planner->group_of[i] = planner->group_of[items[i].on];
      Group *group = planner->groups + planner->group_of[i];
      group->last = items[i].last > group->last ? items[i].last : group->last;
      continue;
    }
    uint64_t bytes = items[i].bytes ? (items[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
    planner->group_of[i] = (int32_t)planner->count;
    planner->ranks[planner->count] = (Rank){bytes, (int32_t)planner->count};
    planner->groups[planner->count++] = (Group){bytes, 0, items[i].first, items[i].last, (int32_t)i};
  }
}

/* The largest first; of one size in the order of their lives. */
static int compare_ranks(const void *left, const void *right) {
  const Rank *a = left, *b = right;
  if (a->bytes != b->bytes) {
    return a->bytes > b->bytes ? -1 : 1;
  }
  return a->group < b->group ? -1 : a->group > b->group;
}

static int compare_extents(const void *left, const void *right) {
  const Extent *a = left, *b = right;
  return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Collects the placed groups below `node` that live at a time when `group` does. Below it are the groups from `low` on,
 * `width` of them. */
static void collect(Planner *planner, const Group *group, size_t node, size_t low, size_t width) {
  if (planner->latest[node] < group->first || low >= planner->count || planner->groups[low].first > group->last) {
    return;
  }
  if (width > 1) {
    collect(planner, group, 2 * node, low, width / 2);
    collect(planner, group, 2 * node + 1, low + width / 2, width / 2);
    return;
  }
  const Group *rival = planner->groups + low;
  planner->rivals[planner->rival_count++] = (Extent){rival->begin, rival->begin + rival->bytes};
}

static void sort_rivals(Planner *planner) {
  if (planner->rival_count > FEW) {
    graft_sort(planner->rivals, planner->rival_count, sizeof(Extent), compare_extents);
    return;
  }
  for (size_t i = 1; i < planner->rival_count; i++) {
    Extent moved = planner->rivals[i];
    size_t place = i;
    for (; place > 0 && planner->rivals[place - 1].begin > moved.begin; place--) {
      planner->rivals[place] = planner->rivals[place - 1];
    }
    planner->rivals[place] = moved;
  }
}

/* The begin of the smallest gap between rivals that has so many bytes, or the end of all. */
static uint64_t tightest_gap(const Planner *planner, uint64_t bytes) {
  uint64_t end = 0, best = UINT64_MAX, begin = 0;
  for (size_t i = 0; i < planner->rival_count; i++) {
    const Extent *rival = planner->rivals + i;
    if (rival->begin > end && rival->begin - end >= bytes && rival->begin - end < best) {
      best = rival->begin - end;
      begin = end;
    }
    end = rival->end > end ? rival->end : end;
  }
  return best == UINT64_MAX ? end : begin;
}

static void note_placed(Planner *planner, int32_t number) {
  for (size_t node = planner->leaves + (size_t)number; node > 0; node /= 2) {
    if (planner->latest[node] < planner->groups[number].last) {
      planner->latest[node] = planner->groups[number].last;
    }
  }
}

uint64_t graft_plan_memory(PlanItem *items, size_t count, void *workspace) {
  Planner planner = {.groups = workspace, .leaves = leaves_of(count)};
  planner.ranks = (Rank *)(planner.groups + count);
  planner.rivals = (Extent *)(planner.ranks + count);
  planner.group_of = (int32_t *)(planner.rivals + count);
  planner.latest = planner.group_of + count;
  for (size_t i = 0; i < 2 * planner.leaves; i++) {
    planner.latest[i] = -1;
  }
  make_groups(&planner, items, count);
  graft_sort(planner.ranks, planner.count, sizeof(Rank), compare_ranks);
  uint64_t arena = ALIGNMENT;
  for (size_t i = 0; i < planner.count; i++) {
    Group *group = planner.groups + planner.ranks[i].group;
    planner.rival_count = 0;
    collect(&planner, group, 1, 0, planner.leaves);
    sort_rivals(&planner);
    group->begin = tightest_gap(&planner, group->bytes);
    if (group->bytes > MAXIMUM_ARENA || group->begin > MAXIMUM_ARENA - group->bytes) {
      return 0;
    }
    arena = group->begin + group->bytes > arena ? group->begin + group->bytes : arena;
    note_placed(&planner, planner.ranks[i].group);
  }
  for (size_t i = 0; i < count; i++) {
    items[i].offset = planner.groups[planner.group_of[i]].begin;
  }
  return arena;
}
