/* Functions of modules that a worker process runs: the worker's side of a call. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/platform.h"
#include "binding.h"
#include "instance/instance.h"
#include "sandbox.h"

enum { STATUS_CHILD = 70 }; /* how a child ends that a function has forked and let back into the call */

typedef struct Mapping {
  uint64_t number;
  void *base;
  size_t bytes;
} Mapping;

/* A function, and what its calls have in common. */
typedef struct Served {
  GraftFunction entry;
  void *state;
} Served;

/* One channel: calls come one after another. */
typedef struct Service {
  ProgramObject *program;
  Served *functions;
  int32_t function_count;
  int socket;
  Instance *instance; /* whose context compiled functions see */
  Mapping door;
  Mapping mappings[GRAFT_DOOR_SEGMENTS];
  int32_t mapping_count;
  /* The running call, as the runtime describes calls. */
  TensorSpec specs[GRAFT_DOOR_TENSORS];
  DLTensor tensors[GRAFT_DOOR_TENSORS];
  DLTensor *pointers[GRAFT_DOOR_TENSORS];
  Block blocks[GRAFT_DOOR_TENSORS];
  int64_t shapes[GRAFT_DOOR_TENSORS][GRAFT_MAXIMUM_DIMENSIONS];
  int32_t items[GRAFT_DOOR_TENSORS];
} Service;

/* ---- Segments ------------------------------------------------------------------------------------------------- */

static int map(Mapping *mapping, const Note *note, int descriptor) {
  int protection = note->is_read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  void *base = descriptor < 0 ? MAP_FAILED : mmap(NULL, note->bytes, protection, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) {
    return -1;
  }
  *mapping = (Mapping){note->segment, base, note->bytes};
  return 0;
}

static void unmap_all(Service *service) {
  for (int32_t i = 0; i < service->mapping_count; i++) {
    munmap(service->mappings[i].base, service->mappings[i].bytes);
  }
  service->mapping_count = 0;
}

/* The first segment of a channel is its door. -1: this cannot go on. */
static int take_segment(Service *service, const Note *note, int descriptor) {
  int status = -1;
  if (!service->door.base) {
    status = map(&service->door, note, descriptor);
  } else if (service->mapping_count < GRAFT_DOOR_SEGMENTS) {
    status = map(service->mappings + service->mapping_count, note, descriptor);
    service->mapping_count += status == 0;
  }
  return status;
}

static void *address_of(const Service *service, const DoorTensor *entry, size_t bytes) {
  for (int32_t i = 0; i < service->mapping_count; i++) {
    const Mapping *mapping = service->mappings + i;
    if (mapping->number == entry->segment) {
      int fits = entry->offset <= mapping->bytes && bytes <= mapping->bytes - entry->offset;
      return fits ? (char *)mapping->base + entry->offset : NULL;
    }
  }
  return NULL;
}

/* ---- Calls ---------------------------------------------------------------------------------------------------- */

/* Writes a tensor of the door as the runtime knows tensors; 0 if its place cannot be found. */
static int read_tensor(Service *service, const DoorTensor *entry, int32_t i) {
  TensorSpec *spec = service->specs + i;
  DLTensor *tensor = service->tensors + i;
  size_t bytes = 0;
  *spec = (TensorSpec){.name = "",
                       .dtype = entry->dtype,
                       .storage = entry->is_unknown ? STORAGE_DYNAMIC : STORAGE_CONSTANT,
                       .ndim = entry->is_unknown ? -1 : entry->ndim,
                       .shape = service->shapes[i],
                       .is_unknown = entry->is_unknown,
                       .index = -1,
                       .root = i,
                       .next_view = -1,
                       .grows = -1};
  *tensor = (DLTensor){.device = {kDLCPU, 0}, .ndim = spec->ndim, .dtype = entry->dtype, .shape = service->shapes[i]};
  service->pointers[i] = entry->is_given ? tensor : NULL;
  service->items[i] = entry->is_given ? i : -1;
  if (!entry->is_given || entry->is_unknown) {
    return 1;
  }
  if (entry->ndim < 0 || entry->ndim > GRAFT_MAXIMUM_DIMENSIONS) {
    return 0;
  }
  memcpy(service->shapes[i], entry->shape, (size_t)entry->ndim * sizeof(int64_t));
  if (!graft_tensor_bytes(entry->dtype, entry->ndim, entry->shape, &bytes)) {
    return 0;
  }
  tensor->data = bytes ? address_of(service, entry, bytes) : service->shapes[i];
  spec->bytes = bytes;
  return tensor->data != NULL;
}

