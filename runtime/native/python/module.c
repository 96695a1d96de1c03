/* The Python module graft.runtime._native: the class Program. */
#define GRAFT_BINDING_MAIN
#include "binding.h"
#include "sandbox.h"

#include <string.h>

Imports graft_imports;

/* ---- Calls ---------------------------------------------------------------------------------------------------- */

static PyObject *program_vectorcall(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *keywords) {
  if (keywords && PyTuple_GET_SIZE(keywords)) {
    PyErr_SetString(PyExc_TypeError, "the native program takes positional arguments only");
    return NULL;
  }
  return graft_call_program((ProgramObject *)self, arguments, PyVectorcall_NARGS(flags), NULL, -1,
                            &(GraftRunDetails){0});
}

/* What may end a run early: a time of the monotonic clock in nanoseconds, 0 for none, and a CancelToken or None, at
 * arguments[2] and [3], if there are so many. NULL with no exception where nothing may. 0, or -1 with an exception. */
static int take_stop(PyObject *const *arguments, Py_ssize_t count, Stop *stop, GraftRunDetails *details) {
  if (count < 4) {
    return 0;
  }
  stop->end = PyLong_AsLongLong(arguments[2]);
  if (PyErr_Occurred()) {
    return -1;
  }
  if (PyObject_TypeCheck(arguments[3], graft_cancel_token_type)) {
    stop->token = &((CancelTokenObject *)arguments[3])->token;
  }
  details->stop = stop->end || stop->token ? stop : NULL;
  return 0;
}

/* The items of a tuple, borrowed, in memory that PyMem_Free gives back; NULL with an exception. */
static PyObject **items_of(PyObject *tuple) {
  Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  PyObject **items = PyMem_Malloc(sizeof *items * (size_t)(count + 1));
  for (Py_ssize_t i = 0; items && i < count; i++) {
    items[i] = PyTuple_GET_ITEM(tuple, i);
  }
  return items ? items : (PyObject **)PyErr_NoMemory();
}

/* Gives the outputs or, where a buffer has too few rows, the number that the first such output has; then nothing ran. */
static PyObject *program_run_into(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  ProgramObject *self = (ProgramObject *)object;
  Stop stop = {0};
  GraftRunDetails details = {0};
  if (count < 2 || !PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[1]) ||
      PyTuple_GET_SIZE(arguments[1]) != self->output_count) {
    PyErr_SetString(PyExc_TypeError, "run_into takes a tuple of inputs, and one of a buffer or None for each output");
    return NULL;
  }
  if (take_stop(arguments, count, &stop, &details) < 0) {
    return NULL;
  }
  PyObject **inputs = items_of(arguments[0]), **buffers = inputs ? items_of(arguments[1]) : NULL;
  PyObject *outputs =
      buffers ? graft_call_program(self, inputs, PyTuple_GET_SIZE(arguments[0]), buffers, -1, &details) : NULL;
  PyMem_Free(inputs);
  PyMem_Free(buffers);
  return outputs;
}

/* Takes a tuple of inputs and the number of the device that outputs are to be on: 0 for main memory, -1 for where the
 * first input is that is on a device. */
static PyObject *program_run_on(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  ProgramObject *self = (ProgramObject *)object;
  Stop stop = {0};
  GraftRunDetails details = {0};
  long device = count >= 2 && PyTuple_Check(arguments[0]) ? PyLong_AsLong(arguments[1]) : -2;
  if (device < -1 || device > self->program->device_count) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "run_on takes a tuple of inputs and the number of a device of the program");
    }
    return NULL;
  }
  if (PyErr_Occurred() || take_stop(arguments, count, &stop, &details) < 0) {
    return NULL;
  }
  PyObject **inputs = items_of(arguments[0]);
  PyObject *outputs =
      inputs ? graft_call_program(self, inputs, PyTuple_GET_SIZE(arguments[0]), NULL, (int32_t)device, &details) : NULL;
  PyMem_Free(inputs);
  return outputs;
}

