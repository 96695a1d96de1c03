/* What Python's limited API of 3.12 lacks of the names that this module uses, by functions that it has: one wheel then
 * serves every later Python. Other builds have the names themselves. */
#ifndef GRAFT_LIMITED_H
#define GRAFT_LIMITED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#ifdef Py_LIMITED_API
#define PyTuple_GET_SIZE PyTuple_Size
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_SET_ITEM(tuple, index, item) ((void)PyTuple_SetItem(tuple, index, item))
#define PyList_GET_SIZE PyList_Size
#define PyList_GET_ITEM PyList_GetItem
#define PyList_SET_ITEM(list, index, item) ((void)PyList_SetItem(list, index, item))
#undef PySequence_Fast_GET_SIZE
#define PySequence_Fast_GET_SIZE PySequence_Size
#undef PySequence_Fast_GET_ITEM
#define PySequence_Fast_GET_ITEM(fast, index)                                                                         \
  (PyList_Check(fast) ? PyList_GetItem(fast, index) : PyTuple_GetItem(fast, index))
#define PyDict_GET_SIZE PyDict_Size
#define PyBytes_GET_SIZE PyBytes_Size
#define PyBytes_AS_STRING PyBytes_AsString
#define PyUnicode_AsUTF8(text) PyUnicode_AsUTF8AndSize(text, NULL)
#define PyObject_CallOneArg(callable, argument) PyObject_CallFunctionObjArgs(callable, argument, NULL)
#define Py_XSETREF(variable, value)                                                                                    \
  do {                                                                                                                 \
    PyObject *graft_before = (PyObject *)(variable);                                                                   \
    (variable) = (value);                                                                                              \
    Py_XDECREF(graft_before);                                                                                          \
  } while (0)
#define Py_SETREF Py_XSETREF
#endif

#endif
