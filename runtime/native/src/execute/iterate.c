#include "execute/iterate.h"

#include <inttypes.h>
#include <string.h>

#include "execute/values.h"

enum { FIRST_CAPACITY = 8, TRUSTED_BYTES = 64 << 20 };

int32_t graft_normal_axis(int32_t axis, int32_t ndim) {
  int32_t normal = axis < 0 ? axis + ndim : axis;
  return normal < 0 || normal >= ndim ? -1 : normal;
}

static int32_t output_number(const Iteration *iteration, int32_t i) {
  return iteration->body->procedure->outputs.items[iteration->first_body_output + i];
}

static const TensorSpec *body_output(const Iteration *iteration, int32_t i) {
  return iteration->body->procedure->tensors + output_number(iteration, i);
}

/* The output as the body's frame has it: with its shape, once the body is entered. */
static const DLTensor *shaped_output(const Iteration *iteration, int32_t i) {
  return iteration->body->tensors + output_number(iteration, i);
}

/* Whether the shape is known when the body begins. */
static int is_early(const TensorSpec *spec) { return spec->stage == 0 && !spec->is_unknown; }

static int is_unknown(const Iteration *iteration, int32_t tensor) {
  return iteration->frame->procedure->tensors[tensor].is_unknown;
}

/* ---- Stacks --------------------------------------------------------------------------------------------------- */

static int32_t fail_stack(const Iteration *iteration, const TensorSpec *slice, const char *reason) {
  return graft_context_fail(iteration->context, GRAFT_ERROR_RUN, "the slices '%s' %s", slice->name, reason);
}

static int32_t set_slice_shape(const Iteration *iteration, Stack *stack, const TensorSpec *slice, int32_t ndim,
                               const int64_t *shape) {
  stack->axis = graft_normal_axis(stack->axis, ndim + 1);
  if (stack->axis < 0 || ndim >= GRAFT_MAXIMUM_DIMENSIONS) {
    return fail_stack(iteration, slice, "have too few or too many dimensions to be stacked");
  }
  stack->ndim = ndim;
  stack->rows = 1;
  for (int32_t i = 0; i < ndim; i++) {
    stack->shape[i] = shape[i];
    stack->rows *= i < stack->axis ? (size_t)shape[i] : 1;
  }
  graft_tensor_bytes(slice->dtype, ndim, shape, &stack->slice_bytes);
  if (stack->tensor < 0 || is_unknown(iteration, stack->tensor)) {
    return GRAFT_OK;
  }
  const DLTensor *whole = iteration->frame->tensors + stack->tensor;
  int fits = whole->ndim == ndim + 1;
  for (int32_t i = 0; fits && i < ndim; i++) {
    fits = whole->shape[i < stack->axis ? i : i + 1] == shape[i];
  }
  stack->data = whole->data;
  stack->capacity = fits ? whole->shape[stack->axis] : 0;
  return fits ? GRAFT_OK : fail_stack(iteration, slice, "do not fit the shape of the output that they make");
}

static void whole_shape(const Stack *stack, int64_t length, int64_t *shape) {
  for (int32_t i = 0; i <= stack->ndim; i++) {
    shape[i] = i < stack->axis ? stack->shape[i] : i == stack->axis ? length : stack->shape[i - 1];
  }
}

/* Slices of a stack that is not along axis 0 cannot move, so it gets its full length at once (Scan knows it). */
static int32_t grow(const Iteration *iteration, Stack *stack, const TensorSpec *slice) {
  int64_t shape[GRAFT_MAXIMUM_DIMENSIONS];
  uint64_t trusted = TRUSTED_BYTES / (stack->slice_bytes ? stack->slice_bytes : 1);
  int64_t capacity = stack->capacity ? 2 * stack->capacity : trusted < FIRST_CAPACITY ? 1 : FIRST_CAPACITY;
  if (iteration->trips >= 0 &&
      (stack->axis || stack->backward || (uint64_t)iteration->trips <= trusted || iteration->trips < capacity)) {
    capacity = iteration->trips;
  }
  Block block = {0};
  DLTensor tensor;
  size_t bytes;
  whole_shape(stack, capacity, shape);
  if (!graft_tensor_bytes(slice->dtype, stack->ndim + 1, shape, &bytes) ||
      !graft_block_reserve(graft_memory_of(iteration->context), &block, &tensor, stack->ndim + 1, shape, bytes)) {
    return graft_context_fail(iteration->context, GRAFT_ERROR_MEMORY, "out of memory for the slices '%s'",
                              slice->name);
  }
  if (iteration->done && stack->slice_bytes) {
    memcpy(tensor.data, stack->data, (size_t)iteration->done * stack->slice_bytes);
  }
  graft_block_free(&stack->block);
  stack->block = block;
  stack->data = tensor.data;
  stack->capacity = capacity;
  return GRAFT_OK;
}

