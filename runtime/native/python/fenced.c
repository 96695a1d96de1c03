/* Functions of modules that a worker process runs: the host's side of a call. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/platform.h"
#include "binding.h"
#include "instance/instance.h"

enum { FIRST_OWN_NUMBER_BIT = 63, TRANSFER_ALIGNMENT = 64, STOP_MILLISECONDS = 5 };

/* One conversation with the worker; a running call has it alone. */
typedef struct Channel {
  struct Channel *next;
  int socket;
  Door *door;
  Segment *door_segment;
  Segment *transfer; /* tensors that are in no shared memory; NULL before there is one */
  uint64_t sent[GRAFT_DOOR_SEGMENTS];
  int32_t sent_count;
  uint64_t generation;
  int32_t rests; /* see graft_door_spin */
} Channel;

typedef struct FencedFunction {
  PyObject_HEAD
  PyObject *connection; /* of runtime/isolation: connect(socket), failed(late) */
  int32_t number;       /* of the function in the worker */
  int64_t nanoseconds;  /* that a call may take; 0: any time */
  int is_distrusted;    /* the worker sees no memory but copies of the call's tensors */
  pthread_mutex_t lock; /* guards what follows */
  Channel *idle;
  uint64_t generation; /* how often a worker was lost */
  pid_t owner;
  Segments segments; /* doors and transfers */
} FencedFunction;

typedef enum { WORKER_GONE, WORKER_LATE, WORKER_STOPPED } Loss;

/* ---- Channels ------------------------------------------------------------------------------------------------- */

static void destroy_channel(FencedFunction *self, Channel *channel) {
  if (channel->socket >= 0) {
    close(channel->socket);
  }
  graft_segment_destroy(&self->segments, channel->door_segment);
  graft_segment_destroy(&self->segments, channel->transfer);
  free(channel);
}

static int take_exception(Run *run, Context *context) {
  char text[512];
  Py_CLEAR(run->exception);
  graft_take_exception(&run->exception, text, sizeof text);
  return graft_context_fail(context, GRAFT_ERROR_RUN, "%s", text);
}

/* Gives the worker its end of a new channel; whatever is wrong is recorded. */
static int32_t connect_channel(FencedFunction *self, Context *context, int end) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *done = PyObject_CallMethod(self->connection, "connect", "i", end);
  int32_t status = done ? GRAFT_OK : take_exception(context->instance->user, context);
  Py_XDECREF(done);
  PyGILState_Release(gil);
  return status;
}

static int32_t open_channel(FencedFunction *self, Context *context, uint64_t generation, Channel **opened) {
  Channel *channel = graft_allocate_zeroed(NULL, 1, sizeof *channel);
  int ends[2] = {-1, -1};
  if (!channel) {
    return graft_context_fail(context, GRAFT_ERROR_MEMORY, "out of memory for a call in another process");
  }
  channel->generation = generation;
  channel->door_segment = graft_segment_create(&self->segments, sizeof(Door));
  if (!channel->door_segment || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    channel->socket = -1;
    destroy_channel(self, channel);
    return graft_context_fail(context, GRAFT_ERROR_MEMORY, "no shared memory or socket for a call in another process: %s",
                              strerror(errno));
  }
  channel->socket = ends[0];
  channel->door = channel->door_segment->base;
  int32_t status = connect_channel(self, context, ends[1]);
  close(ends[1]);
  Note note = {.kind = NOTE_SEGMENT, .segment = channel->door_segment->number, .bytes = channel->door_segment->bytes};
  if (!status) {
    graft_note_send(channel->socket, &note, channel->door_segment->descriptor); /* who is gone is found out later */
    *opened = channel;
  } else {
    destroy_channel(self, channel);
  }
  return status;
}

