#include "execute/execute.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/platform.h"
#include "devices/device_frames.h"
#include "devices/graphs.h"
#include "devices/streams.h"
#include "execute/append.h"
#include "execute/control.h"
#include "execute/values.h"

enum { NAMED_ORIGINS = 3 };

/* ---- Calls ---------------------------------------------------------------------------------------------------- */

static void append_origin(char *text, size_t size, const Call *call, int32_t number) {
  if (call->origin_count == 0) {
    graft_append(text, size, "call %" PRId32, number);
    return;
  }
  for (int32_t i = 0; i < call->origin_count && i < NAMED_ORIGINS; i++) {
    graft_append(text, size, "%s'%s'", i ? ", " : "node ", call->origin[i]);
  }
  if (call->origin_count > NAMED_ORIGINS) {
    graft_append(text, size, " and %" PRId32 " more", call->origin_count - NAMED_ORIGINS);
  }
}

/* Puts in front of the message where it happened; of nested calls only the innermost does. */
static int32_t describe_failure(Context *context, const Frame *frame, const Call *call, int32_t status) {
  int is_stopped = context->stop && atomic_load_explicit(&context->stop->status, memory_order_relaxed);
  if (context->instance->failed || context->instance->refused || is_stopped) {
    return status;
  }
  context->instance->failed = call;
  char reason[sizeof context->message];
  memcpy(reason, context->message, sizeof reason);
  context->message[0] = 0;
  append_origin(context->message, sizeof context->message, call, (int32_t)(call - frame->procedure->calls));
  if (call->kind == CALL_FUNCTION) {
    const ModuleSpec *module = context->instance->program->manifest.modules + call->module;
    graft_append(context->message, sizeof context->message, ": function '%s' of module '%s' (kind '%s'%s%s%s)",
                 call->function, module->name, module->kind, *module->plugin ? ", plugin '" : "", module->plugin,
                 *module->plugin ? "'" : "");
  }
  if (reason[0]) {
    graft_append(context->message, sizeof context->message, ": %s", reason);
  } else {
    graft_append(context->message, sizeof context->message, ": failed with code %" PRId32 " and no message", status);
  }
  return status;
}

static void forget_outputs(Frame *frame, const Call *call) {
  for (int32_t i = 0; i < call->outputs.count; i++) {
    int32_t number = call->outputs.items[i];
    if (number >= 0 && frame->procedure->tensors[number].is_unknown) {
      frame->tensors[number].data = NULL;
    }
  }
}

static int32_t run_function(Context *context, Frame *frame, const Call *call) {
  DLTensor **inputs = frame->pointers + call->first_pointer;
  DLTensor **outputs = inputs + call->inputs.count;
  int32_t status = call->entry(&context->base, call->state, (const DLTensor *const *)inputs, outputs);
  if (status == GRAFT_OK && call->has_unknown_output) {
    for (int32_t i = 0; i < call->outputs.count; i++) {
      if (!outputs[i]->data) {
        return graft_context_fail(context, GRAFT_ERROR_RUN, "output '%s' was not allocated",
                                  frame->procedure->tensors[call->outputs.items[i]].name);
      }
    }
  }
  return status;
}

static int32_t run_call(Context *context, Frame *frame, const Call *call) {
  switch (call->kind) {
    case CALL_FUNCTION:
      return run_function(context, frame, call);
    case CALL_COPY:
      if (call->device) {
        return graft_run_transfer(context, frame, call);
      }
      return graft_store_value(context, frame, call->outputs.items[0], frame->tensors + call->inputs.items[0]);
    case CALL_APPEND:
      return graft_run_append(context, frame, call);
    case CALL_IF:
      return graft_run_if(context, frame, call, graft_run_procedure);
    case CALL_LOOP:
      return graft_run_loop(context, frame, call, graft_run_procedure);
    case CALL_SCAN:
      return graft_run_scan(context, frame, call, graft_run_procedure);
  }
  return GRAFT_OK;
}

