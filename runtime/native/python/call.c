/* Calls of a program: arrays in, arrays out. */
#include "binding.h"
#include "devices/devices.h"
#include "execute/append.h"
#include "instance/instance.h"

#include <stdlib.h>
#include <string.h>

enum { STACK_TENSORS = 16 };

static int simply_fits(const Port *port, PyObject *argument) {
  if (!PyArray_CheckExact(argument)) {
    return 0;
  }
  PyArrayObject *array = (PyArrayObject *)argument;
  if (!PyArray_EquivTypes(PyArray_DESCR(array), port->descr) || PyArray_NDIM(array) != port->info.ndim ||
      !PyArray_CHKFLAGS(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED)) {
    return 0;
  }
  for (int32_t i = 0; i < port->info.ndim; i++) {
    if (PyArray_DIM(array, i) != port->info.shape[i] && port->info.shape[i] >= 0) {
      return 0;
    }
  }
  return 1;
}

/* The strides of an array in elements; `number` counts inputs, then outputs. NULL with an exception. */
static int64_t *element_strides(Run *run, int32_t number, PyArrayObject *array) {
  size_t count = (size_t)run->program->input_count + (size_t)run->program->output_count;
  if (!run->strides) {
    run->strides = PyMem_Malloc(count * GRAFT_MAXIMUM_DIMENSIONS * sizeof(int64_t));
  }
  if (!run->strides) {
    PyErr_NoMemory();
    return NULL;
  }
  int64_t *strides = run->strides + (size_t)number * GRAFT_MAXIMUM_DIMENSIONS;
  for (int i = 0; i < PyArray_NDIM(array); i++) {
    strides[i] = PyArray_STRIDE(array, i) / PyArray_ITEMSIZE(array);
  }
  return strides;
}

/* Rows of a larger array, for an input that grows: 1 if the argument is that, 0 if not, -1 with an exception. */
static int take_rows(Run *run, int32_t i, PyObject *argument) {
  const Port *port = run->program->ports + i;
  if (port->grows < 0 || !PyArray_CheckExact(argument)) {
    return 0;
  }
  PyArrayObject *array = (PyArrayObject *)argument;
  int aligned = PyArray_CHKFLAGS(array, NPY_ARRAY_ALIGNED);
  if (!PyArray_EquivTypes(PyArray_DESCR(array), port->descr) || PyArray_NDIM(array) != port->info.ndim || !aligned) {
    return 0;
  }
  DLTensor rows = {.data = PyArray_DATA(array),
                   .device = {kDLCPU, 0},
                   .ndim = port->info.ndim,
                   .dtype = port->info.dtype,
                   .shape = (int64_t *)PyArray_DIMS(array),
                   .strides = element_strides(run, i, array)};
  size_t bytes;
  if (!rows.strides) {
    return -1;
  }
  if (!graft_tensor_bytes(rows.dtype, rows.ndim, rows.shape, &bytes) || graft_block_pitch(&rows, port->grows) < 0) {
    return 0;
  }
  run->inputs[i] = rows;
  run->input_objects[i] = Py_NewRef(argument);
  return 1;
}

/* Describes a tensor of a framework in main memory. 0, or -1 with an exception. */
static int take_exchanged(const Run *run, const Port *port, PyObject *object, DLTensor *tensor) {
  if (run->exchange(object, tensor) < 0) {
    return -1;
  }
  if (tensor->device.device_type != kDLCPU || !graft_fits_port(port, tensor)) {
    graft_fail_type(port, tensor);
    return -1;
  }
  tensor->data = (char *)tensor->data + tensor->byte_offset;
  tensor->byte_offset = 0;
  return 0;
}

