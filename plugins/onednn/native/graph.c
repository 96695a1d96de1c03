/* The JSON graph of a region, read and checked: what follows may trust every index, rank and size. */
#include <stdlib.h>
#include <string.h>

#include "module.h"

#define MAX_ELEMENTS ((int64_t)1 << 40)

typedef struct Reader {
  Graph *graph;
  const GraftLoaderHost *host;
  const char *module;
} Reader;

static int32_t damaged(const Reader *reader, int32_t node, const char *what) {
  return reader->host->fail(reader->host, "module '%s' (kind 'json:onednn') is damaged: node %d: %s", reader->module,
                            node, what);
}

static int32_t no_memory(const Reader *reader) {
  return graft_fail_memory(reader->host, reader->module);
}

static int32_t broken(const Reader *reader, const char *what) {
  return reader->host->fail(reader->host, "module '%s' (kind 'json:onednn') is damaged: %s", reader->module, what);
}

static int32_t read_shape(const Reader *reader, int32_t index, const JsonValue *attrs, Node *node) {
  const JsonValue *types = graft_json_member(attrs, "dtype");
  const JsonValue *shapes = graft_json_member(attrs, "shape");
  if (graft_json_count(types) != 1 || graft_json_count(shapes) != 1) {
    return damaged(reader, index, "'dtype' and 'shape' must have one entry: the one output of the node");
  }
  if (strcmp(graft_json_string(graft_json_item(types, 0), ""), "float32") != 0) {
    return damaged(reader, index, "the element type must be float32");
  }
  node->sizes = graft_json_item(shapes, 0);
  size_t rank = graft_json_count(node->sizes);
  if (node->sizes == NULL || node->sizes->kind != JSON_ARRAY || rank > DNNL_MAX_RANK) {
    return damaged(reader, index, "the shape must be a list of at most 12 sizes");
  }
  node->shape.rank = rank == 0 ? 1 : (int32_t)rank; /* oneDNN has no rank 0 */
  node->shape.sizes[0] = 1;
  int64_t elements = 1;
  for (size_t i = 0; i < rank; i++) {
    const Graph *graph = reader->graph;
    Dimension dimension;
    bool valid = onednn_read_dimension(graph, graft_json_item(node->sizes, i), graph->operation_count, &dimension);
    int64_t size = dimension.place < 0 ? dimension.number : 1;
    if (!valid || size < 1 || size > MAX_ELEMENTS / elements) {
      return damaged(reader, index, "a size of the shape is out of range");
    }
    elements *= size;
    node->shape.sizes[i] = dimension.number;
  }
  return GRAFT_OK;
}

/* An entry is [node, output, version]; only output 0 exists. Returns the node, or -1. */
static int32_t read_entry(const JsonValue *entry, int32_t limit) {
  int64_t node = graft_json_integer(graft_json_item(entry, 0), -1);
  bool valid = graft_json_count(entry) == 3 && node >= 0 && node < limit &&
               graft_json_integer(graft_json_item(entry, 1), -1) == 0;
  return valid ? (int32_t)node : -1;
}

static int32_t read_node(const Reader *reader, const JsonValue *json, int32_t index, int32_t **indices) {
  Node *node = &reader->graph->nodes[index];
  const char *op = graft_json_string(graft_json_member(json, "op"), "");
  node->name = graft_json_string(graft_json_member(json, "name"), NULL);
  const JsonValue *attrs = graft_json_member(json, "attrs");
  node->attributes = graft_json_member(attrs, "attributes");
  node->origin = graft_json_string(graft_json_item(graft_json_member(attrs, "origin"), 0), node->name);
  node->inputs = *indices;
  node->last_use = -1;
  if (node->name == NULL || attrs == NULL || attrs->kind != JSON_OBJECT) {
    return damaged(reader, index, "'name' and 'attrs' are needed");
  }
  if (strcmp(op, "input") == 0) {
    node->kind = NODE_INPUT;
    reader->graph->inputs[reader->graph->input_count++] = index;
  } else if (strcmp(op, "const") == 0) {
    node->kind = NODE_CONST;
  } else if (strcmp(op, "kernel") == 0) {
    node->kind = NODE_KERNEL;
  } else {
    return damaged(reader, index, "'op' must be input, const or kernel");
  }
  const JsonValue *inputs = graft_json_member(json, "inputs");
  node->input_count = (int32_t)graft_json_count(inputs);
  for (int32_t i = 0; i < node->input_count; i++) {
    int32_t source = read_entry(graft_json_item(inputs, (size_t)i), index);
    if (source < 0) {
      return damaged(reader, index, "an input must be [node, 0, version] of an earlier node");
    }
    *(*indices)++ = source;
    reader->graph->nodes[source].last_use = index;
  }
  return read_shape(reader, index, attrs, node);
}