static int32_t run_one(Context *context, Frame *frame, const Call *call) {
  ScratchMark mark = graft_scratch_mark(&context->scratch);
  int32_t status = GRAFT_OK;
  if (call->device) {
    context->instance->streams[call->device - 1].scratch_count = 0;
  }
  context->frame = frame;
  context->call = call;
  context->message[0] = 0;
  context->lacked_memory = 0;
  if (call->has_unknown_output) {
    forget_outputs(frame, call);
  }
  if (call->waits.count) {
    status = graft_wait_transfers(context, frame, call);
  }
  status = status ? status : run_call(context, frame, call);
  if (!status && call->has_unknown_output) {
    status = graft_accept_outputs(context, frame, call);
  }
  graft_scratch_release(&context->scratch, mark);
  status = graft_context_status(context, status);
  if (status) {
    describe_failure(context, frame, call, status);
  }
  return status;
}

/* And tells how long it took; what it put on a stream is to be in it. */
static int32_t run_timed(Context *context, Frame *frame, const Call *call) {
  const Timing *timing = context->instance->timing;
  GraftCallTime time = {.nodes = call->origin,
                        .node_count = call->origin_count,
                        .depth = context->instance->depth - 1,
                        .begin = graft_nanoseconds()};
  if (call->kind == CALL_FUNCTION) {
    const ModuleSpec *module = context->instance->program->manifest.modules + call->module;
    time.function = call->function;
    time.module = module->name;
    time.kind = module->kind;
  }
  int32_t status = run_one(context, frame, call);
  if (call->device && !status) {
    status = graft_finish_devices(context);
  }
  time.nanoseconds = graft_nanoseconds() - time.begin;
  timing->tell(timing->user, &time);
  return status;
}

/* Says how far the entry came in a run that was stopped. */
static int32_t describe_stop(Context *context, const Frame *frame, int32_t i, int has_begun, int32_t status) {
  const Procedure *procedure = frame->procedure;
  if (frame != context->instance->entry) {
    return status;
  }
  context->message[0] = 0;
  graft_append(context->message, sizeof context->message, "%s %s call %" PRId32 " of %" PRId32,
               status == GRAFT_ERROR_CANCELLED ? "the run was cancelled" : "the deadline of the run passed",
               has_begun ? "in" : "before", i + 1, procedure->call_count);
  if (i < procedure->call_count && procedure->calls[i].origin_count) {
    context->instance->failed = procedure->calls + i;
    graft_append(context->message, sizeof context->message, ", ");
    append_origin(context->message, sizeof context->message, procedure->calls + i, i);
  }
  return status;
}

static int32_t run_calls(Context *context, Frame *frame) {
  const Procedure *procedure = frame->procedure;
  int32_t status = frame == context->instance->entry ? GRAFT_OK : graft_stop_status(context->stop); /* empty bodies */
  for (int32_t i = 0; i < procedure->call_count && !status; i++) {
    const Call *call = procedure->calls + i;
    int32_t first = i, stopped = graft_stop_status(context->stop);
    if (stopped) {
      return describe_stop(context, frame, i, 0, stopped);
    }
    if (context->instance->timing) {
      status = run_timed(context, frame, call);
    } else if (call->series) {
      status = graft_run_series(context, frame, i, run_one);
      i += call->series - 1;
      if (status && !context->instance->failed) {
        describe_failure(context, frame, call, status);
      }
    } else {
      status = run_one(context, frame, call);
    }
    /* A function may have kept the error of its tasks to itself. */
    if (context->stop && (stopped = atomic_load_explicit(&context->stop->status, memory_order_relaxed))) {
      return describe_stop(context, frame, first, 1, stopped);
    }
  }
  return status;
}

/* Bodies hand over what they have done; of the entry graft_run_end waits for all, if it did not fail. */
static int32_t finish_devices(Context *context, const Frame *frame, int32_t status) {
  const Procedure *procedure = frame->procedure;
  int waits = status || frame != context->instance->entry;
  for (int32_t i = 0; i < procedure->outputs.count; i++) {
    waits |= !graft_writes_in_place(procedure, i);
  }
  return waits ? graft_finish_devices(context) : GRAFT_OK;
}

int32_t graft_run_procedure(Context *context, Frame *frame, Result *results) {
  GRAFT_TRY(graft_bind_outputs(context, frame, results));
  int32_t status = frame->device ? graft_place_device_frame(context, frame) : GRAFT_OK;
  context->instance->depth++;
  status = status ? status : run_calls(context, frame);
  context->instance->depth--;
  if (frame->device) {
    int32_t finished = finish_devices(context, frame, status);
    status = status ? status : finished;
  }
  return status ? status : graft_collect_results(context, frame, results);
}