static int take_input(Run *run, int32_t i, PyObject *argument) {
  const Port *port = run->program->ports + i;
  if (run->exchange) {
    if (take_exchanged(run, port, argument, run->inputs + i) < 0) {
      return -1;
    }
    if (graft_is_contiguous(run->inputs + i)) {
      run->inputs[i].strides = NULL;
      run->input_objects[i] = Py_NewRef(argument);
    } else {
      run->input_objects[i] = graft_copy_strided(port, run->inputs + i);
    }
    return run->input_objects[i] ? 0 : -1;
  }
  if (simply_fits(port, argument)) {
    PyArrayObject *array = (PyArrayObject *)argument;
    run->inputs[i] = (DLTensor){.data = PyArray_DATA(array),
                                .device = {kDLCPU, 0},
                                .ndim = port->info.ndim,
                                .dtype = port->info.dtype,
                                .shape = (int64_t *)(port->is_symbolic ? PyArray_DIMS(array) : port->info.shape)};
    Py_INCREF(argument);
    run->input_objects[i] = argument;
    return 0;
  }
  int taken = take_rows(run, i, argument);
  if (taken) {
    return taken < 0 ? -1 : 0;
  }
  run->input_objects[i] = graft_convert_input(port, argument, run->inputs + i);
  return run->input_objects[i] ? 0 : -1;
}

static int fail_buffer(const Port *port) {
  GraftError error = {.code = GRAFT_ERROR_INPUT};
  graft_append(error.message, sizeof error.message,
               "the buffer of output '%s' is no writeable contiguous array of its type, and of its shape but for rows",
               port->info.name);
  graft_raise(&error, NULL, NULL, NULL);
  return -1;
}

/* A caller's array as an output of this shape, its first rows where rows may grow. 0; 1 where it has too few; -1 with an
   exception. */
static int use_buffer(Run *run, int32_t i, const DLTensor *known, PyObject *buffer) {
  const Port *port = run->program->ports + run->program->input_count + i;
  PyArrayObject *array = (PyArrayObject *)buffer;
  int writeable = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE;
  if (!known || !PyArray_CheckExact(buffer) || !PyArray_EquivTypes(PyArray_DESCR(array), port->descr) ||
      !PyArray_CHKFLAGS(array, writeable) || PyArray_NDIM(array) != known->ndim) {
    return fail_buffer(port);
  }
  for (int32_t axis = 0; axis < known->ndim; axis++) {
    if (axis != port->grows && PyArray_DIM(array, axis) != known->shape[axis]) {
      return fail_buffer(port);
    }
  }
  if (port->grows >= 0 && known->shape[port->grows] > PyArray_DIM(array, port->grows)) {
    return 1;
  }
  int64_t *strides = element_strides(run, run->program->input_count + i, array);
  Py_INCREF((PyObject *)port->descr);
  run->arrays[i] = strides ? PyArray_NewFromDescr(&PyArray_Type, port->descr, known->ndim, (npy_intp *)known->shape,
                                                  PyArray_STRIDES(array), PyArray_DATA(array), NPY_ARRAY_WRITEABLE, NULL)
                           : NULL;
  if (!run->arrays[i] || PyArray_SetBaseObject((PyArrayObject *)run->arrays[i], Py_NewRef(buffer)) < 0) {
    return -1;
  }
  run->outputs[i] = (DLTensor){.data = PyArray_DATA(array),
                               .device = {kDLCPU, 0},
                               .ndim = known->ndim,
                               .dtype = port->info.dtype,
                               .shape = known->shape,
                               .strides = strides};
  return 0;
}

/* A tensor of a framework that an output is written to. 0, or -1 with an exception. */
static int use_exchanged(Run *run, int32_t i, const DLTensor *known, PyObject *object) {
  const Port *port = run->program->ports + run->program->input_count + i;
  DLTensor *output = run->outputs + i;
  if (take_exchanged(run, port, object, output) < 0) {
    return -1;
  }
  int fits = known && known->ndim == output->ndim && graft_is_contiguous(output);
  for (int32_t axis = 0; fits && axis < known->ndim; axis++) {
    fits = known->shape[axis] == output->shape[axis];
  }
  output->strides = NULL;
  return fits ? 0 : fail_buffer(port);
}

