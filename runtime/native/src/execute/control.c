#include <inttypes.h>
#include <string.h>

#include "execute/control.h"
#include "execute/values.h"

static int32_t read_scalar(Context *context, const Frame *frame, int32_t tensor, void *value, size_t bytes) {
  const DLTensor *scalar = frame->tensors + tensor;
  size_t actual = 0;
  graft_tensor_bytes(scalar->dtype, scalar->ndim, scalar->shape, &actual);
  if (actual != bytes) {
    return graft_context_fail(context, GRAFT_ERROR_RUN, "'%s' must have one element",
                              frame->procedure->tensors[tensor].name);
  }
  memcpy(value, scalar->data, bytes);
  return GRAFT_OK;
}

static int32_t bind_arguments(Context *context, const Frame *frame, Frame *body, const IndexList *arguments,
                              int32_t first) {
  for (int32_t i = 0; i < arguments->count; i++) {
    GRAFT_TRY(graft_bind_input(context, body, first + i, frame->tensors + arguments->items[i]));
  }
  return GRAFT_OK;
}

int32_t graft_run_if(Context *context, Frame *frame, const Call *call, RunProcedure *run) {
  uint8_t condition = 0;
  GRAFT_TRY(read_scalar(context, frame, call->inputs.items[0], &condition, sizeof condition));
  int32_t branch = condition ? 0 : 1, count = call->outputs.count;
  Frame *body = context->instance->frames + call->bodies[branch];
  Result *results = graft_call_memory(context, (size_t)count, sizeof(Result));
  if (!results) {
    return GRAFT_ERROR_MEMORY;
  }
  memset(results, 0, (size_t)count * sizeof(Result));
  int32_t status = bind_arguments(context, frame, body, &call->arguments[branch], 0);
  status = status ? status : graft_enter(context, body);
  for (int32_t i = 0; !status && i < count; i++) {
    status = graft_prepare_result(context, frame, call->outputs.items[i], body, i, results + i);
  }
  status = status ? status : run(context, body, results);
  for (int32_t i = 0; !status && i < count; i++) {
    status = graft_deliver_result(context, frame, call->outputs.items[i], results + i);
  }
  for (int32_t i = 0; i < count; i++) {
    graft_block_free(&results[i].block);
  }
  return status;
}

/* ---- Loop ----------------------------------------------------------------------------------------------------- */

/* A scalar in the shape that the body declares for it: [] or [1]. */
static DLTensor scalar_tensor(const TensorSpec *spec, void *value) {
  return (DLTensor){.data = value,
                    .device = {kDLCPU, 0},
                    .ndim = spec->ndim < 0 ? 0 : spec->ndim,
                    .dtype = spec->dtype,
                    .shape = spec->shape};
}

/* Runs the body once and reads whether to go on. */
static int32_t loop_step(Iteration *loop, uint8_t *condition) {
  const Procedure *body = loop->body->procedure;
  uint8_t given = *condition, next = 0;
  DLTensor number = scalar_tensor(body->tensors + body->inputs.items[0], &loop->done);
  DLTensor current = scalar_tensor(body->tensors + body->inputs.items[1], &given);
  const TensorSpec *spec = body->tensors + body->outputs.items[0];
  Result *result = loop->results;
  *result = (Result){0};
  if (spec->ndim >= 0) {
    result->tensor = scalar_tensor(spec, &next);
  }
  GRAFT_TRY(graft_bind_input(loop->context, loop->body, 0, &number));
  GRAFT_TRY(graft_bind_input(loop->context, loop->body, 1, &current));
  GRAFT_TRY(graft_iteration_step(loop));
  size_t bytes = 0;
  int32_t status = GRAFT_OK;
  graft_tensor_bytes(result->tensor.dtype, result->tensor.ndim, result->tensor.shape, &bytes);
  if (bytes != sizeof next) {
    status = graft_context_fail(loop->context, GRAFT_ERROR_RUN, "'%s' must have one element", spec->name);
  } else {
    *condition = *(const uint8_t *)result->tensor.data;
  }
  graft_block_free(&result->block);
  return status;
}

int32_t graft_run_loop(Context *context, Frame *frame, const Call *call, RunProcedure *run) {
  int64_t trips = -1;
  uint8_t condition = 1;
  if (call->inputs.items[0] >= 0) {
    GRAFT_TRY(read_scalar(context, frame, call->inputs.items[0], &trips, sizeof trips));
    trips = trips < 0 ? 0 : trips;
  }
  if (call->inputs.items[1] >= 0) {
    GRAFT_TRY(read_scalar(context, frame, call->inputs.items[1], &condition, sizeof condition));
  }
  Iteration loop = {.context = context,
                    .frame = frame,
                    .body = context->instance->frames + call->bodies[0],
                    .call = call,
                    .run = run,
                    .first_input = 2,
                    .first_body_input = 2,
                    .first_body_output = 1,
                    .state_count = call->inputs.count - 2,
                    .trips = trips};
  int32_t status = graft_iteration_begin(&loop, NULL);
  status = status ? status : bind_arguments(context, frame, loop.body, &call->arguments[0], 2 + loop.state_count);
  while (!status && condition && loop.done != trips) {
    status = loop_step(&loop, &condition);
  }
  return graft_iteration_end(&loop, status);
}