/* An idle channel of the worker that lives, or else a new one. In a forked child, those of the parent are not ours. */
static int32_t take_channel(FencedFunction *self, Context *context, Channel **taken) {
  pthread_mutex_lock(&self->lock);
  if (self->owner != getpid()) {
    self->owner = getpid();
    self->generation++;
  }
  uint64_t generation = self->generation;
  Channel *channel = NULL;
  while (self->idle && !channel) {
    channel = self->idle;
    self->idle = channel->next;
    if (channel->generation != generation) {
      pthread_mutex_unlock(&self->lock);
      destroy_channel(self, channel);
      pthread_mutex_lock(&self->lock);
      channel = NULL;
    }
  }
  pthread_mutex_unlock(&self->lock);
  *taken = channel;
  return channel ? GRAFT_OK : open_channel(self, context, generation, taken);
}

static void put_channel(FencedFunction *self, Channel *channel) {
  pthread_mutex_lock(&self->lock);
  channel->next = self->idle;
  self->idle = channel;
  pthread_mutex_unlock(&self->lock);
}

/* The worker is lost to this call, and so to all that run now: the next one gets another worker. */
static int32_t lose_worker(FencedFunction *self, Context *context, const Channel *channel, Loss loss) {
  pthread_mutex_lock(&self->lock);
  if (self->generation == channel->generation) {
    self->generation++;
  }
  pthread_mutex_unlock(&self->lock);
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *error = PyObject_CallMethod(self->connection, "failed", "O", loss == WORKER_GONE ? Py_False : Py_True);
  if (error && PyExceptionInstance_Check(error)) {
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  } else if (error) {
    PyErr_SetString(PyExc_RuntimeError, "the worker process is lost");
  }
  Py_XDECREF(error);
  Run *run = context->instance->user;
  int32_t status = take_exception(run, context);
  if (loss == WORKER_STOPPED) {
    Py_CLEAR(run->exception); /* the run was stopped, and the worker for that reason */
  }
  PyGILState_Release(gil);
  return status;
}

/* ---- Tensors -------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const DLTensor *tensor) {
  size_t bytes = 0;
  graft_tensor_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes);
  return bytes;
}

static size_t rounded(size_t bytes) { return (bytes + TRANSFER_ALIGNMENT - 1) / TRANSFER_ALIGNMENT * TRANSFER_ALIGNMENT; }

/* Announces a segment, once; after many the worker forgets all of them but the door. */
static int announce(Channel *channel, const Segment *segment, int is_read_only) {
  for (int32_t i = 0; i < channel->sent_count; i++) {
    if (channel->sent[i] == segment->number) {
      return 0;
    }
  }
  channel->sent[channel->sent_count++] = segment->number;
  Note note = {NOTE_SEGMENT, (uint32_t)is_read_only, segment->number, segment->bytes};
  return graft_note_send(channel->socket, &note, segment->descriptor);
}

typedef struct Exchange {
  FencedFunction *self;
  Context *context;
  Channel *channel;
  const DLTensor *const *inputs;
  DLTensor *const *outputs;
  int32_t input_count, output_count;
  size_t transferred; /* bytes of the transfer that are taken */
  size_t offsets[GRAFT_DOOR_TENSORS]; /* of tensors in the transfer; SIZE_MAX for others. The worker may write the door */
} Exchange;

static const TensorSpec *output_spec(const Exchange *exchange, int32_t i) {
  const Context *context = exchange->context;
  return context->frame->procedure->tensors + context->call->outputs.items[i];
}

