#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "manifest/manifest_reader.h"

typedef struct Checker {
  Reader *reader;
  Procedure *procedure;
  int32_t *pending; /* by tensor, of roots: the copy that writes it and may still run, or -1 */
} Checker;

static const TensorSpec *tensor_at(const Checker *checker, int32_t number) {
  return checker->procedure->tensors + number;
}

/* ---- What is where -------------------------------------------------------------------------------------------- */

static int32_t check_tensors(const Checker *checker) {
  const Procedure *procedure = checker->procedure;
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    const TensorSpec *tensor = procedure->tensors + i;
    if (tensor->device != procedure->tensors[tensor->root].device) {
      return graft_damaged(checker->reader, "tensor '%s' is on another device than '%s', which it is a view of",
                           tensor->name, procedure->tensors[tensor->root].name);
    }
    if (tensor->device && (tensor->storage == STORAGE_DYNAMIC || tensor->storage == STORAGE_EXTENTS || tensor->is_unknown)) {
      return graft_damaged(checker->reader,
                           "tensor '%s' is on a device, and its shape or its values are not known there", tensor->name);
    }
    int is_late = tensor->storage == STORAGE_OUTPUT && tensor->stage != 0;
    if (tensor->device && is_late) {
      return graft_damaged(checker->reader,
                           "output '%s' is on a device, and its shape is not known when the procedure begins",
                           tensor->name);
    }
  }
  for (int32_t i = 0; i < procedure->outputs.count; i++) {
    const TensorSpec *tensor = tensor_at(checker, procedure->outputs.items[i]);
    if (tensor->device && (tensor->storage != STORAGE_OUTPUT || tensor->index != i)) {
      return graft_damaged(checker->reader, "output %" PRId32 " is on a device, and is not tensor '%s' alone", i,
                           tensor->name);
    }
  }
  return GRAFT_OK;
}

static int32_t check_list(const Checker *checker, const IndexList *list, int32_t wanted) {
  for (int32_t i = 0; i < list->count; i++) {
    const TensorSpec *tensor = list->items[i] < 0 ? NULL : tensor_at(checker, list->items[i]);
    if (tensor && tensor->device != wanted) {
      const char *where = tensor->device ? checker->reader->manifest->devices[tensor->device - 1].name : "main memory";
      return graft_damaged(checker->reader,
                           "tensor '%s' is in the memory of '%s', and the call computes in that of '%s'", tensor->name,
                           where, wanted ? checker->reader->manifest->devices[wanted - 1].name : "main memory");
    }
  }
  return GRAFT_OK;
}

/* The device of the first tensor that a call has. */
static int32_t device_of(const Checker *checker, const Call *call) {
  const IndexList *lists[] = {&call->outputs, &call->inputs};
  for (int32_t k = 0; k < 2; k++) {
    for (int32_t i = 0; i < lists[k]->count; i++) {
      if (lists[k]->items[i] >= 0) {
        return tensor_at(checker, lists[k]->items[i])->device;
      }
    }
  }
  return 0;
}

static int32_t check_call(const Checker *checker, Call *call) {
  if (call->kind == CALL_COPY) {
    int32_t from = tensor_at(checker, call->inputs.items[0])->device;
    int32_t to = tensor_at(checker, call->outputs.items[0])->device;
    call->device = to ? to : from;
    return from && to && from != to
               ? graft_damaged(checker->reader, "a copy from one device to another, not by way of main memory")
               : GRAFT_OK;
  }
  call->device = call->kind == CALL_FUNCTION ? device_of(checker, call) : 0;
  GRAFT_TRY(check_list(checker, &call->inputs, call->device));
  GRAFT_TRY(check_list(checker, &call->outputs, call->device));
  for (int32_t k = 0; k < call->body_count; k++) {
    GRAFT_TRY(check_list(checker, &call->arguments[k], 0));
  }
  return GRAFT_OK;
}

/* The runtime hands values to bodies, and reads what they give, in main memory. */
static int32_t check_body(const Checker *checker) {
  GRAFT_TRY(check_list(checker, &checker->procedure->inputs, 0));
  return check_list(checker, &checker->procedure->outputs, 0);
}