static int32_t make_room(const Iteration *iteration, Stack *stack, const TensorSpec *slice) {
  if (stack->tensor < 0 || iteration->done < stack->capacity) {
    return GRAFT_OK;
  }
  if (!is_unknown(iteration, stack->tensor)) {
    return fail_stack(iteration, slice, "are more than the output that they make has room for");
  }
  return grow(iteration, stack, slice);
}

static int writes_straight(const Stack *stack) { return stack->tensor >= 0 && stack->rows == 1; }

static int64_t slice_number(const Iteration *iteration, const Stack *stack) {
  return stack->backward ? stack->capacity - 1 - iteration->done : iteration->done;
}

static void store_slice(const Iteration *iteration, const Stack *stack, const char *source) {
  size_t row = stack->rows ? stack->slice_bytes / stack->rows : 0;
  char *target = stack->data + (size_t)slice_number(iteration, stack) * row;
  for (size_t i = 0; row && i < stack->rows; i++) {
    memcpy(target + i * (size_t)stack->capacity * row, source + i * row, row);
  }
}

/* All slices have the shape of the first. */
static int32_t check_slice(const Iteration *iteration, Stack *stack, const TensorSpec *slice, const DLTensor *tensor) {
  if (stack->ndim < 0) {
    return set_slice_shape(iteration, stack, slice, tensor->ndim, tensor->shape);
  }
  return graft_shape_equal(stack->ndim, stack->shape, tensor->ndim, tensor->shape)
             ? GRAFT_OK
             : fail_stack(iteration, slice, "change their shape from one iteration to the next");
}

static int32_t prepare_slice(const Iteration *iteration, Stack *stack, int32_t i, Result *result) {
  const TensorSpec *slice = body_output(iteration, i);
  const DLTensor *shaped = shaped_output(iteration, i);
  *result = (Result){0};
  if (!is_early(slice)) {
    return GRAFT_OK;
  }
  GRAFT_TRY(check_slice(iteration, stack, slice, shaped));
  GRAFT_TRY(make_room(iteration, stack, slice));
  result->tensor = *shaped;
  if (writes_straight(stack)) {
    result->tensor.data = stack->data + (size_t)slice_number(iteration, stack) * stack->slice_bytes;
    return GRAFT_OK;
  }
  if (!stack->temporary) {
    stack->temporary = graft_call_memory(iteration->context, stack->slice_bytes, 1);
  }
  result->tensor.data = stack->temporary;
  return stack->temporary ? GRAFT_OK : GRAFT_ERROR_MEMORY;
}

static int32_t accept_slice(const Iteration *iteration, Stack *stack, const TensorSpec *slice, Result *result) {
  const DLTensor *tensor = &result->tensor;
  if (is_early(slice)) {
    if (stack->tensor >= 0 && !writes_straight(stack)) {
      store_slice(iteration, stack, tensor->data);
    }
    return GRAFT_OK;
  }
  int32_t status = check_slice(iteration, stack, slice, tensor);
  status = status ? status : make_room(iteration, stack, slice);
  if (!status && stack->tensor >= 0) {
    store_slice(iteration, stack, tensor->data);
  }
  graft_block_free(&result->block);
  return status;
}

/* No iteration has told the shape of a slice: it is what the output's own says, 0 where that is not known either. */
static void guess_slice_shape(const Iteration *iteration, Stack *stack) {
  const TensorSpec *whole = iteration->frame->procedure->tensors + stack->tensor;
  stack->ndim = whole->ndim > 0 ? whole->ndim - 1 : 0;
  stack->axis = graft_normal_axis(stack->axis, stack->ndim + 1);
  stack->axis = stack->axis < 0 ? 0 : stack->axis;
  for (int32_t i = 0; i < stack->ndim; i++) {
    stack->shape[i] = graft_known_extent(iteration->frame, stack->tensor, i < stack->axis ? i : i + 1);
  }
}