/* The part of DLPack's table of functions (1.3) that is used here, as its header lays it out. */
typedef struct ExchangeTable {
  struct {
    uint32_t major, minor;
  } version;
  struct ExchangeTable *earlier;
  void *managed[3]; /* functions that allocate, take and give tensors with an owner */
  ExchangeTensor tensor_of_object;
} ExchangeTable;

/* Takes a framework's table, a tuple of its tensors for the inputs, and one for the outputs, which are written. */
static PyObject *program_run_exchanged(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  ProgramObject *self = (ProgramObject *)object;
  if (count != 3 || !PyTuple_Check(arguments[1]) || !PyTuple_Check(arguments[2]) ||
      PyTuple_GET_SIZE(arguments[2]) != self->output_count) {
    PyErr_SetString(PyExc_TypeError, "run_exchanged takes a table, a tuple of inputs, and one of a tensor for each output");
    return NULL;
  }
  ExchangeTable *table = PyCapsule_GetPointer(arguments[0], "dlpack_exchange_api");
  while (table && table->version.major > 1) {
    table = table->earlier;
  }
  if (!table) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "the table is of a version of DLPack that is not known here");
    }
    return NULL;
  }
  PyObject **inputs = items_of(arguments[1]), **outputs = inputs ? items_of(arguments[2]) : NULL;
  PyObject *result = outputs ? graft_call_exchanged(self, table->tensor_of_object, inputs,
                                                    PyTuple_GET_SIZE(arguments[1]), outputs)
                             : NULL;
  PyMem_Free(inputs);
  PyMem_Free(outputs);
  return result;
}

/* The most calls of any procedure that may be the entry of a run. */
static int32_t most_calls(const Manifest *manifest) {
  int32_t most = manifest->procedures[0].call_count;
  for (int32_t i = 0; i < manifest->variants.count; i++) {
    int32_t count = manifest->procedures[manifest->variants.items[i]].call_count;
    most = count > most ? count : most;
  }
  return most;
}

typedef struct Times {
  int64_t *nanoseconds; /* of the calls of the entry */
  int32_t count;
} Times;

static void note_time(void *user, const GraftCallTime *time) {
  Times *times = user;
  if (time->depth == 0) {
    times->nanoseconds[times->count++] = time->nanoseconds;
  }
}

static PyObject *list_times(const int64_t *nanoseconds, int32_t count) {
  PyObject *list = PyList_New(count);
  for (int32_t i = 0; list && i < count; i++) {
    PyObject *time = PyLong_FromLongLong(nanoseconds[i]);
    if (!time) {
      Py_CLEAR(list);
    } else {
      PyList_SET_ITEM(list, i, time);
    }
  }
  return list;
}

/* Gives the number of the entry that ran, and the times of its calls in nanoseconds. */
static PyObject *program_profile(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  ProgramObject *self = (ProgramObject *)object;
  const Manifest *manifest = &self->program->manifest;
  Times times = {.nanoseconds = PyMem_Calloc((size_t)most_calls(manifest) + 1, sizeof(int64_t))};
  if (!times.nanoseconds) {
    return PyErr_NoMemory();
  }
  Timing timing = {note_time, &times};
  GraftRunDetails details = {.timing = &timing};
  PyObject *outputs = graft_call_program(self, arguments, count, NULL, 0, &details);
  PyObject *list = outputs ? list_times(times.nanoseconds, times.count) : NULL;
  Py_XDECREF(outputs);
  PyMem_Free(times.nanoseconds);
  return list ? Py_BuildValue("(iN)", (int)details.procedure, list) : NULL;
}

/* ---- Facts ---------------------------------------------------------------------------------------------------- */

