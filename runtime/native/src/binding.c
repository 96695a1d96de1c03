#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "extents.h"
#include "memory.h"
#include "platform.h"
#include "plan.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

size_t graft_frame_bytes(const Frame *frame, int32_t tensor) {
  const TensorSpec *spec = frame->procedure->tensors + tensor;
  size_t bytes = spec->bytes;
  if (!graft_is_static(spec)) {
    graft_tensor_bytes(spec->dtype, frame->tensors[tensor].ndim, frame->tensors[tensor].shape, &bytes);
  }
  return bytes;
}

int64_t graft_known_extent(const Frame *frame, int32_t tensor, int32_t axis) {
  const TensorSpec *spec = frame->procedure->tensors + tensor;
  if (!spec->dimensions) {
    return spec->shape[axis];
  }
  Dimension dimension = spec->dimensions[axis];
  int32_t first_operation = frame->procedure->symbol_count, stage = 0;
  if (dimension.place >= 0) {
    stage = dimension.place < first_operation ? frame->procedure->symbols[dimension.place].stage
                                              : frame->procedure->operations[dimension.place - first_operation].stage;
  }
  int64_t value = stage == 0 || frame->stages[stage].is_bound ? graft_value(frame, dimension) : 0;
  return value < 0 ? 0 : value;
}

/* ---- What came, against what is expected ---------------------------------------------------------------------- */

/* Shapes of inputs are the caller's mistakes, others those of functions. */
static const char *role_of(const TensorSpec *spec) { return spec->storage == STORAGE_INPUT ? "input" : "output"; }

static int32_t code_of(const TensorSpec *spec) {
  return spec->storage == STORAGE_INPUT ? GRAFT_ERROR_INPUT : GRAFT_ERROR_RUN;
}

static int32_t fail_rank(Context *context, const Frame *frame, const TensorSpec *spec, const DLTensor *tensor) {
  char expected[256] = "", got[256] = "";
  graft_append_dimensions(expected, sizeof expected, frame->procedure, spec);
  graft_append_shape(got, sizeof got, tensor->ndim, tensor->shape);
  return graft_context_fail(context, code_of(spec), "%s '%s' has shape %s where %s is expected", role_of(spec),
                            spec->name, got, expected);
}

static int32_t fail_range(Context *context, const Frame *frame, const SymbolSpec *symbol, int64_t value) {
  const TensorSpec *spec = frame->procedure->tensors + symbol->tensor;
  int is_large = value > symbol->high;
  return graft_context_fail(context, code_of(spec),
                            "%s '%s' has %" PRId64 " at axis %" PRId32 ", but dimension '%s' is at %s %" PRId64
                            "; compile the model with a wider range for it",
                            role_of(spec), spec->name, value, symbol->axis, symbol->name, is_large ? "most" : "least",
                            is_large ? symbol->high : symbol->low);
}

/* An extent that is not what its dimension says: a symbol has its value from elsewhere. */
static int32_t fail_extent(Context *context, const Frame *frame, int32_t tensor, int32_t axis) {
  const Procedure *procedure = frame->procedure;
  const TensorSpec *spec = procedure->tensors + tensor;
  Dimension dimension = spec->dimensions[axis];
  char expected[512] = "";
  int64_t value = graft_value(frame, dimension);
  if (dimension.place < 0) {
    graft_append(expected, sizeof expected, "%" PRId64 " is expected", value);
  } else if (dimension.place < procedure->symbol_count) {
    const SymbolSpec *symbol = procedure->symbols + dimension.place;
    const TensorSpec *place = procedure->tensors + symbol->tensor;
    graft_append(expected, sizeof expected, "dimension '%s' is %" PRId64 " (%s '%s', axis %" PRId32 ")", symbol->name,
                 value, role_of(place), place->name, symbol->axis);
  } else {
    graft_append(expected, sizeof expected, "'");
    graft_append_extent(expected, sizeof expected / 2, procedure, dimension);
    graft_append(expected, sizeof expected, "' is %" PRId64, value);
    graft_append_bindings(expected, sizeof expected, frame, dimension);
  }
  return graft_context_fail(context, code_of(spec), "%s '%s' has %" PRId64 " at axis %" PRId32 ", but %s",
                            role_of(spec), spec->name, frame->tensors[tensor].shape[axis], axis, expected);
}

static int32_t compare_extents(Context *context, const Frame *frame, int32_t tensor) {
  const TensorSpec *spec = frame->procedure->tensors + tensor;
  const int64_t *shape = frame->tensors[tensor].shape;
  for (int32_t i = 0; spec->dimensions && i < spec->ndim; i++) {
    if (shape[i] != graft_value(frame, spec->dimensions[i])) {
      return fail_extent(context, frame, tensor, i);
    }
  }
  return GRAFT_OK;
}