/* Hands an output over whose shape the function told. */
static int32_t send_output(Service *service, Context *context, int32_t i, int32_t number) {
  DoorTensor *entry = ((Door *)service->door.base)->tensors + number;
  const DLTensor *tensor = service->tensors + number;
  Segments own = {.lock = PTHREAD_MUTEX_INITIALIZER};
  size_t bytes = 0;
  if (!tensor->data) {
    return graft_context_fail(context, GRAFT_ERROR_RUN, "output %" PRId32 " was not allocated", i);
  }
  graft_tensor_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes);
  Segment *segment = graft_segment_create(&own, bytes);
  if (!segment) {
    return graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of shared memory: %zu bytes for output %" PRId32, bytes, i);
  }
  if (bytes) {
    memcpy(segment->base, tensor->data, bytes);
  }
  entry->ndim = tensor->ndim;
  if (tensor->ndim > 0) {
    memcpy(entry->shape, tensor->shape, (size_t)tensor->ndim * sizeof(int64_t));
  }
  Note note = {NOTE_OUTPUT, 1, (uint64_t)i, segment->bytes};
  int sent = graft_note_send(service->socket, &note, segment->descriptor);
  graft_segment_destroy(&own, segment);
  return sent ? GRAFT_ERROR_SYSTEM : GRAFT_OK;
}

static int32_t run_served(Service *service, Context *context, Run *run) {
  Door *door = service->door.base;
  int32_t inputs = door->input_count, outputs = door->output_count, function = door->function;
  int is_right = inputs >= 0 && outputs >= 0 && inputs + outputs <= GRAFT_DOOR_TENSORS && function >= 0 &&
                 function < service->function_count;
  for (int32_t i = 0; is_right && i < inputs + outputs; i++) {
    is_right = read_tensor(service, door->tensors + i, i);
  }
  if (!is_right) {
    return graft_context_fail(context, GRAFT_ERROR_RUN, "the call came damaged to its worker process");
  }
  Procedure procedure = {.name = "call", .tensors = service->specs, .tensor_count = inputs + outputs};
  Frame frame = {.procedure = &procedure,
                 .tensors = service->tensors,
                 .pointers = service->pointers,
                 .blocks = service->blocks};
  Call call = {.kind = CALL_FUNCTION,
               .inputs = {service->items, inputs},
               .outputs = {service->items + inputs, outputs}};
  context->frame = &frame;
  context->call = &call;
  service->instance->entry = &frame;
  service->instance->user = run;
  const Served *served = service->functions + function;
  pid_t own = getpid();
  int32_t status = served->entry(&context->base, served->state, (const DLTensor *const *)service->pointers,
                                 service->pointers + inputs);
  if (getpid() != own) { /* the caller waits for one answer */
    fprintf(stderr, "graft: a function forked, and its child came back from the call; the child is ended\n");
    _exit(STATUS_CHILD);
  }
  for (int32_t i = 0; !status && i < outputs; i++) {
    if (service->pointers[inputs + i] && service->specs[inputs + i].is_unknown) {
      status = send_output(service, context, i, inputs + i);
    }
  }
  return status;
}

