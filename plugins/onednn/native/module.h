/* The parts of a loaded oneDNN module: the graph it came from and an LRU cache, keyed by shapes, of the steps that
 * compute it and the memory they use. */
#ifndef GRAFT_ONEDNN_MODULE_H
#define GRAFT_ONEDNN_MODULE_H

#include <pthread.h>
#include <stdbool.h>

#include "dnnl_abi.h"
#include "base/error.h"
#include "base/extent_arithmetic.h"
#include "graft/runtime.h"
#include "base/json.h"

#define MAX_OPERANDS 128
#define ALIGNMENT 64u
#define BINDINGS_KEPT 16

typedef struct Shape {
  int32_t rank;
  int64_t sizes[DNNL_MAX_RANK];
} Shape;

typedef enum { NODE_INPUT, NODE_CONST, NODE_KERNEL } NodeKind;

/* Every node has one output, so a node's index names the value that it makes. */
typedef struct Node {
  NodeKind kind;
  const char *name;
  const char *origin;          /* the first of the model's nodes that it computes */
  const JsonValue *attributes; /* of a kernel */
  const int32_t *inputs;
  int32_t input_count;
  const DLTensor *constant; /* of a constant: its contents, as long as the module lives */
  const JsonValue *sizes;   /* the shape as the graph says it */
  Shape shape;              /* in a binding; in the graph only the rank is right where shapes vary */
  bool empty;               /* in a binding: no elements, so there is nothing to compute and nothing is stored */
  int32_t last_use; /* the last node that reads the value; INT32_MAX for an output of the region, -1 for none */
} Node;

/* What says a symbol: an axis of an input. */
typedef struct Symbol {
  const char *name;
  int32_t input, axis;
} Symbol;

/* A number, or the place of one among a binding's values: symbols come first, then operations. */
typedef struct Dimension {
  int32_t place; /* -1: a number */
  int64_t number;
} Dimension;

typedef struct Operation {
  ExtentOperator operator;
  Dimension left, right;
} Operation;

typedef struct Graph {
  JsonDocument *document; /* owns names and attributes */
  const char *symbol;
  Node *nodes;
  int32_t node_count;
  int32_t *indices; /* the nodes' inputs, one after another */
  int32_t *heads;
  int32_t head_count;
  int32_t *inputs; /* the nodes of kind NODE_INPUT */
  int32_t input_count;
  Symbol *symbols;
  int32_t symbol_count; /* 0: all shapes are numbers */
  Operation *operations;
  int32_t operation_count;
} Graph;

/* A constant in a layout that oneDNN wanted: laid out once, for all bindings that read it so. */
typedef struct Packed {
  struct Packed *next;
  const void *source;
  DnnlDesc from, to;
  void *data;
  int32_t users; /* buffers of bindings */
} Packed;

/* A part begins `offset` bytes behind the start of the buffer `index`, which is not a part itself. */
typedef enum { BUFFER_WORKSPACE, BUFFER_CONSTANT, BUFFER_INPUT, BUFFER_OUTPUT, BUFFER_PART } BufferKind;

typedef struct Buffer {
  BufferKind kind;
  int32_t index;  /* of the input or output, or the buffer that this is a part of */
  bool shared;    /* more than one value lives here: never overwritten in place */
  void *data;     /* of a constant */
  bool owned;     /* data is ours to free */
  Packed *packed; /* what data is part of, if it is not ours alone */
  uint64_t bytes;
  uint64_t offset;     /* in the workspace, or in the whole */
  int32_t first, last; /* the steps between which the contents matter */
} Buffer;

/* A value's bytes in one layout. `view` is the description under which they were read, NULL for the value's own. */
typedef struct Stored {
  int32_t value;
  int32_t buffer;
  DnnlDesc desc;
  DnnlDesc view;
} Stored;

typedef struct StepArg {
  int32_t arg;
  int32_t buffer;
  DnnlDesc desc;
} StepArg;

typedef struct Step {
  int32_t node;
  DnnlPrimitive primitive;
  char implementation[48]; /* oneDNN's name of it */
  bool reorder;
  StepArg *args;
  int32_t arg_count;
} Step;