/* Describes a tensor: where it lies in shared memory, or else its place in the transfer. */
static int32_t describe(Exchange *exchange, const DLTensor *tensor, int is_unknown, int32_t number) {
  DoorTensor *entry = exchange->channel->door->tensors + number;
  memset(entry, 0, offsetof(DoorTensor, shape));
  exchange->offsets[number] = SIZE_MAX;
  entry->is_given = tensor != NULL;
  entry->is_unknown = is_unknown;
  if (!tensor) {
    return GRAFT_OK;
  }
  entry->dtype = tensor->dtype;
  entry->ndim = tensor->ndim;
  if (tensor->ndim > 0 && tensor->shape) {
    memcpy(entry->shape, tensor->shape, (size_t)tensor->ndim * sizeof(int64_t));
  }
  if (is_unknown) {
    return GRAFT_OK;
  }
  if (!graft_is_contiguous(tensor)) {
    return graft_context_fail(exchange->context, GRAFT_ERROR_RUN,
                              "a cache that grows in place cannot be passed to another process");
  }
  Segment found;
  size_t bytes = bytes_of(tensor);
  Segments *shared = &((Run *)exchange->context->instance->user)->program->segments;
  const char *data = (const char *)tensor->data + tensor->byte_offset;
  if (bytes && !exchange->self->is_distrusted && graft_segment_find(shared, data, bytes, &found)) {
    entry->segment = found.number;
    entry->offset = (uint64_t)(data - (const char *)found.base);
    return announce(exchange->channel, &found, 0) ? GRAFT_ERROR_SYSTEM : GRAFT_OK;
  }
  entry->segment = GRAFT_NO_SEGMENT;
  entry->offset = exchange->offsets[number] = exchange->transferred;
  exchange->transferred += rounded(bytes);
  return GRAFT_OK;
}

/* Gives what lies in the transfer its segment; it grows as it is needed, and is announced anew then. */
static int32_t place_transfer(Exchange *exchange) {
  Channel *channel = exchange->channel;
  if (!channel->transfer || channel->transfer->bytes < exchange->transferred) {
    graft_segment_destroy(&exchange->self->segments, channel->transfer);
    channel->transfer = graft_segment_create(&exchange->self->segments, exchange->transferred);
  }
  if (!channel->transfer) {
    return graft_context_fail(exchange->context, GRAFT_ERROR_MEMORY, "out of shared memory: %zu bytes for the tensors of a call",
                              exchange->transferred);
  }
  if (announce(channel, channel->transfer, 0)) {
    return GRAFT_ERROR_SYSTEM;
  }
  Door *door = channel->door;
  for (int32_t i = 0; i < exchange->input_count + exchange->output_count; i++) {
    DoorTensor *entry = door->tensors + i;
    if (exchange->offsets[i] == SIZE_MAX) {
      continue;
    }
    entry->segment = channel->transfer->number;
    if (i < exchange->input_count) {
      const DLTensor *tensor = exchange->inputs[i];
      size_t bytes = bytes_of(tensor);
      if (bytes) {
        memcpy((char *)channel->transfer->base + exchange->offsets[i], (const char *)tensor->data + tensor->byte_offset, bytes);
      }
    }
  }
  return GRAFT_OK;
}

static int32_t write_door(Exchange *exchange) {
  Channel *channel = exchange->channel;
  Door *door = channel->door;
  int32_t count = exchange->input_count + exchange->output_count, status = GRAFT_OK;
  if (count > GRAFT_DOOR_TENSORS) {
    return graft_context_fail(exchange->context, GRAFT_ERROR_RUN,
                              "a function of %" PRId32 " tensors cannot run in another process: %d are the most", count,
                              GRAFT_DOOR_TENSORS);
  }
  if (channel->sent_count + count + 1 > GRAFT_DOOR_SEGMENTS) {
    channel->sent_count = 0;
    Note note = {.kind = NOTE_FORGET};
    if (graft_note_send(channel->socket, &note, -1)) {
      return GRAFT_ERROR_SYSTEM;
    }
  }
  door->function = exchange->self->number;
  door->input_count = exchange->input_count;
  door->output_count = exchange->output_count;
  door->status = GRAFT_OK;
  door->message[0] = 0;
  for (int32_t i = 0; !status && i < exchange->input_count; i++) {
    status = describe(exchange, exchange->inputs[i], 0, i);
  }
  for (int32_t i = 0; !status && i < exchange->output_count; i++) {
    status = describe(exchange, exchange->outputs[i], output_spec(exchange, i)->is_unknown, exchange->input_count + i);
  }
  return status || !exchange->transferred ? status : place_transfer(exchange);
}

/* ---- The answer ----------------------------------------------------------------------------------------------- */

