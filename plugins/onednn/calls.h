/* oneDNN's primitives as plain calls. A call describes and makes its primitive in its first run and keeps it: later runs
 * hand over where the tensors are, and execute it. Every function returns a status of oneDNN. */
typedef struct GraftView {
  int rank;
  int64_t sizes[DNNL_MAX_RANK], strides[DNNL_MAX_RANK];
  const float *data;
} GraftView;

/* An elementwise algorithm, or a binary one with an operand of the result's rank. */
typedef struct GraftPostOp {
  DnnlEnum algorithm;
  float alpha, beta;
  const GraftView *operand;
} GraftPostOp;

enum { GRAFT_ONEDNN_MOST = 12, GRAFT_ONEDNN_NO_MEMORY = 1 };

typedef struct GraftPrimitive {
  DnnlStatus status;
  int bound; /* tensors of this run */
  DnnlEngine engine;
  DnnlStream stream;
  DnnlAttr attr;
  DnnlRecipe recipe;
  DnnlPrimitive primitive;
  DnnlDesc descs[GRAFT_ONEDNN_MOST];
  DnnlMemory views[GRAFT_ONEDNN_MOST]; /* the caller's tensors */
  DnnlArg args[GRAFT_ONEDNN_MOST];     /* these, or those in layouts of oneDNN's own */
  int count;
  /* Of a convolution: source, weights and target where they lie otherwise, and what copies them from or to the caller's. */
  DnnlMemory own[3];
  DnnlPrimitive copies[3];
} GraftPrimitive;

static inline void graft_onednn_destroy(void *object) {
  GraftPrimitive *const made = object;
  for (int i = 0; i < 3; i++) {
    if (made->copies[i]) dnnl_primitive_destroy(made->copies[i]);
    if (made->own[i]) dnnl_memory_destroy(made->own[i]);
  }
  if (made->primitive) dnnl_primitive_destroy(made->primitive);
  if (made->recipe) dnnl_primitive_desc_destroy(made->recipe);
  for (int i = 0; i < made->count; i++) {
    if (made->views[i]) dnnl_memory_destroy(made->views[i]);
    dnnl_memory_desc_destroy(made->descs[i]);
  }
  if (made->attr) dnnl_primitive_attr_destroy(made->attr);
  if (made->stream) dnnl_stream_destroy(made->stream);
  if (made->engine) dnnl_engine_destroy(made->engine);
  free(made);
}

/* Binds a tensor of this run to an argument; in a first run it is described, too. NULL where that is known already. */
static inline DnnlDesc graft_onednn_bind(GraftPrimitive *made, int arg, const GraftView *view) {
  if (made->status || !view) return NULL;
  const int number = made->bound++;
  if (number < made->count) {
    made->status = dnnl_memory_set_data_handle(made->views[number], (void *)view->data);
    return NULL;
  }
  made->status = dnnl_memory_desc_create_with_strides(&made->descs[number], view->rank, view->sizes, DNNL_F32,
                                                      view->strides);
  if (made->status) return NULL;
  made->count++;
  made->status = dnnl_memory_create(&made->views[number], made->descs[number], made->engine, (void *)view->data);
  made->args[number] = (DnnlArg){arg, made->views[number]};
  return made->descs[number];
}

/* Returns what was kept, or what a first run makes; NULL where there is no memory. */
static inline GraftPrimitive *graft_onednn_begin(void **kept, int count, const GraftPostOp *rows) {
  GraftPrimitive *made = *kept;
  DnnlPostOps list = NULL;
  if (!made) {
    *kept = made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->status = dnnl_engine_create(&made->engine, DNNL_CPU, 0);
    if (!made->status) made->status = dnnl_stream_create(&made->stream, made->engine, DNNL_IN_ORDER);
    if (!made->status) made->status = dnnl_primitive_attr_create(&made->attr);
    if (!made->status) made->status = dnnl_post_ops_create(&list);
  }
  made->bound = 0;
  for (int i = 0; !made->status && i < count; i++) {
    if (rows[i].operand) {
      DnnlDesc desc = graft_onednn_bind(made, (ARG_POST_OP * (i + 1)) | ARG_SRC_1, rows[i].operand);
      if (list && !made->status) made->status = dnnl_post_ops_append_binary(list, rows[i].algorithm, desc);
    } else if (list) {
      made->status = dnnl_post_ops_append_eltwise(list, rows[i].algorithm, rows[i].alpha, rows[i].beta);
    }
  }
  if (list && !made->status) made->status = dnnl_primitive_attr_set_post_ops(made->attr, list);
  if (list) dnnl_post_ops_destroy(list);
  return made;
}

