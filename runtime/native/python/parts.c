/* A program from its parts as Python objects. */
#include "artifact/artifact.h"
#include "binding.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The parts while the program is made of them. */
typedef struct Parts {
  ProgramObject *self;
  GraftNamedTensor *names; /* of `self->arrays`, one for one */
  GraftModuleSource *modules;
  const GraftLoader **loaders;
  size_t loader_count;
  GraftArtifact *artifact; /* whose constants these are; NULL if they come from elsewhere */
} Parts;

static void *allocate(Py_ssize_t count, size_t bytes) {
  void *block = PyMem_Calloc((size_t)count + 1, bytes);
  if (!block) {
    PyErr_NoMemory();
  }
  return block;
}

static int fail_argument(const char *text) {
  PyErr_SetString(PyExc_TypeError, text);
  return -1;
}

/* ---- Arrays and bytes ----------------------------------------------------------------------------------------- */

/* Adds {name: array} to the arrays; what is not contiguous is copied. */
static int add_arrays(Parts *parts, PyObject *dict) {
  ProgramObject *self = parts->self;
  PyObject *name, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &name, &value)) {
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (!text || !PyArray_Check(value)) {
      return PyErr_Occurred() ? -1 : fail_argument("constants must be a dict of str to ndarray");
    }
    PyObject *array = PyArray_FromAny(value, NULL, 0, 0, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED, NULL);
    if (!array) {
      return -1;
    }
    int kept = PyList_Append(self->kept, array) < 0 || PyList_Append(self->kept, name) < 0 ? -1 : 0;
    Py_DECREF(array);
    ArrayTensor *entry = self->arrays + self->array_count;
    if (kept < 0 || graft_tensor_of_array(array, &entry->tensor) < 0) {
      return -1;
    }
    entry->array = array;
    parts->names[self->array_count++] = (GraftNamedTensor){text, &entry->tensor};
  }
  return 0;
}

static int add_module(Parts *parts, PyObject *row, GraftModuleSource *module) {
  ProgramObject *self = parts->self;
  const char *name, *kind;
  PyObject *data, *constants;
  if (!PyTuple_Check(row) ||
      !PyArg_ParseTuple(row, "ssOO!;a module is (name, kind, data, constants)", &name, &kind, &data, &PyDict_Type,
                        &constants)) {
    return PyErr_Occurred() ? -1 : fail_argument("a module is (name, kind, data, constants)");
  }
  Py_buffer *buffer = self->buffers + self->buffer_count;
  if (PyObject_GetBuffer(data, buffer, PyBUF_SIMPLE) < 0) {
    return -1;
  }
  self->buffer_count++;
  Py_ssize_t first = self->array_count;
  if (add_arrays(parts, constants) < 0) {
    return -1;
  }
  *module = (GraftModuleSource){.name = name,
                                .kind = kind,
                                .data = buffer->buf,
                                .size = (size_t)buffer->len,
                                .constants = parts->names + first,
                                .constant_count = (size_t)(self->array_count - first)};
  return 0;
}

/* The constants of all modules and of the program; -1 for what is no row of the right form (add_module says so). */
static Py_ssize_t count_arrays(PyObject *modules, PyObject *constants) {
  Py_ssize_t total = PyDict_GET_SIZE(constants);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(modules); i++) {
    PyObject *row = PyTuple_GET_ITEM(modules, i);
    PyObject *own = PyTuple_Check(row) && PyTuple_GET_SIZE(row) == 4 ? PyTuple_GET_ITEM(row, 3) : NULL;
    total += own && PyDict_Check(own) ? PyDict_GET_SIZE(own) : 0;
  }
  return total;
}

/* ---- Loaders -------------------------------------------------------------------------------------------------- */

static int fail_library(const char *kind, const char *path, const char *reason) {
  PyErr_Format(graft_imports.artifact_error, "the loader for kind '%s' in '%s' cannot be used: %s", kind, path, reason);
  return -1;
}

