/* The Python module graft.runtime._native: what its files share. */
#ifndef GRAFT_BINDING_H
#define GRAFT_BINDING_H

#include "limited.h"

#define PY_ARRAY_UNIQUE_SYMBOL graft_array_api
#ifndef GRAFT_BINDING_MAIN
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "door.h"
#include "program/program.h"

_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "shapes of NumPy and DLPack must agree");

/* Python objects that the module uses; set once, when it is imported. */
typedef struct Imports {
  PyObject *graft_error, *artifact_error, *input_error, *run_error, *cancelled_error, *deadline_error; /* of graft.errors */
  PyObject *numpy_dtype, *dtype_name;                 /* of graft.runtime.dtypes */
} Imports;

extern Imports graft_imports;

/* A tensor in an ndarray's memory. */
typedef struct ArrayTensor {
  DLTensor tensor;
  PyObject *array;
} ArrayTensor;

/* A Python loader, as the runtime sees it. */
typedef struct PythonLoader {
  GraftLoader base;
  PyObject *object;
  const struct ProgramObject *program;
  PyObject *exception; /* that `load` raised */
} PythonLoader;

/* An input or output of the program. */
typedef struct Port {
  PyArray_Descr *descr;
  GraftTensorInfo info;
  int is_symbolic; /* whether an extent is no number */
  int32_t grows;   /* the axis along which a call appends to it or made it; -1 */
} Port;

typedef struct ProgramObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  GraftProgram *program;
  Port *ports; /* inputs, then outputs */
  int32_t input_count, output_count;
  /* What the program was made of, and stays as long as it. */
  PyObject *kept; /* a list of references */
  Py_buffer *buffers;
  Py_ssize_t buffer_count;
  ArrayTensor *arrays;
  GraftNamedTensor *names; /* of the arrays */
  GraftModuleSource *modules;
  Py_ssize_t array_count;
  PythonLoader *python_loaders;
  Py_ssize_t python_loader_count;
  const GraftDevice **devices;
  Py_ssize_t device_count;
  void **libraries;
  Py_ssize_t library_count;
  /* What fenced modules see of it. */
  Segments segments;
  GraftAllocator shared;
  struct Spares *spares; /* memory of large outputs; NULL until there is one (spares.c) */
} ProgramObject;

/* What a framework fills a DLTensor of its own with, without a capsule; the tensor owns the memory, and the shape. 0, or
 * -1 with an exception. */
typedef int (*ExchangeTensor)(void *object, DLTensor *tensor);

/* One running call of a program from Python. */
typedef struct Run {
  ProgramObject *program;
  DLTensor *inputs, *outputs;
  PyObject **input_objects; /* who owns the memory of the inputs: arrays, or NULL */
  PyObject **arrays;        /* of the outputs, or NULL where the shape is unknown */
  int32_t outputs_on;       /* the number of the device that outputs are to be on; -1: that of the inputs */
  PyObject *const *buffers; /* NULL, or for each output NULL or the array whose first rows it becomes */
  ExchangeTensor exchange;  /* not NULL: inputs and `buffers` are tensors of the framework whose function this is */
  int64_t *strides;         /* NULL, or room for those of all inputs and outputs; made when needed */
  PyObject *lease;          /* keeps all that memory alive for arrays that a Python function got; made when needed */
  PyObject *exception;      /* that a Python function raised */
} Run;

/* Whether an output of this shape is one that new memory would cost more than its bytes (spares.c). */
int graft_is_large(const DLTensor *tensor);

/* An array for a large output, in memory of an earlier one where that is free. NULL with an exception. */
PyObject *graft_large_array(ProgramObject *program, int32_t output, const DLTensor *known);

/* Lets go of what is kept; arrays that still have such memory keep theirs. */
void graft_drop_spares(ProgramObject *program);

/* A new reference to the NumPy dtype; NULL with an exception. */
PyArray_Descr *graft_numpy_descr(DLDataType dtype);

/* 0, or -1 with an exception. */
int graft_dlpack_dtype(PyArray_Descr *descr, DLDataType *dtype);

/* Describes the memory of a contiguous array. 0, or -1 with an exception. */
int graft_tensor_of_array(PyObject *array, DLTensor *tensor);

/* An ndarray over the tensor's memory, which `base` (may be NULL) keeps alive. Steals nothing. */
PyObject *graft_array_of_tensor(const DLTensor *tensor, PyObject *base, int writeable);