/* Whether a primitive has to be described: in a first run in which nothing failed. */
static inline int graft_onednn_is_new(const GraftPrimitive *made) { return !made->status && !made->recipe; }

static inline DnnlStatus graft_onednn_execute(GraftPrimitive *made) {
  if (!made->status && !made->primitive) made->status = dnnl_primitive_create(&made->primitive, made->recipe);
  if (!made->status) made->status = dnnl_primitive_execute(made->primitive, made->stream, made->count, made->args);
  if (!made->status) made->status = dnnl_stream_wait(made->stream);
  return made->status;
}

/* Makes what copies a tensor into another layout, once for each of the three of a convolution. */
static inline void graft_onednn_make_copy(GraftPrimitive *made, int which, DnnlConstDesc have, DnnlConstDesc want) {
  DnnlRecipe recipe = NULL;
  made->status = dnnl_reorder_primitive_desc_create(&recipe, have, made->engine, want, made->engine, NULL);
  if (!made->status) made->status = dnnl_primitive_create(&made->copies[which], recipe);
  if (recipe) dnnl_primitive_desc_destroy(recipe);
}

static inline void graft_onednn_copy(GraftPrimitive *made, int which, DnnlMemory from, DnnlMemory to) {
  const DnnlArg args[2] = {{ARG_SRC, from}, {ARG_DST, to}};
  if (made->status || !made->copies[which]) return;
  made->status = dnnl_primitive_execute(made->copies[which], made->stream, 2, args);
  if (!made->status) made->status = dnnl_stream_wait(made->stream);
}

/* Describes a convolution of which oneDNN chooses the layouts of source, weights and target: for row-major ones it may
 * have slow code only. The weights, which are constant, are copied once. */
static inline void graft_onednn_choose(GraftPrimitive *made, int first, const GraftView *const *views,
                                       const int *roles, DnnlDesc added, const int64_t *strides,
                                       const int64_t *dilates, const int64_t *left, const int64_t *right) {
  DnnlDesc any[3] = {NULL, NULL, NULL};
  for (int i = 0; !made->status && i < 3; i++) {
    made->status = dnnl_memory_desc_create_with_tag(&any[i], views[i]->rank, views[i]->sizes, DNNL_F32, DNNL_ANY);
  }
  if (!made->status) {
    made->status = dnnl_convolution_forward_primitive_desc_create(&made->recipe, made->engine, DNNL_INFERENCE,
                                                                 DNNL_CONVOLUTION_DIRECT, any[0], any[1], added,
                                                                 any[2], strides, dilates, left, right, made->attr);
  }
  for (int i = 0; !made->status && i < 3; i++) {
    DnnlConstDesc want = dnnl_primitive_desc_query_md(made->recipe, DNNL_QUERY_ARG_DESC, roles[i]);
    DnnlConstDesc have = made->descs[first + i];
    if (dnnl_memory_desc_equal(want, have)) continue;
    made->status = dnnl_memory_create(&made->own[i], want, made->engine, (void *)UINTPTR_MAX); /* oneDNN's own memory */
    if (made->status) break;
    made->args[first + i].memory = made->own[i];
    graft_onednn_make_copy(made, i, i < 2 ? have : want, i < 2 ? want : have);
  }
  for (int i = 0; i < 3; i++) {
    if (any[i]) dnnl_memory_desc_destroy(any[i]);
  }
  graft_onednn_copy(made, 1, made->views[first + 1], made->own[1]);
}

static inline DnnlStatus graft_onednn_convolution(void **kept, const GraftView *x, const GraftView *w,
                                                  const GraftView *bias, const GraftView *y, const int64_t *strides,
                                                  const int64_t *dilates, const int64_t *left, const int64_t *right,
                                                  int count, const GraftPostOp *rows) {
  const GraftView *const views[3] = {x, w, y};
  const int roles[3] = {ARG_SRC, ARG_WEIGHTS, ARG_DST};
  GraftPrimitive *const made = graft_onednn_begin(kept, count, rows);
  if (!made) return GRAFT_ONEDNN_NO_MEMORY;
  DnnlDesc added = graft_onednn_bind(made, ARG_BIAS, bias);
  const int first = made->bound;
  for (int i = 0; i < 3; i++) graft_onednn_bind(made, roles[i], views[i]);
  if (graft_onednn_is_new(made)) {
    graft_onednn_choose(made, first, views, roles, added, strides, dilates, left, right);
  }
  graft_onednn_copy(made, 0, made->views[first], made->own[0]);
  graft_onednn_execute(made);
  graft_onednn_copy(made, 2, made->own[2], made->views[first + 2]);
  return made->status;
}

