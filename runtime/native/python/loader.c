/* Modules that are written in Python. */
#include "binding.h"

#include <string.h>
#include <unistd.h>

#define IS_CHILD "it forked, and this is the child, which came back from the call"

/* A function of such a module: the state that its entry gets. */
typedef struct PythonFunction {
  struct PythonFunction *next;
  PyObject *callable;
  int takes_shapes; /* whether it is given the shapes that its results must have, too */
} PythonFunction;

typedef struct PythonModule {
  PyObject *functions; /* a mapping: name to callable */
  PythonFunction *resolved;
} PythonModule;

/* ---- Running -------------------------------------------------------------------------------------------------- */

/* Arrays given to Python may be kept by it; what they look at must then stay in memory. */
static PyObject *lease_of(Run *run) {
  if (run->lease) {
    return run->lease;
  }
  Py_ssize_t inputs = run->program->input_count, outputs = run->program->output_count;
  run->lease = PyList_New(0);
  int failed = !run->lease || PyList_Append(run->lease, (PyObject *)run->program) < 0;
  for (Py_ssize_t i = 0; !failed && i < inputs + outputs; i++) {
    PyObject *object = i < inputs ? run->input_objects[i] : run->arrays[i - inputs];
    failed = object && PyList_Append(run->lease, object) < 0;
  }
  if (failed) {
    Py_CLEAR(run->lease);
  }
  return run->lease;
}

/* Tensors of shapes that were unknown, an arena that is planned for each binding of symbols, and what is passed to a
 * body may move or vanish. */
static int is_lasting(const Frame *frame, const TensorSpec *root, int in_main) {
  switch (root->storage) {
    case STORAGE_CONSTANT:
    case STORAGE_EXTENTS:
      return 1;
    case STORAGE_ARENA:
      return frame->procedure->stage_count == 0;
    case STORAGE_INPUT:
    case STORAGE_OUTPUT:
      return in_main && root->stage == 0 && !root->is_unknown;
    case STORAGE_VIEW:
    case STORAGE_DYNAMIC:
      return 0;
  }
  return 0;
}

/* Of what does not last Python gets a copy. */
static PyObject *wrap_input(const Context *context, Run *run, int32_t i, const DLTensor *tensor) {
  if (!tensor) {
    Py_RETURN_NONE;
  }
  const TensorSpec *specs = context->frame->procedure->tensors;
  int32_t root = specs[context->call->inputs.items[i]].root;
  int lasting = is_lasting(context->frame, specs + root, context->frame == context->instance->entry);
  PyObject *lease = lasting ? lease_of(run) : NULL;
  if (lasting && !lease) {
    return NULL;
  }
  PyObject *array = graft_array_of_tensor(tensor, lease, 0);
  if (array && !lasting) {
    PyObject *copy = (PyObject *)PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER);
    Py_SETREF(array, copy);
  }
  return array;
}

static PyObject *wrap_inputs(const Context *context, Run *run, const DLTensor *const *inputs) {
  int32_t count = context->call->inputs.count;
  PyObject *list = PyList_New(count);
  for (int32_t i = 0; list && i < count; i++) {
    PyObject *array = wrap_input(context, run, i, inputs[i]);
    if (!array) {
      Py_CLEAR(list);
    } else {
      PyList_SET_ITEM(list, i, array);
    }
  }
  return list;
}

/* What the plugin did wrong, and who is to mend it. */
static int32_t fail_plugin(Context *context, const char *text) {
  const char *plugin = context->instance->program->manifest.modules[context->call->module].plugin;
  if (!*plugin) {
    return graft_context_fail(context, GRAFT_ERROR_RUN, "%s", text);
  }
  return graft_context_fail(context, GRAFT_ERROR_RUN, "%s; mend plugin '%s' or compile without it", text, plugin);
}

static int32_t fail_output(Context *context, int32_t i, const TensorSpec *spec, const DLTensor *wanted,
                           const DLTensor *got) {
  char expected[128] = "", actual[128] = "", text[384] = "";
  if (!spec->is_unknown) {
    graft_append_shape(expected, sizeof expected, wanted->ndim, wanted->shape);
  } else if (spec->ndim >= 0) {
    graft_append_dimensions(expected, sizeof expected, context->frame->procedure, spec);
  }
  graft_append_shape(actual, sizeof actual, got->ndim, got->shape);
  graft_append(text, sizeof text, "output %d must be %s%s, the function returned %s%s", (int)i,
               graft_dtype_name(spec->dtype), expected, graft_dtype_name(got->dtype), actual);
  return fail_plugin(context, text);
}

/* Whether an array is a result's elements in a row: kernels of the tensor IR know buffers, not shapes. */
static int is_flat(const DLTensor *wanted, const DLTensor *given) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < wanted->ndim; axis++) {
    count *= wanted->shape[axis];
  }
  return given->ndim == 1 && given->shape[0] == count;
}