static int32_t compare_all(Context *context, const Frame *frame, const IndexList *tensors) {
  int32_t status = GRAFT_OK;
  for (int32_t i = 0; !status && i < tensors->count; i++) {
    int32_t tensor = tensors->items[i];
    const TensorSpec *spec = frame->procedure->tensors + (tensor < 0 ? 0 : tensor);
    if (tensor >= 0 && (spec->storage == STORAGE_INPUT || spec->is_unknown)) {
      status = compare_extents(context, frame, tensor);
    }
  }
  return status;
}

/* ---- Shapes, values and views --------------------------------------------------------------------------------- */

static int32_t fail_negative(Context *context, const Frame *frame, const TensorSpec *spec, int32_t axis) {
  char text[384] = "", bindings[192] = "";
  graft_append_extent(text, sizeof text, frame->procedure, spec->dimensions[axis]);
  graft_append_bindings(bindings, sizeof bindings, frame, spec->dimensions[axis]);
  return graft_context_fail(context, GRAFT_ERROR_RUN,
                            "tensor '%s' would have %" PRId64 " elements at axis %" PRId32 ": '%s' is negative%s",
                            spec->name, graft_value(frame, spec->dimensions[axis]), axis, text, bindings);
}

static int32_t shape_tensor(Context *context, Frame *frame, int32_t number) {
  const TensorSpec *spec = frame->procedure->tensors + number;
  DLTensor *tensor = frame->tensors + number;
  size_t bytes;
  tensor->shape = frame->shapes[number];
  for (int32_t i = 0; i < spec->ndim; i++) {
    tensor->shape[i] = graft_value(frame, spec->dimensions[i]);
    if (tensor->shape[i] < 0) {
      return fail_negative(context, frame, spec, i);
    }
  }
  if (!graft_tensor_bytes(spec->dtype, spec->ndim, tensor->shape, &bytes)) {
    char text[256] = "";
    graft_append_shape(text, sizeof text, spec->ndim, tensor->shape);
    return graft_context_fail(context, GRAFT_ERROR_RUN, "tensor '%s' is too large: %s", spec->name, text);
  }
  return GRAFT_OK;
}

static int32_t fill_values(Context *context, const Frame *frame, int32_t number) {
  const TensorSpec *spec = frame->procedure->tensors + number;
  void *data = frame->tensors[number].data;
  for (int32_t i = 0; i < spec->value_count; i++) {
    int64_t value = graft_value(frame, spec->values[i]);
    if (spec->dtype.bits == 64) {
      ((int64_t *)data)[i] = value;
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
      ((int32_t *)data)[i] = (int32_t)value;
    } else {
      char bindings[256] = "";
      graft_append_bindings(bindings, sizeof bindings, frame, spec->values[i]);
      return graft_context_fail(context, GRAFT_ERROR_RUN, "element %" PRId32 " of tensor '%s' is %" PRId64
                                ", which is no int32%s", i, spec->name, value, bindings);
    }
  }
  return GRAFT_OK;
}

static int32_t compare_views(Context *context, const Frame *frame, const Stage *stage) {
  for (int32_t i = 0; i < stage->views.count; i++) {
    int32_t view = stage->views.items[i], root = frame->procedure->tensors[view].root;
    size_t bytes = graft_frame_bytes(frame, view), wanted = graft_frame_bytes(frame, root);
    if (bytes != wanted) {
      return graft_context_fail(context, GRAFT_ERROR_RUN, "tensor '%s' has %zu bytes, but '%s', which it is a view of, "
                                "has %zu", frame->procedure->tensors[view].name, bytes,
                                frame->procedure->tensors[root].name, wanted);
    }
  }
  return GRAFT_OK;
}

/* ---- Memory --------------------------------------------------------------------------------------------------- */

static int is_plan_of(const KeptPlan *plan, const Frame *frame, const IndexList *known) {
  for (int32_t i = 0; i < known->count; i++) {
    if (plan->key[i] != frame->values[known->items[i]]) {
      return 0;
    }
  }
  return 1;
}

static void find_places(const Frame *frame, const Stage *stage, PlanItem *items) {
  for (int32_t i = 0; i < stage->arena.count; i++) {
    const TensorSpec *spec = frame->procedure->tensors + stage->arena.items[i];
    items[i] = (PlanItem){graft_frame_bytes(frame, stage->arena.items[i]), spec->first,
                          spec->last < spec->first ? spec->first : spec->last, -1, 0};
  }
  for (int32_t i = 0; i < stage->in_place_count; i++) {
    const InPlace *pair = stage->in_place + i;
    int32_t result = frame->procedure->tensors[pair->result].index, dying = frame->procedure->tensors[pair->dying].index;
    if (items[result].on < 0 && items[result].bytes == items[dying].bytes &&
        graft_frame_bytes(frame, pair->seen) == items[dying].bytes) {
      items[result].on = dying;
    }
  }
}