/* The function of a library, opened, and the path as text; NULL with an exception. */
static void *symbol_of(Parts *parts, const char *kind, PyObject *path, const char *name, const char **text) {
  ProgramObject *self = parts->self;
  PyObject *encoded;
  if (!PyUnicode_FSConverter(path, &encoded)) {
    return NULL;
  }
  int kept = PyList_Append(self->kept, encoded);
  *text = PyBytes_AS_STRING(encoded);
  Py_DECREF(encoded);
  if (kept < 0) {
    return NULL;
  }
  void *library = dlopen(*text, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fail_library(kind, *text, dlerror());
    return NULL;
  }
  self->libraries[self->library_count++] = library;
  void *symbol = dlsym(library, name);
  if (!symbol) {
    char reason[64];
    snprintf(reason, sizeof reason, "it does not export %s", name);
    fail_library(kind, *text, reason);
  }
  return symbol;
}

static int add_library(Parts *parts, const char *kind, PyObject *path) {
  const char *text;
  void *symbol = symbol_of(parts, kind, path, "graft_loader", &text);
  GraftLoaderEntry entry;
  if (!symbol) {
    return -1;
  }
  memcpy(&entry, &symbol, sizeof entry);
  const GraftLoader *loader = entry();
  if (!loader || !loader->kind || strcmp(loader->kind, kind) != 0) {
    return fail_library(kind, text, "its graft_loader is for another kind");
  }
  parts->loaders[parts->loader_count++] = loader;
  return 0;
}

static int add_loader(Parts *parts, PyObject *row) {
  ProgramObject *self = parts->self;
  const char *kind;
  PyObject *target;
  if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "sO;a loader is (kind, path or object)", &kind, &target)) {
    return PyErr_Occurred() ? -1 : fail_argument("a loader is (kind, path or object)");
  }
  if (PyUnicode_Check(target) || PyBytes_Check(target) || PyObject_HasAttrString(target, "__fspath__")) {
    return add_library(parts, kind, target);
  }
  PythonLoader *loader = self->python_loaders + self->python_loader_count++;
  graft_python_loader(loader, kind, target, self);
  parts->loaders[parts->loader_count++] = &loader->base;
  return 0;
}

static int add_device(Parts *parts, PyObject *row) {
  const char *name, *text;
  PyObject *path;
  int id;
  if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "sOi;a device is (name, path, id)", &name, &path, &id)) {
    return PyErr_Occurred() ? -1 : fail_argument("a device is (name, path, id)");
  }
  void *symbol = symbol_of(parts, name, path, "graft_device", &text);
  if (!symbol) {
    return -1;
  }
  GraftDeviceEntry entry;
  memcpy(&entry, &symbol, sizeof entry);
  const GraftDevice *device = entry(id);
  if (!device || !device->name || strcmp(device->name, name) != 0) {
    return fail_library(name, text, "its graft_device is for another device");
  }
  parts->self->devices[parts->self->device_count++] = device;
  return 0;
}

/* ---- The program ---------------------------------------------------------------------------------------------- */

static int allocate_parts(Parts *parts, PyObject *modules, PyObject *constants, PyObject *loaders, PyObject *devices) {
  ProgramObject *self = parts->self;
  Py_ssize_t module_count = PyTuple_GET_SIZE(modules), loader_count = PyTuple_GET_SIZE(loaders);
  Py_ssize_t arrays = count_arrays(modules, constants);
  self->buffers = allocate(module_count, sizeof(Py_buffer));
  self->arrays = allocate(arrays, sizeof(ArrayTensor));
  self->python_loaders = allocate(loader_count, sizeof(PythonLoader));
  self->libraries = allocate(loader_count + PyTuple_GET_SIZE(devices), sizeof(void *));
  self->devices = allocate(PyTuple_GET_SIZE(devices), sizeof(GraftDevice *));
  parts->names = allocate(arrays, sizeof(GraftNamedTensor));
  parts->modules = allocate(module_count, sizeof(GraftModuleSource));
  parts->loaders = allocate(loader_count, sizeof(GraftLoader *));
  int complete = self->buffers && self->arrays && self->python_loaders && self->libraries && self->devices && parts->names &&
                 parts->modules && parts->loaders;
  return complete ? 0 : -1;
}

static int32_t check_artifact(void *owner, GraftContext *context, GraftError *error) {
  return graft_artifact_check(owner, context, error);
}

