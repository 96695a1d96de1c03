#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/platform.h"
#include "devices/streams.h"
#include "instance/instance.h"
#include "instance/plan.h"

enum { HUGE_PAGE_BYTES = 2 << 20, ROOM = 4 };

static int is_plan_of(const KeptPlan *plan, const Frame *frame, const IndexList *symbols) {
  for (int32_t i = 0; i < symbols->count; i++) {
    if (plan->key[i] != frame->values[symbols->items[i]]) {
      return 0;
    }
  }
  return 1;
}

/* The tensors of one memory; `places` has room to say which item each of them is. Gives their number. */
static size_t find_places(const Frame *frame, const Stage *stage, int32_t device, PlanItem *items, int32_t *places) {
  const TensorSpec *specs = frame->procedure->tensors;
  size_t count = 0;
  for (int32_t i = 0; i < stage->arena.count; i++) {
    const TensorSpec *spec = specs + stage->arena.items[i];
    if (spec->device == device) {
      places[i] = (int32_t)count;
      items[count++] = (PlanItem){graft_frame_bytes(frame, stage->arena.items[i]), spec->first,
                                  spec->last < spec->first ? spec->first : spec->last, -1, 0};
    }
  }
  for (int32_t i = 0; i < stage->in_place_count; i++) {
    const InPlace *pair = stage->in_place + i;
    if (specs[pair->result].device != device || specs[pair->dying].device != device) {
      continue;
    }
    int32_t result = places[specs[pair->result].index], dying = places[specs[pair->dying].index];
    if (items[result].on < 0 && items[result].bytes == items[dying].bytes &&
        graft_frame_bytes(frame, pair->seen) == items[dying].bytes) {
      items[result].on = dying;
    }
  }
  return count;
}

/* Plans the memory of each device that the procedure uses, and main memory. */
static int plan_memories(const Frame *frame, const Stage *stage, int32_t devices, PlanItem *items, int32_t *places,
                         void *workspace, KeptPlan *plan) {
  for (int32_t device = 0; device <= devices; device++) {
    size_t count = find_places(frame, stage, device, items, places);
    uint64_t bytes = graft_plan_memory(items, count, workspace);
    for (int32_t i = 0; i < stage->arena.count; i++) {
      if (frame->procedure->tensors[stage->arena.items[i]].device == device) {
        plan->offsets[i] = items[places[i]].offset;
      }
    }
    if (device) {
      plan->device_bytes[device - 1] = count ? bytes : 0;
    } else {
      plan->bytes = bytes;
    }
    if (bytes == 0) {
      plan->bytes = 0;
      return 0;
    }
  }
  return 1;
}

/* The least recently used of the kept plans gives its place to a new one. */
static KeptPlan *make_plan(Context *context, const Frame *frame, const Stage *stage, StageState *state) {
  size_t count = (size_t)stage->arena.count;
  ScratchMark mark = graft_scratch_mark(&context->scratch);
  PlanItem *items = graft_call_memory(context, count, sizeof(PlanItem));
  int32_t *places = items ? graft_call_memory(context, count, sizeof(int32_t)) : NULL;
  void *workspace = places ? graft_call_memory(context, 1, graft_plan_workspace(count)) : NULL;
  int32_t devices = frame->device ? context->instance->program->device_count : 0;
  if (!workspace) {
    return NULL;
  }
  KeptPlan *plan = state->plans;
  for (int32_t i = 1; i < state->plan_count; i++) {
    plan = state->plans[i].used < plan->used ? state->plans + i : plan;
  }
  plan = state->plan_count < GRAFT_KEPT_PLANS ? state->plans + state->plan_count++ : plan;
  plan_memories(frame, stage, devices, items, places, workspace, plan);
  for (int32_t i = 0; i < stage->sizes.count; i++) {
    plan->key[i] = frame->values[stage->sizes.items[i]];
  }
  graft_scratch_release(&context->scratch, mark);
  return plan;
}

/* A large arena gets room to grow into. What is not touched costs no memory, but fresh memory costs far more time than
 * the call that touches it first, so that what was touched is not to be given back for a somewhat larger shape. */
static char *allocate_arena(const GraftAllocator *memory, uint64_t bytes, uint64_t *capacity) {
  if (bytes > SIZE_MAX / (4 * ROOM)) {
    return NULL;
  }
  char *arena = NULL;
  *capacity = bytes >= HUGE_PAGE_BYTES ? bytes * ROOM : bytes;
  if (*capacity > bytes) {
    arena = graft_allocate(memory, (size_t)*capacity);
  }
  if (!arena) {
    *capacity = bytes;
    arena = graft_allocate(memory, (size_t)bytes);
  }
  if (arena && bytes >= HUGE_PAGE_BYTES) {
    graft_advise_huge_pages(arena, (size_t)*capacity);
  }
  return arena;
}

