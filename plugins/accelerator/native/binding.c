/* The simulators as a Python module of one function. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "accelerator.h"

#include <stdlib.h>

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

static PyObject *simulate(PyObject *module, PyObject *arguments) {
  PyObject *tuple;
  Py_buffer stream, dram;
  unsigned long long seed;
  long long most_steps;
  int with_time;
  (void)module;
  AcceleratorConfiguration configuration;
  if (!PyArg_ParseTuple(arguments, "Oy*w*pKL", &tuple, &stream, &dram, &with_time, &seed, &most_steps)) return NULL;
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
    good = with_time ? accelerator_run_cycles(&machine, &counters, times, times + machine.count)
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

static PyMethodDef METHODS[] = {
    {"simulate", simulate, METH_VARARGS, "Run a stream of instructions on a DRAM, in place; return what was counted."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "_simulator", .m_size = 0, .m_methods = METHODS};

PyMODINIT_FUNC PyInit__simulator(void);
PyMODINIT_FUNC PyInit__simulator(void) { return PyModule_Create(&MODULE); }