/* The least recently used of the kept plans gives its place to a new one. */
static KeptPlan *make_plan(Context *context, const Frame *frame, const Stage *stage, StageState *state) {
  size_t count = (size_t)stage->arena.count;
  ScratchMark mark = graft_scratch_mark(&context->scratch);
  PlanItem *items = graft_call_memory(context, count, sizeof(PlanItem));
  void *workspace = items ? graft_call_memory(context, 1, graft_plan_workspace(count)) : NULL;
  if (!workspace) {
    return NULL;
  }
  KeptPlan *plan = state->plans;
  for (int32_t i = 1; i < state->plan_count; i++) {
    plan = state->plans[i].used < plan->used ? state->plans + i : plan;
  }
  plan = state->plan_count < GRAFT_KEPT_PLANS ? state->plans + state->plan_count++ : plan;
  find_places(frame, stage, items);
  plan->bytes = graft_plan_memory(items, count, workspace);
  for (int32_t i = 0; i < stage->known.count; i++) {
    plan->key[i] = frame->values[stage->known.items[i]];
  }
  for (size_t i = 0; i < count; i++) {
    plan->offsets[i] = items[i].offset;
  }
  graft_scratch_release(&context->scratch, mark);
  return plan;
}

/* The arena is as large as the kept plans need, within a factor of two. */
static int fit_arena(StageState *state, uint64_t wanted) {
  uint64_t most = wanted;
  for (int32_t i = 0; i < state->plan_count; i++) {
    most = state->plans[i].bytes > most ? state->plans[i].bytes : most;
  }
  if (state->capacity >= wanted && state->capacity / 2 <= most) {
    return 1;
  }
  free(state->arena);
  state->arena = most > SIZE_MAX / 4 ? NULL : graft_aligned_malloc((size_t)most);
  state->capacity = state->arena ? most : 0;
  if (state->arena && most >= HUGE_PAGE_BYTES) {
    graft_advise_huge_pages(state->arena, (size_t)most);
  }
  return state->arena != NULL;
}

static int32_t place_arena(Context *context, Frame *frame, int32_t number) {
  const Stage *stage = frame->procedure->stages + number;
  StageState *state = frame->stages + number;
  KeptPlan *plan = NULL;
  if (stage->arena.count == 0) {
    return GRAFT_OK;
  }
  for (int32_t i = 0; !plan && i < state->plan_count; i++) {
    int fits = state->plans[i].bytes && is_plan_of(state->plans + i, frame, &stage->known);
    plan = fits ? state->plans + i : NULL;
  }
  plan = plan ? plan : make_plan(context, frame, stage, state);
  if (!plan) {
    return GRAFT_ERROR_MEMORY;
  }
  plan->used = ++state->clock;
  if (plan->bytes == 0 || !fit_arena(state, plan->bytes)) {
    char size[32] = "more than 2**62";
    if (plan->bytes) {
      snprintf(size, sizeof size, "%" PRIu64, plan->bytes);
    }
    plan->bytes = plan->used = 0;
    return graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory: these shapes need an arena of %s bytes", size);
  }
  for (int32_t i = 0; i < stage->arena.count; i++) {
    graft_frame_bind(frame, stage->arena.items[i], state->arena + plan->offsets[i]);
  }
  return GRAFT_OK;
}

/* Outputs of later stages are handed over when the procedure is done, so they get their memory each time. */
static int32_t place_outputs(Context *context, Frame *frame, const Stage *stage) {
  for (int32_t i = 0; i < stage->outputs.count; i++) {
    int32_t number = stage->outputs.items[i];
    const TensorSpec *spec = frame->procedure->tensors + number;
    DLTensor *tensor = frame->tensors + number;
    tensor->shape = frame->shapes[number];
    if (!graft_block_reserve(frame->blocks + number, tensor, spec->ndim, tensor->shape,
                             graft_frame_bytes(frame, number))) {
      return graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory for output '%s'", spec->name);
    }
    graft_frame_bind(frame, number, tensor->data);
  }
  return GRAFT_OK;
}

/* ---- Stages --------------------------------------------------------------------------------------------------- */

/* Gives the symbols of a stage their values; *changed says whether they have others than before. */
static int32_t bind_symbols(Context *context, Frame *frame, const Stage *stage, int *changed) {
  for (int32_t i = 0; i < stage->symbols.count; i++) {
    int32_t number = stage->symbols.items[i];
    const SymbolSpec *symbol = frame->procedure->symbols + number;
    int64_t value = frame->tensors[symbol->tensor].shape[symbol->axis];
    if (value != frame->values[number]) {
      *changed = 1;
      frame->values[number] = value;
    }
    if (value < symbol->low || value > symbol->high) {
      return fail_range(context, frame, symbol, value);
    }
  }
  return GRAFT_OK;
}