static PyObject *describe_port(const Port *port) {
  PyObject *shape = port->info.ndim < 0 ? Py_NewRef(Py_None) : PyTuple_New(port->info.ndim);
  for (int32_t i = 0; shape && i < port->info.ndim; i++) {
    PyObject *size = port->info.shape[i] < 0 ? PyUnicode_FromString(port->info.extents[i])
                                             : PyLong_FromLongLong(port->info.shape[i]);
    if (!size) {
      Py_CLEAR(shape);
    } else {
      PyTuple_SET_ITEM(shape, i, size);
    }
  }
  return shape ? Py_BuildValue("(ssN)", port->info.name, graft_dtype_name(port->info.dtype), shape) : NULL;
}

static PyObject *describe_ports(const ProgramObject *self, int32_t first, int32_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple && i < count; i++) {
    PyObject *port = describe_port(self->ports + first + i);
    if (!port) {
      Py_CLEAR(tuple);
    } else {
      PyTuple_SET_ITEM(tuple, i, port);
    }
  }
  return tuple;
}

static PyObject *program_inputs(PyObject *object, void *unused) {
  (void)unused;
  return describe_ports((ProgramObject *)object, 0, ((ProgramObject *)object)->input_count);
}

static PyObject *program_outputs(PyObject *object, void *unused) {
  (void)unused;
  const ProgramObject *self = (ProgramObject *)object;
  return describe_ports(self, self->input_count, self->output_count);
}

/* The sum over all procedures; `which` is not NULL for the bound. */
static PyObject *program_arena(PyObject *object, void *which) {
  const Manifest *manifest = &((ProgramObject *)object)->program->manifest;
  uint64_t total = 0;
  for (int32_t i = 0; i < manifest->procedure_count; i++) {
    total += which ? manifest->procedures[i].arena_bound : manifest->procedures[i].arena_bytes;
  }
  return PyLong_FromUnsignedLongLong(total);
}

static PyObject *program_threads(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromLong(((ProgramObject *)object)->program->thread_count);
}

/* For tests and benchmarks: what graft_pool_counts says. */
static PyObject *program_pool_counts(PyObject *object, void *unused) {
  (void)unused;
  const GraftProgram *program = ((ProgramObject *)object)->program;
  PoolCounts counts = program->own_pool ? graft_pool_counts(program->own_pool) : (PoolCounts){0};
  unsigned long long alone = atomic_load(&program->sharing.alone);
  return Py_BuildValue("{sKsKsKsKsK}", "jobs", counts.jobs, "helped", counts.helped, "parted", counts.parted, "lent",
                       counts.lent, "alone", alone);
}

/* ---- Life ----------------------------------------------------------------------------------------------------- */

static PyObject *program_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)arguments;
  (void)keywords;
  ProgramObject *self = (ProgramObject *)PyType_GenericAlloc(type, 0);
  if (self) {
    self->vectorcall = program_vectorcall;
    pthread_mutex_init(&self->segments.lock, NULL);
  }
  return (PyObject *)self;
}

static void program_dealloc(PyObject *object) {
  ProgramObject *self = (ProgramObject *)object;
  for (int32_t i = 0; self->ports && i < self->input_count + self->output_count; i++) {
    Py_XDECREF((PyObject *)self->ports[i].descr);
  }
  PyMem_Free(self->ports);
  graft_drop_spares(self);
  graft_program_destroy(self->program);
  graft_drop_parts(self);
  pthread_mutex_destroy(&self->segments.lock);
  PyTypeObject *type = Py_TYPE(object);
  PyObject_Free(object);
  Py_DECREF((PyObject *)type);
}

static int find_ports(ProgramObject *self) {
  int32_t inputs = graft_program_input_count(self->program), outputs = graft_program_output_count(self->program);
  self->ports = PyMem_Calloc((size_t)inputs + (size_t)outputs + 1, sizeof(Port));
  if (!self->ports) {
    PyErr_NoMemory();
    return -1;
  }
  self->input_count = inputs;
  self->output_count = outputs;
  for (int32_t i = 0; i < inputs + outputs; i++) {
    Port *port = self->ports + i;
    port->info = i < inputs ? graft_program_input(self->program, i) : graft_program_output(self->program, i - inputs);
    port->descr = graft_numpy_descr(port->info.dtype);
    const Procedure *main = self->program->manifest.procedures;
    port->grows = main->tensors[i < inputs ? main->inputs.items[i] : main->outputs.items[i - inputs]].grows;
    for (int32_t axis = 0; axis < port->info.ndim; axis++) {
      port->is_symbolic |= port->info.shape[axis] < 0;
    }
    if (!port->descr) {
      return -1;
    }
  }
  return 0;
}

