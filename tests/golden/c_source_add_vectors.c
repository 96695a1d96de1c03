GRAFT_KERNEL void add(const float *restrict x, float *restrict y) {
  for (int64_t i = 0; i < 2; ++i) {
    store_float32x16((float *)&y[i * 16], first_x16(20 - i * 16), load_float32x16((const float *)&x[i * 16], first_x16(20 - i * 16)) + splat_float32x16(1.5f));
  }
}
