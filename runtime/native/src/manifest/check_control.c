#include <inttypes.h>

#include "base/error.h"
#include "manifest/procedure.h"

/* One call with bodies, and the body that is being checked. */
typedef struct Checker {
  const Procedure *outer;
  const Procedure *body;
  const Call *call;
  const char *where;
  GraftError *error;
} Checker;

static int32_t damaged(const Checker *checker, const char *reason, const char *outer, const char *inner) {
  return graft_set_error(checker->error, GRAFT_ERROR_ARTIFACT,
                         "damaged manifest: %sbody '%s': tensors '%s' and '%s' do not agree: %s", checker->where,
                         checker->body->name, outer, inner, reason);
}

static int32_t check_count(const Checker *checker, const char *what, int64_t actual, int64_t expected) {
  if (actual == expected) {
    return GRAFT_OK;
  }
  return graft_set_error(checker->error, GRAFT_ERROR_ARTIFACT,
                         "damaged manifest: %sbody '%s' has %" PRId64 " %s, the call needs %" PRId64, checker->where,
                         checker->body->name, actual, what, expected);
}

/* Whether extents may be the same: what has a symbol in it is compared when the program runs. */
static int agree(int64_t left, int64_t right) { return left == right || left < 0 || right < 0; }

/* Types must be equal, and shapes where both are known. */
static int32_t check_same(const Checker *checker, const TensorSpec *outer, const TensorSpec *inner) {
  if (!graft_dtype_equal(outer->dtype, inner->dtype)) {
    return damaged(checker, "another element type", outer->name, inner->name);
  }
  int same = outer->ndim == inner->ndim || outer->ndim < 0 || inner->ndim < 0;
  for (int32_t i = 0; same && inner->ndim >= 0 && i < outer->ndim; i++) {
    same = agree(outer->shape[i], inner->shape[i]);
  }
  return same ? GRAFT_OK : damaged(checker, "another shape", outer->name, inner->name);
}

/* The inner tensor must be the outer one without `axis`. */
static int32_t check_slice(const Checker *checker, const TensorSpec *outer, const TensorSpec *inner, int32_t axis) {
  if (!graft_dtype_equal(outer->dtype, inner->dtype)) {
    return damaged(checker, "another element type", outer->name, inner->name);
  }
  if (outer->ndim < 0 || inner->ndim < 0) {
    return GRAFT_OK;
  }
  int32_t position = axis < 0 ? axis + outer->ndim : axis;
  int same = outer->ndim == inner->ndim + 1 && position >= 0 && position < outer->ndim;
  for (int32_t i = 0; same && i < inner->ndim; i++) {
    same = agree(inner->shape[i], outer->shape[i < position ? i : i + 1]);
  }
  return same ? GRAFT_OK : damaged(checker, "the shape of a slice", outer->name, inner->name);
}

/* One element of the given type, where the shape is known. */
static int32_t check_scalar(const Checker *checker, const TensorSpec *tensor, DLDataType dtype) {
  if (!graft_dtype_equal(tensor->dtype, dtype) || (tensor->ndim >= 0 && tensor->bytes != dtype.bits / 8u)) {
    return graft_set_error(checker->error, GRAFT_ERROR_ARTIFACT,
                           "damaged manifest: %stensor '%s' must be one element of type %s", checker->where,
                           tensor->name, graft_dtype_name(dtype));
  }
  return GRAFT_OK;
}

/* Likewise, of a tensor that a call reads: extents with symbols are counted when it runs. */
static int32_t check_read(const Checker *checker, const TensorSpec *tensor, DLDataType dtype) {
  for (int32_t i = 0; i < tensor->ndim; i++) {
    if (tensor->shape[i] < 0 && graft_dtype_equal(tensor->dtype, dtype)) {
      return GRAFT_OK;
    }
  }
  return check_scalar(checker, tensor, dtype);
}

static const TensorSpec *outer_tensor(const Checker *checker, int32_t number) {
  return number < 0 ? NULL : checker->outer->tensors + number;
}

static const TensorSpec *body_input(const Checker *checker, int32_t i) {
  return checker->body->tensors + checker->body->inputs.items[i];
}

static const TensorSpec *body_output(const Checker *checker, int32_t i) {
  return checker->body->tensors + checker->body->outputs.items[i];
}

/* Tensors passed as the body's inputs from `first` on. */
static int32_t check_arguments(const Checker *checker, const IndexList *arguments, int32_t first) {
  int32_t status = check_count(checker, "inputs", checker->body->inputs.count, (int64_t)first + arguments->count);
  for (int32_t i = 0; !status && i < arguments->count; i++) {
    status = check_same(checker, outer_tensor(checker, arguments->items[i]), body_input(checker, first + i));
  }
  return status;
}

static int32_t check_output(const Checker *checker, int32_t outer, int32_t inner) {
  const TensorSpec *tensor = outer_tensor(checker, checker->call->outputs.items[outer]);
  return tensor ? check_same(checker, tensor, body_output(checker, inner)) : GRAFT_OK;
}