/* As much of the arena is touched as the kept plans need, within a factor of two. */
static int fit_arena(const GraftAllocator *memory, StageState *state, uint64_t wanted) {
  uint64_t most = wanted;
  for (int32_t i = 0; i < state->plan_count; i++) {
    most = state->plans[i].bytes > most ? state->plans[i].bytes : most;
  }
  if (state->capacity < wanted || state->touched / 2 > most) {
    graft_release(memory, state->arena);
    state->touched = state->capacity = 0;
    state->arena = allocate_arena(memory, most, &state->capacity);
  }
  if (!state->arena) {
    state->capacity = 0;
    return 0;
  }
  state->touched = wanted > state->touched ? wanted : state->touched;
  return 1;
}

static DeviceBlock *device_arena(const Context *context, const Frame *frame, int32_t stage, int32_t device) {
  return frame->device->stage_arenas + stage * context->instance->program->device_count + device - 1;
}

/* What still runs in an arena that is too small is waited for. */
static int32_t fit_device_arenas(Context *context, Frame *frame, int32_t number, const KeptPlan *plan) {
  for (int32_t i = 1; i <= context->instance->program->device_count; i++) {
    DeviceBlock *arena = device_arena(context, frame, number, i);
    uint64_t bytes = plan->device_bytes[i - 1];
    if (bytes > arena->capacity) {
      GRAFT_TRY(arena->memory ? graft_finish_devices(context) : GRAFT_OK);
      GRAFT_TRY(graft_device_reserve(context, i, arena, bytes, "an arena"));
    }
  }
  return GRAFT_OK;
}

/* Where all were placed for the largest shapes: that these shapes are none that are larger. */
static int32_t check_rooms(Context *context, const Frame *frame, const Stage *stage) {
  for (int32_t i = 0; i < stage->arena.count; i++) {
    const TensorSpec *spec = frame->procedure->tensors + stage->arena.items[i];
    size_t bytes = graft_frame_bytes(frame, stage->arena.items[i]);
    if (bytes > spec->room) {
      return graft_context_fail(context, GRAFT_ERROR_RUN, "tensor '%s' has %zu bytes, but was planned for at most %" PRIu64,
                                spec->name, bytes, spec->room);
    }
  }
  return GRAFT_OK;
}

int32_t graft_place_arena(Context *context, Frame *frame, int32_t number) {
  const Stage *stage = frame->procedure->stages + number;
  StageState *state = frame->stages + number;
  KeptPlan *plan = NULL;
  if (stage->arena.count == 0 || graft_is_planned(frame->procedure)) {
    return check_rooms(context, frame, stage);
  }
  for (int32_t i = 0; !plan && i < state->plan_count; i++) {
    int fits = state->plans[i].bytes && is_plan_of(state->plans + i, frame, &stage->sizes);
    plan = fits ? state->plans + i : NULL;
  }
  plan = plan ? plan : make_plan(context, frame, stage, state);
  if (!plan) {
    return GRAFT_ERROR_MEMORY;
  }
  plan->used = ++state->clock;
  if (plan->bytes == 0 || !fit_arena(frame->memory, state, plan->bytes)) {
    char size[32] = "more than 2**62";
    if (plan->bytes) {
      snprintf(size, sizeof size, "%" PRIu64, plan->bytes);
    }
    plan->bytes = plan->used = 0;
    return graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory: these shapes need an arena of %s bytes",
                              size);
  }
  GRAFT_TRY(frame->device ? fit_device_arenas(context, frame, number, plan) : GRAFT_OK);
  for (int32_t i = 0; i < stage->arena.count; i++) {
    int32_t tensor = stage->arena.items[i], device = frame->procedure->tensors[tensor].device;
    char *arena = device ? device_arena(context, frame, number, device)->memory : state->arena;
    graft_frame_bind(frame, tensor, arena + plan->offsets[i]);
  }
  return GRAFT_OK;
}

int32_t graft_place_late_outputs(Context *context, Frame *frame, const Stage *stage) {
  for (int32_t i = 0; i < stage->outputs.count; i++) {
    int32_t number = stage->outputs.items[i];
    const TensorSpec *spec = frame->procedure->tensors + number;
    DLTensor *tensor = frame->tensors + number;
    tensor->shape = frame->shapes[number];
    if (!graft_block_reserve(graft_memory_of(context), frame->blocks + number, tensor, spec->ndim, tensor->shape,
                             graft_frame_bytes(frame, number))) {
      return graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory for output '%s'", spec->name);
    }
    graft_frame_bind(frame, number, tensor->data);
  }
  return GRAFT_OK;
}
