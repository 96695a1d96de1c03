/* a node */
int32_t relu(GraftContext *context, void *state, const DLTensor *const *inputs,
    DLTensor *const *outputs) {
  (void)context, (void)state, (void)inputs, (void)outputs;
  const float *restrict x_1 = (void *)((char *)inputs[0]->data + inputs[0]->byte_offset);
  float *restrict y_2 = (void *)((char *)outputs[0]->data + outputs[0]->byte_offset);
  for (int64_t i_3 = 0; i_3 < 5; ++i_3) {
    y_2[i_3] = max_float32(x_1[i_3], (0x0.0p+0f));
  }
  return GRAFT_OK;
}
