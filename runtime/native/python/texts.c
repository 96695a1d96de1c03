/* Texts of packed values: each is its length (eight bytes, little-endian) and UTF-8 (the grammar: runtime/packed_values.py). */
#include "binding.h"

enum { LENGTH = 8 };

static uint64_t length_at(const unsigned char *data) {
  uint64_t length = 0;
  for (int i = LENGTH - 1; i >= 0; i--) {
    length = length << 8 | data[i];
  }
  return length;
}

PyObject *graft_read_texts(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *bytes;
  Py_ssize_t place, count;
  if (!PyArg_ParseTuple(arguments, "Snn", &bytes, &place, &count)) {
    return NULL;
  }
  const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(bytes);
  Py_ssize_t size = PyBytes_GET_SIZE(bytes);
  PyObject *texts = PyList_New(0);
  for (Py_ssize_t i = 0; texts && i < count && size - place >= LENGTH; i++) {
    uint64_t length = length_at(data + place);
    if (length > (uint64_t)(size - place - LENGTH)) {
      break;
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)data + place + LENGTH, (Py_ssize_t)length, "replace");
    if (!text || PyList_Append(texts, text) < 0) {
      Py_CLEAR(texts);
    }
    Py_XDECREF(text);
    place += LENGTH + (Py_ssize_t)length;
  }
  return texts ? Py_BuildValue("Nn", texts, place) : NULL;
}

/* The bytes of a text, borrowed; NULL with an exception if it is none. */
static const char *content_of(PyObject *text, Py_ssize_t *size) {
  char *content = NULL;
  if (PyUnicode_Check(text)) {
    return PyUnicode_AsUTF8AndSize(text, size);
  }
  return PyBytes_AsStringAndSize(text, &content, size) < 0 ? NULL : content;
}

PyObject *graft_write_texts(PyObject *module, PyObject *texts) {
  (void)module;
  Py_ssize_t count = PyList_Check(texts) ? PyList_GET_SIZE(texts) : 0, total = 0, size = 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!content_of(PyList_GET_ITEM(texts, i), &size)) {
      return NULL;
    }
    total += LENGTH + size;
  }
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, total);
  char *end = bytes ? PyBytes_AS_STRING(bytes) : NULL;
  for (Py_ssize_t i = 0; bytes && i < count; i++) {
    const char *content = content_of(PyList_GET_ITEM(texts, i), &size);
    for (int place = 0; place < LENGTH; place++) {
      *end++ = (char)((uint64_t)size >> 8 * place);
    }
    memcpy(end, content, (size_t)size);
    end += size;
  }
  return bytes;
}
