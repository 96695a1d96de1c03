"""A small C library of the tests' own, and models that call it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import onnx

HEADER = """#include <stdint.h>
void tiny_relu(const float *x, int64_t count, float *y);
int tiny_matmul(const float *a, const float *b, float *y, int m, int n, int k);
int tiny_scale(const float *x, float alpha, const int *shape, int rank, float *scratch, float *y);
int tiny_count(void **kept, const float *x, int64_t count, float *y);
void tiny_forget(void *kept);
extern int tiny_forgotten;
void tiny_nowhere(const float *x, float *y);
"""
SOURCE = """#include "tiny.h"
#include <stdlib.h>
void tiny_relu(const float *x, int64_t count, float *y) {
  for (int64_t i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : 0;
}
int tiny_matmul(const float *a, const float *b, float *y, int m, int n, int k) {
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < n; j++) {
      y[i * n + j] = 0;
      for (int l = 0; l < k; l++) y[i * n + j] += a[i * k + l] * b[l * n + j];
    }
  }
  return 0;
}
int tiny_scale(const float *x, float alpha, const int *shape, int rank, float *scratch, float *y) {
  int64_t count = 1;
  for (int axis = 0; axis < rank; axis++) count *= shape[axis];
  if (count > 1000) return 7;
  for (int64_t i = 0; i < count; i++) scratch[i] = alpha * x[i];
  for (int64_t i = 0; i < count; i++) y[i] = scratch[i];
  return 0;
}
int tiny_forgotten;
int tiny_count(void **kept, const float *x, int64_t count, float *y) {
  int *runs = *kept ? *kept : (*kept = calloc(1, sizeof *runs));
  ++*runs;
  for (int64_t i = 0; i < count; i++) y[i] = x[i] + *runs;
  return x[0] > 1000;
}
void tiny_forget(void *kept) {
  ++tiny_forgotten;
  free(kept);
}
"""
SONAME = "libgrafttiny.so.1"


def build(folder: Path) -> Path:
    """Compile the library into a folder, with its header beside it, and return its path."""
    (folder / "tiny.h").write_text(HEADER)
    (folder / "tiny.c").write_text(SOURCE)
    path = folder / SONAME
    command = ["cc", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{SONAME}", "-o", str(path), str(folder / "tiny.c")]
    subprocess.run(command, check=True)
    return path


def model(body: str, x: str = "float[2,3] x", y: str = "float[2,3] y", weights: str = "") -> onnx.ModelProto:
    """Return a model of one input and one output."""
    held = f"<{weights}>" if weights else ""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g ({x}) => ({y}) {held} {{ {body} }}')
