/* The shapes of a graph as expressions over its symbols: read once, evaluated for each binding. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

#define MAX_ELEMENTS ((int64_t)1 << 40)
#define MAX_ENTRIES 65536

static int32_t read_number(const char *digits, int32_t count) {
  int64_t number = *digits == '\0' ? -1 : 0;
  for (; *digits >= '0' && *digits <= '9' && number < count; digits++) {
    number = 10 * number + (*digits - '0');
  }
  return *digits == '\0' && number < count ? (int32_t)number : -1;
}

bool onednn_read_dimension(const Graph *graph, const JsonValue *value, int32_t limit, Dimension *dimension) {
  if (value != NULL && value->kind == JSON_INTEGER) {
    *dimension = (Dimension){-1, value->as.integer};
    return value->as.integer >= -GRAFT_MAXIMUM_EXTENT && value->as.integer <= GRAFT_MAXIMUM_EXTENT;
  }
  const char *text = graft_json_string(value, "");
  int32_t place = -1;
  if (text[0] == 's') {
    place = read_number(text + 1, graph->symbol_count);
  } else if (text[0] == 'e') {
    place = read_number(text + 1, limit);
    place = place < 0 ? -1 : graph->symbol_count + place;
  }
  *dimension = (Dimension){place, 0};
  return place >= 0;
}

const char *onednn_read_extents(Graph *graph, const JsonValue *root) {
  const JsonValue *symbols = graft_json_member(root, "symbols");
  const JsonValue *rows = graft_json_member(root, "extents");
  size_t symbol_count = graft_json_count(symbols), row_count = graft_json_count(rows);
  if (symbol_count > MAX_ENTRIES || row_count > MAX_ENTRIES) {
    return "it has too many 'symbols' or 'extents'";
  }
  graph->symbols = calloc(symbol_count + 1, sizeof *graph->symbols);
  graph->operations = calloc(row_count + 1, sizeof *graph->operations);
  if (graph->symbols == NULL || graph->operations == NULL) {
    return "out of memory";
  }
  for (; graph->symbol_count < (int32_t)symbol_count; graph->symbol_count++) {
    const JsonValue *row = graft_json_item(symbols, (size_t)graph->symbol_count);
    Symbol *symbol = &graph->symbols[graph->symbol_count];
    symbol->name = graft_json_string(graft_json_member(row, "name"), NULL);
    int64_t input = graft_json_integer(graft_json_member(row, "input"), -1);
    int64_t axis = graft_json_integer(graft_json_member(row, "axis"), -1);
    if (symbol->name == NULL || input < 0 || input > MAX_ENTRIES || axis < 0 || axis >= DNNL_MAX_RANK) {
      return "a symbol must have a name, an input and an axis";
    }
    symbol->input = (int32_t)input;
    symbol->axis = (int32_t)axis;
  }
  for (; graph->operation_count < (int32_t)row_count; graph->operation_count++) {
    const JsonValue *row = graft_json_item(rows, (size_t)graph->operation_count);
    Operation *operation = &graph->operations[graph->operation_count];
    const char *name = graft_json_string(graft_json_item(row, 0), "");
    if (graft_json_count(row) != 3 || !graft_extent_operator(name, &operation->operator) ||
        !onednn_read_dimension(graph, graft_json_item(row, 1), graph->operation_count, &operation->left) ||
        !onednn_read_dimension(graph, graft_json_item(row, 2), graph->operation_count, &operation->right)) {
      return "a row of 'extents' must be an operation on numbers, symbols and earlier rows";
    }
  }
  return NULL;
}

static int64_t value_of(const Binding *binding, Dimension dimension) {
  return dimension.place < 0 ? dimension.number : binding->values[dimension.place];
}

int64_t onednn_integer(const Binding *binding, const JsonValue *value, int64_t fallback) {
  const Graph *graph = &binding->module->graph;
  Dimension dimension;
  const JsonValue *extent = graft_json_member(value, "extent");
  if (extent != NULL && onednn_read_dimension(graph, extent, graph->operation_count, &dimension)) {
    return value_of(binding, dimension);
  }
  return graft_json_integer(value, fallback);
}

void onednn_append_values(const Binding *binding, char *text, size_t size) {
  const Graph *graph = &binding->module->graph;
  for (int32_t i = 0; i < graph->symbol_count; i++) {
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s = %" PRId64, i ? ", " : "", graph->symbols[i].name, binding->values[i]);
  }
}

/* The sizes of a node's shape; false if one is out of range. */
static bool set_shape(Binding *binding, Node *node) {
  const Graph *graph = &binding->module->graph;
  int64_t elements = 1;
  for (size_t i = 0; i < graft_json_count(node->sizes); i++) {
    Dimension dimension;
    if (!onednn_read_dimension(graph, graft_json_item(node->sizes, i), graph->operation_count, &dimension)) {
      return false;
    }
    int64_t size = value_of(binding, dimension);
    if (size < 0 || (size > 0 && elements > MAX_ELEMENTS / size)) {
      return false;
    }
    elements *= size == 0 ? 1 : size;
    node->shape.sizes[i] = size;
    node->empty = node->empty || size == 0;
  }
  return true;
}

int32_t onednn_evaluate(Binding *binding) {
  const Graph *graph = &binding->module->graph;
  for (int32_t i = 0; i < graph->operation_count; i++) {
    const Operation *operation = &graph->operations[i];
    if (!graft_extent_apply(operation->operator, value_of(binding, operation->left),
                            value_of(binding, operation->right), &binding->values[graph->symbol_count + i])) {
      return onednn_fail(binding, 0, "an extent is beyond 2**62 or divides by zero", DNNL_SUCCESS);
    }
  }
  for (int32_t i = 0; i < graph->node_count; i++) {
    if (!set_shape(binding, &binding->nodes[i])) {
      return onednn_fail(binding, i, "a size of the shape is out of range", DNNL_SUCCESS);
    }
  }
  return GRAFT_OK;
}
