/* Memory of large outputs. The C library gives a block beyond its limit back to the system as soon as it is freed, and
 * the pages of a new one cost more than the bytes that a kernel writes there. So a program keeps one such block for each
 * output and takes it for a later call, once the array that had it is gone. */
#include "binding.h"

enum { LARGE = 32 << 20 }; /* bytes; the largest block that glibc ever keeps */

struct Spares {
  Py_ssize_t references; /* the program's, while it lives, and those of lent blocks */
  int32_t count;
  int is_closed;
  PyObject *blocks[]; /* arrays of bytes, one for each output; NULL where it is lent, or none was made */
};

/* A block that an output has: what its array has as base. */
typedef struct Loan {
  struct Spares *spares;
  int32_t output;
  PyObject *block;
} Loan;

static void release(struct Spares *spares) {
  if (--spares->references == 0) {
    PyMem_Free(spares);
  }
}

static void end_loan(PyObject *capsule) {
  Loan *loan = PyCapsule_GetPointer(capsule, "graft_loan");
  struct Spares *spares = loan->spares;
  if (spares->is_closed) {
    Py_DECREF(loan->block);
  } else {
    Py_XSETREF(spares->blocks[loan->output], loan->block);
  }
  release(spares);
  PyMem_Free(loan);
}

/* The bytes of an output's block: the spare one, if it has as many. A new reference; NULL with an exception. */
static PyObject *take_block(struct Spares *spares, int32_t output, npy_intp bytes) {
  PyObject *spare = spares->blocks[output];
  spares->blocks[output] = NULL;
  if (spare && PyArray_DIM((PyArrayObject *)spare, 0) == bytes) {
    return spare;
  }
  Py_XDECREF(spare); /* before the new one is made: not both at once */
  return PyArray_SimpleNew(1, &bytes, NPY_UINT8);
}

static struct Spares *spares_of(ProgramObject *program) {
  size_t count = (size_t)program->output_count;
  if (!program->spares) {
    program->spares = PyMem_Calloc(1, sizeof(struct Spares) + count * sizeof(PyObject *));
    if (!program->spares) {
      PyErr_NoMemory();
      return NULL;
    }
    program->spares->references = 1;
    program->spares->count = program->output_count;
  }
  return program->spares;
}

int graft_is_large(const DLTensor *tensor) {
  int64_t bytes = ((int64_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    bytes *= tensor->shape[i];
  }
  return bytes > LARGE;
}

PyObject *graft_large_array(ProgramObject *program, int32_t output, const DLTensor *known) {
  struct Spares *spares = spares_of(program);
  Loan *loan = spares ? PyMem_Malloc(sizeof *loan) : NULL;
  if (!loan) {
    return spares ? PyErr_NoMemory() : NULL;
  }
  PyArray_Descr *descr = program->ports[program->input_count + output].descr;
  npy_intp bytes = PyArray_MultiplyList((npy_intp *)known->shape, known->ndim) * PyDataType_ELSIZE(descr);
  PyObject *block = take_block(spares, output, bytes);
  *loan = (Loan){spares, output, block};
  PyObject *owner = block ? PyCapsule_New(loan, "graft_loan", end_loan) : NULL;
  if (!owner) {
    Py_XDECREF(block);
    PyMem_Free(loan);
    return NULL;
  }
  spares->references++;
  Py_INCREF((PyObject *)descr);
  PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, known->ndim, (npy_intp *)known->shape, NULL,
                                         PyArray_DATA((PyArrayObject *)block), NPY_ARRAY_CARRAY, NULL);
  if (!array) {
    Py_DECREF(owner);
    return NULL;
  }
  if (PyArray_SetBaseObject((PyArrayObject *)array, owner) < 0) { /* which takes the owner over in any case */
    Py_CLEAR(array);
  }
  return array;
}

void graft_drop_spares(ProgramObject *program) {
  struct Spares *spares = program->spares;
  for (int32_t i = 0; spares && i < spares->count; i++) {
    Py_CLEAR(spares->blocks[i]);
  }
  if (spares) {
    spares->is_closed = 1;
    release(spares);
  }
}