/* Output `i`, whose shape the worker found out, lies in a memory of the worker's. */
static int32_t adopt_output(const Exchange *exchange, int32_t i, const Note *note, int descriptor) {
  if (i < 0 || i >= exchange->output_count || descriptor < 0) {
    return graft_context_fail(exchange->context, GRAFT_ERROR_RUN,
                              "its worker process sent an output whose number is out of range");
  }
  const DoorTensor *entry = exchange->channel->door->tensors + exchange->input_count + i;
  int64_t shape[GRAFT_MAXIMUM_DIMENSIONS];
  size_t bytes = 0;
  int32_t ndim = entry->ndim;
  if (ndim < 0 || ndim > GRAFT_MAXIMUM_DIMENSIONS) {
    return graft_context_fail(exchange->context, GRAFT_ERROR_RUN, "its worker process sent a damaged shape");
  }
  memcpy(shape, entry->shape, sizeof shape);
  GraftContext *base = &exchange->context->base;
  void *target = base->api->allocate_output(base, i, ndim, shape);
  if (!target) {
    return GRAFT_ERROR_RUN;
  }
  graft_tensor_bytes(exchange->outputs[i]->dtype, ndim, shape, &bytes);
  if (bytes > note->bytes) {
    return graft_context_fail(exchange->context, GRAFT_ERROR_RUN, "its worker process sent too few bytes of an output");
  }
  /* Read, not mapped: who may shorten a mapped file can end the process that looks at it. */
  for (size_t done = 0; done < bytes;) {
    ssize_t got = pread(descriptor, (char *)target + done, bytes - done, (off_t)done);
    if (got == 0 || (got < 0 && errno != EINTR)) {
      return graft_context_fail(exchange->context, GRAFT_ERROR_RUN, "its worker process sent too few bytes of an output");
    }
    done += got > 0 ? (size_t)got : 0;
  }
  return GRAFT_OK;
}

static int32_t collect_answer(const Exchange *exchange) {
  const Door *door = exchange->channel->door;
  if (door->status != GRAFT_OK) {
    char message[sizeof door->message];
    memcpy(message, door->message, sizeof message);
    message[sizeof message - 1] = 0;
    return graft_context_fail(exchange->context, GRAFT_ERROR_RUN, "%s", message);
  }
  for (int32_t i = 0; i < exchange->output_count; i++) {
    const DLTensor *output = exchange->outputs[i];
    size_t offset = exchange->offsets[exchange->input_count + i];
    if (offset != SIZE_MAX && bytes_of(output)) {
      memcpy((char *)output->data + output->byte_offset, (char *)exchange->channel->transfer->base + offset,
             bytes_of(output));
    }
  }
  return GRAFT_OK;
}

/* Waits for a note: 1 if there is one, 0 if the time is over or the run is to stop, which nobody wakes it for. */
static int wait_for_note(int socket, int64_t end, Stop *stop) {
  for (;;) {
    int64_t left = end ? (end - graft_nanoseconds()) / 1000000 + 1 : INT32_MAX;
    if (left <= 0 || graft_stop_status(stop)) {
      return 0;
    }
    int64_t most = stop ? STOP_MILLISECONDS : INT32_MAX;
    struct pollfd poll_row = {.fd = socket, .events = POLLIN};
    int found = poll(&poll_row, 1, (int)(left < most ? left : most));
    if (found > 0 || (found < 0 && errno != EINTR)) {
      return 1;
    }
  }
}

/* `lost` says whether, and how, the worker is of no use any more. */
static int32_t await_answer(const Exchange *exchange, int *lost, Loss *loss) {
  Channel *channel = exchange->channel;
  int64_t limit = exchange->self->nanoseconds, end = limit ? graft_nanoseconds() + limit : 0;
  int32_t status = GRAFT_OK;
  graft_door_spin(channel->door, DOOR_ANSWERED, &channel->rests);
  for (;;) {
    Note note;
    int descriptor;
    Stop *stop = exchange->context->stop;
    *lost = !wait_for_note(channel->socket, end, stop);
    *loss = graft_stop_status(stop) ? WORKER_STOPPED : WORKER_LATE;
    if (!*lost) {
      *loss = WORKER_GONE;
      *lost = graft_note_receive(channel->socket, &note, &descriptor) != 0;
    }
    if (*lost || note.kind == NOTE_DONE) {
      return status;
    }
    if (!status && note.kind == NOTE_OUTPUT) {
      status = adopt_output(exchange, (int32_t)note.segment, &note, descriptor);
    }
    if (descriptor >= 0) {
      close(descriptor);
    }
  }
}