static inline DnnlStatus graft_onednn_matmul(void **kept, const GraftView *x, const GraftView *w, const GraftView *bias,
                                             const GraftView *y, int count, const GraftPostOp *rows) {
  GraftPrimitive *const made = graft_onednn_begin(kept, count, rows);
  if (!made) return GRAFT_ONEDNN_NO_MEMORY;
  DnnlDesc source = graft_onednn_bind(made, ARG_SRC, x), weights = graft_onednn_bind(made, ARG_WEIGHTS, w);
  DnnlDesc added = graft_onednn_bind(made, ARG_BIAS, bias), target = graft_onednn_bind(made, ARG_DST, y);
  if (graft_onednn_is_new(made)) {
    made->status =
        dnnl_matmul_primitive_desc_create(&made->recipe, made->engine, source, weights, added, target, made->attr);
  }
  return graft_onednn_execute(made);
}

static inline DnnlStatus graft_onednn_pooling(void **kept, DnnlEnum algorithm, const GraftView *x, const GraftView *y,
                                              const int64_t *strides, const int64_t *size, const int64_t *dilates,
                                              const int64_t *left, const int64_t *right, int count,
                                              const GraftPostOp *rows) {
  GraftPrimitive *const made = graft_onednn_begin(kept, count, rows);
  if (!made) return GRAFT_ONEDNN_NO_MEMORY;
  DnnlDesc source = graft_onednn_bind(made, ARG_SRC, x), target = graft_onednn_bind(made, ARG_DST, y);
  if (graft_onednn_is_new(made)) {
    made->status = dnnl_pooling_forward_primitive_desc_create(&made->recipe, made->engine, DNNL_INFERENCE, algorithm,
                                                             source, target, strides, size, dilates, left, right,
                                                             made->attr);
  }
  return graft_onednn_execute(made);
}

static inline DnnlStatus graft_onednn_softmax(void **kept, DnnlEnum algorithm, const GraftView *x, const GraftView *y, int axis,
                                              int count, const GraftPostOp *rows) {
  GraftPrimitive *const made = graft_onednn_begin(kept, count, rows);
  if (!made) return GRAFT_ONEDNN_NO_MEMORY;
  DnnlDesc source = graft_onednn_bind(made, ARG_SRC, x), target = graft_onednn_bind(made, ARG_DST, y);
  if (graft_onednn_is_new(made)) {
    made->status = dnnl_softmax_forward_primitive_desc_create(&made->recipe, made->engine, DNNL_INFERENCE, algorithm,
                                                             source, target, axis, made->attr);
  }
  return graft_onednn_execute(made);
}

static inline DnnlStatus graft_onednn_eltwise(void **kept, DnnlEnum algorithm, const GraftView *x, const GraftView *y, float alpha,
                                              float beta, int count, const GraftPostOp *rows) {
  GraftPrimitive *const made = graft_onednn_begin(kept, count, rows);
  if (!made) return GRAFT_ONEDNN_NO_MEMORY;
  DnnlDesc source = graft_onednn_bind(made, ARG_SRC, x), target = graft_onednn_bind(made, ARG_DST, y);
  if (graft_onednn_is_new(made)) {
    made->status = dnnl_eltwise_forward_primitive_desc_create(&made->recipe, made->engine, DNNL_INFERENCE, algorithm,
                                                             source, target, alpha, beta, made->attr);
  }
  return graft_onednn_execute(made);
}

static inline DnnlStatus graft_onednn_binary(void **kept, DnnlEnum algorithm, const GraftView *a, const GraftView *b,
                                             const GraftView *y, int count, const GraftPostOp *rows) {
  GraftPrimitive *const made = graft_onednn_begin(kept, count, rows);
  if (!made) return GRAFT_ONEDNN_NO_MEMORY;
  DnnlDesc left = graft_onednn_bind(made, ARG_SRC, a), right = graft_onednn_bind(made, ARG_SRC_1, b);
  DnnlDesc target = graft_onednn_bind(made, ARG_DST, y);
  if (graft_onednn_is_new(made)) {
    made->status =
        dnnl_binary_primitive_desc_create(&made->recipe, made->engine, algorithm, left, right, target, made->attr);
  }
  return graft_onednn_execute(made);
}
