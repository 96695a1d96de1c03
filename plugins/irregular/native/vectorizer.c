/* TfIdfVectorizer: the n-grams of a pool as a tree, whose edges are in one hash table. */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

/* An edge from a node of the tree by an item, to the node behind it. The root is node 0; an edge's node is its number. */
typedef struct Edge {
  int32_t from, to;
  int64_t number;
  Text text;
  int64_t gram; /* the n-gram that ends here, counted from 1; 0: none */
} Edge;

typedef struct Tree {
  const JsonValue *columns, *weights;
  int64_t width, least, most, skips;
  bool texts, counts, weighs;
  int32_t nodes;
  size_t mask;
  Edge edges[];
} Tree;

static size_t hash_of(const Tree *tree, int32_t from, int64_t number, Text text) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uint64_t)from;
  for (size_t i = 0; tree->texts && i < text.length; i++) {
    hash = (hash ^ (unsigned char)text.begin[i]) * UINT64_C(0x100000001b3);
  }
  hash = (hash ^ (uint64_t)number) * UINT64_C(0x9e3779b97f4a7c15);
  return (size_t)(hash ^ hash >> 29) & tree->mask;
}

/* The edge of an item, or the free place where it would be. */
static Edge *edge_of(Tree *tree, int32_t from, int64_t number, Text text) {
  size_t at = hash_of(tree, from, number, text);
  while (tree->edges[at].to) {
    const Edge *edge = tree->edges + at;
    bool same = edge->from == from && edge->number == number && edge->text.length == text.length;
    if (same && (!tree->texts || memcmp(edge->text.begin, text.begin, text.length) == 0)) {
      break;
    }
    at = (at + 1) & tree->mask;
  }
  return tree->edges + at;
}

static void add_gram(Tree *tree, const JsonValue *pool, size_t begin, size_t size, int64_t gram) {
  int32_t node = 0;
  for (size_t i = 0; i < size; i++) {
    const JsonValue *item = graft_json_item(pool, begin + i);
    const char *given = tree->texts ? graft_json_string(item, "") : "";
    Text text = {given, strlen(given)};
    int64_t number = tree->texts ? 0 : graft_json_integer(item, 0);
    Edge *edge = edge_of(tree, node, number, text);
    if (!edge->to) {
      *edge = (Edge){node, ++tree->nodes, number, text, 0};
    }
    edge->gram = i + 1 == size ? gram : edge->gram;
    node = edge->to;
  }
}

static void add_grams(Tree *tree, const JsonValue *pool, const JsonValue *starts) {
  size_t total = graft_json_count(pool), sizes = graft_json_count(starts);
  int64_t gram = 1;
  for (size_t i = 0; i < sizes; i++) {
    int64_t begin = graft_json_integer(graft_json_item(starts, i), 0);
    int64_t end = i + 1 < sizes ? graft_json_integer(graft_json_item(starts, i + 1), 0) : (int64_t)total;
    size_t size = i + 1;
    for (int64_t at = begin; at >= 0 && at + (int64_t)size <= end && end <= (int64_t)total; at += (int64_t)size) {
      if ((int64_t)size >= tree->least && (int64_t)size <= tree->most) {
        add_gram(tree, pool, (size_t)at, size, gram);
      }
      gram++;
    }
  }
}

static void *prepare(const Node *node) {
  const JsonValue *texts = graft_json_member(node->attributes, "pool_strings");
  const JsonValue *numbers = graft_json_member(node->attributes, "pool_int64s");
  const JsonValue *pool = graft_json_count(numbers) ? numbers : texts;
  size_t room = 16;
  while (room < 2 * graft_json_count(pool) + 2) {
    room *= 2;
  }
  Tree *tree = calloc(1, sizeof *tree + room * sizeof *tree->edges);
  if (!tree) {
    return NULL;
  }
  const char *mode = graft_json_string(graft_json_member(node->attributes, "mode"), "TF");
  tree->mask = room - 1;
  tree->texts = pool == texts;
  tree->counts = strcmp(mode, "IDF") != 0;
  tree->weighs = strcmp(mode, "TF") != 0;
  tree->least = graft_json_integer(graft_json_member(node->attributes, "min_gram_length"), 1);
  tree->most = graft_json_integer(graft_json_member(node->attributes, "max_gram_length"), 1);
  tree->skips = graft_json_integer(graft_json_member(node->attributes, "max_skip_count"), 0);
  tree->columns = graft_json_member(node->attributes, "ngram_indexes");
  tree->weights = graft_json_member(node->attributes, "weights");
  for (size_t i = 0; i < graft_json_count(tree->columns); i++) {
    int64_t column = graft_json_integer(graft_json_item(tree->columns, i), 0);
    tree->width = column >= tree->width ? column + 1 : tree->width;
  }
  add_grams(tree, pool, graft_json_member(node->attributes, "ngram_counts"));
  return tree;
}