static int program_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"manifest", "modules",  "constants", "loaders", "threads",
                          "artifact", "shared", "devices",   NULL};
  ProgramObject *self = (ProgramObject *)object;
  PyObject *manifest, *modules, *constants, *loaders, *artifact = Py_None, *devices = NULL;
  int threads, shared = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "SOO!Oi|OpO!", names, &manifest, &modules, &PyDict_Type,
                                   &constants, &loaders, &threads, &artifact, &shared, &PyTuple_Type, &devices)) {
    return -1;
  }
  if (self->kept) {
    PyErr_SetString(PyExc_TypeError, "a program cannot be initialised twice");
    return -1;
  }
  PyObject *listed = devices ? Py_NewRef(devices) : PyTuple_New(0);
  int created = listed ? graft_create_from_parts(self, manifest, modules, constants, loaders, listed, threads, artifact,
                                                 shared)
                       : -1;
  Py_XDECREF(listed);
  return created < 0 ? -1 : find_ports(self);
}

static PyMethodDef program_methods[] = {
    {"profile", (PyCFunction)(void (*)(void))program_profile, METH_FASTCALL,
     "Run the program and return the number of the procedure that ran, and the nanoseconds that each of its calls took."},
    {"run_on", (PyCFunction)(void (*)(void))program_run_on, METH_FASTCALL,
     "Run the program on a tuple of inputs; the outputs are in main memory (0), on the device of this number, or where the "
     "inputs are (-1). A time of the monotonic clock (0 for none) and a CancelToken or None may follow, which end the run."},
    {"run_into", (PyCFunction)(void (*)(void))program_run_into, METH_FASTCALL,
     "Run the program on a tuple of inputs; the outputs for which a tuple has arrays become their first rows. Return the "
     "outputs or, where an array has too few rows and nothing ran, the number that the first such output has. What may end "
     "the run may follow, as in run_on."},
    {"run_exchanged", (PyCFunction)(void (*)(void))program_run_exchanged, METH_FASTCALL,
     "Run the program on tensors of a framework by its table of DLPack functions (`__dlpack_c_exchange_api__`): a tuple of "
     "inputs, and one of contiguous tensors that the outputs are written to."},
    {0},
};

static PyGetSetDef program_getters[] = {
    {"inputs", program_inputs, NULL, "(name, dtype, shape or None) of each input; extents are numbers or texts.", NULL},
    {"outputs", program_outputs, NULL, "(name, dtype, shape or None) of each output; extents are numbers or texts.", NULL},
    {"arena_bytes", program_arena, NULL, "The planned bytes of the arenas of all procedures.", NULL},
    {"arena_bound", program_arena, NULL, "The lower bound of arena_bytes.", "bound"},
    {"threads", program_threads, NULL, "The number of threads that the program uses.", NULL},
    {"pool_counts", program_pool_counts, NULL, "What its threads did so far: jobs, helped, parted, lent, alone.", NULL},
    {0},
};

static PyMemberDef program_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ProgramObject, vectorcall), READONLY, NULL},
    {0},
};

static PyType_Slot program_slots[] = {
    {Py_tp_dealloc, program_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_doc, "Program(manifest, modules, constants, loaders, threads, artifact=None, shared=False, devices=()): a"
                " program that runs natively; its arenas may be memory that is shared with other processes."},
    {Py_tp_methods, program_methods},
    {Py_tp_getset, program_getters},
    {Py_tp_members, program_members},
    {Py_tp_init, program_init},
    {Py_tp_new, program_new},
    {0},
};