static int32_t finish_stack(const Iteration *iteration, Stack *stack, const TensorSpec *slice) {
  if (stack->tensor < 0) {
    return GRAFT_OK;
  }
  const TensorSpec *whole = iteration->frame->procedure->tensors + stack->tensor;
  if (!whole->is_unknown) {
    int32_t axis = graft_normal_axis(stack->axis, whole->ndim);
    if (axis < 0 || iteration->frame->tensors[stack->tensor].shape[axis] != iteration->done) {
      return fail_stack(iteration, slice, "are fewer than the output that they make has room for");
    }
    return GRAFT_OK;
  }
  if (stack->ndim < 0) {
    guess_slice_shape(iteration, stack);
  }
  if (!stack->block.start) {
    GRAFT_TRY(grow(iteration, stack, slice));
  }
  Result result = {.tensor = {.ndim = stack->ndim + 1, .dtype = slice->dtype}, .block = stack->block};
  stack->block = (Block){0};
  result.tensor.shape = result.block.start;
  result.tensor.data = stack->data;
  whole_shape(stack, iteration->done, result.tensor.shape);
  return graft_deliver_result(iteration->context, iteration->frame, stack->tensor, &result);
}

/* ---- States --------------------------------------------------------------------------------------------------- */

/* A body that gives a value on as it came needs no buffer: the value is its own destination. */
static int passes_through(const Iteration *iteration, int32_t i) {
  const Procedure *body = iteration->body->procedure;
  return body->outputs.items[iteration->first_body_output + i] == body->inputs.items[iteration->first_body_input + i];
}

static int32_t prepare_block(const Iteration *iteration, int32_t i, State *state, Result *result) {
  const DLTensor *shaped = shaped_output(iteration, i);
  size_t bytes = graft_frame_bytes(iteration->body, output_number(iteration, i));
  result->tensor = *shaped;
  if (!graft_block_reserve(graft_memory_of(iteration->context), state->blocks + state->next, &result->tensor, shaped->ndim, shaped->shape, bytes)) {
    return graft_context_fail(iteration->context, GRAFT_ERROR_MEMORY, "out of memory for tensor '%s'",
                              body_output(iteration, i)->name);
  }
  return GRAFT_OK;
}

static int32_t prepare_state(const Iteration *iteration, int32_t i, Result *result) {
  const TensorSpec *spec = body_output(iteration, i);
  State *state = iteration->states + i;
  *result = (Result){0};
  if (passes_through(iteration, i)) {
    result->tensor = state->value;
    return GRAFT_OK;
  }
  if (!is_early(spec)) {
    return GRAFT_OK;
  }
  if (graft_is_symbolic(spec)) {
    return prepare_block(iteration, i, state, result);
  }
  void **buffer = &state->buffers[state->next];
  if (!*buffer) {
    *buffer = graft_call_memory(iteration->context, spec->bytes, 1);
  }
  result->tensor = (DLTensor){
      .data = *buffer, .ndim = spec->ndim, .dtype = spec->dtype, .shape = spec->shape, .device = {kDLCPU, 0}};
  return *buffer ? GRAFT_OK : GRAFT_ERROR_MEMORY;
}

static void accept_state(const Iteration *iteration, int32_t i, Result *result) {
  State *state = iteration->states + i;
  if (passes_through(iteration, i)) {
    return;
  }
  graft_block_free(&state->owned);
  state->owned = result->block;
  state->value = result->tensor;
  state->next ^= 1;
}

static int32_t finish_state(const Iteration *iteration, int32_t i) {
  State *state = iteration->states + i;
  int32_t tensor = iteration->call->outputs.items[i];
  if (tensor < 0) {
    return GRAFT_OK;
  }
  const TensorSpec *spec = iteration->frame->procedure->tensors + tensor;
  Block *block = state->owned.start ? &state->owned : state->blocks + (state->next ^ 1);
  int is_own = block->start && state->value.shape == block->start;
  if (spec->is_unknown && is_own) {
    Result result = {.tensor = state->value, .block = *block};
    *block = (Block){0};
    return graft_deliver_result(iteration->context, iteration->frame, tensor, &result);
  }
  const DLTensor *wanted = iteration->frame->tensors + tensor;
  if (!spec->is_unknown &&
      !graft_shape_equal(wanted->ndim, wanted->shape, state->value.ndim, state->value.shape)) {
    return graft_context_fail(iteration->context, GRAFT_ERROR_RUN, "the final '%s' has another shape than its output",
                              body_output(iteration, i)->name);
  }
  return graft_store_value(iteration->context, iteration->frame, tensor, &state->value);
}

