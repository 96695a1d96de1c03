#include <inttypes.h>

#include "base/error.h"
#include "manifest/manifest_reader.h"

/* One call with bodies, and the body that is being checked. */
typedef struct Checker {
  const Procedure *outer;
  const Procedure *body;
  const Call *call;
  const Reader *reader;
} Checker;

static int32_t damaged(const Checker *checker, const char *reason, const char *outer, const char *inner) {
  return graft_damaged(checker->reader, "body '%s': tensors '%s' and '%s' do not agree: %s", checker->body->name, outer,
                       inner, reason);
}

static int32_t check_count(const Checker *checker, const char *what, int64_t actual, int64_t expected) {
  if (actual == expected) {
    return GRAFT_OK;
  }
  return graft_damaged(checker->reader, "body '%s' has %" PRId64 " %s, the call needs %" PRId64, checker->body->name,
                       actual, what, expected);
}

/* Whether extents may be the same: what has a symbol in it is compared when the program runs. */
static int agree(int64_t left, int64_t right) { return left == right || left < 0 || right < 0; }

/* Types must be equal, and shapes where both are known. The outer tensor may be absent: NULL. */
static int32_t check_same(const Checker *checker, const TensorSpec *outer, const TensorSpec *inner) {
  if (!outer) {
    return GRAFT_OK;
  }
  if (!graft_dtype_equal(outer->dtype, inner->dtype)) {
    return damaged(checker, "another element type", outer->name, inner->name);
  }
  int same = outer->ndim == inner->ndim || outer->ndim < 0 || inner->ndim < 0;
  for (int32_t i = 0; same && inner->ndim >= 0 && i < outer->ndim; i++) {
    same = agree(outer->shape[i], inner->shape[i]);
  }
  return same ? GRAFT_OK : damaged(checker, "another shape", outer->name, inner->name);
}

/* The inner tensor must be the outer one, where there is one, without `axis`. */
static int32_t check_slice(const Checker *checker, const TensorSpec *outer, const TensorSpec *inner, int32_t axis) {
  if (outer && !graft_dtype_equal(outer->dtype, inner->dtype)) {
    return damaged(checker, "another element type", outer->name, inner->name);
  }
  if (!outer || outer->ndim < 0 || inner->ndim < 0) {
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
    return graft_damaged(checker->reader, "tensor '%s' must be one element of type %s", tensor->name,
                         graft_dtype_name(dtype));
  }
  return GRAFT_OK;
}

/* Likewise, of a tensor that a call reads, if it does: extents with symbols are counted when it runs. */
static int32_t check_read(const Checker *checker, const TensorSpec *tensor, DLDataType dtype) {
  for (int32_t i = 0; tensor && i < tensor->ndim; i++) {
    if (tensor->shape[i] < 0 && graft_dtype_equal(tensor->dtype, dtype)) {
      return GRAFT_OK;
    }
  }
  return tensor ? check_scalar(checker, tensor, dtype) : GRAFT_OK;
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
  GRAFT_TRY(check_count(checker, "inputs", checker->body->inputs.count, (int64_t)first + arguments->count));
  for (int32_t i = 0; i < arguments->count; i++) {
    GRAFT_TRY(check_same(checker, outer_tensor(checker, arguments->items[i]), body_input(checker, first + i)));
  }
  return GRAFT_OK;
}

static int32_t check_output(const Checker *checker, int32_t outer, int32_t inner) {
  return check_same(checker, outer_tensor(checker, checker->call->outputs.items[outer]), body_output(checker, inner));
}

static int32_t check_if(Checker *checker) {
  const Call *call = checker->call;
  GRAFT_TRY(check_count(checker, "conditions", 1, call->inputs.count));
  GRAFT_TRY(check_read(checker, outer_tensor(checker, call->inputs.items[0]), (DLDataType){kDLBool, 8, 1}));
  for (int32_t k = 0; k < 2; k++) {
    checker->body = checker->reader->manifest->procedures + call->bodies[k];
    GRAFT_TRY(check_arguments(checker, &call->arguments[k], 0));
    GRAFT_TRY(check_count(checker, "outputs", checker->body->outputs.count, call->outputs.count));
    for (int32_t i = 0; i < call->outputs.count; i++) {
      GRAFT_TRY(check_output(checker, i, i));
    }
  }
  return GRAFT_OK;
}

