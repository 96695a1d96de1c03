/* Checks of calls of kind append: who may write and read what they append to. */
#include "manifest/procedure.h"

static int reads(const IndexList *list, int32_t tensor) {
  for (int32_t i = 0; i < list->count; i++) {
    if (list->items[i] == tensor) {
      return 1;
    }
  }
  return 0;
}

/* How often a procedure lists a tensor among its outputs. */
static int32_t times_returned(const Procedure *procedure, int32_t tensor) {
  int32_t count = 0;
  for (int32_t i = 0; i < procedure->outputs.count; i++) {
    count += procedure->outputs.items[i] == tensor;
  }
  return count;
}

/* What is read with a pitch is so only by functions, which are compiled for it; and what is appended to, by its append. */
static const char *fault_of_readers(const Procedure *procedure, const Call *append) {
  int32_t past = append->inputs.items[0], present = append->outputs.items[0];
  for (int32_t i = 0; i < procedure->call_count; i++) {
    const Call *call = procedure->calls + i;
    int reads_past = reads(&call->inputs, past), reads_present = reads(&call->inputs, present);
    for (int32_t k = 0; k < call->body_count; k++) {
      reads_past |= reads(&call->arguments[k], past);
      reads_present |= reads(&call->arguments[k], present);
    }
    if (reads_past && call != append) {
      return "something else reads what it appends to";
    }
    if (reads_present && call->kind != CALL_FUNCTION) {
      return "something else than a function reads its result";
    }
  }
  return NULL;
}

static const char *fault_of_shapes(const TensorSpec *past, const TensorSpec *more, const TensorSpec *present,
                                   int32_t axis) {
  if (past->ndim < 0 || past->ndim != more->ndim || past->ndim != present->ndim || axis >= past->ndim) {
    return "its tensors differ in rank, or have no such axis";
  }
  if (!graft_dtype_equal(past->dtype, more->dtype) || !graft_dtype_equal(past->dtype, present->dtype)) {
    return "its tensors differ in type";
  }
  for (int32_t i = 0; i < past->ndim; i++) {
    int64_t a = past->shape[i], b = more->shape[i], c = present->shape[i];
    int fits = i == axis ? a < 0 || b < 0 || c < 0 || a + b == c
                         : (a < 0 || b < 0 || a == b) && (a < 0 || c < 0 || a == c) && (b < 0 || c < 0 || b == c);
    if (!fits) {
      return "its shapes do not add up";
    }
  }
  return NULL;
}

const char *graft_check_append(Procedure *procedure, const Call *call) {
  int32_t number = call->outputs.items[0];
  TensorSpec *past = procedure->tensors + call->inputs.items[0], *present = procedure->tensors + number;
  const TensorSpec *more = procedure->tensors + call->inputs.items[1];
  if (past->storage != STORAGE_INPUT || past->next_view >= 0 || times_returned(procedure, call->inputs.items[0])) {
    return "it appends to what is no input, or has views";
  }
  if (present->storage != STORAGE_OUTPUT || present->next_view >= 0 || times_returned(procedure, number) != 1) {
    return "its result is no output, or has views";
  }
  if (present->is_unknown || present->stage != 0) {
    return "the shape of its result is not known when the procedure begins";
  }
  const char *fault = fault_of_shapes(past, more, present, call->axis);
  fault = fault ? fault : fault_of_readers(procedure, call);
  if (!fault) {
    past->grows = present->grows = call->axis;
    present->past = call->inputs.items[0];
  }
  return fault;
}