static const IndexList *told_tensors(const Procedure *procedure, const Stage *stage) {
  return stage->call < 0 ? &procedure->inputs : &procedure->calls[stage->call].outputs;
}

/* What was known before with other values is so no longer, nor what followed from it. */
static void forget(Frame *frame, int32_t number) {
  for (int32_t i = number; i < frame->procedure->stage_count; i++) {
    frame->stages[i].is_bound = 0;
  }
}

int32_t graft_bind_stage(Context *context, Frame *frame, int32_t number) {
  const Stage *stage = frame->procedure->stages + number;
  int changed = !frame->stages[number].is_bound;
  int32_t status = bind_symbols(context, frame, stage, &changed);
  if (changed || status) {
    forget(frame, number);
    status = status ? status : graft_evaluate(context, frame, stage);
  }
  status = status ? status : compare_all(context, frame, told_tensors(frame->procedure, stage));
  if (changed) {
    for (int32_t i = 0; !status && i < stage->tensors.count; i++) {
      int32_t tensor = stage->tensors.items[i];
      status = frame->procedure->tensors[tensor].dimensions ? shape_tensor(context, frame, tensor)
                                                            : fill_values(context, frame, tensor);
    }
    status = status ? status : compare_views(context, frame, stage);
    status = status ? status : place_arena(context, frame, number);
    frame->stages[number].is_bound = status == GRAFT_OK;
  }
  return status ? status : place_outputs(context, frame, stage);
}

int32_t graft_accept_outputs(Context *context, Frame *frame, const Call *call) {
  for (int32_t i = 0; i < call->outputs.count; i++) {
    int32_t number = call->outputs.items[i];
    const TensorSpec *spec = frame->procedure->tensors + (number < 0 ? 0 : number);
    if (number >= 0 && spec->is_unknown && spec->ndim >= 0 && frame->tensors[number].ndim != spec->ndim) {
      return fail_rank(context, frame, spec, frame->tensors + number);
    }
  }
  return call->stage ? graft_bind_stage(context, frame, call->stage) : compare_all(context, frame, &call->outputs);
}

/* ---- Frames --------------------------------------------------------------------------------------------------- */

static int create_stage(Store *store, const Stage *stage, StageState *state) {
  for (int32_t i = 0; i < GRAFT_KEPT_PLANS; i++) {
    state->plans[i].key = graft_store_allocate(store, (size_t)stage->known.count, sizeof(int64_t));
    state->plans[i].offsets = graft_store_allocate(store, (size_t)stage->arena.count, sizeof(uint64_t));
    if (!state->plans[i].key || !state->plans[i].offsets) {
      return 0;
    }
  }
  return 1;
}

static int create_tensor(Store *store, Frame *frame, int32_t number) {
  const TensorSpec *spec = frame->procedure->tensors + number;
  if (spec->dimensions) {
    frame->shapes[number] = graft_store_allocate(store, (size_t)spec->ndim, sizeof(int64_t));
    return frame->shapes[number] != NULL;
  }
  if (spec->storage == STORAGE_EXTENTS) {
    char *data = graft_store_allocate(store, 1, spec->bytes);
    for (int32_t i = 0; data && i < spec->value_count; i++) { /* numbers are not evaluated where nothing is bound */
      int32_t narrow = (int32_t)spec->values[i].number;
      if (spec->dtype.bits == 64) {
        memcpy(data + 8 * i, &spec->values[i].number, 8);
      } else {
        memcpy(data + 4 * i, &narrow, 4);
      }
    }
    graft_frame_bind(frame, number, data);
    return data != NULL;
  }
  return 1;
}

int graft_create_bindings(Store *store, Frame *frame) {
  const Procedure *procedure = frame->procedure;
  size_t values = (size_t)procedure->symbol_count + (size_t)procedure->operation_count;
  frame->values = graft_store_allocate(store, values, sizeof(int64_t));
  frame->shapes = graft_store_allocate(store, (size_t)procedure->tensor_count, sizeof(int64_t *));
  frame->stages = graft_store_allocate(store, (size_t)procedure->stage_count, sizeof(StageState));
  int complete = frame->values && frame->shapes && frame->stages;
  for (int32_t i = 0; complete && i < procedure->stage_count; i++) {
    complete = create_stage(store, procedure->stages + i, frame->stages + i);
  }
  for (int32_t i = 0; complete && i < procedure->tensor_count; i++) {
    complete = create_tensor(store, frame, i);
  }
  return complete;
}

void graft_destroy_bindings(Frame *frame) {
  for (int32_t i = 0; frame->stages && i < frame->procedure->stage_count; i++) {
    free(frame->stages[i].arena);
  }
}
