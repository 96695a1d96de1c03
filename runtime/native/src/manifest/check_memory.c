#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "manifest/manifest_reader.h"

enum { NEVER = GRAFT_NEVER, AT_START = -1 };

/* Bytes [begin, end) of a tensor or, for `tensor`, of the arena. */
typedef struct Interval {
  uint64_t begin, end;
  int32_t tensor;
} Interval;

/* When a tensor's memory is first written and last used: call numbers. A view has the times of its root.
 * `parts` are the written bytes of what is written part by part, in order and joined where they touch. */
typedef struct Life {
  int32_t begin;
  int32_t end;
  int32_t part_count;
  Interval *parts;
} Life;

typedef struct Checker {
  Procedure *procedure;
  Life *lives;
  Reader *reader;
} Checker;

static const char *tensor_name(const Checker *checker, int32_t tensor) {
  return checker->procedure->tensors[tensor].name;
}

/* ---- Intervals in order --------------------------------------------------------------------------------------- */

/* The first of disjoint intervals, in order of address, that begins at `begin` or behind it. */
static int32_t find_place(const Interval *intervals, int32_t count, uint64_t begin) {
  int32_t low = 0, high = count;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (intervals[middle].begin < begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Of disjoint intervals only the neighbours of a new one can touch it: the number of one that does, or -1. */
static int32_t find_overlap(const Interval *intervals, int32_t count, int32_t place, const Interval *added) {
  if (place < count && intervals[place].begin < added->end) {
    return place;
  }
  return place > 0 && intervals[place - 1].end > added->begin ? place - 1 : -1;
}

static void insert_at(Interval *intervals, int32_t *count, int32_t place, Interval added) {
  memmove(intervals + place + 1, intervals + place, (size_t)(*count - place) * sizeof(Interval));
  intervals[place] = added;
  ++*count;
}

/* ---- Order of writes and reads -------------------------------------------------------------------------------- */

/* Whether a tensor is all of its root: with symbols it is, which is checked when they are bound. */
static int is_whole(const TensorSpec *tensor, const TensorSpec *root) {
  return !graft_is_static(tensor) || !graft_is_static(root) || tensor->bytes == root->bytes;
}

static int is_written(const Life *life, const TensorSpec *root, const TensorSpec *tensor) {
  uint64_t begin = tensor == root ? 0 : tensor->offset;
  if (graft_is_static(root) && graft_is_static(tensor) && tensor->bytes == 0) {
    return 1; /* there is nothing to write */
  }
  if (!life->parts) {
    return life->begin != NEVER;
  }
  int32_t place = find_place(life->parts, life->part_count, begin + 1);
  return place > 0 && life->parts[place - 1].end >= begin + (is_whole(tensor, root) ? root->bytes : tensor->bytes);
}

/* What a device reads lives longer than its call (check_call). */
static void note_use(Life *life, int32_t call) { life->end = life->end == NEVER || call > life->end ? call : life->end; }

static int32_t check_read(const Checker *checker, int32_t tensor, int32_t call) {
  if (tensor < 0) {
    return GRAFT_OK;
  }
  const TensorSpec *read = checker->procedure->tensors + tensor;
  Life *life = checker->lives + read->root;
  if (!is_written(life, checker->procedure->tensors + read->root, read)) {
    return graft_damaged(checker->reader, "tensor '%s' is read before it is written", tensor_name(checker, tensor));
  }
  note_use(life, call);
  return GRAFT_OK;
}

static int32_t check_reads(const Checker *checker, const IndexList *list, int32_t call) {
  for (int32_t i = 0; i < list->count; i++) {
    GRAFT_TRY(check_read(checker, list->items[i], call));
  }
  return GRAFT_OK;
}

static int32_t insert_part(const Checker *checker, Life *life, int32_t place, Interval added) {
  if ((life->part_count & (life->part_count - 1)) == 0) { /* it may be full, for it grows at powers of two */
    Interval *parts = graft_grow(checker->reader->store->allocator, life->parts, (size_t)life->part_count,
                                 (size_t)life->part_count * 2 + 1, sizeof(Interval));
    GRAFT_TRY(graft_allocated(checker->reader, parts));
    life->parts = parts;
  }
  insert_at(life->parts, &life->part_count, place, added);
  return GRAFT_OK;
}

static int32_t check_write_of_part(const Checker *checker, int32_t tensor, Life *life) {
  const TensorSpec *part = checker->procedure->tensors + tensor;
  Interval added = {part->offset, part->offset + part->bytes, tensor};
  int32_t place = find_place(life->parts, life->part_count, added.begin);
  if ((life->begin != NEVER && !life->parts) || find_overlap(life->parts, life->part_count, place, &added) >= 0) {
    return graft_damaged(checker->reader, "tensor '%s' is written twice", tensor_name(checker, tensor));
  }
  int joins_before = place > 0 && life->parts[place - 1].end == added.begin;
  int joins_after = place < life->part_count && life->parts[place].begin == added.end;
  if (joins_before && joins_after) {
    life->parts[place - 1].end = life->parts[place].end;
    --life->part_count;
    memmove(life->parts + place, life->parts + place + 1, (size_t)(life->part_count - place) * sizeof(Interval));
  } else if (joins_before) {
    life->parts[place - 1].end = added.end;
  } else if (joins_after) {
    life->parts[place].begin = added.begin;
  } else {
    return insert_part(checker, life, place, added);
  }
  return GRAFT_OK;
}

static int is_given(Storage storage) {
  return storage == STORAGE_INPUT || storage == STORAGE_CONSTANT || storage == STORAGE_EXTENTS;
}

static int32_t check_write(const Checker *checker, int32_t tensor, int32_t call) {
  if (tensor < 0) {
    return GRAFT_OK;
  }
  const TensorSpec *written = checker->procedure->tensors + tensor;
  const TensorSpec *root = checker->procedure->tensors + written->root;
  Life *life = checker->lives + written->root;
  if (is_given(root->storage)) {
    return graft_damaged(checker->reader, "tensor '%s' is written, but its bytes are those of an input or a constant",
                         tensor_name(checker, tensor));
  }
  if (written->storage == STORAGE_VIEW && root->is_unknown) {
    return graft_damaged(checker->reader, "tensor '%s' is written, but it is a view of what has no size yet",
                         tensor_name(checker, tensor));
  }
  if (written->storage == STORAGE_VIEW && !is_whole(written, root)) {
    GRAFT_TRY(written->bytes ? check_write_of_part(checker, tensor, life) : GRAFT_OK);
  } else if (life->begin != NEVER) {
    return graft_damaged(checker->reader, "tensor '%s' is written twice", tensor_name(checker, tensor));
  }
  life->begin = life->begin == NEVER && (life->parts || is_whole(written, root)) ? call : life->begin;
  note_use(life, call);
  return GRAFT_OK;
}

static int32_t check_call(const Checker *checker, const Call *call) {
  GRAFT_TRY(check_reads(checker, &call->inputs, checker->reader->call));
  for (int32_t k = 0; k < call->body_count; k++) {
    GRAFT_TRY(check_reads(checker, &call->arguments[k], checker->reader->call));
  }
  for (int32_t k = 0; k < call->outputs.count; k++) {
    GRAFT_TRY(check_write(checker, call->outputs.items[k], checker->reader->call));
  }
  if (call->kind == CALL_COPY) {
    const TensorSpec *from = checker->procedure->tensors + call->inputs.items[0];
    const TensorSpec *to = checker->procedure->tensors + call->outputs.items[0];
    if (!from->device && to->device) { /* nobody says when a device has read it, until the procedure ends */
      checker->lives[from->root].end = checker->procedure->call_count;
    }
    if (!graft_dtype_equal(from->dtype, to->dtype) ||
        (graft_is_static(from) && graft_is_static(to) && from->bytes != to->bytes)) {
      return graft_damaged(checker->reader, "a copy between tensors of another type or size");
    }
  }
  return GRAFT_OK;
}

static int32_t check_order(Checker *checker) {
  const Procedure *procedure = checker->procedure;
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    int32_t begin = is_given(procedure->tensors[i].storage) ? AT_START : NEVER;
    checker->lives[i] = (Life){.begin = begin, .end = begin};
  }
  for (int32_t i = 0; i < procedure->call_count; i++) {
    checker->reader->call = i;
    GRAFT_TRY(check_call(checker, procedure->calls + i));
  }
  checker->reader->call = -1;
  return check_reads(checker, &procedure->outputs, procedure->call_count);
}

/* ---- Overlap in the arena ------------------------------------------------------------------------------------- */

static void drop_dead(const Checker *checker, Interval *live, int32_t *count, int32_t call) {
  int32_t kept = 0;
  for (int32_t i = 0; i < *count; i++) {
    if (checker->lives[live[i].tensor].end >= call) {
      live[kept++] = live[i];
    }
  }
  *count = kept;
}

/* Whether call `number` may write over the bytes of `dying`: all its uses of it allow that, and they are the last. */
static int may_stand_on(const Checker *checker, int32_t number, int32_t dying) {
  const Call *call = checker->procedure->calls + number;
  int found = 0;
  for (int32_t i = 0; i < call->inputs.count; i++) {
    if (call->inputs.items[i] >= 0 && checker->procedure->tensors[call->inputs.items[i]].root == dying) {
      int allowed = 0;
      for (int32_t k = 0; k < call->in_place.count; k++) {
        allowed |= call->in_place.items[k] == i;
      }
      if (!allowed || checker->procedure->tensors[call->inputs.items[i]].bytes !=
                          checker->procedure->tensors[dying].bytes) {
        return 0;
      }
      found = 1;
    }
  }
  return found && checker->lives[dying].end == number;
}

static int32_t check_result(const Checker *checker, Interval *live, int32_t *count, int32_t root, int32_t number) {
  const TensorSpec *tensor = checker->procedure->tensors + root;
  Interval added = {tensor->offset, tensor->offset + tensor->room, root};
  int32_t place = find_place(live, *count, added.begin);
  int32_t other = find_overlap(live, *count, place, &added);
  if (other < 0) {
    insert_at(live, count, place, added);
    return GRAFT_OK;
  }
  if (live[other].tensor == root) { /* another part of it */
    return GRAFT_OK;
  }
  if (live[other].begin == added.begin && live[other].end == added.end &&
      may_stand_on(checker, number, live[other].tensor)) {
    live[other] = added;
    return GRAFT_OK;
  }
  return graft_damaged(checker->reader, "tensors '%s' and '%s' overlap in the arena while both are live",
                       tensor_name(checker, live[other].tensor), tensor_name(checker, root));
}

/* A tensor is live from the call that first writes it to the last call that uses it, both included; but an output may
 * take the place of an input whose last use its call is, if the call says so. Each device has an arena of its own. */
static int32_t check_arena(const Checker *checker, int32_t device) {
  const Procedure *procedure = checker->procedure;
  const GraftAllocator *memory = checker->reader->store->allocator;
  Interval *live = graft_allocate_zeroed(memory, (size_t)procedure->tensor_count + 1, sizeof(Interval));
  GRAFT_TRY(graft_allocated(checker->reader, live));
  int32_t count = 0, status = GRAFT_OK;
  for (int32_t i = 0; !status && i < procedure->call_count; i++) {
    const IndexList *outputs = &procedure->calls[i].outputs;
    drop_dead(checker, live, &count, i);
    for (int32_t k = 0; !status && k < outputs->count; k++) {
      int32_t root = outputs->items[k] < 0 ? -1 : procedure->tensors[outputs->items[k]].root;
      if (root >= 0 && checker->lives[root].begin == i && procedure->tensors[root].storage == STORAGE_ARENA &&
          procedure->tensors[root].device == device && procedure->tensors[root].room) {
        status = check_result(checker, live, &count, root, i);
      }
    }
  }
  graft_release(memory, live);
  return status;
}

static void note_lives(const Checker *checker) {
  for (int32_t i = 0; i < checker->procedure->tensor_count; i++) {
    checker->procedure->tensors[i].first = checker->lives[i].begin;
    checker->procedure->tensors[i].last = checker->lives[i].end;
  }
}

int32_t graft_check_memory(Reader *reader, Procedure *procedure) {
  Checker checker = {.procedure = procedure, .reader = reader};
  const GraftAllocator *memory = reader->store->allocator;
  checker.lives = graft_allocate_zeroed(memory, (size_t)procedure->tensor_count, sizeof(Life));
  GRAFT_TRY(graft_allocated(reader, checker.lives));
  int32_t status = check_order(&checker);
  for (int32_t i = 0; !status && graft_is_planned(procedure) && i <= reader->manifest->device_count; i++) {
    status = check_arena(&checker, i);
  }
  note_lives(&checker);
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    graft_release(memory, checker.lives[i].parts);
  }
  graft_release(memory, checker.lives);
  return status;
}
