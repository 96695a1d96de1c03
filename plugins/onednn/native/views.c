/* Reshape, Transpose, Split and Slice: no bytes move, the same ones are described anew where the layout allows it. */
#include "module.h"

/* Keeps what lies in `buffer` as the node's value; takes `desc`. */
static int32_t keep(Binding *binding, int32_t node, int32_t buffer, DnnlDesc desc) {
  int32_t whole = binding->buffers[buffer].kind == BUFFER_PART ? binding->buffers[buffer].index : buffer;
  binding->buffers[whole].shared = true;
  int32_t code = onednn_store(binding, node, buffer, desc, NULL);
  binding->dnnl->memory_desc_destroy(desc);
  return code;
}

/* The bytes to describe anew, with their strides: as they lie, or row-major where the layout has inner blocks, which
 * only oneDNN's own tags may have. */
static int32_t plain_source(Binding *binding, int32_t node, int64_t *strides, int32_t *buffer) {
  int32_t value = binding->nodes[node].inputs[0];
  const Shape *shape = &binding->nodes[value].shape;
  const Stored *source = onednn_current(binding, value);
  const int64_t *found = NULL;
  bool plain = onednn_strides(binding, source->desc, &found);
  onednn_row_major_strides(shape, strides);
  for (int32_t i = 0; plain && i < shape->rank; i++) {
    strides[i] = found[i];
  }
  *buffer = source->buffer;
  return plain ? GRAFT_OK : onednn_fetch_row_major(binding, node, value, buffer);
}

int32_t onednn_reshape(Binding *binding, int32_t node) {
  const Node *self = &binding->nodes[node];
  int32_t value = self->inputs[0];
  const Stored *source = onednn_current(binding, value);
  const int64_t *strides = NULL;
  DnnlDesc desc = NULL;
  int32_t buffer = source->buffer;
  if (onednn_elements(&binding->nodes[value].shape) != onednn_elements(&self->shape)) {
    return onednn_fail(binding, node, "the shapes before and after have different sizes", DNNL_SUCCESS);
  }
  if (onednn_strides(binding, source->desc, &strides) &&
      binding->dnnl->memory_desc_reshape(&desc, source->desc, self->shape.rank, self->shape.sizes) == DNNL_SUCCESS) {
    return keep(binding, node, buffer, desc);
  }
  GRAFT_TRY(onednn_fetch_row_major(binding, node, value, &buffer));
  GRAFT_TRY(onednn_row_major(binding, node, &self->shape, &desc));
  return keep(binding, node, buffer, desc);
}

int32_t onednn_transpose(Binding *binding, int32_t node) {
  const Node *self = &binding->nodes[node];
  const JsonValue *list = graft_json_member(self->attributes, "permutation");
  const Shape *shape = &binding->nodes[self->inputs[0]].shape;
  int64_t before[DNNL_MAX_RANK];
  int64_t strides[DNNL_MAX_RANK];
  int32_t buffer = -1;
  int64_t seen = 0;
  bool valid = graft_json_count(list) == (size_t)shape->rank && self->shape.rank == shape->rank;
  for (int32_t i = 0; i < shape->rank && valid; i++) {
    int64_t from = graft_json_integer(graft_json_item(list, (size_t)i), -1);
    valid = from >= 0 && from < shape->rank && !(seen & (int64_t)1 << from) &&
            self->shape.sizes[i] == shape->sizes[from];
    seen |= valid ? (int64_t)1 << from : 0;
  }
  if (!valid) {
    return onednn_fail(binding, node, "'permutation' does not fit the shapes", DNNL_SUCCESS);
  }
  GRAFT_TRY(plain_source(binding, node, before, &buffer));
  for (int32_t i = 0; i < shape->rank; i++) {
    strides[i] = before[graft_json_integer(graft_json_item(list, (size_t)i), 0)];
  }
  DnnlDesc desc = NULL;
  GRAFT_TRY(onednn_strided(binding, node, &self->shape, strides, &desc));
  return keep(binding, node, buffer, desc);
}

static int32_t new_part(Binding *binding, int32_t of, uint64_t offset, uint64_t bytes, int32_t *part) {
  Buffer whole = binding->buffers[of];
  GRAFT_TRY(onednn_new_buffer(binding, BUFFER_PART, bytes, part));
  binding->buffers[*part].index = whole.kind == BUFFER_PART ? whole.index : of;
  binding->buffers[*part].offset = offset + (whole.kind == BUFFER_PART ? whole.offset : 0);
  return GRAFT_OK;
}

int32_t onednn_slice(Binding *binding, int32_t node) {
  const Node *self = &binding->nodes[node];
  const JsonValue *offsets = graft_json_member(self->attributes, "offsets");
  const Shape *shape = &binding->nodes[self->inputs[0]].shape;
  int64_t strides[DNNL_MAX_RANK];
  int32_t buffer = -1;
  bool valid = graft_json_count(offsets) == (size_t)shape->rank && self->shape.rank == shape->rank;
  for (int32_t i = 0; i < shape->rank && valid; i++) {
    int64_t from = onednn_integer(binding, graft_json_item(offsets, (size_t)i), -1);
    valid = from >= 0 && from <= shape->sizes[i] - self->shape.sizes[i];
  }
  if (!valid) {
    return onednn_fail(binding, node, "'offsets' does not fit the shapes", DNNL_SUCCESS);
  }
  GRAFT_TRY(plain_source(binding, node, strides, &buffer));
  uint64_t start = 0;
  for (int32_t i = 0; i < shape->rank; i++) {
    start += (uint64_t)(onednn_integer(binding, graft_json_item(offsets, (size_t)i), 0) * strides[i]);
  }
  DnnlDesc desc = NULL;
  GRAFT_TRY(onednn_strided(binding, node, &self->shape, strides, &desc));
  int32_t code = new_part(binding, buffer, start * sizeof(float), binding->dnnl->memory_desc_get_size(desc), &buffer);
  if (code != GRAFT_OK) {
    binding->dnnl->memory_desc_destroy(desc);
    return code;
  }
  return keep(binding, node, buffer, desc);
}
