/* Opening an artifact from Python: its members and constants as arrays over the mapped file. */
#include "artifact.h"

#include "binding.h"

static const char OWNER[] = "graft_artifact";

static void close_artifact(PyObject *owner) { graft_artifact_close(PyCapsule_GetPointer(owner, OWNER)); }

/* Puts a read-only array over `tensor` into `dictionary`. 0, or -1 with an exception. */
static int put(PyObject *dictionary, const char *name, const DLTensor *tensor, PyObject *owner) {
  PyObject *array = graft_array_of_tensor(tensor, owner, 0);
  int status = array ? PyDict_SetItemString(dictionary, name, array) : -1;
  Py_XDECREF(array);
  return status;
}

static PyObject *members_of(const GraftArtifact *artifact, PyObject *owner) {
  const ZipArchive *archive = graft_artifact_members(artifact);
  PyObject *members = PyDict_New();
  for (size_t i = 0; members && i < archive->count; i++) {
    int64_t size = (int64_t)archive->members[i].size;
    DLTensor bytes = {.data = (void *)(uintptr_t)archive->members[i].data,
                      .device = {kDLCPU, 0},
                      .ndim = 1,
                      .dtype = {kDLUInt, 8, 1},
                      .shape = &size};
    if (put(members, archive->members[i].name, &bytes, owner) < 0) {
      Py_CLEAR(members);
    }
  }
  return members;
}

static PyObject *constants_of(const GraftArtifact *artifact, PyObject *owner) {
  const GraftProgramSource *source = graft_artifact_source(artifact);
  PyObject *constants = PyDict_New();
  for (size_t i = 0; constants && i < source->constant_count; i++) {
    if (put(constants, source->constants[i].name, source->constants[i].tensor, owner) < 0) {
      Py_CLEAR(constants);
    }
  }
  return constants;
}

PyObject *graft_open_artifact(PyObject *module, PyObject *argument) {
  (void)module;
  PyObject *path = NULL;
  if (!PyUnicode_FSConverter(argument, &path)) {
    return NULL;
  }
  GraftArtifact *artifact = NULL;
  GraftError error = {0};
  int32_t code;
  Py_BEGIN_ALLOW_THREADS;
  code = graft_artifact_open(PyBytes_AS_STRING(path), &artifact, &error);
  Py_END_ALLOW_THREADS;
  Py_DECREF(path);
  if (code != GRAFT_OK) {
    PyErr_SetString(graft_imports.artifact_error, error.message);
    return NULL;
  }
  PyObject *owner = PyCapsule_New(artifact, OWNER, close_artifact);
  if (!owner) {
    graft_artifact_close(artifact);
    return NULL;
  }
  PyObject *members = members_of(artifact, owner);
  PyObject *constants = members ? constants_of(artifact, owner) : NULL;
  PyObject *result = constants ? PyTuple_Pack(2, members, constants) : NULL;
  Py_XDECREF(members);
  Py_XDECREF(constants);
  Py_DECREF(owner);
  return result;
}