static int32_t read_heads(const Reader *reader, const JsonValue *heads) {
  Graph *graph = reader->graph;
  graph->head_count = (int32_t)graft_json_count(heads);
  graph->heads = calloc((size_t)graph->head_count + 1, sizeof *graph->heads);
  if (graph->heads == NULL) {
    return no_memory(reader);
  }
  for (int32_t i = 0; i < graph->head_count; i++) {
    graph->heads[i] = read_entry(graft_json_item(heads, (size_t)i), graph->node_count);
    if (graph->heads[i] < 0) {
      return broken(reader, "a head must be [node, 0, version] of a node");
    }
    graph->nodes[graph->heads[i]].last_use = INT32_MAX;
  }
  return graph->head_count == 0 ? broken(reader, "'heads' is missing or empty") : GRAFT_OK;
}

static size_t count_inputs(const JsonValue *nodes) {
  size_t total = 0;
  for (size_t i = 0; i < graft_json_count(nodes); i++) {
    total += graft_json_count(graft_json_member(graft_json_item(nodes, i), "inputs"));
  }
  return total;
}

static int32_t read_nodes(const Reader *reader, const JsonValue *root) {
  Graph *graph = reader->graph;
  const JsonValue *nodes = graft_json_member(root, "nodes");
  size_t count = graft_json_count(nodes);
  graph->symbol = graft_json_string(graft_json_member(root, "symbol"), NULL);
  if (graph->symbol == NULL || nodes == NULL || nodes->kind != JSON_ARRAY || count == 0 || count > 1000000) {
    return broken(reader, "'symbol' and 'nodes' are needed");
  }
  graph->nodes = calloc(count, sizeof *graph->nodes);
  graph->inputs = calloc(count, sizeof *graph->inputs);
  graph->indices = calloc(count_inputs(nodes) + 1, sizeof *graph->indices);
  if (graph->nodes == NULL || graph->inputs == NULL || graph->indices == NULL) {
    return no_memory(reader);
  }
  int32_t *indices = graph->indices;
  for (size_t i = 0; i < count; i++) {
    GRAFT_TRY(read_node(reader, graft_json_item(nodes, i), (int32_t)i, &indices));
    graph->node_count++;
  }
  return GRAFT_OK;
}

int32_t onednn_graph_parse(Graph *graph, const GraftLoaderHost *host, const GraftModuleSource *source) {
  Reader reader = {graph, host, source->name};
  char message[256] = "";
  graph->document = graft_json_parse(source->data, source->size, NULL, message, sizeof message);
  if (graph->document == NULL) {
    return graft_json_lacked_memory(message) ? no_memory(&reader) : broken(&reader, message);
  }
  const JsonValue *root = graft_json_root(graph->document);
  const char *wrong = onednn_read_extents(graph, root);
  if (wrong != NULL) {
    return graft_json_lacked_memory(wrong) ? no_memory(&reader) : broken(&reader, wrong);
  }
  int32_t code = read_nodes(&reader, root);
  for (int32_t i = 0; i < graph->symbol_count && code == GRAFT_OK; i++) {
    const Symbol *symbol = &graph->symbols[i];
    bool known = symbol->input < graph->input_count &&
                 symbol->axis < graph->nodes[graph->inputs[symbol->input]].shape.rank;
    code = known ? GRAFT_OK : broken(&reader, "the axis of a symbol is out of range");
  }
  return code == GRAFT_OK ? read_heads(&reader, graft_json_member(root, "heads")) : code;
}

void onednn_graph_free(Graph *graph) {
  free(graph->nodes);
  free(graph->inputs);
  free(graph->indices);
  free(graph->heads);
  free(graph->symbols);
  free(graph->operations);
  if (graph->document != NULL) {
    graft_json_free(graph->document);
  }
}
