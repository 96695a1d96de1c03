/* Arrays and tensors, and the errors that speak of them. */
#include "binding.h"

#include <string.h>

PyArray_Descr *graft_numpy_descr(DLDataType dtype) {
  static const struct {
    uint8_t code, bits;
    int type;
  } rows[] = {
      {kDLFloat, 32, NPY_FLOAT32}, {kDLInt, 64, NPY_INT64},    {kDLBool, 8, NPY_BOOL},      {kDLFloat, 64, NPY_FLOAT64},
      {kDLInt, 8, NPY_INT8},       {kDLInt, 16, NPY_INT16},    {kDLInt, 32, NPY_INT32},     {kDLUInt, 8, NPY_UINT8},
      {kDLUInt, 16, NPY_UINT16},   {kDLUInt, 32, NPY_UINT32},  {kDLUInt, 64, NPY_UINT64},   {kDLFloat, 16, NPY_FLOAT16},
      {kDLComplex, 64, NPY_COMPLEX64},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].code == dtype.code && rows[i].bits == dtype.bits) {
      return PyArray_DescrFromType(rows[i].type);
    }
  }
  return (PyArray_Descr *)PyObject_CallFunction(graft_imports.numpy_dtype, "s", graft_dtype_name(dtype));
}

int graft_dlpack_dtype(PyArray_Descr *descr, DLDataType *dtype) {
  PyObject *name = PyObject_CallOneArg(graft_imports.dtype_name, (PyObject *)descr);
  const char *text = name ? PyUnicode_AsUTF8(name) : NULL;
  int known = text && graft_dtype_from_name(text, dtype);
  if (text && !known) {
    PyErr_Format(graft_imports.input_error, "the runtime has no element type '%s'", text);
  }
  Py_XDECREF(name);
  return known ? 0 : -1;
}

int graft_tensor_of_array(PyObject *array, DLTensor *tensor) {
  PyArrayObject *object = (PyArrayObject *)array;
  if (PyArray_NDIM(object) > GRAFT_MAXIMUM_DIMENSIONS) {
    PyErr_Format(graft_imports.input_error, "an array of %d dimensions; the runtime takes at most %d",
                 PyArray_NDIM(object), GRAFT_MAXIMUM_DIMENSIONS);
    return -1;
  }
  *tensor = (DLTensor){.data = PyArray_DATA(object),
                       .device = {kDLCPU, 0},
                       .ndim = PyArray_NDIM(object),
                       .shape = (int64_t *)PyArray_DIMS(object)};
  return graft_dlpack_dtype(PyArray_DESCR(object), &tensor->dtype);
}

PyObject *graft_array_of_tensor(const DLTensor *tensor, PyObject *base, int writeable) {
  PyArray_Descr *descr = graft_numpy_descr(tensor->dtype);
  if (!descr) {
    return NULL;
  }
  npy_intp strides[GRAFT_MAXIMUM_DIMENSIONS];
  for (int32_t i = 0; tensor->strides && i < tensor->ndim; i++) {
    strides[i] = (npy_intp)tensor->strides[i] * tensor->dtype.bits / 8;
  }
  int flags = NPY_ARRAY_ALIGNED | (tensor->strides ? 0 : NPY_ARRAY_C_CONTIGUOUS) | (writeable ? NPY_ARRAY_WRITEABLE : 0);
  PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, tensor->ndim, (npy_intp *)tensor->shape,
                                         tensor->strides ? strides : NULL, (char *)tensor->data + tensor->byte_offset,
                                         flags, NULL);
  if (array && base) {
    Py_INCREF(base);
    if (PyArray_SetBaseObject((PyArrayObject *)array, base) < 0) {
      Py_CLEAR(array);
    }
  }
  return array;
}

/* ---- Inputs that are not simply the right array --------------------------------------------------------------- */

/* The part of DLPack's C API that consuming a capsule needs. */
typedef struct ManagedTensor {
  DLTensor tensor;
  void *manager;
  void (*deleter)(struct ManagedTensor *self);
} ManagedTensor;

void graft_fail_type(const Port *port, const DLTensor *tensor) {
  char expected[256] = "", got[256] = "";
  int same_dtype = graft_dtype_equal(port->info.dtype, tensor->dtype);
  for (int32_t i = 0; i < port->info.ndim; i++) {
    graft_append(expected, sizeof expected, "%s%s", i ? "," : "[", port->info.extents[i]);
  }
  graft_append(expected, sizeof expected, port->info.ndim < 0 ? "" : port->info.ndim ? "]" : "[]");
  graft_append_shape(got, sizeof got, tensor->ndim, tensor->shape);
  GraftError error = {.code = GRAFT_ERROR_INPUT};
  graft_append(error.message, sizeof error.message, "input '%s' must be %s%s, got %s%s", port->info.name,
               graft_dtype_name(port->info.dtype), expected, graft_dtype_name(tensor->dtype), got);
  if (same_dtype) {
    graft_append(error.message, sizeof error.message, "; compile the model for this shape, or pass that one");
  } else {
    graft_append(error.message, sizeof error.message, "; convert it to %s", graft_dtype_name(port->info.dtype));
  }
  graft_raise(&error, NULL, NULL, NULL);
}

