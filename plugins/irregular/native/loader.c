/* The loader of module kind "irregular": a region as JSON in, its nodes one after another out.
 *
 *   {"name": ..., "values": [[element, packed], ...], "inputs": n, "constants": [name, ...], "outputs": [value, ...],
 *    "nodes": [{"op": ..., "origin": ..., "attributes": {...}, "inputs": [value or -1], "outputs": [...]}, ...]}
 *
 * Values are numbered: the inputs of the region, its constants, then what the nodes make. A module is never written
 * while it runs, so that any number of threads may call it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

#if defined(__GNUC__)
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT
#endif

static const KernelRow *const TABLES[] = {IRREGULAR_SELECTION, IRREGULAR_TEXTS,  IRREGULAR_SEQUENCES,
                                          IRREGULAR_NARROW,    IRREGULAR_RANDOM, IRREGULAR_VECTORIZER,
                                          IRREGULAR_IMAGES,    IRREGULAR_MOVES,  IRREGULAR_TEXTS_MOVED,
                                          IRREGULAR_TOKENS,    IRREGULAR_FOURIER};

static const KernelRow *find_kernel(const char *name) {
  for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++) {
    for (const KernelRow *row = TABLES[i]; row->name; row++) {
      if (strcmp(row->name, name) == 0) {
        return row;
      }
    }
  }
  return NULL;
}

/* ---- Running ---- */

static Value value_of(const DLTensor *tensor) {
  Value value = {0};
  static const unsigned char nothing = 0;
  if (tensor != NULL) {
    value.data = tensor->data ? (const unsigned char *)tensor->data + tensor->byte_offset : &nothing;
    value.rank = tensor->ndim;
    for (int32_t i = 0; i < tensor->ndim && i < MOST_RANK; i++) {
      value.shape[i] = tensor->shape[i];
    }
  }
  return value;
}

/* A result that is an input of the region, or a constant. */
static int32_t copy_outputs(Call *call) {
  const Module *module = call->module;
  for (int32_t i = 0; i < module->input_count + module->constant_count; i++) {
    int32_t number = module->returned[i];
    const Value *value = call->values + i;
    if (number < 0 || !value->data) {
      continue;
    }
    size_t bytes = module->types[i].packed ? 1 : (size_t)IRREGULAR_ELEMENTS[module->types[i].element].bytes;
    for (int32_t axis = 0; axis < value->rank; axis++) {
      bytes *= (size_t)value->shape[axis];
    }
    void *data = call->context->api->allocate_output(call->context, number, value->rank, value->shape);
    if (!data && bytes) {
      return GRAFT_ERROR_RUN;
    }
    if (bytes) {
      memcpy(data, value->data, bytes);
    }
  }
  return GRAFT_OK;
}

static int32_t run(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  Module *module = state;
  Value *values = calloc((size_t)module->value_count + 1, sizeof *values);
  if (!values) {
    return context->api->fail(context, "region '%s': memory ran out", module->name);
  }
  Call call = {context, module, NULL, values, outputs};
  int32_t status = GRAFT_OK;
  for (int32_t i = 0; i < module->input_count; i++) {
    values[i] = value_of(inputs[i]);
    if (inputs[i] && inputs[i]->ndim > MOST_RANK) {
      status = context->api->fail(context, "region '%s': an input has more than %d axes", module->name, MOST_RANK);
    }
  }
  for (int32_t i = 0; i < module->constant_count; i++) {
    values[module->input_count + i] = value_of(module->constants[i]);
  }
  for (int32_t i = 0; i < module->node_count && !status; i++) {
    call.node = module->nodes + i;
    status = call.node->run(&call);
  }
  if (!status) {
    status = copy_outputs(&call);
  }
  for (int32_t i = 0; i < module->value_count; i++) {
    free(values[i].owned);
  }
  free(values);
  return status;
}

/* ---- Loading ---- */

static void unload(void *user, void *state) {
  (void)user;
  Module *module = state;
  for (int32_t i = 0; i < module->node_count; i++) {
    free(module->nodes[i].prepared);
  }
  graft_json_free(module->document);
  free(module->types);
  free(module->returned);
  free(module->constants);
  free(module->nodes);
  free(module->places);
  free(module);
}

static bool read_values(Module *module, const JsonValue *root, const GraftModuleSource *source) {
  const JsonValue *values = graft_json_member(root, "values"), *constants = graft_json_member(root, "constants");
  const JsonValue *outputs = graft_json_member(root, "outputs");
  int64_t inputs = graft_json_integer(graft_json_member(root, "inputs"), -1);
  size_t count = graft_json_count(values);
  module->constant_count = (int32_t)graft_json_count(constants);
  module->output_count = (int32_t)graft_json_count(outputs);
  if (inputs < 0 || count > INT32_MAX / 8 || (size_t)inputs + graft_json_count(constants) > count) {
    return false;
  }
  module->value_count = (int32_t)count;
  module->input_count = (int32_t)inputs;
  module->types = calloc(count + 1, sizeof *module->types);
  module->returned = calloc(count + 1, sizeof *module->returned);
  module->constants = calloc((size_t)module->constant_count + 1, sizeof *module->constants);
  module->lacks_memory = !module->types || !module->returned || !module->constants;
  if (module->lacks_memory) {
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    const JsonValue *row = graft_json_item(values, i);
    module->types[i].element = irregular_element(graft_json_string(graft_json_item(row, 0), "?"), false);
    module->types[i].packed = graft_json_integer(graft_json_item(row, 1), 0) != 0;
    module->returned[i] = -1;
    if (module->types[i].element == NO_ELEMENT && !module->types[i].packed) {
      return false;
    }
  }
  for (int32_t i = 0; i < module->constant_count; i++) {
    const char *name = graft_json_string(graft_json_item(constants, (size_t)i), "");
    for (size_t k = 0; k < source->constant_count; k++) {
      if (strcmp(source->constants[k].name, name) == 0) {
        module->constants[i] = source->constants[k].tensor;
      }
    }
    if (!module->constants[i] || module->constants[i]->ndim > MOST_RANK) {
      return false;
    }
  }
  for (int32_t i = 0; i < module->output_count; i++) {
    int64_t value = graft_json_integer(graft_json_item(outputs, (size_t)i), -1);
    if (value < 0 || value >= (int64_t)count || module->returned[value] >= 0) {
      return false;
    }
    module->returned[value] = i;
  }
  return true;
}

