/* The class DeviceTensor: an output that stays on a device. */
#include "binding.h"
#include "devices/devices.h"

#include <string.h>

typedef struct DeviceTensor {
  PyObject_HEAD
  DLTensor tensor;
  ProgramObject *program; /* whose library has the device's functions */
} DeviceTensor;

/* The part of DLPack's C API that producing a capsule needs. */
typedef struct ManagedTensor {
  DLTensor tensor;
  void *manager;
  void (*deleter)(struct ManagedTensor *self);
} ManagedTensor;

PyObject *graft_device_tensor(const DLTensor *output, ProgramObject *program) {
  DeviceTensor *self = PyObject_New(DeviceTensor, graft_device_tensor_type);
  if (!self) {
    graft_free_output((DLTensor *)output);
    return NULL;
  }
  self->tensor = *output;
  self->program = (ProgramObject *)Py_NewRef((PyObject *)program);
  return (PyObject *)self;
}

static void dealloc(PyObject *object) {
  DeviceTensor *self = (DeviceTensor *)object;
  graft_free_output(&self->tensor);
  Py_DECREF((PyObject *)self->program);
  PyTypeObject *type = Py_TYPE(object);
  PyObject_Free(object);
  Py_DECREF((PyObject *)type);
}

static const GraftDevice *device_of(const DeviceTensor *self) {
  const GraftProgram *program = self->program->program;
  return graft_device_of(program, graft_device_number(program, self->tensor.device));
}

/* ---- DLPack --------------------------------------------------------------------------------------------------- */

static void delete_managed(ManagedTensor *managed) {
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF((PyObject *)managed->manager);
  PyMem_Free(managed);
  PyGILState_Release(gil);
}

static void free_capsule(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    delete_managed(PyCapsule_GetPointer(capsule, "dltensor"));
  }
}

/* The bytes are there when the run returns, so there is nothing that a stream has to wait for. */
static PyObject *dlpack(PyObject *object, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
  DeviceTensor *self = (DeviceTensor *)object;
  PyObject *stream = NULL, *version = NULL, *device = NULL, *copy = NULL;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO", names, &stream, &version, &device, &copy)) {
    return NULL;
  }
  int type = self->tensor.device.device_type, id = self->tensor.device.device_id;
  if ((device && device != Py_None && (!PyArg_ParseTuple(device, "ii", &type, &id) ||
                                       type != self->tensor.device.device_type || id != self->tensor.device.device_id)) ||
      copy == Py_True) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_BufferError, "a DeviceTensor gives its own memory only; copy it with numpy()");
    }
    return NULL;
  }
  ManagedTensor *managed = PyMem_Calloc(1, sizeof *managed);
  if (!managed) {
    return PyErr_NoMemory();
  }
  *managed = (ManagedTensor){self->tensor, Py_NewRef(object), delete_managed};
  PyObject *capsule = PyCapsule_New(managed, "dltensor", free_capsule);
  if (!capsule) {
    delete_managed(managed);
  }
  return capsule;
}

static PyObject *dlpack_device(PyObject *object, PyObject *unused) {
  (void)unused;
  DLDevice device = ((DeviceTensor *)object)->tensor.device;
  return Py_BuildValue("(ii)", (int)device.device_type, (int)device.device_id);
}

/* ---- Facts and copies ----------------------------------------------------------------------------------------- */

static int32_t copy_to(const DeviceTensor *self, void *target, size_t bytes, GraftError *error) {
  const GraftDevice *device = device_of(self);
  GraftError unheard;
  void *stream = NULL;
  int32_t status = device->create_stream(device->user, &stream, error);
  if (status) {
    return status;
  }
  status = bytes ? device->copy(device->user, GRAFT_TO_HOST, target, self->tensor.data, bytes, stream, error) : GRAFT_OK;
  int32_t done = device->synchronize(device->user, stream, status ? &unheard : error);
  device->destroy_stream(device->user, stream);
  return status ? status : done;
}

static PyObject *numpy(PyObject *object, PyObject *unused) {
  (void)unused;
  DeviceTensor *self = (DeviceTensor *)object;
  PyArray_Descr *descr = graft_numpy_descr(self->tensor.dtype);
  PyObject *array = descr ? PyArray_NewFromDescr(&PyArray_Type, descr, self->tensor.ndim,
                                                 (npy_intp *)self->tensor.shape, NULL, NULL, 0, NULL)
                          : NULL;
  if (!array) {
    return NULL;
  }
  GraftError error = {0};
  void *target = PyArray_DATA((PyArrayObject *)array);
  size_t bytes = (size_t)PyArray_NBYTES((PyArrayObject *)array);
  int32_t status;
  Py_BEGIN_ALLOW_THREADS
  status = copy_to(self, target, bytes, &error);
  Py_END_ALLOW_THREADS
  if (status) {
    error.code = status;
    graft_raise(&error, NULL, NULL, NULL);
    Py_CLEAR(array);
  }
  return array;
}

static PyObject *get_shape(PyObject *object, void *unused) {
  (void)unused;
  const DLTensor *tensor = &((DeviceTensor *)object)->tensor;
  PyObject *shape = PyTuple_New(tensor->ndim);
  for (int32_t i = 0; shape && i < tensor->ndim; i++) {
    PyObject *extent = PyLong_FromLongLong(tensor->shape[i]);
    if (!extent) {
      Py_CLEAR(shape);
    } else {
      PyTuple_SET_ITEM(shape, i, extent);
    }
  }
  return shape;
}

static PyObject *get_dtype(PyObject *object, void *unused) {
  (void)unused;
  return (PyObject *)graft_numpy_descr(((DeviceTensor *)object)->tensor.dtype);
}

static PyObject *get_device(PyObject *object, void *unused) {
  (void)unused;
  return PyUnicode_FromString(device_of((DeviceTensor *)object)->name);
}

static PyObject *represent(PyObject *object) {
  const DLTensor *tensor = &((DeviceTensor *)object)->tensor;
  char shape[256] = "";
  graft_append_shape(shape, sizeof shape, tensor->ndim, tensor->shape);
  return PyUnicode_FromFormat("<DeviceTensor %s%s on '%s'>", graft_dtype_name(tensor->dtype), shape,
                              device_of((DeviceTensor *)object)->name);
}

static PyMethodDef methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))dlpack, METH_VARARGS | METH_KEYWORDS,
     "Return a DLPack capsule of the memory on the device; nothing is copied."},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, "Return the DLPack device type and the number of the device."},
    {"numpy", numpy, METH_NOARGS, "Return a copy as a NumPy array."},
    {0},
};

static PyGetSetDef getters[] = {
    {"shape", get_shape, NULL, "The shape as numbers.", NULL},
    {"dtype", get_dtype, NULL, "The element type as a NumPy dtype.", NULL},
    {"device", get_device, NULL, "The name of the device.", NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc},
    {Py_tp_doc, "An output that stays on a device, until numpy() or whoever takes its DLPack capsule asks for it."},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_repr, represent},
    {0},
};

PyTypeObject *graft_device_tensor_type;
PyType_Spec graft_device_tensor_spec = {
    .name = "graft.runtime._native.DeviceTensor",
    .basicsize = sizeof(DeviceTensor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
