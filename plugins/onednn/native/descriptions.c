/* How tensors are described to oneDNN.
 *
 * The stride of an axis of extent 1 moves nothing: oneDNN calls two descriptions that differ there equal, and gives both
 * the same entry of its cache of primitives; yet its implementations read that stride when they generate code. So the
 * code made for one of them is run for the other, and some strides (those that a transposition leaves behind) make wrong
 * code at once. Therefore every plain description is canonical. An axis of extent 1 stands
 *   1. directly outside the next axis to its right that has a larger extent, if there is one to its left as well;
 *   2. outside all axes, if there is none to its left;
 *   3. directly inside the next one to its left, if there is none to its right.
 * One layout then has one description, and those of dense row-major bytes and of dense bytes with the channels innermost
 * are what oneDNN's own tags say: its fast implementations know a layout by its tag alone.
 */
#include "module.h"

static void canonical_strides(const Shape *shape, const int64_t *strides, int64_t *canonical) {
  int64_t whole = 1;
  int32_t first = shape->rank;
  for (int32_t i = shape->rank - 1; i >= 0; i--) {
    if (shape->sizes[i] != 1) {
      whole = strides[i] * shape->sizes[i] > whole ? strides[i] * shape->sizes[i] : whole;
      first = i;
    }
  }
  int64_t inside = whole; /* the stride of the last larger axis, or what is outside all of them */
  int64_t outside = 0;    /* what is directly outside the next larger axis; 0: there is none */
  for (int32_t i = 0; i < shape->rank; i++) {
    inside = shape->sizes[i] != 1 ? strides[i] : inside;
    canonical[i] = inside;
  }
  for (int32_t i = shape->rank - 1; i > first; i--) {
    outside = shape->sizes[i] != 1 ? strides[i] * shape->sizes[i] : outside;
    canonical[i] = shape->sizes[i] == 1 && outside != 0 ? outside : canonical[i];
  }
}

int32_t onednn_strided(Binding *binding, int32_t node, const Shape *shape, const int64_t *strides, DnnlDesc *desc) {
  int64_t canonical[DNNL_MAX_RANK];
  canonical_strides(shape, strides, canonical);
  DnnlStatus status =
      binding->dnnl->memory_desc_create_with_strides(desc, shape->rank, shape->sizes, DNNL_F32, canonical);
  return status == DNNL_SUCCESS ? GRAFT_OK : onednn_fail(binding, node, "describing a tensor", status);
}

int64_t onednn_elements(const Shape *shape) {
  int64_t total = 1;
  for (int32_t i = 0; i < shape->rank; i++) {
    total *= shape->sizes[i];
  }
  return total;
}

void onednn_row_major_strides(const Shape *shape, int64_t *strides) {
  int64_t step = 1;
  for (int32_t i = shape->rank - 1; i >= 0; i--) {
    strides[i] = step;
    step *= shape->sizes[i];
  }
}

Shape onednn_fold_rows(const Shape *shape) {
  Shape folded = {.rank = 2, .sizes = {1, shape->sizes[shape->rank - 1]}};
  for (int32_t i = 0; i < shape->rank - 1; i++) {
    folded.sizes[0] *= shape->sizes[i];
  }
  return folded;
}

int32_t onednn_row_major(Binding *binding, int32_t node, const Shape *shape, DnnlDesc *desc) {
  int64_t strides[DNNL_MAX_RANK];
  onednn_row_major_strides(shape, strides);
  return onednn_strided(binding, node, shape, strides, desc);
}

int32_t onednn_innermost(Binding *binding, int32_t node, const Shape *shape, int32_t axis, DnnlDesc *desc) {
  int64_t strides[DNNL_MAX_RANK];
  int64_t step = shape->sizes[axis];
  for (int32_t i = shape->rank - 1; i >= 0; i--) {
    strides[i] = i == axis ? 1 : step;
    step *= i == axis ? 1 : shape->sizes[i];
  }
  return onednn_strided(binding, node, shape, strides, desc);
}

int32_t onednn_any_layout(Binding *binding, int32_t node, const Shape *shape, DnnlDesc *desc) {
  DnnlStatus status = binding->dnnl->memory_desc_create_with_tag(desc, shape->rank, shape->sizes, DNNL_F32, DNNL_ANY);
  return status == DNNL_SUCCESS ? GRAFT_OK : onednn_fail(binding, node, "describing a tensor", status);
}

bool onednn_strides(const Binding *binding, DnnlConstDesc desc, const int64_t **strides) {
  const Dnnl *dnnl = binding->dnnl;
  int blocks = 1;
  return dnnl->memory_desc_query(desc, DNNL_QUERY_INNER_BLOCKS, &blocks) == DNNL_SUCCESS && blocks == 0 &&
         dnnl->memory_desc_query(desc, DNNL_QUERY_STRIDES, (void *)strides) == DNNL_SUCCESS;
}

int32_t onednn_canonical(Binding *binding, int32_t node, DnnlConstDesc desc, DnnlDesc *copy) {
  const Dnnl *dnnl = binding->dnnl;
  const int64_t *strides = NULL;
  *copy = NULL;
  if (!onednn_strides(binding, desc, &strides)) {
    DnnlStatus status = dnnl->memory_desc_clone(copy, desc); /* blocked: by one of oneDNN's own tags */
    return status == DNNL_SUCCESS ? GRAFT_OK : onednn_fail(binding, node, "describing a tensor", status);
  }
  Shape shape = {.rank = 0};
  const int64_t *sizes = NULL;
  int rank = 0;
  DnnlStatus status = dnnl->memory_desc_query(desc, DNNL_QUERY_RANK, &rank);
  if (status == DNNL_SUCCESS) {
    status = dnnl->memory_desc_query(desc, DNNL_QUERY_SIZES, (void *)&sizes);
  }
  if (status != DNNL_SUCCESS || rank > DNNL_MAX_RANK) {
    return onednn_fail(binding, node, "reading the description of a tensor", status);
  }
  shape.rank = rank;
  for (int i = 0; i < rank; i++) {
    shape.sizes[i] = sizes[i];
  }
  return onednn_strided(binding, node, &shape, strides, copy);
}