/* Values that go round: the call's input, the body's input and output, the call's output. */
static int32_t check_states(const Checker *checker, int32_t count, int32_t first_outer, int32_t first_input,
                            int32_t first_output) {
  for (int32_t i = 0; i < count; i++) {
    const TensorSpec *initial = outer_tensor(checker, checker->call->inputs.items[first_outer + i]);
    const TensorSpec *inside = body_input(checker, first_input + i);
    if (!initial) {
      return damaged(checker, "the initial value is absent", "", inside->name);
    }
    GRAFT_TRY(check_same(checker, initial, inside));
    GRAFT_TRY(check_same(checker, inside, body_output(checker, first_output + i)));
    GRAFT_TRY(check_output(checker, i, first_output + i));
  }
  return GRAFT_OK;
}

static int32_t check_loop(const Checker *checker) {
  const DLDataType boolean = {kDLBool, 8, 1}, int64 = {kDLInt, 64, 1};
  const Call *call = checker->call;
  int32_t states = call->inputs.count - 2, scans = checker->body->outputs.count - 1 - states;
  if (states < 0 || scans < 0) {
    return graft_damaged(checker->reader, "a loop of %" PRId32 " inputs cannot have a body of %" PRId32 " outputs",
                         call->inputs.count, checker->body->outputs.count);
  }
  const TensorSpec *trips = outer_tensor(checker, call->inputs.items[0]);
  const TensorSpec *condition = outer_tensor(checker, call->inputs.items[1]);
  GRAFT_TRY(check_read(checker, trips, int64));
  GRAFT_TRY(check_read(checker, condition, boolean));
  GRAFT_TRY(check_arguments(checker, &call->arguments[0], 2 + states));
  GRAFT_TRY(check_count(checker, "outputs", checker->body->outputs.count - 1, call->outputs.count));
  GRAFT_TRY(check_scalar(checker, body_input(checker, 0), int64));
  GRAFT_TRY(check_scalar(checker, body_input(checker, 1), boolean));
  GRAFT_TRY(check_scalar(checker, body_output(checker, 0), boolean));
  GRAFT_TRY(check_states(checker, states, 2, 2, 1));
  for (int32_t i = 0; i < scans; i++) {
    const TensorSpec *stacked = outer_tensor(checker, call->outputs.items[states + i]);
    GRAFT_TRY(check_slice(checker, stacked, body_output(checker, 1 + states + i), 0));
  }
  return GRAFT_OK;
}

static int32_t check_scan(const Checker *checker) {
  const Call *call = checker->call;
  int32_t slices = call->scan_input_count, states = call->inputs.count - slices;
  int32_t stacks = call->outputs.count - states;
  GRAFT_TRY(check_arguments(checker, &call->arguments[0], states + slices));
  GRAFT_TRY(check_count(checker, "outputs", checker->body->outputs.count, call->outputs.count));
  GRAFT_TRY(check_states(checker, states, 0, 0, 0));
  for (int32_t i = 0; i < slices; i++) {
    GRAFT_TRY(check_slice(checker, outer_tensor(checker, call->inputs.items[states + i]),
                          body_input(checker, states + i), call->scan_inputs[i].axis));
  }
  for (int32_t i = 0; i < stacks; i++) {
    const TensorSpec *stacked = outer_tensor(checker, call->outputs.items[states + i]);
    GRAFT_TRY(check_slice(checker, stacked, body_output(checker, states + i), call->scan_outputs[i].axis));
  }
  return GRAFT_OK;
}

int32_t graft_check_control(const Reader *reader, const Procedure *procedure, const Call *call) {
  const Procedure *procedures = reader->manifest->procedures;
  Checker checker = {.outer = procedure, .body = procedures + call->bodies[0], .call = call, .reader = reader};
  switch (call->kind) {
    case CALL_IF:
      return check_if(&checker);
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
