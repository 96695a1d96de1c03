/* How tensors are described to oneDNN.
 *
 * The stride of an axis of extent 1 moves nothing: oneDNN calls two descriptions that differ there equal, and gives both
 * the same entry of its cache of primitives; yet its implementations read that stride when they generate code. So the
 * code made for one of them is run for the other, and some strides (those that a transposition leaves behind) make wrong
 * code at once. Therefore every plain description is canonical: an axis of extent 1 has the stride that it would have
 * if its right neighbour were the next inner axis. One layout then has one description, and that of dense row-major
 * bytes is what oneDNN's own tags say.
 */
#include "module.h"

int32_t onednn_strided(Module *module, int32_t node, const Shape *shape, const int64_t *strides, DnnlDesc *desc) {
  int64_t canonical[DNNL_MAX_RANK];
  int64_t step = 1;
  for (int32_t i = shape->rank - 1; i >= 0; i--) {
    canonical[i] = shape->sizes[i] == 1 ? step : strides[i];
    step = canonical[i] * shape->sizes[i];
  }
  DnnlStatus status =
      module->dnnl.memory_desc_create_with_strides(desc, shape->rank, shape->sizes, DNNL_F32, canonical);
  return status == DNNL_SUCCESS ? GRAFT_OK : onednn_fail(module, node, "describing a tensor", status);
}

int32_t onednn_row_major(Module *module, int32_t node, const Shape *shape, DnnlDesc *desc) {
  int64_t strides[DNNL_MAX_RANK];
  int64_t step = 1;
  for (int32_t i = shape->rank - 1; i >= 0; i--) {
    strides[i] = step;
    step *= shape->sizes[i];
  }
  return onednn_strided(module, node, shape, strides, desc);
}

int32_t onednn_channels_last(Module *module, int32_t node, const Shape *shape, DnnlDesc *desc) {
  int64_t strides[DNNL_MAX_RANK];
  int64_t step = shape->sizes[1];
  strides[1] = 1;
  for (int32_t i = shape->rank - 1; i >= 2; i--) {
    strides[i] = step;
    step *= shape->sizes[i];
  }
  strides[0] = step;
  return onednn_strided(module, node, shape, strides, desc);
}

int32_t onednn_any_layout(Module *module, int32_t node, const Shape *shape, DnnlDesc *desc) {
  DnnlStatus status = module->dnnl.memory_desc_create_with_tag(desc, shape->rank, shape->sizes, DNNL_F32, DNNL_ANY);
  return status == DNNL_SUCCESS ? GRAFT_OK : onednn_fail(module, node, "describing a tensor", status);
}

bool onednn_strides(const Module *module, DnnlConstDesc desc, const int64_t **strides) {
  const Dnnl *dnnl = &module->dnnl;
  int blocks = 1;
  return dnnl->memory_desc_query(desc, DNNL_QUERY_INNER_BLOCKS, &blocks) == DNNL_SUCCESS && blocks == 0 &&
         dnnl->memory_desc_query(desc, DNNL_QUERY_STRIDES, (void *)strides) == DNNL_SUCCESS;
}

int32_t onednn_canonical(Module *module, int32_t node, DnnlConstDesc desc, DnnlDesc *copy) {
  const Dnnl *dnnl = &module->dnnl;
  const int64_t *strides = NULL;
  *copy = NULL;
  if (!onednn_strides(module, desc, &strides)) {
    DnnlStatus status = dnnl->memory_desc_clone(copy, desc); /* blocked: by one of oneDNN's own tags */
    return status == DNNL_SUCCESS ? GRAFT_OK : onednn_fail(module, node, "describing a tensor", status);
  }
  Shape shape = {.rank = 0};
  const int64_t *sizes = NULL;
  int rank = 0;
  DnnlStatus status = dnnl->memory_desc_query(desc, DNNL_QUERY_RANK, &rank);
  if (status == DNNL_SUCCESS) {
    status = dnnl->memory_desc_query(desc, DNNL_QUERY_SIZES, (void *)&sizes);
  }
  if (status != DNNL_SUCCESS || rank > DNNL_MAX_RANK) {
    return onednn_fail(module, node, "reading the description of a tensor", status);
  }
  shape.rank = rank;
  for (int i = 0; i < rank; i++) {
    shape.sizes[i] = sizes[i];
  }
  return onednn_strided(module, node, &shape, strides, copy);
}