static int32_t ask(Exchange *exchange, int *lost, Loss *loss) {
  Channel *channel = exchange->channel;
  *lost = 0;
  *loss = WORKER_GONE;
  int32_t status = write_door(exchange);
  if (status) {
    *lost = status == GRAFT_ERROR_SYSTEM;
    return status;
  }
  Note note = {.kind = NOTE_CALL};
  atomic_store_explicit(&channel->door->turn, DOOR_ASKED, memory_order_release);
  *lost = graft_note_send(channel->socket, &note, -1) != 0;
  status = *lost ? GRAFT_OK : await_answer(exchange, lost, loss);
  return *lost || status ? status : collect_answer(exchange);
}

int32_t graft_run_fenced(GraftContext *base, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  Context *context = (Context *)base;
  FencedFunction *self = state;
  Channel *channel;
  if (context->call->device) {
    return graft_context_fail(context, GRAFT_ERROR_RUN,
                              "a worker process has no tensors on devices; leave this module's plugin out of isolation");
  }
  int32_t status = take_channel(self, context, &channel);
  if (status) {
    return status;
  }
  Exchange exchange = {.self = self,
                       .context = context,
                       .channel = channel,
                       .inputs = inputs,
                       .outputs = outputs,
                       .input_count = context->call->inputs.count,
                       .output_count = context->call->outputs.count};
  int lost;
  Loss loss;
  status = ask(&exchange, &lost, &loss);
  if (!lost) {
    put_channel(self, channel);
    return status;
  }
  context->message[0] = 0;
  status = lose_worker(self, context, channel, loss);
  destroy_channel(self, channel);
  return status;
}

/* ---- The Python object ---------------------------------------------------------------------------------------- */

static PyObject *fenced_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"connection", "number", "seconds", "is_distrusted", NULL};
  PyObject *connection;
  int number, is_distrusted = 0;
  double seconds;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Oid|p", names, &connection, &number, &seconds, &is_distrusted)) {
    return NULL;
  }
  FencedFunction *self = (FencedFunction *)PyType_GenericAlloc(type, 0);
  if (self) {
    self->connection = Py_NewRef(connection);
    self->number = number;
    self->is_distrusted = is_distrusted;
    self->nanoseconds = seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1e9) : 0;
    self->owner = getpid();
    self->segments.numbers = (uint64_t)1 << FIRST_OWN_NUMBER_BIT;
    pthread_mutex_init(&self->lock, NULL);
    pthread_mutex_init(&self->segments.lock, NULL);
  }
  return (PyObject *)self;
}

static void fenced_dealloc(PyObject *object) {
  FencedFunction *self = (FencedFunction *)object;
  while (self->idle) {
    Channel *channel = self->idle;
    self->idle = channel->next;
    destroy_channel(self, channel);
  }
  pthread_mutex_destroy(&self->lock);
  pthread_mutex_destroy(&self->segments.lock);
  Py_XDECREF(self->connection);
  PyTypeObject *type = Py_TYPE(object);
  PyObject_Free(object);
  Py_DECREF((PyObject *)type);
}

static PyType_Slot fenced_slots[] = {
    {Py_tp_dealloc, fenced_dealloc},
    {Py_tp_doc, "FencedFunction(connection, number, seconds, is_distrusted=False): a function of a module that a worker "
                "process runs; one that is distrusted sees copies of the tensors alone."},
    {Py_tp_new, fenced_new},
    {0},
};

PyTypeObject *graft_fenced_type;
PyType_Spec graft_fenced_spec = {
    .name = "graft.runtime._native.FencedFunction",
    .basicsize = sizeof(FencedFunction),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = fenced_slots,
};
