#include "devices/graphs.h"

#include <string.h>

#include "devices/devices.h"
#include "devices/streams.h"

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ hash >> 29;
}

/* Of all addresses and shapes that launches of a series depend on. Scratch belongs to it, which later calls may move. */
static uint64_t key_of(const Context *context, const Frame *frame, int32_t first) {
  const Procedure *procedure = frame->procedure;
  const Call *head = procedure->calls + first;
  const DeviceStream *stream = context->instance->streams + head->device - 1;
  uint64_t key = 1;
  for (int32_t i = 0; i < GRAFT_DEVICE_SCRATCH; i++) {
    key = mix(key, (uint64_t)(uintptr_t)stream->scratch[i].memory);
  }
  for (const Call *call = head; call < head + head->series; call++) {
    size_t count = (size_t)call->inputs.count + (size_t)call->outputs.count;
    for (size_t i = 0; i < count; i++) {
      const DLTensor *tensor = frame->pointers[call->first_pointer + i];
      key = mix(key, tensor ? (uint64_t)(uintptr_t)tensor->data : 0);
      for (int32_t axis = 0; tensor && axis < tensor->ndim; axis++) {
        key = mix(key, (uint64_t)tensor->shape[axis]);
      }
    }
  }
  return key;
}

static KeptGraph *find(Series *series, uint64_t key) {
  for (int32_t i = 0; i < GRAFT_KEPT_GRAPHS; i++) {
    if (series->kept[i].used && series->kept[i].key == key) {
      return series->kept + i;
    }
  }
  return NULL;
}

/* The least recently used gives its place to a key that was not seen before. */
static void note(const GraftDevice *device, Series *series, uint64_t key) {
  KeptGraph *least = series->kept;
  for (int32_t i = 1; i < GRAFT_KEPT_GRAPHS; i++) {
    least = series->kept[i].used < least->used ? series->kept + i : least;
  }
  if (least->graph) {
    device->destroy_graph(device->user, least->graph);
  }
  *least = (KeptGraph){.key = key, .used = ++series->clock};
}

static int32_t run_calls(Context *context, Frame *frame, int32_t first, GraftRunCall run) {
  const Call *head = frame->procedure->calls + first;
  for (const Call *call = head; call < head + head->series; call++) {
    GRAFT_TRY(run(context, frame, call));
  }
  return GRAFT_OK;
}

/* NULL where the device does not take it; then nothing was done. */
static void *record(Context *context, Frame *frame, int32_t first, GraftRunCall run) {
  const Call *head = frame->procedure->calls + first;
  const GraftDevice *device = graft_device_of(context->instance->program, head->device);
  DeviceStream *stream = graft_device_stream(context, head->device);
  GraftError error;
  void *graph = NULL;
  if (!stream || device->begin_capture(device->user, stream->stream, &error)) {
    return NULL;
  }
  int32_t status = run_calls(context, frame, first, run);
  int32_t ended = device->end_capture(device->user, stream->stream, &graph, &error);
  if (status && !ended) {
    device->destroy_graph(device->user, graph);
  }
  context->instance->failed = NULL;
  context->message[0] = 0;
  return status || ended ? NULL : graph;
}

int32_t graft_run_series(Context *context, Frame *frame, int32_t first, GraftRunCall run) {
  const Call *head = frame->procedure->calls + first;
  const GraftDevice *device = graft_device_of(context->instance->program, head->device);
  Series *series = frame->device->series + first;
  if (!device->begin_capture || series->is_refused || head->series < 2) {
    return run_calls(context, frame, first, run);
  }
  uint64_t key = key_of(context, frame, first);
  KeptGraph *kept = find(series, key);
  if (!kept) {
    int32_t status = run_calls(context, frame, first, run);
    note(device, series, key_of(context, frame, first)); /* with the scratch that was made for it */
    return status;
  }
  kept->used = ++series->clock;
  kept->graph = kept->graph ? kept->graph : record(context, frame, first, run);
  if (!kept->graph) {
    series->is_refused = 1;
    return run_calls(context, frame, first, run);
  }
  DeviceStream *stream = graft_device_stream(context, head->device);
  GraftError error = {0};
  context->call = head;
  int32_t status = device->launch(device->user, kept->graph, stream->stream, &error);
  return status ? graft_context_fail(context, status, "device '%s': %s", device->name, error.message) : GRAFT_OK;
}

void graft_drop_series(const GraftProgram *program, int32_t device, Series *series) {
  for (int32_t i = 0; i < GRAFT_KEPT_GRAPHS; i++) {
    if (series->kept[i].graph) {
      const GraftDevice *table = graft_device_of(program, device);
      table->destroy_graph(table->user, series->kept[i].graph);
    }
  }
}