PyTypeObject *graft_program_type;
static PyType_Spec program_spec = {
    .name = "graft.runtime._native.Program",
    .basicsize = sizeof(ProgramObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = program_slots,
};

static PyMethodDef functions[] = {
    {"open_artifact", graft_open_artifact, METH_VARARGS,
     "open_artifact(path, accept=None): map and check an artifact; return its members (bytes) and its constants as dicts of "
     "read-only arrays, and itself. accept(message, signatures or None) is called before anything but the manifest is read."},
    {"check_artifact", graft_check_artifact, METH_O,
     "Check the bytes of an artifact's constants, where opening it left that for later."},
    {"serve", graft_serve, METH_VARARGS,
     "serve(program, functions, socket): answer calls of functions of the program's first module until the socket ends."},
    {"enter_sandbox", graft_enter_sandbox, METH_VARARGS,
     "enter_sandbox(filter, names): install a filter of system calls for good; refused ones fail with EPERM and are noted."},
    {"last_refusal", graft_last_refusal, METH_NOARGS, "What the sandbox refused last since this was asked before, as a text; empty if nothing."},
    {"read_texts", graft_read_texts, METH_VARARGS,
     "read_texts(bytes, place, count): the texts of a packed value from a place on, as far as they are whole, and where they end."},
    {"write_texts", graft_write_texts, METH_O, "The bytes of a list of texts in a packed value; TypeError for what is none."},
    {"content_hash", graft_content_hash, METH_O, "The hash of bytes by which constants are named."},
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "graft.runtime._native",
    .m_doc = "The native runtime, for Python.",
    .m_size = -1,
    .m_methods = functions,
};

static PyObject *import_name(const char *module, const char *name) {
  PyObject *imported = PyImport_ImportModule(module);
  PyObject *found = imported ? PyObject_GetAttrString(imported, name) : NULL;
  Py_XDECREF(imported);
  return found;
}

PyMODINIT_FUNC PyInit__native(void) {
  import_array();
  graft_imports = (Imports){
      .graft_error = import_name("graft.errors", "GraftError"),
      .artifact_error = import_name("graft.errors", "ArtifactError"),
      .input_error = import_name("graft.errors", "InputError"),
      .run_error = import_name("graft.errors", "RunError"),
      .cancelled_error = import_name("graft.errors", "CancelledError"),
      .deadline_error = import_name("graft.errors", "DeadlineError"),
      .numpy_dtype = import_name("graft.runtime.dtypes", "numpy_dtype"),
      .dtype_name = import_name("graft.runtime.dtypes", "dtype_name"),
  };
  if (PyErr_Occurred() || !(graft_program_type = (PyTypeObject *)PyType_FromSpec(&program_spec)) ||
      !(graft_fenced_type = (PyTypeObject *)PyType_FromSpec(&graft_fenced_spec)) ||
      !(graft_device_tensor_type = (PyTypeObject *)PyType_FromSpec(&graft_device_tensor_spec)) ||
      !(graft_cancel_token_type = (PyTypeObject *)PyType_FromSpec(&graft_cancel_token_spec))) {
    return NULL;
  }
  PyObject *module = PyModule_Create(&definition);
  if (module && (PyModule_AddObjectRef(module, "Program", (PyObject *)graft_program_type) < 0 ||
                 PyModule_AddObjectRef(module, "FencedFunction", (PyObject *)graft_fenced_type) < 0 ||
                 PyModule_AddObjectRef(module, "DeviceTensor", (PyObject *)graft_device_tensor_type) < 0 ||
                 PyModule_AddObjectRef(module, "CancelToken", (PyObject *)graft_cancel_token_type) < 0 ||
                 PyModule_AddIntConstant(module, "ABI_VERSION", GRAFT_ABI_VERSION) < 0)) {
    Py_CLEAR(module);
  }
  return module;
}