/* A row of items. */
typedef struct Row {
  const Array *array;
  const Text *texts;
  int64_t begin, length;
} Row;

/* Counts the n-grams that begin at an item and take every `step`-th one, of at least `least` items. */
static void count_from(Tree *tree, const Row *row, int64_t begin, int64_t step, int64_t least, float *counts) {
  int32_t node = 0;
  int64_t size = 1;
  for (int64_t at = begin; at < row->length && size <= tree->most; at += step, size++) {
    Text text = row->texts ? row->texts[row->begin + at] : (Text){"", 0};
    int64_t number = row->texts ? 0 : irregular_load_integer(row->array->element, row->array->data, row->begin + at);
    const Edge *edge = edge_of(tree, node, number, text);
    if (!edge->to) {
      return;
    }
    if (size >= least && edge->gram) {
      int64_t column = graft_json_integer(graft_json_item(tree->columns, (size_t)edge->gram - 1), -1);
      if (column >= 0 && column < tree->width) {
        counts[column] += 1;
      }
    }
    node = edge->to;
  }
}

static void count_row(Tree *tree, const Row *row, float *counts) {
  int64_t least = tree->least;
  for (int64_t step = 1; step <= tree->skips + 1; step++) {
    for (int64_t begin = 0; begin + step * (least - 1) < row->length; begin++) {
      count_from(tree, row, begin, step, least, counts);
    }
    if (least == 1 && ++least > tree->most) { /* single items are not skipped to */
      return;
    }
  }
}

static int32_t vectorize(Call *call) {
  Array source;
  Tree *tree = call->node->prepared; /* only looked at */
  GRAFT_TRY(irregular_array(call, 0, &source));
  if (source.rank > 2 || (source.element == STRING) != (tree->texts && source.count > 0) || tree->width < 1) {
    if (source.rank > 2 || tree->width < 1 || source.count > 0) {
      return irregular_fail(call, "the input is no [item] or [batch, item] of the type of the pool");
    }
  }
  int64_t rows = source.rank == 2 ? source.shape[0] : 1, shape[2] = {rows, tree->width};
  float *data = irregular_output(call, 0, source.rank == 2 ? 2 : 1, source.rank == 2 ? shape : shape + 1);
  const Text *texts = source.element == STRING ? irregular_texts(call, &source) : NULL;
  if (!data || (source.element == STRING && !texts)) {
    return GRAFT_ERROR_RUN;
  }
  memset(data, 0, (size_t)(rows * tree->width) * sizeof *data);
  int64_t length = rows ? source.count / rows : 0;
  for (int64_t i = 0; i < rows; i++) {
    Row row = {&source, texts, i * length, length};
    float *counts = data + i * tree->width;
    count_row(tree, &row, counts);
    for (int64_t k = 0; k < tree->width; k++) {
      bool has_weights = graft_json_count(tree->weights) > 0;
      float weight = tree->weighs && has_weights ? (float)irregular_item_number(tree->weights, (size_t)k) : 1;
      counts[k] = tree->counts ? counts[k] * weight : counts[k] > 0 ? weight : 0;
    }
  }
  return GRAFT_OK;
}

const KernelRow IRREGULAR_VECTORIZER[] = {{"TfIdfVectorizer", vectorize, prepare}, {NULL, NULL, NULL}};
