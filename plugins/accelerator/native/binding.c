/* The simulators, and the walk that proofs stand on, as a Python module. */
#include "limited.h"

#include "hazards.h"

#include <stdlib.h>
#include <string.h>

static PyObject *sequence_of(const int64_t *numbers, Py_ssize_t count) {
  PyObject *list = PyList_New(count);
  for (Py_ssize_t i = 0; list && i < count; i++) {
    PyObject *number = PyLong_FromLongLong(numbers[i]);
    if (!number) {
      Py_CLEAR(list);
      break;
    }
    PyList_SET_ITEM(list, i, number);
  }
  return list;
}

static bool read_configuration(PyObject *tuple, AcceleratorConfiguration *configuration) {
  int64_t *fields = (int64_t *)configuration;
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != ACCELERATOR_CONFIGURATION_FIELDS) {
    PyErr_Format(PyExc_TypeError, "a configuration is a tuple of %d numbers", ACCELERATOR_CONFIGURATION_FIELDS);
    return false;
  }
  for (int i = 0; i < ACCELERATOR_CONFIGURATION_FIELDS; i++) {
    fields[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    if (fields[i] == -1 && PyErr_Occurred()) return false;
  }
  return true;
}

static PyObject *results(const AcceleratorCounters *counters, const Accelerator *machine, const int64_t *starts,
                         const int64_t *ends) {
  return Py_BuildValue("{s:N,s:N,s:N}", "counters",
                       sequence_of((const int64_t *)counters, sizeof *counters / sizeof(int64_t)), "starts",
                       sequence_of(starts, machine->count), "ends", sequence_of(ends, machine->count));
}

enum { MODE_FUNCTIONAL, MODE_CYCLES, MODE_CYCLES_ALONE };

static PyObject *simulate(PyObject *module, PyObject *arguments) {
  PyObject *tuple;
  Py_buffer stream, dram;
  unsigned long long seed;
  long long most_steps;
  int mode;
  (void)module;
  AcceleratorConfiguration configuration;
  if (!PyArg_ParseTuple(arguments, "Oy*w*iKL", &tuple, &stream, &dram, &mode, &seed, &most_steps)) return NULL;
  PyObject *found = NULL;
  Accelerator machine = {0};
  AcceleratorCounters counters = {0};
  int64_t *times = NULL;
  if (!read_configuration(tuple, &configuration)) goto done;
  bool good;
  Py_BEGIN_ALLOW_THREADS
  good = accelerator_open(&machine, &configuration, stream.buf, (size_t)stream.len, dram.buf, dram.len, most_steps);
  if (good) {
    times = calloc((size_t)machine.count * 2 + 1, sizeof *times);
    good = times || accelerator_fail(&machine, "out of memory");
  }
  if (good) {
    accelerator_poison(&machine, seed);
    machine.without_data = mode == MODE_CYCLES_ALONE;
    good = mode != MODE_FUNCTIONAL
               ? accelerator_run_cycles(&machine, &counters, times, times + machine.count)
                     : accelerator_run_functional(&machine, seed, &counters);
  }
  Py_END_ALLOW_THREADS
  if (good) found = results(&counters, &machine, times, times + machine.count);
  else PyErr_SetString(PyExc_RuntimeError, machine.message);
  accelerator_close(&machine);
  free(times);
done:
  PyBuffer_Release(&stream);
  PyBuffer_Release(&dram);
  return found;
}

/* Whether instructions are taken once each and tensors lie in the DRAM, by rising address. */
static bool is_consistent(const Hazards *hazards, Py_ssize_t sequence_bytes, const Accelerator *machine) {
  if (sequence_bytes != (Py_ssize_t)((size_t)machine->count * sizeof(int64_t))) return false;
  for (int64_t i = 0; i < machine->count; i++)
    if (hazards->sequence[i] < 0 || hazards->sequence[i] >= machine->count) return false;
  int64_t end = 0;
  for (size_t i = 0; i < hazards->tensor_count; i++) {
    const ProgramTensor *tensor = &hazards->tensors[i];
    if (tensor->offset < end || tensor->size < 0 || tensor->size > machine->dram_bytes - tensor->offset) return false;
    end = tensor->offset + tensor->size;
  }
  return true;
}