/* Memory for the intermediate values of one call: of any binding that it is large enough for. */
typedef struct Workspace {
  struct Workspace *next;
  void *data;
  uint64_t bytes;
} Workspace;

/* What one call needs for itself: memory objects for every argument of every step. */
typedef struct Instance {
  struct Instance *next;
  DnnlStream stream;
  DnnlArg *args;         /* of all steps, one after another */
  const void *workspace; /* the memory that those of intermediate values look at */
} Instance;

struct Module;

/* The module for one set of shapes: steps and buffers, built when it is first seen. */
typedef struct Binding {
  struct Binding *next;
  struct Module *module;
  const Dnnl *dnnl; /* of the module, as `engine` is */
  DnnlEngine engine;
  int64_t *values; /* of symbols, then of operations */
  Node *nodes;     /* the graph's, with their shapes */
  Buffer *buffers;
  size_t buffer_count, buffer_capacity;
  Stored *stored;
  size_t stored_count, stored_capacity;
  Step *steps;
  size_t step_count, step_capacity;
  size_t arg_count; /* of all steps */
  uint64_t workspace_bytes;
  int32_t users; /* calls that run; guarded by the module's lock, as `idle` is */
  bool listed;   /* among the module's: freed when it is neither listed nor used */
  Instance *idle;
  char error[512]; /* why it could not be built */
} Binding;

typedef struct Module {
  Dnnl dnnl;
  DnnlEngine engine;
  Graph graph;
  int32_t thread_count;
  char *description;
  pthread_mutex_t lock; /* guards all below; never held while oneDNN works */
  Binding *bindings;    /* the most recently used first, at most BINDINGS_KEPT */
  Workspace *idle;
  pthread_mutex_t packing; /* guards `packed`; held while a constant is laid out */
  Packed *packed;
} Module;

/* library.c */
int32_t onednn_open(Dnnl *dnnl, const GraftLoaderHost *host, const char *region);
int32_t onednn_enter(const Dnnl *dnnl, int32_t threads); /* returns what onednn_leave needs */
void onednn_leave(const Dnnl *dnnl, int32_t previous);

/* fork.c */
typedef void (*OnednnTask)(void *argument);
/* Runs a task in which oneDNN uses `threads` threads, apart from a thread that was forked; false: no thread to be had. */
bool onednn_with_workers(int32_t threads, OnednnTask task, void *argument);

/* graph.c */
int32_t onednn_graph_parse(Graph *graph, const GraftLoaderHost *host, const GraftModuleSource *source);
void onednn_graph_free(Graph *graph);

/* extents.c: the shapes of a graph as expressions over its symbols */
/* Reads "symbols" and "extents"; returns what is wrong, NULL if nothing is. */
const char *onednn_read_extents(Graph *graph, const JsonValue *root);
/* Whether a JSON value is a number, a symbol, or one of the first `limit` operations. */
bool onednn_read_dimension(const Graph *graph, const JsonValue *value, int32_t limit, Dimension *dimension);
/* Evaluates the operations of a binding whose symbols have values, and the shapes of its nodes. */
int32_t onednn_evaluate(Binding *binding);
/* An integer of an attribute: a number, or {"extent": "e0"}. */
int64_t onednn_integer(const Binding *binding, const JsonValue *value, int64_t fallback);
/* Appends "seq = 5, batch = 2". */
void onednn_append_values(const Binding *binding, char *text, size_t size);

/* binding.c */
/* Returns the binding for some inputs with one more user, building it if need be; NULL after a failure. */
Binding *onednn_take_binding(Module *module, GraftContext *context, const DLTensor *const *inputs);
void onednn_give_back_binding(Binding *binding);
/* Builds the only binding of a graph without symbols. */
int32_t onednn_bind_now(Module *module, const GraftLoaderHost *host);
void onednn_binding_free(Binding *binding);

/* build.c: fills a binding with buffers and steps */
int32_t onednn_build(Binding *binding);