/* The name of an object's class, without its module, in `name`. */
enum { GRAFT_CLASS_NAME = 128 };
const char *graft_class_name(PyObject *object, char name[GRAFT_CLASS_NAME]);

/* "ValueError: text" of the exception that is set, which is moved to `exception`. */
void graft_take_exception(PyObject **exception, char *text, size_t size);

/* Raises the class that belongs to error->code; `cause` (may be NULL) is stolen. `failed` may be NULL. */
void graft_raise(const GraftError *error, const GraftProgram *program, const Call *failed, PyObject *cause);

/* Fills the loader for a Python object; `kind` must outlive it. */
void graft_python_loader(PythonLoader *loader, const char *kind, PyObject *object, const ProgramObject *program);

/* Whether a tensor has the type and shape of an input or output, but for extents that are no numbers. */
int graft_fits_port(const Port *port, const DLTensor *tensor);

/* Raises the InputError that says what an input must be and is. */
void graft_fail_type(const Port *port, const DLTensor *tensor);

/* A contiguous copy of a strided tensor, which the tensor then describes. NULL with an exception. */
PyObject *graft_copy_strided(const Port *port, DLTensor *tensor);

/* Converts an argument that is not simply the right array. Returns a new reference that keeps the memory alive, or NULL
 * with an InputError. */
PyObject *graft_convert_input(const Port *port, PyObject *argument, DLTensor *tensor);

/* Runs the program on as many arguments; gives an array, or a tuple of them (call.c). `buffers` (may be NULL) are
 * arrays, or None, for as many outputs: of those that are arrays the output becomes the first rows along its axis. */
PyObject *graft_call_program(ProgramObject *self, PyObject *const *arguments, Py_ssize_t count,
                             PyObject *const *buffers, int32_t outputs_on, GraftRunDetails *details);

/* Runs the program on tensors of a framework, of which `exchange` is; `outputs` are as many that it writes. None. */
PyObject *graft_call_exchanged(ProgramObject *self, ExchangeTensor exchange, PyObject *const *arguments,
                               Py_ssize_t count, PyObject *const *outputs);

/* graft.runtime._native.CancelToken: what other threads stop runs with (call.c). */
typedef struct CancelTokenObject {
  PyObject_HEAD
  GraftCancelToken token;
} CancelTokenObject;

extern PyTypeObject *graft_cancel_token_type;
extern PyType_Spec graft_cancel_token_spec;

/* Makes self->program. `modules`, `loaders` and `devices` are sequences of tuples, `constants` a dict, `artifact` what
 * they come from, or None; `is_shared` puts arenas where other processes may see them. 0, or -1 with an exception. */
int graft_create_from_parts(ProgramObject *self, PyObject *manifest, PyObject *modules, PyObject *constants,
                            PyObject *loaders, PyObject *devices, int threads, PyObject *artifact, int is_shared);

/* The type DeviceTensor (device_tensor.c). What is made of an output takes its memory over. */
extern PyTypeObject *graft_device_tensor_type;
extern PyType_Spec graft_device_tensor_spec;
PyObject *graft_device_tensor(const DLTensor *output, ProgramObject *program);

/* graft.runtime._native.FencedFunction: a function of a module that a worker process runs (fenced.c). */
extern PyTypeObject *graft_fenced_type;
extern PyType_Spec graft_fenced_spec;
int32_t graft_run_fenced(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs);

/* graft.runtime._native.serve(program, functions, socket): the worker's side (serve.c). */
extern PyTypeObject *graft_program_type;
PyObject *graft_serve(PyObject *module, PyObject *arguments);

/* graft.runtime._native.open_artifact(path, accept=None), check_artifact(artifact) and content_hash(bytes). */
PyObject *graft_open_artifact(PyObject *module, PyObject *arguments);
PyObject *graft_check_artifact(PyObject *module, PyObject *capsule);
PyObject *graft_content_hash(PyObject *module, PyObject *bytes);

/* graft.runtime._native.read_texts(bytes, place, count) and write_texts(list). */
PyObject *graft_read_texts(PyObject *module, PyObject *arguments);
PyObject *graft_write_texts(PyObject *module, PyObject *texts);

/* The artifact that open_artifact returned; NULL with an exception if it is something else. */
struct GraftArtifact *graft_artifact_of(PyObject *capsule);

/* Gives up what the program, already destroyed, was made of. */
void graft_drop_parts(ProgramObject *self);

#endif