static int create(Parts *parts, PyObject *manifest, size_t module_count, size_t first_constant, int threads) {
  ProgramObject *self = parts->self;
  GraftProgramSource source = {.manifest = PyBytes_AS_STRING(manifest),
                               .manifest_size = (size_t)PyBytes_GET_SIZE(manifest),
                               .modules = parts->modules,
                               .module_count = module_count,
                               .constants = parts->names + first_constant,
                               .constant_count = (size_t)self->array_count - first_constant,
                               .devices = self->devices,
                               .device_count = (size_t)self->device_count,
                               .check = parts->artifact ? check_artifact : NULL,
                               .owner = parts->artifact,
                               .arenas = self->shared.user ? &self->shared : NULL};
  GraftLoadOptions options = {
      .size = sizeof options, .threads = threads, .loaders = parts->loaders, .loader_count = parts->loader_count};
  GraftError error;
  PyThreadState *thread = PyEval_SaveThread();
  int32_t status = graft_program_create(&source, &options, &self->program, &error);
  PyEval_RestoreThread(thread);
  if (status == GRAFT_OK) {
    return 0;
  }
  PyObject *cause = NULL;
  for (Py_ssize_t i = 0; i < self->python_loader_count && !cause; i++) {
    cause = self->python_loaders[i].exception;
    self->python_loaders[i].exception = NULL;
  }
  graft_raise(&error, NULL, NULL, cause);
  return -1;
}

static int create_from_tuples(Parts *parts, PyObject *manifest, PyObject *modules, PyObject *constants,
                              PyObject *loaders, PyObject *devices, int threads) {
  Py_ssize_t module_count = PyTuple_GET_SIZE(modules);
  if (allocate_parts(parts, modules, constants, loaders, devices) < 0) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < module_count; i++) {
    if (add_module(parts, PyTuple_GET_ITEM(modules, i), parts->modules + i) < 0) {
      return -1;
    }
  }
  size_t first_constant = (size_t)parts->self->array_count;
  if (add_arrays(parts, constants) < 0) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(loaders); i++) {
    if (add_loader(parts, PyTuple_GET_ITEM(loaders, i)) < 0) {
      return -1;
    }
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(devices); i++) {
    if (add_device(parts, PyTuple_GET_ITEM(devices, i)) < 0) {
      return -1;
    }
  }
  return create(parts, manifest, (size_t)module_count, first_constant, threads);
}

int graft_create_from_parts(ProgramObject *self, PyObject *manifest, PyObject *modules, PyObject *constants,
                            PyObject *loaders, PyObject *devices, int threads, PyObject *artifact, int is_shared) {
  if (is_shared) {
    self->shared =
        (GraftAllocator){graft_segment_allocate_arena, graft_segment_release_arena, &self->segments};
  }
  Parts parts = {.self = self, .artifact = artifact == Py_None ? NULL : graft_artifact_of(artifact)};
  if (!parts.artifact && artifact != Py_None) {
    return -1;
  }
  PyObject *module_tuple = PySequence_Tuple(modules), *loader_tuple = PySequence_Tuple(loaders);
  PyObject *device_tuple = PySequence_Tuple(devices);
  self->kept = PyList_New(0);
  int failed = !module_tuple || !loader_tuple || !device_tuple || !self->kept || PyList_Append(self->kept, manifest) < 0 ||
               PyList_Append(self->kept, module_tuple) < 0 || PyList_Append(self->kept, loader_tuple) < 0 ||
               PyList_Append(self->kept, device_tuple) < 0 ||
               PyList_Append(self->kept, artifact) < 0 ||
               create_from_tuples(&parts, manifest, module_tuple, constants, loader_tuple, device_tuple, threads) < 0;
  Py_XDECREF(module_tuple);
  Py_XDECREF(loader_tuple);
  Py_XDECREF(device_tuple);
  self->names = parts.names;
  self->modules = parts.modules;
  PyMem_Free(parts.loaders);
  return failed ? -1 : 0;
}

void graft_drop_parts(ProgramObject *self) {
  for (Py_ssize_t i = 0; i < self->buffer_count; i++) {
    PyBuffer_Release(self->buffers + i);
  }
  for (Py_ssize_t i = 0; i < self->python_loader_count; i++) {
    Py_XDECREF(self->python_loaders[i].exception);
  }
  for (Py_ssize_t i = 0; i < self->library_count; i++) {
    dlclose(self->libraries[i]);
  }
  PyMem_Free(self->buffers);
  PyMem_Free(self->arrays);
  PyMem_Free(self->python_loaders);
  PyMem_Free(self->libraries);
  PyMem_Free(self->devices);
  PyMem_Free(self->names);
  PyMem_Free(self->modules);
  Py_XDECREF(self->kept);
}
