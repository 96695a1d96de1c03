/* oneDNN's primitives as plain calls: each is described, made, run and given back. oneDNN keeps what it generates in a
 * cache of its own, so that only the first call of a kind is slow. Every function returns a status of oneDNN. */
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

enum { GRAFT_ONEDNN_MOST = 12 };

typedef struct GraftPrimitive {
  DnnlStatus status;
  DnnlEngine engine;
  DnnlAttr attr;
  DnnlRecipe recipe;
  DnnlDesc descs[GRAFT_ONEDNN_MOST];
  DnnlArg args[GRAFT_ONEDNN_MOST];
  int count;
} GraftPrimitive;

/* Describes a tensor and binds it to an argument of the primitive. NULL where something failed before. */
static inline DnnlDesc graft_onednn_bind(GraftPrimitive *made, int arg, const GraftView *view) {
  if (made->status || !view) return NULL;
  const int number = made->count;
  made->status = dnnl_memory_desc_create_with_strides(&made->descs[number], view->rank, view->sizes, DNNL_F32,
                                                      view->strides);
  if (made->status) return NULL;
  made->count++;
  made->args[number] = (DnnlArg){arg, NULL};
  made->status = dnnl_memory_create(&made->args[number].memory, made->descs[number], made->engine, (void *)view->data);
  return made->descs[number];
}

static inline GraftPrimitive graft_onednn_begin(int count, const GraftPostOp *rows) {
  GraftPrimitive made = {0};
  DnnlPostOps list = NULL;
  made.status = dnnl_engine_create(&made.engine, DNNL_CPU, 0);
  if (!made.status) made.status = dnnl_primitive_attr_create(&made.attr);
  if (!made.status) made.status = dnnl_post_ops_create(&list);
  for (int i = 0; !made.status && i < count; i++) {
    if (rows[i].operand) {
      DnnlDesc desc = graft_onednn_bind(&made, (ARG_POST_OP * (i + 1)) | ARG_SRC_1, rows[i].operand);
      if (!made.status) made.status = dnnl_post_ops_append_binary(list, rows[i].algorithm, desc);
    } else {
      made.status = dnnl_post_ops_append_eltwise(list, rows[i].algorithm, rows[i].alpha, rows[i].beta);
    }
  }
  if (!made.status) made.status = dnnl_primitive_attr_set_post_ops(made.attr, list);
  if (list) dnnl_post_ops_destroy(list);
  return made;
}

static inline void graft_onednn_execute(GraftPrimitive *made, DnnlConstRecipe recipe) {
  DnnlPrimitive primitive = NULL;
  DnnlStream stream = NULL;
  if (!made->status) made->status = dnnl_primitive_create(&primitive, recipe);
  if (!made->status) made->status = dnnl_stream_create(&stream, made->engine, DNNL_IN_ORDER);
  if (!made->status) made->status = dnnl_primitive_execute(primitive, stream, made->count, made->args);
  if (!made->status) made->status = dnnl_stream_wait(stream);
  if (stream) dnnl_stream_destroy(stream);
  if (primitive) dnnl_primitive_destroy(primitive);
}

static inline DnnlStatus graft_onednn_done(GraftPrimitive *made) {
  if (made->recipe) dnnl_primitive_desc_destroy(made->recipe);
  for (int i = 0; i < made->count; i++) {
    if (made->args[i].memory) dnnl_memory_destroy(made->args[i].memory);
    dnnl_memory_desc_destroy(made->descs[i]);
  }
  if (made->attr) dnnl_primitive_attr_destroy(made->attr);
  if (made->engine) dnnl_engine_destroy(made->engine);
  return made->status;
}

static inline DnnlStatus graft_onednn_end(GraftPrimitive *made) {
  graft_onednn_execute(made, made->recipe);
  return graft_onednn_done(made);
}