/* Extents that are no numbers are compared when all inputs are there. */
int graft_fits_port(const Port *port, const DLTensor *tensor) {
  int same = graft_dtype_equal(port->info.dtype, tensor->dtype) && tensor->ndim <= GRAFT_MAXIMUM_DIMENSIONS &&
             (port->info.ndim < 0 || port->info.ndim == tensor->ndim);
  for (int32_t i = 0; same && i < port->info.ndim; i++) {
    same = port->info.shape[i] == tensor->shape[i] || port->info.shape[i] < 0;
  }
  return same;
}

static PyObject *convert_array(const Port *port, PyObject *argument, DLTensor *tensor) {
  if (graft_tensor_of_array(argument, tensor) < 0) {
    PyObject *cause = NULL;
    GraftError error = {.code = GRAFT_ERROR_INPUT};
    char text[512];
    graft_take_exception(&cause, text, sizeof text);
    graft_append(error.message, sizeof error.message, "input '%s': %s", port->info.name, text);
    graft_raise(&error, NULL, NULL, cause);
    return NULL;
  }
  if (!graft_fits_port(port, tensor)) {
    graft_fail_type(port, tensor);
    return NULL;
  }
  Py_INCREF((PyObject *)port->descr);
  PyObject *array = PyArray_FromAny(argument, port->descr, 0, 0, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED, NULL);
  if (array) {
    tensor->data = PyArray_DATA((PyArrayObject *)array);
    tensor->shape = (int64_t *)PyArray_DIMS((PyArrayObject *)array);
  }
  return array;
}

static void release_managed(PyObject *capsule) {
  ManagedTensor *managed = PyCapsule_GetPointer(capsule, "graft_dltensor");
  if (managed && managed->deleter) {
    managed->deleter(managed);
  }
}

/* Takes the tensor out of a capsule "dltensor", whose deleter is then ours to call. */
static PyObject *take_capsule(PyObject *capsule, ManagedTensor **managed) {
  *managed = PyCapsule_GetPointer(capsule, "dltensor");
  if (!*managed) {
    return NULL;
  }
  PyObject *owner = PyCapsule_New(*managed, "graft_dltensor", release_managed);
  if (owner) {
    PyCapsule_SetName(capsule, "used_dltensor");
  }
  return owner;
}

PyObject *graft_copy_strided(const Port *port, DLTensor *tensor) {
  npy_intp strides[GRAFT_MAXIMUM_DIMENSIONS];
  for (int32_t i = 0; i < tensor->ndim; i++) {
    strides[i] = (npy_intp)tensor->strides[i] * tensor->dtype.bits / 8;
  }
  Py_INCREF((PyObject *)port->descr);
  PyObject *view = PyArray_NewFromDescr(&PyArray_Type, port->descr, tensor->ndim, (npy_intp *)tensor->shape, strides,
                                        (char *)tensor->data + tensor->byte_offset, 0, NULL);
  PyObject *copy = view ? (PyObject *)PyArray_NewCopy((PyArrayObject *)view, NPY_CORDER) : NULL;
  Py_XDECREF(view);
  if (copy && graft_tensor_of_array(copy, tensor) < 0) {
    Py_CLEAR(copy);
  }
  return copy;
}

static PyObject *convert_dlpack(const Port *port, PyObject *argument, DLTensor *tensor) {
  ManagedTensor *managed;
  PyObject *capsule = PyObject_CallMethod(argument, "__dlpack__", NULL);
  PyObject *owner = capsule ? take_capsule(capsule, &managed) : NULL;
  Py_XDECREF(capsule);
  if (!owner) {
    PyObject *cause = NULL;
    GraftError error = {.code = GRAFT_ERROR_INPUT};
    char text[512];
    graft_take_exception(&cause, text, sizeof text);
    graft_append(error.message, sizeof error.message, "input '%s' cannot be read through DLPack: %s", port->info.name,
                 text);
    graft_raise(&error, NULL, NULL, cause);
    return NULL;
  }
  *tensor = managed->tensor;
  if (!graft_fits_port(port, tensor)) {
    graft_fail_type(port, tensor);
    Py_CLEAR(owner);
  } else if (tensor->device.device_type == kDLCPU && !graft_is_contiguous(tensor)) {
    PyObject *copy = graft_copy_strided(port, tensor);
    Py_SETREF(owner, copy);
  }
  return owner;
}