static int32_t check_if(Checker *checker, const Manifest *manifest) {
  const Call *call = checker->call;
  checker->body = manifest->procedures + call->bodies[0];
  int32_t status = check_count(checker, "conditions", 1, call->inputs.count);
  status = status ? status
                  : check_read(checker, outer_tensor(checker, call->inputs.items[0]), (DLDataType){kDLBool, 8, 1});
  for (int32_t k = 0; !status && k < 2; k++) {
    checker->body = manifest->procedures + call->bodies[k];
    status = check_arguments(checker, &call->arguments[k], 0);
    status = status ? status : check_count(checker, "outputs", checker->body->outputs.count, call->outputs.count);
    for (int32_t i = 0; !status && i < call->outputs.count; i++) {
      status = check_output(checker, i, i);
    }
  }
  return status;
}

/* Values that go round: the call's input, the body's input and output, the call's output. */
static int32_t check_states(const Checker *checker, int32_t count, int32_t first_outer, int32_t first_input,
                            int32_t first_output) {
  int32_t status = GRAFT_OK;
  for (int32_t i = 0; !status && i < count; i++) {
    const TensorSpec *initial = outer_tensor(checker, checker->call->inputs.items[first_outer + i]);
    const TensorSpec *inside = body_input(checker, first_input + i);
    if (!initial) {
      return damaged(checker, "the initial value is absent", "", inside->name);
    }
    status = check_same(checker, initial, inside);
    status = status ? status : check_same(checker, inside, body_output(checker, first_output + i));
    status = status ? status : check_output(checker, i, first_output + i);
  }
  return status;
}

static int32_t check_loop(const Checker *checker) {
  const DLDataType boolean = {kDLBool, 8, 1}, int64 = {kDLInt, 64, 1};
  const Call *call = checker->call;
  int32_t states = call->inputs.count - 2, scans = checker->body->outputs.count - 1 - states;
  if (states < 0 || scans < 0) {
    return graft_set_error(checker->error, GRAFT_ERROR_ARTIFACT,
                           "damaged manifest: %sa loop of %" PRId32 " inputs cannot have a body of %" PRId32 " outputs",
                           checker->where, call->inputs.count, checker->body->outputs.count);
  }
  const TensorSpec *trips = outer_tensor(checker, call->inputs.items[0]);
  const TensorSpec *condition = outer_tensor(checker, call->inputs.items[1]);
  int32_t status = trips ? check_read(checker, trips, int64) : GRAFT_OK;
  status = status || !condition ? status : check_read(checker, condition, boolean);
  status = status ? status : check_arguments(checker, &call->arguments[0], 2 + states);
  status = status ? status : check_count(checker, "outputs", checker->body->outputs.count - 1, call->outputs.count);
  status = status ? status : check_scalar(checker, body_input(checker, 0), int64);
  status = status ? status : check_scalar(checker, body_input(checker, 1), boolean);
  status = status ? status : check_scalar(checker, body_output(checker, 0), boolean);
  status = status ? status : check_states(checker, states, 2, 2, 1);
  for (int32_t i = 0; !status && i < scans; i++) {
    const TensorSpec *stacked = outer_tensor(checker, call->outputs.items[states + i]);
    status = stacked ? check_slice(checker, stacked, body_output(checker, 1 + states + i), 0) : GRAFT_OK;
  }
  return status;
}

static int32_t check_scan(const Checker *checker) {
  const Call *call = checker->call;
  int32_t slices = call->scan_input_count, states = call->inputs.count - slices;
  int32_t stacks = call->outputs.count - states;
  int32_t status = check_arguments(checker, &call->arguments[0], states + slices);
  status = status ? status : check_count(checker, "outputs", checker->body->outputs.count, call->outputs.count);
  status = status ? status : check_states(checker, states, 0, 0, 0);
  for (int32_t i = 0; !status && i < slices; i++) {
    status = check_slice(checker, outer_tensor(checker, call->inputs.items[states + i]),
                         body_input(checker, states + i), call->scan_inputs[i].axis);
  }
  for (int32_t i = 0; !status && i < stacks; i++) {
    const TensorSpec *stacked = outer_tensor(checker, call->outputs.items[states + i]);
    status = stacked ? check_slice(checker, stacked, body_output(checker, states + i), call->scan_outputs[i].axis)
                     : GRAFT_OK;
  }
  return status;
}

int32_t graft_check_control(const Manifest *manifest, const Procedure *procedure, const Call *call, const char *where,
                            GraftError *error) {
  Checker checker = {.outer = procedure,
                     .body = manifest->procedures + call->bodies[0],
                     .call = call,
                     .where = where,
                     .error = error};
  switch (call->kind) {
    case CALL_IF:
      return check_if(&checker, manifest);
    case CALL_LOOP:
      return check_loop(&checker);
    case CALL_SCAN:
      return check_scan(&checker);
    case CALL_FUNCTION:
    case CALL_COPY:
    case CALL_APPEND:
      return GRAFT_OK;
  }
  return GRAFT_OK;
}