/* ---- Iterations ----------------------------------------------------------------------------------------------- */

int32_t graft_iteration_begin(Iteration *iteration, const ScanAxis *axes) {
  const Call *call = iteration->call;
  const Procedure *body = iteration->body->procedure;
  iteration->stack_count = call->outputs.count - iteration->state_count;
  int32_t states = iteration->state_count, stacks = iteration->stack_count;
  iteration->states = graft_call_memory(iteration->context, (size_t)states, sizeof(State));
  iteration->stacks = graft_call_memory(iteration->context, (size_t)stacks, sizeof(Stack));
  iteration->results = graft_call_memory(iteration->context, (size_t)body->outputs.count, sizeof(Result));
  if (!iteration->states || !iteration->stacks || !iteration->results) {
    iteration->state_count = iteration->stack_count = 0;
    return GRAFT_ERROR_MEMORY;
  }
  memset(iteration->results, 0, (size_t)body->outputs.count * sizeof(Result));
  for (int32_t i = 0; i < states; i++) {
    iteration->states[i] = (State){.value = iteration->frame->tensors[call->inputs.items[iteration->first_input + i]]};
  }
  int32_t status = GRAFT_OK;
  for (int32_t i = 0; i < stacks; i++) {
    Stack *stack = iteration->stacks + i;
    const TensorSpec *slice = body_output(iteration, states + i);
    memset(stack, 0, sizeof *stack);
    stack->tensor = call->outputs.items[states + i];
    stack->axis = axes ? axes[i].axis : 0;
    stack->backward = axes ? axes[i].backward : 0;
    stack->ndim = -1;
    if (graft_is_static(slice) && !status) {
      status = set_slice_shape(iteration, stack, slice, slice->ndim, slice->shape);
    }
  }
  return status;
}

int32_t graft_iteration_step(Iteration *iteration) {
  const Procedure *body = iteration->body->procedure;
  Result *results = iteration->results + iteration->first_body_output;
  int32_t status = GRAFT_OK, states = iteration->state_count;
  for (int32_t i = 0; !status && i < states; i++) {
    status = graft_bind_input(iteration->context, iteration->body, iteration->first_body_input + i,
                              &iteration->states[i].value);
  }
  status = status ? status : graft_enter(iteration->context, iteration->body);
  for (int32_t i = 0; !status && i < states; i++) {
    status = prepare_state(iteration, i, results + i);
  }
  for (int32_t i = 0; !status && i < iteration->stack_count; i++) {
    status = prepare_slice(iteration, iteration->stacks + i, states + i, results + states + i);
  }
  status = status ? status : iteration->run(iteration->context, iteration->body, iteration->results);
  for (int32_t i = 0; !status && i < states; i++) {
    accept_state(iteration, i, results + i);
    results[i].block = (Block){0};
  }
  for (int32_t i = 0; !status && i < iteration->stack_count; i++) {
    status = accept_slice(iteration, iteration->stacks + i, body_output(iteration, states + i), results + states + i);
  }
  if (status) {
    for (int32_t i = 0; i < body->outputs.count; i++) {
      graft_block_free(&iteration->results[i].block);
    }
  }
  iteration->done++;
  return status;
}

int32_t graft_iteration_end(Iteration *iteration, int32_t status) {
  for (int32_t i = 0; i < iteration->state_count; i++) {
    status = status ? status : finish_state(iteration, i);
    graft_block_free(&iteration->states[i].owned);
    graft_block_free(&iteration->states[i].blocks[0]);
    graft_block_free(&iteration->states[i].blocks[1]);
  }
  for (int32_t i = 0; i < iteration->stack_count; i++) {
    Stack *stack = iteration->stacks + i;
    status = status ? status : finish_stack(iteration, stack, body_output(iteration, iteration->state_count + i));
    graft_block_free(&stack->block);
  }
  return status;
}
