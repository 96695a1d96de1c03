#include <inttypes.h>

#include "instance/instance.h"
#include "state/extents.h"

/* ---- What came, against what is expected ---------------------------------------------------------------------- */

/* Shapes of inputs are the caller's mistakes, others those of functions. */
static const char *role_of(const TensorSpec *spec) { return spec->storage == STORAGE_INPUT ? "input" : "output"; }

static int32_t code_of(const TensorSpec *spec) {
  return spec->storage == STORAGE_INPUT ? GRAFT_ERROR_INPUT : GRAFT_ERROR_RUN;
}

int32_t graft_fail_rank(Context *context, const Frame *frame, const TensorSpec *spec, const DLTensor *tensor) {
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

/* Bounds of sums say what a model, or what it was compiled for, takes of several symbols together. */
static int32_t check_bounds(Context *context, const Frame *frame, const Stage *stage) {
  const Procedure *procedure = frame->procedure;
  for (int32_t i = 0; i < stage->bounds.count; i++) {
    const ExtentBound *bound = procedure->bounds + stage->bounds.items[i];
    Dimension extent = {procedure->symbol_count + bound->operation, 0};
    int64_t value = graft_value(frame, extent);
    if (value < bound->low || value > bound->high) {
      int is_large = value > bound->high;
      char text[256] = "", bindings[256] = "";
      graft_append_extent(text, sizeof text, procedure, extent);
      graft_append_bindings(bindings, sizeof bindings, frame, extent);
      return graft_context_fail(context, stage->call < 0 ? GRAFT_ERROR_INPUT : GRAFT_ERROR_RUN,
                                "'%s' is %" PRId64 "%s, but it is at %s %" PRId64
                                " in this model, or in what it was compiled for",
                                text, value, bindings, is_large ? "most" : "least", is_large ? bound->high : bound->low);
    }
  }
  return GRAFT_OK;
}

static int32_t fail_agreement(Context *context, const char *const says[3], int64_t left, int64_t right) {
  context->instance->refused = 1;
  return graft_context_fail(context, GRAFT_ERROR_INPUT, "%s%" PRId64 "%s%" PRId64 "%s", says[0], left, says[1], right,
                            says[2]);
}

static int agrees(const ExtentEquation *equation, int64_t left, int64_t right) {
  switch (equation->kind) {
    case AGREE_AT_MOST:
      return left <= right;
    case AGREE_EXPAND:
      return left == right || left == 1;
    case AGREE_BROADCAST:
      return left == right || left == 1 || right == 1;
    default:
      return left == right;
  }
}

/* What nodes demand of extents: before any of them runs, for they take it for granted. */
static int32_t check_equations(Context *context, const Frame *frame, const Stage *stage) {
  for (int32_t i = 0; i < stage->equations.count; i++) {
    const ExtentEquation *equation = frame->procedure->equations + stage->equations.items[i];
    int64_t left = graft_value(frame, equation->left), right = graft_value(frame, equation->right);
    if (!agrees(equation, left, right)) {
      return fail_agreement(context, equation->says, left, right);
    }
  }
  return GRAFT_OK;
}

/* An extent that is not what its dimension says: a symbol has its value from elsewhere. */
static int32_t fail_extent(Context *context, const Frame *frame, int32_t tensor, int32_t axis) {
  const Procedure *procedure = frame->procedure;
  const TensorSpec *spec = procedure->tensors + tensor;
  Dimension dimension = spec->dimensions[axis];
  char expected[512] = "";
  int64_t value = graft_value(frame, dimension);
  for (int32_t i = 0; i < procedure->reason_count; i++) {
    const AxisReason *reason = procedure->reasons + i;
    if (reason->tensor == tensor && reason->axis == axis) {
      return fail_agreement(context, reason->says, frame->tensors[tensor].shape[axis], value);
    }
  }
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
  for (int32_t i = 0; i < tensors->count; i++) {
    int32_t tensor = tensors->items[i];
    const TensorSpec *spec = frame->procedure->tensors + (tensor < 0 ? 0 : tensor);
    if (tensor >= 0 && (spec->storage == STORAGE_INPUT || spec->is_unknown)) {
      GRAFT_TRY(compare_extents(context, frame, tensor));
    }
  }
  return GRAFT_OK;
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

static const IndexList *defining_tensors(const Procedure *procedure, const Stage *stage) {
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
  }
  GRAFT_TRY(status);
  if (changed) {
    GRAFT_TRY(graft_evaluate(context, frame, stage));
    GRAFT_TRY(check_bounds(context, frame, stage));
    GRAFT_TRY(check_equations(context, frame, stage));
  }
  GRAFT_TRY(compare_all(context, frame, defining_tensors(frame->procedure, stage)));
  if (changed) {
    for (int32_t i = 0; i < stage->tensors.count; i++) {
      int32_t tensor = stage->tensors.items[i];
      GRAFT_TRY(frame->procedure->tensors[tensor].dimensions ? shape_tensor(context, frame, tensor)
                                                             : fill_values(context, frame, tensor));
    }
    GRAFT_TRY(compare_views(context, frame, stage));
    GRAFT_TRY(graft_place_arena(context, frame, number));
    frame->stages[number].is_bound = 1;
  }
  return graft_place_late_outputs(context, frame, stage);
}

int32_t graft_accept_outputs(Context *context, Frame *frame, const Call *call) {
  for (int32_t i = 0; i < call->outputs.count; i++) {
    int32_t number = call->outputs.items[i];
    const TensorSpec *spec = frame->procedure->tensors + (number < 0 ? 0 : number);
    if (number >= 0 && spec->is_unknown && spec->ndim >= 0 && frame->tensors[number].ndim != spec->ndim) {
      return graft_fail_rank(context, frame, spec, frame->tensors + number);
    }
  }
  return call->stage ? graft_bind_stage(context, frame, call->stage) : compare_all(context, frame, &call->outputs);
}