/* Appends the values in a list; each below `limit`. */
static bool read_places(const JsonValue *list, int64_t limit, int32_t *places) {
  for (size_t i = 0; i < graft_json_count(list); i++) {
    int64_t value = graft_json_integer(graft_json_item(list, i), -2);
    if (value < NO_VALUE || value >= limit) {
      return false;
    }
    places[i] = (int32_t)value;
  }
  return true;
}

static bool read_nodes(Module *module, const JsonValue *root, const char **unknown) {
  const JsonValue *nodes = graft_json_member(root, "nodes");
  size_t count = graft_json_count(nodes), total = 0;
  for (size_t i = 0; i < count; i++) {
    const JsonValue *json = graft_json_item(nodes, i);
    total += graft_json_count(graft_json_member(json, "inputs")) + graft_json_count(graft_json_member(json, "outputs"));
  }
  module->nodes = calloc(count + 1, sizeof *module->nodes);
  module->places = calloc(total + 1, sizeof *module->places);
  module->lacks_memory = !module->nodes || !module->places;
  if (count > INT32_MAX / 8 || module->lacks_memory) {
    return false;
  }
  int32_t *places = module->places;
  for (size_t i = 0; i < count; i++) {
    const JsonValue *json = graft_json_item(nodes, i);
    const JsonValue *inputs = graft_json_member(json, "inputs"), *outputs = graft_json_member(json, "outputs");
    const char *op = graft_json_string(graft_json_member(json, "op"), "");
    Node *node = module->nodes + i;
    const KernelRow *row = find_kernel(op);
    if (!row) {
      *unknown = op;
      return false;
    }
    *node = (Node){.origin = graft_json_string(graft_json_member(json, "origin"), ""),
                   .run = row->run,
                   .attributes = graft_json_member(json, "attributes"),
                   .inputs = (int32_t)graft_json_count(inputs),
                   .outputs = (int32_t)graft_json_count(outputs),
                   .places = places};
    module->node_count = (int32_t)i + 1;
    node->prepared = row->prepare ? row->prepare(node) : NULL;
    if (row->prepare && !node->prepared) {
      module->lacks_memory = true;
      return false;
    }
    if (!read_places(inputs, module->value_count, places) ||
        !read_places(outputs, module->value_count, places + node->inputs)) {
      return false;
    }
    for (int32_t k = 0; k < node->outputs; k++) { /* what is given to the region is not written */
      int32_t made = places[node->inputs + k];
      if (made != NO_VALUE && made < module->input_count + module->constant_count) {
        return false;
      }
    }
    places += node->inputs + node->outputs;
  }
  return true;
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **result) {
  char message[256] = "";
  const char *unknown = NULL;
  Module *module = calloc(1, sizeof *module);
  if (!module) {
    return graft_fail_memory(host, source->name);
  }
  atomic_init(&module->draws, 0);
  module->document = graft_json_parse(source->data, source->size, NULL, message, sizeof message);
  const JsonValue *root = module->document ? graft_json_root(module->document) : NULL;
  module->name = graft_json_string(graft_json_member(root, "name"), "");
  if (!root || !read_values(module, root, source) || !read_nodes(module, root, &unknown)) {
    bool lacks_memory = module->lacks_memory || graft_json_lacked_memory(message);
    int32_t code = lacks_memory ? graft_fail_memory(host, source->name)
                   : unknown ? host->fail(host, "module '%s' (kind 'irregular') has no kernel of %s; compile it again",
                                          source->name, unknown)
                             : host->fail(host, "module '%s' (kind 'irregular') is damaged%s%s", source->name,
                                          *message ? ": " : "", message);
    unload(user, module);
    return code;
  }
  *result = module;
  return GRAFT_OK;
}

static int32_t lookup(void *user, const GraftLoaderHost *host, void *state, const char *function, GraftFunction *entry,
                      void **function_state) {
  (void)user;
  const Module *module = state;
  if (strcmp(function, module->name) != 0) {
    return host->fail(host, "module of kind 'irregular' has function '%s', not '%s'", module->name, function);
  }
  if (host->input_count >= 0 &&
      (host->input_count < module->input_count || host->output_count < module->output_count)) {
    return host->fail(host, "'%s' has %d inputs and %d outputs, and its call has %d and %d", function,
                      (int)module->input_count, (int)module->output_count, (int)host->input_count,
                      (int)host->output_count);
  }
  *entry = run;
  *function_state = state;
  return GRAFT_OK;
}

EXPORT const GraftLoader *graft_loader(void);

const GraftLoader *graft_loader(void) {
  static const GraftLoader LOADER = {GRAFT_ABI_VERSION, "irregular", NULL, load, lookup, unload};
  return &LOADER;
}