static int make_output(Run *run, const Instance *instance, int32_t i) {
  const Port *port = run->program->ports + run->program->input_count + i;
  const DLTensor *known = graft_run_output(instance, i);
  run->outputs[i] = (DLTensor){0};
  if (run->exchange) {
    return use_exchanged(run, i, known, run->buffers[i]);
  }
  if (run->outputs_on > 0 && !(run->buffers && run->buffers[i] != Py_None)) {
    run->outputs[i].device = run->program->program->devices[run->outputs_on - 1]->device;
    return 0;
  }
  if (run->buffers && run->buffers[i] != Py_None) {
    return use_buffer(run, i, known, run->buffers[i]);
  }
  if (!known) {
    return 0;
  }
  if (graft_is_large(known)) {
    run->arrays[i] = graft_large_array(run->program, i, known);
  } else {
    Py_INCREF((PyObject *)port->descr);
    run->arrays[i] = PyArray_NewFromDescr(&PyArray_Type, port->descr, known->ndim, (npy_intp *)known->shape, NULL,
                                          NULL, 0, NULL);
  }
  if (!run->arrays[i]) {
    return -1;
  }
  run->outputs[i] = (DLTensor){.data = PyArray_DATA((PyArrayObject *)run->arrays[i]),
                               .device = {kDLCPU, 0},
                               .ndim = known->ndim,
                               .dtype = port->info.dtype,
                               .shape = known->shape};
  return 0;
}

static void free_block(PyObject *capsule) { graft_block_free(&(Block){.start = PyCapsule_GetPointer(capsule, "graft_block")}); }

/* An output whose shape was unknown: the runtime made its memory, which the array takes over. */
static PyObject *adopt_output(DLTensor *output) {
  PyObject *owner = PyCapsule_New(output->shape, "graft_block", free_block);
  if (!owner) {
    graft_free_output(output);
    return NULL;
  }
  PyObject *array = graft_array_of_tensor(output, owner, 1);
  Py_DECREF(owner);
  return array;
}

static PyObject *collect_outputs(Run *run) {
  int32_t count = run->program->output_count, failed = 0;
  if (run->exchange) {
    return Py_NewRef(Py_None);
  }
  for (int32_t i = 0; i < count; i++) {
    if (!run->arrays[i]) {
      run->arrays[i] = run->outputs_on > 0 ? graft_device_tensor(run->outputs + i, run->program)
                                           : adopt_output(run->outputs + i);
      failed |= !run->arrays[i];
    }
  }
  if (failed) {
    return NULL;
  }
  if (count == 1) {
    return Py_NewRef(run->arrays[0]);
  }
  PyObject *tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple && i < count; i++) {
    PyTuple_SET_ITEM(tuple, i, Py_NewRef(run->arrays[i]));
  }
  return tuple;
}

static PyObject *fail_count(const ProgramObject *self, Py_ssize_t given) {
  GraftError error = {.code = GRAFT_ERROR_INPUT};
  graft_append(error.message, sizeof error.message, "the program takes %d input%s", (int)self->input_count,
               self->input_count == 1 ? "" : "s");
  for (int32_t i = 0; i < self->input_count; i++) {
    graft_append(error.message, sizeof error.message, "%s'%s'%s", i ? ", " : " (", self->ports[i].info.name,
                 i + 1 == self->input_count ? ")" : "");
  }
  graft_append(error.message, sizeof error.message, ", got %zd", given);
  graft_raise(&error, NULL, NULL, NULL);
  return NULL;
}

/* Where nobody said it, outputs are where the first input is that is on a device of the program. */
static void choose_outputs(Run *run) {
  for (int32_t i = 0; run->outputs_on < 0 && i < run->program->input_count; i++) {
    int32_t device = graft_device_number(run->program->program, run->inputs[i].device);
    run->outputs_on = device > 0 ? device : -1;
  }
}

static PyObject *execute(Run *run, PyObject *const *arguments, GraftRunDetails *details) {
  ProgramObject *self = run->program;
  for (int32_t i = 0; i < self->input_count; i++) {
    if (take_input(run, i, arguments[i]) < 0) {
      return NULL;
    }
  }
  GraftError error;
  Instance *instance;
  if (self->program->device_count) {
    choose_outputs(run);
  }
  int32_t status = graft_run_begin(self->program, run->inputs, &instance, &error);
  if (status) {
    graft_raise(&error, NULL, NULL, NULL);
    return NULL;
  }
  for (int32_t i = 0; i < self->output_count; i++) {
    int failed = make_output(run, instance, i);
    if (failed) {
      int32_t axis = self->ports[self->input_count + i].grows;
      PyObject *rows = failed < 0 ? NULL : PyLong_FromLongLong(graft_run_output(instance, i)->shape[axis]);
      graft_release_instance(instance);
      return rows;
    }
  }
  details->user = run;
  PyThreadState *thread = PyEval_SaveThread();
  status = graft_run_end(instance, run->outputs, details, &error);
  PyEval_RestoreThread(thread);
  if (status) {
    graft_raise(&error, self->program, details->failed, run->exception);
    run->exception = NULL;
    return NULL;
  }
  return collect_outputs(run);
}