/* Copies a tensor into another layout. */
static inline void graft_onednn_reorder(GraftPrimitive *made, DnnlMemory from, DnnlConstDesc have, DnnlMemory to,
                                        DnnlConstDesc want) {
  GraftPrimitive copy = {.status = made->status};
  DnnlPrimitive primitive = NULL;
  DnnlStream stream = NULL;
  DnnlArg args[2] = {{ARG_SRC, from}, {ARG_DST, to}};
  if (!copy.status) {
    copy.status = dnnl_reorder_primitive_desc_create(&copy.recipe, have, made->engine, want, made->engine, NULL);
  }
  if (!copy.status) copy.status = dnnl_primitive_create(&primitive, copy.recipe);
  if (!copy.status) copy.status = dnnl_stream_create(&stream, made->engine, DNNL_IN_ORDER);
  if (!copy.status) copy.status = dnnl_primitive_execute(primitive, stream, 2, args);
  if (!copy.status) copy.status = dnnl_stream_wait(stream);
  if (stream) dnnl_stream_destroy(stream);
  if (primitive) dnnl_primitive_destroy(primitive);
  if (copy.recipe) dnnl_primitive_desc_destroy(copy.recipe);
  made->status = copy.status;
}

static inline DnnlDesc graft_onednn_any(GraftPrimitive *made, const GraftView *view) {
  DnnlDesc desc = NULL;
  if (!made->status) {
    made->status = dnnl_memory_desc_create_with_tag(&desc, view->rank, view->sizes, DNNL_F32, DNNL_ANY);
  }
  return desc;
}

/* oneDNN chooses the layouts of source, weights and target: for row-major ones it may have slow code only. */
static inline DnnlStatus graft_onednn_convolution(const GraftView *x, const GraftView *w, const GraftView *bias,
                                                  const GraftView *y, const int64_t *strides, const int64_t *dilates,
                                                  const int64_t *left, const int64_t *right, int count,
                                                  const GraftPostOp *rows) {
  const GraftView *const views[3] = {x, w, y};
  const int roles[3] = {ARG_SRC, ARG_WEIGHTS, ARG_DST};
  DnnlMemory plain[3] = {NULL, NULL, NULL};
  DnnlDesc any[3] = {NULL, NULL, NULL};
  GraftPrimitive made = graft_onednn_begin(count, rows);
  DnnlDesc added = graft_onednn_bind(&made, ARG_BIAS, bias);
  const int first = made.count;
  for (int i = 0; i < 3; i++) {
    graft_onednn_bind(&made, roles[i], views[i]);
    any[i] = graft_onednn_any(&made, views[i]);
  }
  if (!made.status) {
    made.status = dnnl_convolution_forward_primitive_desc_create(&made.recipe, made.engine, DNNL_INFERENCE,
                                                                 DNNL_CONVOLUTION_DIRECT, any[0], any[1], added,
                                                                 any[2], strides, dilates, left, right, made.attr);
  }
  for (int i = 0; !made.status && i < 3; i++) {
    DnnlConstDesc want = dnnl_primitive_desc_query_md(made.recipe, DNNL_QUERY_ARG_DESC, roles[i]);
    if (dnnl_memory_desc_equal(want, made.descs[first + i])) continue;
    DnnlMemory own = NULL;
    made.status = dnnl_memory_create(&own, want, made.engine, (void *)UINTPTR_MAX); /* oneDNN's own memory */
    if (made.status) break;
    plain[i] = made.args[first + i].memory;
    made.args[first + i].memory = own;
    if (i < 2) graft_onednn_reorder(&made, plain[i], made.descs[first + i], own, want);
  }
  graft_onednn_execute(&made, made.recipe);
  if (!made.status && plain[2]) {
    DnnlConstDesc have = dnnl_primitive_desc_query_md(made.recipe, DNNL_QUERY_ARG_DESC, ARG_DST);
    graft_onednn_reorder(&made, made.args[first + 2].memory, have, plain[2], made.descs[first + 2]);
  }
  for (int i = 0; i < 3; i++) {
    if (plain[i]) dnnl_memory_destroy(plain[i]);
    if (any[i]) dnnl_memory_desc_destroy(any[i]);
  }
  return graft_onednn_done(&made);
}