/* -1: an exception is set. */
static int32_t store_output(Context *context, int32_t i, PyObject *value, DLTensor *output) {
  const TensorSpec *spec = context->frame->procedure->tensors + context->call->outputs.items[i];
  DLTensor given;
  PyObject *array = PyArray_FromAny(value, NULL, 0, 0, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED, NULL);
  if (!array || graft_tensor_of_array(array, &given) < 0) {
    Py_XDECREF(array);
    return -1;
  }
  int32_t status = GRAFT_OK;
  void *target = output->data;
  if (!graft_dtype_equal(spec->dtype, given.dtype) ||
      (!spec->is_unknown && !graft_shape_equal(output->ndim, output->shape, given.ndim, given.shape) &&
       !is_flat(output, &given))) {
    status = fail_output(context, i, spec, output, &given);
  } else if (spec->is_unknown) {
    target = context->base.api->allocate_output(&context->base, i, given.ndim, given.shape);
    status = target ? GRAFT_OK : GRAFT_ERROR_RUN;
  }
  size_t bytes = (size_t)PyArray_NBYTES((PyArrayObject *)array);
  if (!status && bytes) {
    memmove(target, given.data, bytes);
  }
  Py_DECREF(array);
  return status;
}

static int32_t store_outputs(Context *context, PyObject *result, DLTensor *const *outputs) {
  int32_t count = context->call->outputs.count;
  if (PyArray_Check(result) && count == 1) {
    return store_output(context, 0, result, outputs[0]);
  }
  PyObject *items = PySequence_Fast(result, "a function must return a sequence of arrays");
  if (!items) {
    return -1;
  }
  int32_t status = GRAFT_OK;
  if (PySequence_Fast_GET_SIZE(items) != count) {
    char text[128] = "";
    graft_append(text, sizeof text, "the function returned %zd outputs, not %d", PySequence_Fast_GET_SIZE(items), (int)count);
    status = fail_plugin(context, text);
  }
  for (int32_t i = 0; !status && i < count; i++) {
    status = store_output(context, i, PySequence_Fast_GET_ITEM(items, i), outputs[i]);
  }
  Py_DECREF(items);
  return status;
}

/* A list of a tuple for each result, None where only the function knows its shape. */
static PyObject *shapes_of(const Context *context, DLTensor *const *outputs) {
  int32_t count = context->call->outputs.count;
  const TensorSpec *specs = context->frame->procedure->tensors;
  PyObject *list = PyList_New(count);
  for (int32_t i = 0; list && i < count; i++) {
    int is_known = outputs[i] && !specs[context->call->outputs.items[i]].is_unknown;
    PyObject *shape = is_known ? PyTuple_New(outputs[i]->ndim) : Py_NewRef(Py_None);
    for (int32_t axis = 0; shape && is_known && axis < outputs[i]->ndim; axis++) {
      PyObject *extent = PyLong_FromLongLong(outputs[i]->shape[axis]);
      if (!extent) {
        Py_CLEAR(shape);
      } else {
        PyTuple_SET_ITEM(shape, axis, extent);
      }
    }
    if (!shape) {
      Py_CLEAR(list);
    } else {
      PyList_SET_ITEM(list, i, shape);
    }
  }
  return list;
}

static PyObject *call_function(const Context *context, const PythonFunction *function, PyObject *arguments,
                               DLTensor *const *outputs) {
  if (!function->takes_shapes) {
    return PyObject_CallOneArg(function->callable, arguments);
  }
  PyObject *shapes = shapes_of(context, outputs);
  PyObject *result = shapes ? PyObject_CallFunctionObjArgs(function->callable, arguments, shapes, NULL) : NULL;
  Py_XDECREF(shapes);
  return result;
}

static int32_t run_function(GraftContext *base, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  Context *context = (Context *)base;
  const PythonFunction *function = state;
  Run *run = context->instance->user;
  if (context->call->device) {
    return graft_context_fail(context, GRAFT_ERROR_RUN, "a loader in Python has functions for tensors in main memory only");
  }
  PyGILState_STATE gil = PyGILState_Ensure();
  pid_t caller = getpid();
  PyObject *arguments = wrap_inputs(context, run, inputs);
  PyObject *result = arguments ? call_function(context, function, arguments, outputs) : NULL;
  int32_t status = result ? store_outputs(context, result, outputs) : -1;
  if (status < 0) {
    char text[512];
    graft_take_exception(&run->exception, text, sizeof text);
    int is_said = run->exception && PyObject_IsInstance(run->exception, graft_imports.graft_error) > 0;
    status = is_said ? graft_context_fail(context, GRAFT_ERROR_RUN, "%s", text) : fail_plugin(context, text);
  }
  if (getpid() != caller) {
    status = fail_plugin(context, IS_CHILD);
  }
  Py_XDECREF(result);
  Py_XDECREF(arguments);
  PyGILState_Release(gil);
  return status;
}

