/* XNNPACK's operators as plain calls. A call makes its operator in its first run, which packs the weights, and keeps it;
 * each run sets it up for its tensors. Every function returns a status of XNNPACK. */
typedef struct GraftXnnpack {
  xnn_operator_t operator;
  float *copies[2]; /* of inputs that lie before the end of a page */
} GraftXnnpack;

/* An image, the channels of the result, and the windows. */
typedef struct GraftImage {
  int64_t n, h, w, channels, y_channels;
  uint32_t size[2], strides[2], dilations[2], above, right, below, left;
} GraftImage;

static inline void graft_xnnpack_destroy(void *object) {
  GraftXnnpack *const self = object;
  if (self->operator) xnn_delete_operator(self->operator);
  free(self->copies[0]);
  free(self->copies[1]);
  free(self);
}

static inline GraftXnnpack *graft_xnnpack_self(void **kept) {
  if (!*kept && xnn_initialize(NULL) == xnn_status_success) *kept = calloc(1, sizeof(GraftXnnpack));
  return *kept;
}

/* XNNPACK reads up to 16 bytes behind a tensor, which may be of another page, and that of nobody. */
static inline const float *graft_xnnpack_source(GraftXnnpack *self, int number, const float *x, int64_t size,
                                                enum xnn_status *status) {
  const size_t bytes = (size_t)size * sizeof(float);
  if (((uintptr_t)x + bytes - 1) % 4096 + XNN_EXTRA_BYTES < 4096) return x;
  if (!self->copies[number]) self->copies[number] = malloc(bytes + XNN_EXTRA_BYTES);
  if (!self->copies[number]) return *status = xnn_status_out_of_memory, x;
  return memcpy(self->copies[number], x, bytes);
}

static inline enum xnn_status graft_xnnpack_run(GraftXnnpack *self, enum xnn_status status) {
  return status ? status : xnn_run_operator(self->operator, NULL);
}

/* ---- Images: channels are last for XNNPACK ------------------------------------------------------------------------ */

static inline const float *graft_xnnpack_image(GraftXnnpack *self, const GraftImage *image, const float *x,
                                               enum xnn_status *status) {
  return graft_xnnpack_source(self, 0, x, image->n * image->h * image->w * image->channels, status);
}

static inline enum xnn_status graft_xnnpack_convolution(void **kept, const GraftImage *image, int64_t groups,
                                                        const float *x, const float *w, const float *bias, float low,
                                                        float high, float *y) {
  GraftXnnpack *const self = graft_xnnpack_self(kept);
  if (!self) return xnn_status_out_of_memory;
  enum xnn_status status = xnn_status_success;
  const size_t channels = (size_t)image->channels, y_channels = (size_t)image->y_channels;
  if (!self->operator) {
    status = xnn_create_convolution2d_nhwc_f32(
        image->above, image->right, image->below, image->left, image->size[0], image->size[1], image->strides[0],
        image->strides[1], image->dilations[0], image->dilations[1], (uint32_t)groups, channels / (size_t)groups,
        y_channels / (size_t)groups, channels, y_channels, w, bias, low, high, 0, &self->operator);
  }
  const float *const source = graft_xnnpack_image(self, image, x, &status);
  if (!status) {
    status = xnn_setup_convolution2d_nhwc_f32(self->operator, (size_t)image->n, (size_t)image->h, (size_t)image->w,
                                              source, y, NULL);
  }
  return graft_xnnpack_run(self, status);
}

/* A pool whose operator is made by CREATE and set up for so many values of each image by SETUP. */
#define GRAFT_XNNPACK_POOL(NAME, CREATE, SETUP)                                                                        \
  static inline enum xnn_status graft_xnnpack_##NAME(void **kept, const GraftImage *image, const float *x, float low,  \
                                                     float high, float *y) {                                           \
    GraftXnnpack *const self = graft_xnnpack_self(kept);                                                               \
    if (!self) return xnn_status_out_of_memory;                                                                        \
    enum xnn_status status = xnn_status_success;                                                                       \
    const size_t channels = (size_t)image->channels;                                                                   \
    if (!self->operator) status = CREATE;                                                                              \
    const float *const source = graft_xnnpack_image(self, image, x, &status);                                          \
    if (!status) status = SETUP;                                                                                       \
    return graft_xnnpack_run(self, status);                                                                            \
  }
GRAFT_XNNPACK_POOL(max_pooling,
                   xnn_create_max_pooling2d_nhwc_f32(image->above, image->right, image->below, image->left,
                                                     image->size[0], image->size[1], image->strides[0],
                                                     image->strides[1], image->dilations[0], image->dilations[1],
                                                     channels, channels, channels, low, high, 0, &self->operator),
                   xnn_setup_max_pooling2d_nhwc_f32(self->operator, (size_t)image->n, (size_t)image->h,
                                                    (size_t)image->w, source, y, NULL))
GRAFT_XNNPACK_POOL(average_pooling,
                   xnn_create_average_pooling2d_nhwc_f32(image->above, image->right, image->below, image->left,
                                                         image->size[0], image->size[1], image->strides[0],
                                                         image->strides[1], channels, channels, channels, low, high,
                                                         0, &self->operator),
                   xnn_setup_average_pooling2d_nhwc_f32(self->operator, (size_t)image->n, (size_t)image->h,
                                                        (size_t)image->w, source, y, NULL))