static PyObject *call(ProgramObject *self, ExchangeTensor exchange, PyObject *const *arguments, Py_ssize_t count,
                      PyObject *const *buffers, int32_t outputs_on, GraftRunDetails *details) {
  DLTensor few_tensors[STACK_TENSORS];
  PyObject *few_objects[STACK_TENSORS];
  if (count != self->input_count) {
    return fail_count(self, count);
  }
  size_t total = (size_t)self->input_count + (size_t)self->output_count;
  DLTensor *tensors = total <= STACK_TENSORS ? few_tensors : PyMem_Calloc(total, sizeof *tensors);
  PyObject **objects = total <= STACK_TENSORS ? few_objects : PyMem_Calloc(total, sizeof *objects);
  PyObject *result = NULL;
  if (tensors && objects) {
    memset(objects, 0, total * sizeof *objects);
    Run run = {.program = self,
               .inputs = tensors,
               .outputs = tensors + self->input_count,
               .input_objects = objects,
               .arrays = objects + self->input_count,
               .outputs_on = outputs_on,
               .buffers = buffers,
               .exchange = exchange};
    result = execute(&run, arguments, details);
    for (size_t i = 0; i < total; i++) {
      Py_XDECREF(objects[i]);
    }
    PyMem_Free(run.strides);
    Py_XDECREF(run.lease);
    Py_XDECREF(run.exception);
  } else {
    PyErr_NoMemory();
  }
  if (total > STACK_TENSORS) {
    PyMem_Free(tensors);
    PyMem_Free(objects);
  }
  return result;
}

PyObject *graft_call_program(ProgramObject *self, PyObject *const *arguments, Py_ssize_t count,
                             PyObject *const *buffers, int32_t outputs_on, GraftRunDetails *details) {
  return call(self, NULL, arguments, count, buffers, outputs_on, details);
}

PyObject *graft_call_exchanged(ProgramObject *self, ExchangeTensor exchange, PyObject *const *arguments,
                               Py_ssize_t count, PyObject *const *outputs) {
  return call(self, exchange, arguments, count, outputs, 0, &(GraftRunDetails){0});
}

/* ---- CancelToken ---------------------------------------------------------------------------------------------- */

static PyObject *token_cancel(PyObject *self, PyObject *unused) {
  (void)unused;
  graft_cancel(&((CancelTokenObject *)self)->token);
  Py_RETURN_NONE;
}

static PyObject *token_cancelled(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(__atomic_load_n(&((CancelTokenObject *)self)->token.is_cancelled, __ATOMIC_RELAXED));
}

static PyMethodDef token_methods[] = {
    {"cancel", token_cancel, METH_NOARGS, "End the runs that have this token, those that begin later, too."},
    {0},
};

static PyGetSetDef token_getters[] = {
    {"cancelled", token_cancelled, NULL, "Whether `cancel` was called.", NULL},
    {0},
};

static void token_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF((PyObject *)type);
}

static PyObject *token_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)arguments;
  (void)keywords;
  return PyType_GenericAlloc(type, 0);
}

static PyType_Slot token_slots[] = {
    {Py_tp_dealloc, token_dealloc},
    {Py_tp_doc, "What other threads end runs of programs with, before they are done."},
    {Py_tp_methods, token_methods},
    {Py_tp_getset, token_getters},
    {Py_tp_new, token_new},
    {0},
};

PyTypeObject *graft_cancel_token_type;
PyType_Spec graft_cancel_token_spec = {
    .name = "graft.runtime._native.CancelToken",
    .basicsize = sizeof(CancelTokenObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = token_slots,
};