/* ---- Scan ----------------------------------------------------------------------------------------------------- */

/* A scan input and the slice of it that the body gets. */
typedef struct Sliced {
  const DLTensor *whole;
  DLTensor slice;
  int64_t shape[GRAFT_MAXIMUM_DIMENSIONS];
  int64_t length;
  int32_t backward;
  size_t rows, row_bytes; /* the slice lies in the whole as so many rows */
  char *temporary;        /* where rows are gathered, if there are several */
} Sliced;

static int32_t begin_slices(Context *context, const Frame *frame, int32_t tensor, ScanAxis along, Sliced *sliced) {
  const DLTensor *whole = frame->tensors + tensor;
  int32_t axis = graft_normal_axis(along.axis, whole->ndim);
  *sliced = (Sliced){.whole = whole, .slice = *whole, .backward = along.backward, .rows = 1};
  if (axis < 0) {
    return graft_context_fail(context, GRAFT_ERROR_RUN, "scan input '%s' has no axis %" PRId32,
                              frame->procedure->tensors[tensor].name, along.axis);
  }
  sliced->length = whole->shape[axis];
  for (int32_t i = 0; i < whole->ndim - 1; i++) {
    sliced->shape[i] = whole->shape[i < axis ? i : i + 1];
    sliced->rows *= i < axis ? (size_t)sliced->shape[i] : 1;
  }
  sliced->slice.ndim = whole->ndim - 1;
  size_t bytes = 0;
  graft_tensor_bytes(whole->dtype, sliced->slice.ndim, sliced->shape, &bytes);
  sliced->row_bytes = sliced->rows ? bytes / sliced->rows : 0;
  if (sliced->rows != 1) {
    sliced->temporary = graft_call_memory(context, bytes, 1);
    if (!sliced->temporary) {
      return GRAFT_ERROR_MEMORY;
    }
  }
  return GRAFT_OK;
}

static void take_slice(Sliced *sliced, int64_t number) {
  size_t row = sliced->row_bytes;
  int64_t position = sliced->backward ? sliced->length - 1 - number : number;
  char *source = (char *)sliced->whole->data + (size_t)position * row;
  sliced->slice.shape = sliced->shape;
  sliced->slice.data = sliced->temporary ? sliced->temporary : source;
  for (size_t i = 0; sliced->temporary && row && i < sliced->rows; i++) {
    memcpy(sliced->temporary + i * row, source + i * (size_t)sliced->length * row, row);
  }
}

static int32_t begin_scan(Iteration *scan, Sliced *slices) {
  const Call *call = scan->call;
  for (int32_t i = 0; i < call->scan_input_count; i++) {
    int32_t tensor = call->inputs.items[scan->state_count + i];
    GRAFT_TRY(begin_slices(scan->context, scan->frame, tensor, call->scan_inputs[i], slices + i));
    if (slices[i].length != slices[0].length) {
      return graft_context_fail(scan->context, GRAFT_ERROR_RUN,
                                "scan input '%s' has %" PRId64 " slices, the first one has %" PRId64,
                                scan->frame->procedure->tensors[tensor].name, slices[i].length, slices[0].length);
    }
  }
  scan->trips = slices[0].length;
  return GRAFT_OK;
}

int32_t graft_run_scan(Context *context, Frame *frame, const Call *call, RunProcedure *run) {
  Iteration scan = {.context = context,
                    .frame = frame,
                    .body = context->instance->frames + call->bodies[0],
                    .call = call,
                    .run = run,
                    .state_count = call->inputs.count - call->scan_input_count};
  int32_t states = scan.state_count;
  Sliced *slices = graft_call_memory(context, (size_t)call->scan_input_count, sizeof(Sliced));
  GRAFT_TRY(slices ? begin_scan(&scan, slices) : GRAFT_ERROR_MEMORY);
  int32_t status = graft_iteration_begin(&scan, call->scan_outputs);
  status = status ? status
                  : bind_arguments(context, frame, scan.body, &call->arguments[0], states + call->scan_input_count);
  while (!status && scan.done < scan.trips) {
    for (int32_t i = 0; !status && i < call->scan_input_count; i++) {
      take_slice(slices + i, scan.done);
      status = graft_bind_input(context, scan.body, states + i, &slices[i].slice);
    }
    status = status ? status : graft_iteration_step(&scan);
  }
  return graft_iteration_end(&scan, status);
}