static int is_entry(const Manifest *manifest, int32_t number) {
  int found = number == 0;
  for (int32_t i = 0; i < manifest->variants.count; i++) {
    found |= manifest->variants.items[i] == number;
  }
  return found;
}

/* ---- What waits for what -------------------------------------------------------------------------------------- */

static void note_wait(const Checker *checker, Call *call, int32_t tensor) {
  int32_t *pending = tensor < 0 ? NULL : checker->pending + tensor_at(checker, tensor)->root;
  if (!pending || *pending < 0) {
    return;
  }
  if (call->kind == CALL_COPY && call->device == checker->procedure->calls[*pending].device) {
    return; /* on the same stream it comes later */
  }
  for (int32_t i = 0; i < call->waits.count; i++) {
    if (call->waits.items[i] == *pending) {
      return;
    }
  }
  call->waits.items[call->waits.count++] = *pending;
}

static int32_t make_room(const Checker *checker, Call *call) {
  size_t most = (size_t)call->inputs.count;
  for (int32_t k = 0; k < call->body_count; k++) {
    most += (size_t)call->arguments[k].count;
  }
  call->waits = (IndexList){graft_store_allocate(checker->reader->store, most, sizeof(int32_t)), 0};
  return graft_allocated(checker->reader, call->waits.items);
}

/* Calls that read in main memory what a copy writes there wait for it, but for what goes on by that device itself. */
static int32_t find_waits(const Checker *checker) {
  const Procedure *procedure = checker->procedure;
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    checker->pending[i] = -1;
  }
  for (int32_t i = 0; i < procedure->call_count; i++) {
    Call *call = procedure->calls + i;
    GRAFT_TRY(make_room(checker, call));
    for (int32_t k = 0; k < call->inputs.count; k++) {
      note_wait(checker, call, call->inputs.items[k]);
    }
    for (int32_t b = 0; b < call->body_count; b++) {
      for (int32_t k = 0; k < call->arguments[b].count; k++) {
        note_wait(checker, call, call->arguments[b].items[k]);
      }
    }
    for (int32_t k = 0; k < procedure->tensor_count && call->waits.count; k++) {
      for (int32_t w = 0; w < call->waits.count; w++) {
        checker->pending[k] = checker->pending[k] == call->waits.items[w] ? -1 : checker->pending[k];
      }
    }
    if (call->kind == CALL_COPY && call->device && tensor_at(checker, call->outputs.items[0])->device == 0) {
      checker->pending[tensor_at(checker, call->outputs.items[0])->root] = i;
    }
  }
  return GRAFT_OK;
}

/* Finds what calls behind one another only launch: a device may record that once and do it again. */
static void find_series(Procedure *procedure) {
  int32_t first = 0;
  for (int32_t i = 0; i < procedure->call_count; i++) {
    const Call *call = procedure->calls + i;
    int is_within = call->kind == CALL_COPY && procedure->tensors[call->inputs.items[0]].device &&
                    procedure->tensors[call->outputs.items[0]].device;
    int is_launch = call->device && (call->kind == CALL_FUNCTION || is_within);
    if (!is_launch) {
      first = i + 1;
      continue;
    }
    first = procedure->calls[first].device == call->device ? first : i;
    procedure->calls[first].series = i - first + 1;
  }
}

int32_t graft_check_devices(Reader *reader, Procedure *procedure) {
  Checker checker = {.reader = reader, .procedure = procedure};
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    procedure->uses_devices |= procedure->tensors[i].device != 0;
  }
  if (!procedure->uses_devices) {
    return GRAFT_OK;
  }
  GRAFT_TRY(check_tensors(&checker));
  if (!is_entry(reader->manifest, (int32_t)(procedure - reader->manifest->procedures))) {
    GRAFT_TRY(check_body(&checker));
  }
  for (reader->call = 0; reader->call < procedure->call_count; reader->call++) {
    GRAFT_TRY(check_call(&checker, procedure->calls + reader->call));
  }
  reader->call = -1;
  checker.pending = graft_allocate_zeroed(reader->store->allocator, (size_t)procedure->tensor_count, sizeof(int32_t));
  GRAFT_TRY(graft_allocated(reader, checker.pending));
  find_series(procedure);
  int32_t status = find_waits(&checker);
  graft_release(reader->store->allocator, checker.pending);
  return status;
}