GRAFT_XNNPACK_POOL(global_average_pooling,
                   xnn_create_global_average_pooling_nwc_f32(channels, channels, channels, low, high, 0,
                                                             &self->operator),
                   xnn_setup_global_average_pooling_nwc_f32(self->operator, (size_t)image->n,
                                                            (size_t)(image->h * image->w), source, y, NULL))

/* ---- Matrices ----------------------------------------------------------------------------------------------------- */

static inline enum xnn_status graft_xnnpack_fully_connected(void **kept, int64_t rows, int64_t inputs, int64_t outputs,
                                                            const float *x, const float *w, const float *bias,
                                                            float low, float high, uint32_t flags, float *y) {
  GraftXnnpack *const self = graft_xnnpack_self(kept);
  if (!self) return xnn_status_out_of_memory;
  enum xnn_status status = xnn_status_success;
  if (!self->operator) {
    status = xnn_create_fully_connected_nc_f32((size_t)inputs, (size_t)outputs, (size_t)inputs, (size_t)outputs, w,
                                               bias, low, high, flags, &self->operator);
  }
  const float *const source = graft_xnnpack_source(self, 0, x, rows * inputs, &status);
  if (!status) status = xnn_setup_fully_connected_nc_f32(self->operator, (size_t)rows, source, y, NULL);
  return graft_xnnpack_run(self, status);
}

static inline enum xnn_status graft_xnnpack_softmax(void **kept, int64_t rows, int64_t columns, const float *x,
                                                    float *y) {
  GraftXnnpack *const self = graft_xnnpack_self(kept);
  if (!self) return xnn_status_out_of_memory;
  enum xnn_status status = xnn_status_success;
  const size_t stride = (size_t)columns;
  if (!self->operator) status = xnn_create_softmax_nc_f32(stride, stride, stride, 0, &self->operator);
  const float *const source = graft_xnnpack_source(self, 0, x, rows * columns, &status);
  if (!status) status = xnn_setup_softmax_nc_f32(self->operator, (size_t)rows, source, y, NULL);
  return graft_xnnpack_run(self, status);
}

/* ---- Elements ----------------------------------------------------------------------------------------------------- */

static inline int64_t graft_xnnpack_elements(int rank, const size_t *shape) {
  int64_t count = 1;
  for (int i = 0; i < rank; i++) count *= (int64_t)shape[i];
  return count;
}

#define GRAFT_XNNPACK_BINARY(NAME)                                                                                     \
  static inline enum xnn_status graft_xnnpack_##NAME(void **kept, int a_rank, const size_t *a_shape, const float *a,   \
                                                     int b_rank, const size_t *b_shape, const float *b, float low,     \
                                                     float high, float *y) {                                           \
    GraftXnnpack *const self = graft_xnnpack_self(kept);                                                               \
    if (!self) return xnn_status_out_of_memory;                                                                        \
    enum xnn_status status = xnn_status_success;                                                                       \
    if (!self->operator) status = xnn_create_##NAME##_nd_f32(low, high, 0, &self->operator);                           \
    const float *const left = graft_xnnpack_source(self, 0, a, graft_xnnpack_elements(a_rank, a_shape), &status);      \
    const float *const right = graft_xnnpack_source(self, 1, b, graft_xnnpack_elements(b_rank, b_shape), &status);     \
    if (!status) {                                                                                                     \
      status = xnn_setup_##NAME##_nd_f32(self->operator, (size_t)a_rank, a_shape, (size_t)b_rank, b_shape, left,       \
                                         right, y, NULL);                                                              \
    }                                                                                                                  \
    return graft_xnnpack_run(self, status);                                                                            \
  }
GRAFT_XNNPACK_BINARY(add)
GRAFT_XNNPACK_BINARY(subtract)
GRAFT_XNNPACK_BINARY(multiply)
GRAFT_XNNPACK_BINARY(divide)

/* An operator with one input and some parameters `p`. */
#define GRAFT_XNNPACK_UNARY(NAME, ...)                                                                                 \
  static inline enum xnn_status graft_xnnpack_##NAME(void **kept, int64_t size, const float *p, const float *x,        \
                                                     float *y) {                                                       \
    GraftXnnpack *const self = graft_xnnpack_self(kept);                                                               \
    if (!self) return xnn_status_out_of_memory;                                                                        \
    (void)p;                                                                                                           \
    enum xnn_status status = xnn_status_success;                                                                       \
    const size_t count = (size_t)size;                                                                                 \
    if (!self->operator) status = xnn_create_##NAME##_nc_f32(count, count, count, __VA_ARGS__, &self->operator);       \
    const float *const source = graft_xnnpack_source(self, 0, x, size, &status);                                       \
    if (!status) status = xnn_setup_##NAME##_nc_f32(self->operator, 1, source, y, NULL);                               \
    return graft_xnnpack_run(self, status);                                                                            \
  }
GRAFT_XNNPACK_UNARY(clamp, p[0], p[1], 0)
GRAFT_XNNPACK_UNARY(leaky_relu, p[0], 0)
GRAFT_XNNPACK_UNARY(elu, p[0], 0)
GRAFT_XNNPACK_UNARY(sigmoid, 0)
GRAFT_XNNPACK_UNARY(hardswish, 0)
GRAFT_XNNPACK_UNARY(abs, 0)
GRAFT_XNNPACK_UNARY(negate, 0)
GRAFT_XNNPACK_UNARY(floor, 0)
GRAFT_XNNPACK_UNARY(ceiling, 0)
GRAFT_XNNPACK_UNARY(bankers_rounding, 0)
GRAFT_XNNPACK_UNARY(square_root, 0)
