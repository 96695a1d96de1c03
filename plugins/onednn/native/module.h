/* The parts of a loaded oneDNN module: the graph it came from, the steps that run it, the memory they use. */
#ifndef GRAFT_ONEDNN_MODULE_H
#define GRAFT_ONEDNN_MODULE_H

#include <pthread.h>
#include <stdbool.h>

#include "dnnl_abi.h"
#include "graft/runtime.h"
#include "json.h"

#define MAX_OPERANDS 128
#define ALIGNMENT 64u

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
  Shape shape;
  int32_t last_use; /* the last node that reads the value; INT32_MAX for an output of the region, -1 for none */
} Node;

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
} Graph;

/* A part begins `offset` bytes behind the start of the buffer `index`, which is not a part itself. */
typedef enum { BUFFER_WORKSPACE, BUFFER_CONSTANT, BUFFER_INPUT, BUFFER_OUTPUT, BUFFER_PART } BufferKind;

typedef struct Buffer {
  BufferKind kind;
  int32_t index;  /* of the input or output, or the buffer that this is a part of */
  bool shared;    /* more than one value lives here: never overwritten in place */
  void *data;     /* of a constant */
  bool owned;     /* data is ours to free */
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

/* What one call needs for itself: memory objects for every argument of every step, and the workspace. */
typedef struct Instance {
  struct Instance *next;
  DnnlStream stream;
  DnnlArg *args; /* of all steps, one after another */
  void *workspace;
} Instance;

typedef struct Module {
  Dnnl dnnl;
  DnnlEngine engine;
  Graph graph;
  const GraftLoaderHost *host; /* during load only */
  const GraftModuleSource *source; /* during load only */
  int32_t thread_count;
  Buffer *buffers;
  size_t buffer_count, buffer_capacity;
  Stored *stored;
  size_t stored_count, stored_capacity;
  Step *steps;
  size_t step_count, step_capacity;
  size_t arg_count; /* of all steps */
  uint64_t workspace_bytes;
  char *description;
  pthread_mutex_t lock; /* guards `idle` */
  Instance *idle;
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

/* descriptions.c */
int32_t onednn_strided(Module *module, int32_t node, const Shape *shape, const int64_t *strides, DnnlDesc *desc);
int32_t onednn_row_major(Module *module, int32_t node, const Shape *shape, DnnlDesc *desc);
/* Dense, with `axis` innermost and the others row-major. */
int32_t onednn_innermost(Module *module, int32_t node, const Shape *shape, int32_t axis, DnnlDesc *desc);
int32_t onednn_any_layout(Module *module, int32_t node, const Shape *shape, DnnlDesc *desc);
/* The strides of a plain description; false for one with inner blocks. They live as long as `desc`. */
bool onednn_strides(const Module *module, DnnlConstDesc desc, const int64_t **strides);
/* A copy of `desc`, the same for all plain descriptions that oneDNN calls equal. */
int32_t onednn_canonical(Module *module, int32_t node, DnnlConstDesc desc, DnnlDesc *copy);

/* fail.c */
int32_t onednn_fail(Module *module, int32_t node, const char *what, DnnlStatus status);

/* layout.c */
void *onednn_grow(void *array, size_t count, size_t *capacity, size_t size);
int32_t onednn_new_buffer(Module *module, BufferKind kind, uint64_t bytes, int32_t *buffer);
/* Records that `value` lies in `buffer` as `desc` says; copies the descriptions. */
int32_t onednn_store(Module *module, int32_t value, int32_t buffer, DnnlConstDesc desc, DnnlConstDesc view);
/* The value in the layout its producer chose. */
const Stored *onednn_current(const Module *module, int32_t value);
/* The buffer that holds the value's row-major bytes. */
int32_t onednn_fetch_row_major(Module *module, int32_t node, int32_t value, int32_t *buffer);
/* Gives the value in the layout `desc`, with a reorder where needed. A `view` describes its row-major bytes anew. */
int32_t onednn_fetch(Module *module, int32_t node, int32_t value, DnnlConstDesc desc, DnnlConstDesc view,
                     int32_t *buffer);
/* Appends a step and keeps copies of the descriptions; takes the recipe in every case. */
int32_t onednn_add_step(Module *module, int32_t node, DnnlRecipe recipe, const StepArg *args, int32_t count,
                        bool reorder);

/* workspace.c */
int32_t onednn_plan_workspace(Module *module);

/* run.c */
int32_t onednn_run(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs);
void onednn_instance_free(Module *module, Instance *instance);
void *onednn_allocate(uint64_t bytes);

/* views.c: operators that move no bytes; they only describe them anew */
int32_t onednn_reshape(Module *module, int32_t node);
int32_t onednn_transpose(Module *module, int32_t node);
int32_t onednn_slice(Module *module, int32_t node);

/* kernels.c: gives the value of a kernel node a buffer and the steps that fill it */
int32_t onednn_lower(Module *module, int32_t node);

#endif
