/* Opening an artifact from Python: its members and constants as arrays over the mapped file. */
#include "artifact/artifact.h"

#include "artifact/content.h"
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

/* The artifact of a capsule; NULL with an exception if it is something else. */
GraftArtifact *graft_artifact_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, OWNER); }

/* Calls accept(message, signatures or None); what it raises stays set. */
static int32_t accept(void *user, const char *message, const uint8_t *signatures, size_t size, GraftError *error) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *done = PyObject_CallFunction(user, "yy#", message, (const char *)signatures, (Py_ssize_t)size);
  error->code = done ? GRAFT_OK : GRAFT_ERROR_ARTIFACT;
  Py_XDECREF(done);
  PyGILState_Release(gil);
  return error->code;
}

PyObject *graft_open_artifact(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *path = NULL, *callable = Py_None;
  if (!PyArg_ParseTuple(arguments, "O&|O", PyUnicode_FSConverter, &path, &callable)) {
    return NULL;
  }
  ArtifactTrust trust = {accept, callable};
  GraftArtifact *artifact = NULL;
  GraftError error = {0};
  int32_t code;
  Py_BEGIN_ALLOW_THREADS;
  code = graft_artifact_open(PyBytes_AS_STRING(path), callable == Py_None ? NULL : &trust, NULL, &artifact, &error);
  Py_END_ALLOW_THREADS;
  Py_DECREF(path);
  if (code != GRAFT_OK) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(graft_imports.artifact_error, error.message);
    }
    return NULL;
  }
  PyObject *owner = PyCapsule_New(artifact, OWNER, close_artifact);
  if (!owner) {
    graft_artifact_close(artifact);
    return NULL;
  }
  PyObject *members = members_of(artifact, owner);
  PyObject *constants = members ? constants_of(artifact, owner) : NULL;
  PyObject *result = constants ? PyTuple_Pack(3, members, constants, owner) : NULL;
  Py_XDECREF(members);
  Py_XDECREF(constants);
  Py_DECREF(owner);
  return result;
}

PyObject *graft_check_artifact(PyObject *module, PyObject *capsule) {
  (void)module;
  GraftArtifact *artifact = graft_artifact_of(capsule);
  if (!artifact) {
    return NULL;
  }
  GraftError error = {0};
  int32_t code;
  Py_BEGIN_ALLOW_THREADS;
  code = graft_artifact_check(artifact, NULL, &error);
  Py_END_ALLOW_THREADS;
  if (code != GRAFT_OK) {
    PyErr_SetString(graft_imports.artifact_error, error.message);
    return NULL;
  }
  Py_RETURN_NONE;
}

PyObject *graft_content_hash(PyObject *module, PyObject *argument) {
  (void)module;
  Py_buffer buffer;
  if (PyObject_GetBuffer(argument, &buffer, PyBUF_SIMPLE) < 0) {
    return NULL;
  }
  size_t size = (size_t)buffer.len, count = graft_content_chunks(size);
  ContentHash *hashes = PyMem_Calloc(count, sizeof *hashes);
  char text[GRAFT_CONTENT_DIGITS + 1];
  if (hashes) {
    Py_BEGIN_ALLOW_THREADS;
    for (size_t i = 0; i < count; i++) {
      size_t offset = i * GRAFT_CONTENT_CHUNK, left = size - offset;
      const uint8_t *bytes = (const uint8_t *)buffer.buf + offset;
      hashes[i] = graft_content_chunk(bytes, left < GRAFT_CONTENT_CHUNK ? left : GRAFT_CONTENT_CHUNK);
    }
    graft_content_text(graft_content_join(hashes, count), text);
    Py_END_ALLOW_THREADS;
  }
  PyMem_Free(hashes);
  PyBuffer_Release(&buffer);
  return hashes ? PyUnicode_FromString(text) : PyErr_NoMemory();
}