static inline DnnlStatus graft_onednn_matmul(const GraftView *x, const GraftView *w, const GraftView *bias,
                                             const GraftView *y, int count, const GraftPostOp *rows) {
  GraftPrimitive made = graft_onednn_begin(count, rows);
  DnnlDesc source = graft_onednn_bind(&made, ARG_SRC, x), weights = graft_onednn_bind(&made, ARG_WEIGHTS, w);
  DnnlDesc added = graft_onednn_bind(&made, ARG_BIAS, bias), target = graft_onednn_bind(&made, ARG_DST, y);
  if (!made.status) {
    made.status =
        dnnl_matmul_primitive_desc_create(&made.recipe, made.engine, source, weights, added, target, made.attr);
  }
  return graft_onednn_end(&made);
}

static inline DnnlStatus graft_onednn_pooling(DnnlEnum algorithm, const GraftView *x, const GraftView *y,
                                              const int64_t *strides, const int64_t *size, const int64_t *dilates,
                                              const int64_t *left, const int64_t *right, int count,
                                              const GraftPostOp *rows) {
  GraftPrimitive made = graft_onednn_begin(count, rows);
  DnnlDesc source = graft_onednn_bind(&made, ARG_SRC, x), target = graft_onednn_bind(&made, ARG_DST, y);
  if (!made.status) {
    made.status = dnnl_pooling_forward_primitive_desc_create(&made.recipe, made.engine, DNNL_INFERENCE, algorithm,
                                                             source, target, strides, size, dilates, left, right,
                                                             made.attr);
  }
  return graft_onednn_end(&made);
}

static inline DnnlStatus graft_onednn_softmax(DnnlEnum algorithm, const GraftView *x, const GraftView *y, int axis,
                                              int count, const GraftPostOp *rows) {
  GraftPrimitive made = graft_onednn_begin(count, rows);
  DnnlDesc source = graft_onednn_bind(&made, ARG_SRC, x), target = graft_onednn_bind(&made, ARG_DST, y);
  if (!made.status) {
    made.status = dnnl_softmax_forward_primitive_desc_create(&made.recipe, made.engine, DNNL_INFERENCE, algorithm,
                                                             source, target, axis, made.attr);
  }
  return graft_onednn_end(&made);
}

static inline DnnlStatus graft_onednn_eltwise(DnnlEnum algorithm, const GraftView *x, const GraftView *y, float alpha,
                                              float beta, int count, const GraftPostOp *rows) {
  GraftPrimitive made = graft_onednn_begin(count, rows);
  DnnlDesc source = graft_onednn_bind(&made, ARG_SRC, x), target = graft_onednn_bind(&made, ARG_DST, y);
  if (!made.status) {
    made.status = dnnl_eltwise_forward_primitive_desc_create(&made.recipe, made.engine, DNNL_INFERENCE, algorithm,
                                                             source, target, alpha, beta, made.attr);
  }
  return graft_onednn_end(&made);
}

static inline DnnlStatus graft_onednn_binary(DnnlEnum algorithm, const GraftView *a, const GraftView *b,
                                             const GraftView *y, int count, const GraftPostOp *rows) {
  GraftPrimitive made = graft_onednn_begin(count, rows);
  DnnlDesc left = graft_onednn_bind(&made, ARG_SRC, a), right = graft_onednn_bind(&made, ARG_SRC_1, b);
  DnnlDesc target = graft_onednn_bind(&made, ARG_DST, y);
  if (!made.status) {
    made.status =
        dnnl_binary_primitive_desc_create(&made.recipe, made.engine, algorithm, left, right, target, made.attr);
  }
  return graft_onednn_end(&made);
}