static PyObject *conflicts(PyObject *module, PyObject *arguments) {
  PyObject *tuple, *found = NULL;
  Py_buffer stream, dram, sequence, tensors, contents = {0};
  (void)module;
  AcceleratorConfiguration configuration;
  if (!PyArg_ParseTuple(arguments, "Oy*w*y*y*|w*", &tuple, &stream, &dram, &sequence, &tensors, &contents)) return NULL;
  Accelerator machine = {0};
  Hazards hazards = {.sequence = sequence.buf, .tensors = tensors.buf,
                     .tensor_count = (size_t)tensors.len / sizeof(ProgramTensor), .contents = contents.buf};
  if (!read_configuration(tuple, &configuration)) goto done;
  bool good = accelerator_open(&machine, &configuration, stream.buf, (size_t)stream.len, dram.buf, dram.len, 0);
  if (good && !is_consistent(&hazards, sequence.len, &machine))
    good = accelerator_fail(&machine, "the order of instructions or the table of tensors is wrong");
  if (good && contents.buf && contents.len / 8 < dram.len / configuration.block_out + 1)
    good = accelerator_fail(&machine, "there are fewer contents than DRAM has entries");
  Py_ssize_t size = (Py_ssize_t)((size_t)machine.count * UNITS * sizeof(Conflict));
  PyObject *bytes = good ? PyBytes_FromStringAndSize(NULL, size) : NULL;
  if (bytes) {
    hazards.conflicts = memset(PyBytes_AS_STRING(bytes), 0, (size_t)size);
    Py_BEGIN_ALLOW_THREADS
    good = accelerator_find_hazards(&machine, &hazards);
    Py_END_ALLOW_THREADS
  }
  if (!good) PyErr_SetString(PyExc_RuntimeError, machine.message);
  else if (bytes)
    found = Py_BuildValue("O(LLLLL)", bytes, (long long)hazards.fault.kind, (long long)hazards.fault.index,
                          (long long)hazards.fault.place, (long long)hazards.fault.first,
                          (long long)hazards.fault.last);
  Py_XDECREF(bytes);
  accelerator_close(&machine);
done:
  PyBuffer_Release(&stream);
  PyBuffer_Release(&dram);
  PyBuffer_Release(&sequence);
  PyBuffer_Release(&tensors);
  if (contents.buf) PyBuffer_Release(&contents);
  return found;
}

/* ---- Contents ---------------------------------------------------------------------------------------------------- */

static PyObject *fold(PyObject *module, PyObject *arguments) {
  Py_buffer a, b;
  (void)module;
  if (!PyArg_ParseTuple(arguments, "y*y*", &a, &b)) return NULL;
  PyObject *found = NULL;
  if (a.len != b.len || a.len % 8) PyErr_SetString(PyExc_ValueError, "both sides of a fold are as many numbers");
  else found = PyBytes_FromStringAndSize(NULL, a.len);
  for (Py_ssize_t i = 0; found && i < a.len; i += 8) {
    uint64_t x, y;
    memcpy(&x, (const char *)a.buf + i, 8);
    memcpy(&y, (const char *)b.buf + i, 8);
    x = contents_fold(x, y);
    memcpy(PyBytes_AS_STRING(found) + i, &x, 8);
  }
  PyBuffer_Release(&a);
  PyBuffer_Release(&b);
  return found;
}

static PyObject *constants(PyObject *module, PyObject *arguments) {
  Py_buffer data;
  Py_ssize_t size;
  (void)module;
  if (!PyArg_ParseTuple(arguments, "y*n", &data, &size)) return NULL;
  PyObject *found = NULL;
  if (size < 1) PyErr_SetString(PyExc_ValueError, "an entry has at least a byte");
  else found = PyBytes_FromStringAndSize(NULL, data.len / size * 8);
  for (Py_ssize_t i = 0; found && i < data.len / size; i++) {
    uint64_t value = contents_constant((const uint8_t *)data.buf + i * size, size);
    memcpy(PyBytes_AS_STRING(found) + i * 8, &value, 8);
  }
  PyBuffer_Release(&data);
  return found;
}

static PyMethodDef METHODS[] = {
    {"conflicts", conflicts, METH_VARARGS, "Follow a program's accesses; return conflicts by instruction, and a fault."},
    {"constants", constants, METH_VARARGS, "Return the numbers of what known bytes are, so many bytes each."},
    {"fold", fold, METH_VARARGS, "Return the numbers of an operation of two arrays of numbers."},
    {"simulate", simulate, METH_VARARGS, "Run a stream of instructions on a DRAM, in place; return what was counted."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "_simulator", .m_size = 0, .m_methods = METHODS};

PyMODINIT_FUNC PyInit__simulator(void);
PyMODINIT_FUNC PyInit__simulator(void) { return PyModule_Create(&MODULE); }