static int answer(Service *service) {
  Door *door = service->door.base;
  Context *context = &service->instance->context;
  Instance *instance = service->instance;
  Frame *entry = instance->entry;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *lease = PyList_New(0); /* arrays that a Python function keeps look at memory that stays mapped */
  PyGILState_Release(gil);
  Run run = {.program = service->program, .lease = lease};
  ScratchMark mark = graft_scratch_mark(&context->scratch);
  context->message[0] = 0;
  int entered = service->program->program->pool && graft_pool_enter(service->program->program->pool);
  int32_t refusals = graft_refusals(), status = run_served(service, context, &run);
  if (entered) {
    graft_pool_leave(service->program->program->pool);
  }
  graft_scratch_release(&context->scratch, mark);
  instance->entry = entry;
  context->frame = NULL;
  context->call = NULL;
  if (status && graft_refusals() != refusals) {
    graft_append_refusal(context->message, sizeof context->message);
  }
  door->status = status;
  memcpy(door->message, context->message, sizeof door->message);
  if (status && !door->message[0]) {
    strcpy(door->message, "it gave no reason");
  }
  gil = PyGILState_Ensure();
  Py_XDECREF(run.lease);
  Py_XDECREF(run.exception);
  PyGILState_Release(gil);
  Note note = {.kind = NOTE_DONE};
  atomic_store_explicit(&door->turn, DOOR_ANSWERED, memory_order_release);
  return graft_note_send(service->socket, &note, -1);
}

/* Until the host is gone. */
static void serve(Service *service) {
  int failed = 0;
  int32_t rests = 0;
  while (!failed) {
    Note note;
    int descriptor;
    if (service->door.base) {
      graft_door_spin(service->door.base, DOOR_ASKED, &rests);
    }
    if (graft_note_receive(service->socket, &note, &descriptor)) {
      return;
    }
    switch ((NoteKind)note.kind) {
      case NOTE_SEGMENT:
        failed = take_segment(service, &note, descriptor);
        break;
      case NOTE_FORGET:
        unmap_all(service);
        break;
      case NOTE_CALL:
        failed = !service->door.base || answer(service);
        break;
      case NOTE_OUTPUT:
      case NOTE_DONE:
        failed = 1;
        break;
    }
    if (descriptor >= 0) {
      close(descriptor);
    }
  }
}

/* ---- Python --------------------------------------------------------------------------------------------------- */

typedef struct ServiceHost {
  GraftLoaderHost base;
  char message[512];
} ServiceHost;

GRAFT_FORMAT(2, 3) static int32_t host_fail(const GraftLoaderHost *base, const char *format, ...) {
  ServiceHost *host = (ServiceHost *)base;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(host->message, sizeof host->message, format, arguments);
  va_end(arguments);
  return GRAFT_ERROR_LOADER;
}

/* 0, or -1 with an exception. */
static int look_up(Service *service, PyObject *names) {
  const LoadedModule *loaded = service->program->program->modules;
  ServiceHost host = {{GRAFT_ABI_VERSION, host_fail, -1, -1}, ""};
  service->function_count = (int32_t)PyTuple_GET_SIZE(names);
  service->functions = graft_allocate_zeroed(NULL, (size_t)service->function_count, sizeof(Served));
  if (!service->functions) {
    PyErr_NoMemory();
    return -1;
  }
  for (int32_t i = 0; i < service->function_count; i++) {
    const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
    Served *served = service->functions + i;
    if (!name) {
      return -1;
    }
    if (loaded->loader->lookup(loaded->loader->user, &host.base, loaded->module, name, &served->entry, &served->state)) {
      PyErr_SetString(graft_imports.artifact_error, host.message);
      return -1;
    }
  }
  return 0;
}

static void destroy_service(Service *service) {
  unmap_all(service);
  if (service->door.base) {
    munmap(service->door.base, service->door.bytes);
  }
  for (int32_t i = 0; i < GRAFT_DOOR_TENSORS; i++) {
    graft_block_free(service->blocks + i);
  }
  if (service->instance) {
    graft_release_instance(service->instance);
  }
  free(service->functions);
  free(service);
}

PyObject *graft_serve(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *program, *names;
  int socket;
  if (!PyArg_ParseTuple(arguments, "O!O!i", graft_program_type, &program, &PyTuple_Type, &names, &socket)) {
    return NULL;
  }
  Service *service = graft_allocate_zeroed(NULL, 1, sizeof *service);
  if (!service) {
    return PyErr_NoMemory();
  }
  service->program = (ProgramObject *)program;
  service->socket = socket;
  service->instance = graft_acquire_instance(service->program->program);
  int failed = !service->instance || look_up(service, names) < 0;
  if (!failed) {
    PyThreadState *thread = PyEval_SaveThread();
    serve(service);
    PyEval_RestoreThread(thread);
  }
  destroy_service(service);
  if (failed) {
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  }
  Py_RETURN_NONE;
}