/* descriptions.c */
int32_t onednn_strided(Binding *binding, int32_t node, const Shape *shape, const int64_t *strides, DnnlDesc *desc);
int64_t onednn_elements(const Shape *shape);
/* [..., c] as [rows, c]: all axes but the last folded into one. */
Shape onednn_fold_rows(const Shape *shape);
void onednn_row_major_strides(const Shape *shape, int64_t *strides);
int32_t onednn_row_major(Binding *binding, int32_t node, const Shape *shape, DnnlDesc *desc);
/* Dense, with `axis` innermost and the others row-major. */
int32_t onednn_innermost(Binding *binding, int32_t node, const Shape *shape, int32_t axis, DnnlDesc *desc);
int32_t onednn_any_layout(Binding *binding, int32_t node, const Shape *shape, DnnlDesc *desc);
/* The strides of a plain description; false for one with inner blocks. They live as long as `desc`. */
bool onednn_strides(const Binding *binding, DnnlConstDesc desc, const int64_t **strides);
/* A copy of `desc`, the same for all plain descriptions that oneDNN calls equal. */
int32_t onednn_canonical(Binding *binding, int32_t node, DnnlConstDesc desc, DnnlDesc *copy);

/* fail.c */
int32_t onednn_fail(Binding *binding, int32_t node, const char *what, DnnlStatus status);

/* pack.c: constants in other layouts, shared by bindings */
/* Gives the buffer what `recipe` makes of a constant, laying it out if no binding did before. */
int32_t onednn_pack(Binding *binding, int32_t node, DnnlConstRecipe recipe, const StepArg *args);
void onednn_unpack(Module *module, Packed *packed);

/* layout.c */
void *onednn_grow(void *array, size_t count, size_t *capacity, size_t size);
int32_t onednn_new_buffer(Binding *binding, BufferKind kind, uint64_t bytes, int32_t *buffer);
/* Records that `value` lies in `buffer` as `desc` says; copies the descriptions. */
int32_t onednn_store(Binding *binding, int32_t value, int32_t buffer, DnnlConstDesc desc, DnnlConstDesc view);
/* The value in the layout its producer chose. */
const Stored *onednn_current(const Binding *binding, int32_t value);
/* The buffer that holds the value's row-major bytes. */
int32_t onednn_fetch_row_major(Binding *binding, int32_t node, int32_t value, int32_t *buffer);
/* Gives the value in the layout `desc`, with a reorder where needed. A `view` describes its row-major bytes anew. */
int32_t onednn_fetch(Binding *binding, int32_t node, int32_t value, DnnlConstDesc desc, DnnlConstDesc view,
                     int32_t *buffer);
/* Appends a step and keeps copies of the descriptions; takes the recipe in every case. */
int32_t onednn_add_step(Binding *binding, int32_t node, DnnlRecipe recipe, const StepArg *args, int32_t count,
                        bool reorder);

/* workspace.c */
int32_t onednn_plan_workspace(Binding *binding);

/* memory.c */
/* 64-byte aligned, never NULL for 0 bytes; free with free(). Large blocks ask for huge pages. */
void *onednn_allocate(uint64_t bytes);

/* instance.c */
/* The buffer that a buffer is a part of, or itself, and where in it it begins. */
const Buffer *onednn_whole_buffer(const Binding *binding, int32_t index, uint64_t *offset);
/* Gives a call what it needs, idle or new; false when memory runs out. What it gave is to be given back in any case. */
bool onednn_take_instance(Binding *binding, Instance **instance, Workspace **workspace);
void onednn_give_back_instance(Binding *binding, Instance *instance, Workspace *workspace);
void onednn_instance_free(Binding *binding, Instance *instance);
void onednn_workspace_free(Workspace *workspace);

/* run.c */
int32_t onednn_run(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs);

/* views.c: operators that move no bytes; they only describe them anew */
int32_t onednn_reshape(Binding *binding, int32_t node);
int32_t onednn_transpose(Binding *binding, int32_t node);
int32_t onednn_slice(Binding *binding, int32_t node);

/* lower.c: gives the value of a kernel node a buffer and the steps that fill it */
int32_t onednn_lower(Binding *binding, int32_t node);

#endif