PyObject *graft_convert_input(const Port *port, PyObject *argument, DLTensor *tensor) {
  if (PyArray_Check(argument)) {
    return convert_array(port, argument, tensor);
  }
  if (PyArray_IsScalar(argument, Generic)) { /* of rank 0 */
    PyObject *array = PyArray_FromScalar(argument, NULL);
    PyObject *converted = array ? convert_array(port, array, tensor) : NULL;
    Py_XDECREF(array);
    return converted;
  }
  if (PyObject_HasAttrString(argument, "__dlpack__")) {
    return convert_dlpack(port, argument, tensor);
  }
  GraftError error = {.code = GRAFT_ERROR_INPUT};
  char kind[GRAFT_CLASS_NAME];
  graft_append(error.message, sizeof error.message,
               "input '%s' must be a NumPy array or a DLPack tensor, got a Python %s; convert it with numpy.asarray",
               port->info.name, graft_class_name(argument, kind));
  graft_raise(&error, NULL, NULL, NULL);
  return NULL;
}

/* ---- Errors --------------------------------------------------------------------------------------------------- */

const char *graft_class_name(PyObject *object, char name[GRAFT_CLASS_NAME]) {
  PyObject *found = PyType_GetName(Py_TYPE(object));
  const char *text = found ? PyUnicode_AsUTF8(found) : NULL;
  name[0] = 0;
  graft_append(name, GRAFT_CLASS_NAME, "%s", text ? text : "?");
  PyErr_Clear();
  Py_XDECREF(found);
  return name;
}

void graft_take_exception(PyObject **exception, char *text, size_t size) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  text[0] = 0;
  if (value && traceback) {
    PyException_SetTraceback(value, traceback);
  }
  PyObject *words = value ? PyObject_Str(value) : NULL;
  const char *utf8 = words ? PyUnicode_AsUTF8(words) : NULL;
  char kind[GRAFT_CLASS_NAME];
  const char *name = value ? graft_class_name(value, kind) : "unknown exception";
  graft_append(text, size, utf8 && *utf8 ? "%s: %s" : "%s", name, utf8);
  PyErr_Clear();
  Py_XDECREF(words);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  Py_XSETREF(*exception, value);
}

/* {"node": ..., "origin": ..., "function": ..., "module": ..., "plugin": ...} */
static PyObject *facts_of(const GraftProgram *program, const Call *failed) {
  PyObject *origin = PyTuple_New(failed->origin_count);
  for (int32_t i = 0; origin && i < failed->origin_count; i++) {
    PyObject *name = PyUnicode_FromString(failed->origin[i]);
    if (!name) {
      Py_CLEAR(origin);
    } else {
      PyTuple_SET_ITEM(origin, i, name);
    }
  }
  const ModuleSpec *module = failed->kind == CALL_FUNCTION ? program->manifest.modules + failed->module : NULL;
  PyObject *facts =
      origin ? Py_BuildValue("{s:s,s:O,s:s,s:s,s:s}", "node", failed->origin_count ? failed->origin[0] : "", "origin",
                             origin, "function", module ? failed->function : "", "module", module ? module->name : "",
                             "plugin", module ? module->plugin : "")
             : NULL;
  Py_XDECREF(origin);
  return facts;
}

static PyObject *class_of(int32_t code) {
  switch (code) {
    case GRAFT_ERROR_ARTIFACT:
    case GRAFT_ERROR_LOADER:
    case GRAFT_ERROR_SYSTEM:
      return graft_imports.artifact_error;
    case GRAFT_ERROR_INPUT:
      return graft_imports.input_error;
    case GRAFT_ERROR_MEMORY:
      return PyExc_MemoryError;
    case GRAFT_ERROR_CANCELLED:
      return graft_imports.cancelled_error;
    case GRAFT_ERROR_DEADLINE:
      return graft_imports.deadline_error;
    default:
      return graft_imports.run_error;
  }
}

/* What does not decode is a cut multi-byte character at the end of a long message. */
void graft_raise(const GraftError *error, const GraftProgram *program, const Call *failed, PyObject *cause) {
  PyObject *class = class_of(error->code);
  PyObject *message = PyUnicode_DecodeUTF8(error->message, (Py_ssize_t)strlen(error->message), "replace");
  PyObject *facts = failed && class != PyExc_MemoryError ? facts_of(program, failed) : NULL;
  int is_stopped = error->code == GRAFT_ERROR_CANCELLED || error->code == GRAFT_ERROR_DEADLINE;
  if (facts && is_stopped && PyDict_DelItemString(facts, "plugin") < 0) { /* whose fault it is not */
    Py_CLEAR(facts);
  }
  PyObject *arguments = message ? PyTuple_Pack(1, message) : NULL;
  PyObject *exception = arguments && !PyErr_Occurred() ? PyObject_Call(class, arguments, facts) : NULL;
  Py_XDECREF(message);
  Py_XDECREF(facts);
  Py_XDECREF(arguments);
  if (!exception) {
    Py_XDECREF(cause);
    return;
  }
  if (cause) {
    PyException_SetCause(exception, cause);
  }
  PyErr_SetObject(class, exception);
  Py_DECREF(exception);
}