/* ---- Loading -------------------------------------------------------------------------------------------------- */

/* A read-only view of the array that the constant came in, or else a copy: the caller may keep it. */
static PyObject *constant_array(const PythonLoader *loader, const DLTensor *tensor) {
  for (Py_ssize_t i = 0; i < loader->program->array_count; i++) {
    if (&loader->program->arrays[i].tensor == tensor) {
      return graft_array_of_tensor(tensor, loader->program->arrays[i].array, 0);
    }
  }
  PyObject *array = graft_array_of_tensor(tensor, NULL, 0);
  if (array) {
    PyObject *copy = (PyObject *)PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER);
    Py_SETREF(array, copy);
  }
  return array;
}

static PyObject *constants_of(const PythonLoader *loader, const GraftModuleSource *source) {
  PyObject *constants = PyDict_New();
  for (size_t i = 0; constants && i < source->constant_count; i++) {
    PyObject *array = constant_array(loader, source->constants[i].tensor);
    if (!array || PyDict_SetItemString(constants, source->constants[i].name, array) < 0) {
      Py_CLEAR(constants);
    }
    Py_XDECREF(array);
  }
  return constants;
}

static int32_t fail_load(PythonLoader *loader, const GraftLoaderHost *host) {
  char text[512];
  graft_take_exception(&loader->exception, text, sizeof text);
  return host->fail(host, "%s", text);
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **result) {
  PythonLoader *loader = user;
  PyGILState_STATE gil = PyGILState_Ensure();
  PythonModule *module = PyMem_Calloc(1, sizeof *module);
  PyObject *constants = constants_of(loader, source);
  pid_t caller = getpid();
  if (module && constants) {
    module->functions = PyObject_CallMethod(loader->object, "load", "sy#O", source->name,
                                            source->data ? (const char *)source->data : "", (Py_ssize_t)source->size,
                                            constants);
  }
  Py_XDECREF(constants);
  int32_t status = GRAFT_OK;
  if (!module) {
    status = host->fail(host, "out of memory");
  } else if (!module->functions) {
    status = fail_load(loader, host);
    PyMem_Free(module);
  } else if (getpid() != caller) {
    status = host->fail(host, "%s", IS_CHILD);
    Py_DECREF(module->functions);
    PyMem_Free(module);
  } else {
    *result = module;
  }
  PyGILState_Release(gil);
  return status;
}

static int32_t lookup(void *user, const GraftLoaderHost *host, void *loaded, const char *name, GraftFunction *entry,
                      void **state) {
  PythonModule *module = loaded;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *callable = PyMapping_GetItemString(module->functions, name);
  PythonFunction *function = callable ? PyMem_Calloc(1, sizeof *function) : NULL;
  int32_t status = GRAFT_OK;
  int is_fenced = 0;
  if (!callable && PyErr_ExceptionMatches(PyExc_KeyError)) {
    PyErr_Clear();
    status = host->fail(host, "it has no function '%s'", name);
  } else if (!callable) {
    status = fail_load(user, host);
  } else if (!function) {
    status = host->fail(host, "out of memory");
  } else if (Py_IS_TYPE(callable, graft_fenced_type)) {
    is_fenced = 1;
  } else if (!PyCallable_Check(callable)) {
    char kind[GRAFT_CLASS_NAME];
    status = host->fail(host, "function '%s' is a %s, which cannot be called", name, graft_class_name(callable, kind));
  }
  if (status) {
    Py_XDECREF(callable);
    PyMem_Free(function);
  } else {
    function->callable = callable;
    function->takes_shapes = PyObject_HasAttrString(callable, "takes_shapes");
    function->next = module->resolved;
    module->resolved = function;
    *entry = is_fenced ? graft_run_fenced : run_function;
    *state = is_fenced ? (void *)callable : function;
  }
  PyGILState_Release(gil);
  return status;
}

static void unload(void *user, void *loaded) {
  (void)user;
  PythonModule *module = loaded;
  PyGILState_STATE gil = PyGILState_Ensure();
  while (module->resolved) {
    PythonFunction *function = module->resolved;
    module->resolved = function->next;
    Py_DECREF(function->callable);
    PyMem_Free(function);
  }
  Py_XDECREF(module->functions);
  PyMem_Free(module);
  PyGILState_Release(gil);
}

void graft_python_loader(PythonLoader *loader, const char *kind, PyObject *object, const ProgramObject *program) {
  *loader = (PythonLoader){.base = {.abi_version = GRAFT_ABI_VERSION,
                                    .kind = kind,
                                    .user = loader,
                                    .load = load,
                                    .lookup = lookup,
                                    .unload = unload},
                           .object = object,
                           .program = program};
}
