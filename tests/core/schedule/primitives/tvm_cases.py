"""What TVM's tests of schedules schedule, and what they refuse, as schedules of ours: a table.

The facts are those of apache/tvm at 5d4dc872, `tests/python/s_tir/schedule` and `s_tir/transform` (Apache-2.0): which
loops, which steps, what must be refused. The kernels are written anew, with smaller extents where TVM's are large.
`refused` is our reason; where TVM's verdict differs from ours, `theirs` says why. Cases about what has no counterpart
here are left out: blocks and their iterators, annotations, traces, sampling, layouts of buffers, inlining,
reverse_compute_at, rolling buffers, padding; docs/schedules.md counts them.
"""

from typing import NamedTuple

KERNELS = {
    "elementwise": """(a: float32[4, 6, 5]) -> (b: float32[4, 6, 5]) {
      serial i < 4 { serial j < 6 { serial k < 5 { b[i, j, k] = a[i, j, k] * float32(2.0) } } }
    }""",
    "four loops": """(a: float32[3, 4, 2, 5]) -> (b: float32[3, 4, 2, 5]) {
      serial i < 3 { serial j < 4 { serial k < 2 { serial l < 5 { b[i, j, k, l] = a[i, j, k, l] * float32(2.0) } } } }
    }""",
    "symbolic": """(a: float32[n, 6, m]) -> (b: float32[n, 6, m]) {
      serial i < n { serial j < 6 { serial k < m { b[i, j, k] = a[i, j, k] * float32(2.0) } } }
    }""",
    "matrix of symbols": """(a: float32[n, m]) -> (b: float32[n, m]) {
      serial i < n { serial j < m { b[i, j] = a[i, j] * float32(2.0) } }
    }""",
    "two in a loop": """(a: float32[4, 6, 5]) -> (b: float32[4, 6, 5]) {
      allocate c: float32[4, 6, 5] in scratch
      serial i < 4 { serial j < 6 {
        serial k < 5 { c[i, j, k] = a[i, j, k] * float32(2.0) }
        serial l < 5 { b[i, j, l] = c[i, j, l] * float32(2.0) }
      } }
    }""",
    "bound": """(a: float32[4, 6, 5]) -> (b: float32[4, 6, 5]) {
      serial i < 4 { serial j < 6 { parallel k < 5 bind "thread.x" { b[i, j, k] = a[i, j, k] * float32(2.0) } } }
    }""",
    "triangle": """(a: float32[5, 4, 5, 3], d: float32[5, 4, 5, 3]) -> (b: float32[5, 4, 5, 3]) {
      serial x < 5 { serial y < 4 { serial z < 5 { serial w < 3 { b[x, y, z, w] = d[x, y, z, w] } } } }
      serial i < 5 { serial j < 4 { serial k < i { serial l < 3 {
        b[i, j, k, l] = a[i, j, k, l] * float32(2.0)
      } } } }
    }""",
    "clipped": """(a: float32[15, 4]) -> (b: float32[15, 4]) {
      serial i < 4 { serial j < min(3, 14 - i * 4) + 1 { serial k < 4 { b[i * 4 + j, k] = a[i * 4 + j, k] } } }
    }""",
    "vector of 12": "(a: float32[12]) -> (b: float32[12]) { serial i < 12 { b[i] = a[i] + float32(1.0) } }",
    "opaque": """(a: float32[4, 4]) -> (b: float32[4, 4]) {
      serial i < 4 { serial j < 4 { b[i, j] = a[i, j] } }
      serial k < 4 { serial l < 4 { call touch(b[k, l]) } }
    }""",
    "overlapping": """(a: float32[14, 4]) -> (b: float32[14, 4]) {
      serial v0 < 6 { serial v1 < 4 { serial v2 < 4 { b[v0 * 2 + v1, v2] = a[v0 * 2 + v1, v2] + cast<float32>(v1) } } }
    }""",
    "squares": """(a: float32[14, 4]) -> (b: float32[14, 4]) {
      serial x < 14 { serial y < 4 { b[x, y] = a[x, y] } }
      serial v0 < 4 { serial v1 < 4 { serial v2 < 4 {
        b[v0 * v0 + v1, v2] = a[v0 * v0 + v1, v2] + cast<float32>(v1)
      } } }
    }""",
    "predicate": """(a: float32[3, 4, 2, 5], d: float32[3, 4, 2, 5]) -> (b: float32[3, 4, 2, 5]) {
      serial x < 3 { serial y < 4 { serial z < 2 { serial w < 5 { b[x, y, z, w] = d[x, y, z, w] } } } }
      serial i < 3 { serial j < 4 { serial k < 2 { serial l < 5 {
        if i * 40 + j * 10 + k * 5 + l < 67 { b[i, j, k, l] = a[i, j, k, l] * float32(2.0) }
      } } } }
    }""",
    "every second": """(a: float32[3, 4, 2, 10], d: float32[3, 4, 2, 10]) -> (b: float32[3, 4, 2, 10]) {
      serial x < 3 { serial y < 4 { serial z < 2 { serial w < 10 { b[x, y, z, w] = d[x, y, z, w] } } } }
      serial i < 3 { serial j < 4 { serial k < 2 { serial l < 5 {
        b[i, j, k, l * 2] = a[i, j, k, l * 2] * float32(2.0)
      } } } }
    }""",
    "pools": """
      input x: float32[1, 2, 8, 8]
      stage y: float32[1, 2, 6, 6] at (n, c, h, w) = reduce add over p < 3, q < 3 from float32(0.0):
        x[n, c, h + p, w + q]
      stage z: float32[1, 2, 4, 4] at (o, d, r, s) = reduce add over e < 3, f < 3 from float32(0.0):
        y[o, d, r + e, s + f]""",
    "matrix": """(a: float32[8, 8]) -> (b: float32[8, 8]) {
      serial i < 8 { serial j < 8 { b[i, j] = a[i, j] * float32(2.0) } }
    }""",
    "moved and split": """(a: float32[8, 8]) -> (c: float32[8, 8]) {
      allocate b: float32[8, 8] in scratch
      serial i < 8 {
        serial j < 8 { b[i, j] = a[i, j] * float32(2.0) }
        serial l0 < 2 { serial l1 < 4 { c[i, l0 * 4 + l1] = b[i, l0 * 4 + l1] + float32(1.0) } }
      }
    }""",
    "product": """
      input a: float32[8, 8]
      input b: float32[8, 8]
      stage c: float32[8, 8] at (i, j) = reduce add over k < 8 from float32(0.0): a[i, k] * b[j, k]""",
    "row sums": """
      input a: float32[8, 6]
      stage b: float32[8] at (i) = reduce add over k < 6 from float32(0.0): a[i, k]""",
    "sums of squares": """
      input a: float32[8, 18]
      stage b: float32[8] at (i) = reduce add over k < 6 from float32(0.0): a[i, k * k / 2]""",
    "wrong sums": """(a: float32[8, 6]) -> (b: float32[6]) {
      serial z < 6 { b[z] = float32(0.0) }
      serial i < 8 { serial k < 6 { b[k] = b[k] + a[i, k] } }
    }""",
    "shift": """(a: float32[16]) -> (b: float32[16]) {
      serial z < 16 { b[z] = a[z] }
      serial i < 15 { b[i + 1] = b[i + 1] + b[i] }
    }""",
    "sums in tiles": """(a: float32[8, 8], b: float32[8, 8]) -> (c: float32[8, 8]) {
      allocate s: float32[8, 8] in scratch
      serial i < 2 { serial j < 2 {
        serial p < 4 { serial q < 4 { s[i * 4 + p, j * 4 + q] = float32(0.0) } }
        serial k < 8 { serial r < 4 { serial t < 4 {
          s[i * 4 + r, j * 4 + t] = s[i * 4 + r, j * 4 + t] + a[i * 4 + r, k] * b[j * 4 + t, k]
        } } }
        serial u < 4 { serial v < 4 { c[i * 4 + u, j * 4 + v] = s[i * 4 + u, j * 4 + v] } }
      } }
    }""",
    "halves": """(a: float32[16]) -> (b: float32[16]) {
      serial i < 8 { b[8 + i] = a[i] }
      serial j < 8 { b[j] = a[j + 8] }
    }""",
    "chain": """
      input a: float32[8, 8]
      stage b: float32[8, 8] at (i, j) = a[i, j] * float32(2.0)
      stage c: float32[8, 8] at (u, v) = b[u, v] + float32(1.0)""",
    "tiled chain": """(a: float32[8, 8]) -> (c: float32[8, 8]) {
      allocate b: float32[8, 8] in scratch
      serial i < 8 { serial j < 8 { b[i, j] = a[i, j] * float32(2.0) } }
      serial u0 < 2 { serial v0 < 2 { serial u1 < 4 { serial v1 < 4 {
        c[u0 * 4 + u1, v0 * 4 + v1] = b[u0 * 4 + u1, v0 * 4 + v1] + float32(1.0)
      } } } }
    }""",
    "backwards": """(a: float32[8, 8]) -> (c: float32[8, 8]) {
      allocate b: float32[8, 8] in scratch
      serial i < 8 { serial j < 8 { b[7 - i, 7 - j] = a[i, j] + float32(1.0) } }
      serial u < 8 { serial v < 8 { c[u, v] = b[v, u] + float32(2.0) } }
    }""",
    "sum of row sums": """
      input a: float32[6, 5]
      stage b: float32[6] at (i) = reduce add over k < 5 from float32(0.0): a[i, k]
      stage c: float32[1] at (o) = reduce add over u < 6 from float32(0.0): b[u]""",
    "pooling": """
      input x: float32[12, 12]
      stage b: float32[12, 12] at (r, s) = x[r, s]
      stage y: float32[12, 12] at (h, w) = reduce max over p < 3, q < 3 from float32(0.0):
        b[h + p - 1, w + q - 1; h + p >= 1 & h + p < 13 & w + q >= 1 & w + q < 13]""",
    "convolution": """
      input x: float32[3, 7, 7]
      input f: float32[2, 3, 3, 3]
      stage b: float32[3, 7, 7] at (r, s, t) = x[r, s, t]
      stage y: float32[2, 5, 5] at (c, h, w) = reduce add over d < 3, p < 3, q < 3 from float32(0.0):
        b[c / 2 * 3 + d, h + p, w + q] * f[c, d, p, q]""",
    "joined": """(x: float32[16], y: float32[8]) -> (z: float32[24]) {
      allocate b: float32[16] in scratch
      allocate c: float32[8] in scratch
      serial i < 16 { b[i] = x[i] + float32(1.0) }
      serial j < 8 { c[j] = y[j] + float32(2.0) }
      serial k < 24 { if k < 16 { z[k] = b[k] } else { z[k] = c[k - 16] } }
    }""",
    "repeated": """(x: float32[4]) -> (y: float32[64]) {
      allocate b: float32[4] in scratch
      serial i < 4 { b[i] = x[i] + float32(1.0) }
      serial o < 8 { serial p < 8 { y[o * 8 + p] = b[(o * 8 + p) / 16] } }
    }""",
    "next one": """(x: float32[16]) -> (y: float32[16]) {
      allocate b: float32[16] in scratch
      serial i < 16 { b[i] = x[i] }
      serial j < 16 { y[j] = select(j < 15, max(b[j], b[j + 1; j < 15]), b[j]) }
    }""",
    "two readers in a loop": """(a: float32[8, 8]) -> (c: float32[8, 8]) {
      allocate b: float32[8, 8] in scratch
      serial i < 8 { serial j < 8 { b[i, j] = a[i, j] } }
      serial u < 8 { serial v < 4 {
        c[u, v * 2] = b[u, v * 2] + float32(1.0)
        c[u, v * 2 + 1] = b[u, v * 2 + 1] * float32(2.0)
      } }
    }""",
    "one column": """(a: float32[8, 1]) -> (c: float32[8, 1]) {
      allocate b: float32[8, 1] in scratch
      serial i < 8 { serial j < 1 { b[i, j] = a[i, j] * float32(2.0) } }
      serial u < 8 { serial v < 8 { if v < 1 { c[u, v] = b[u, v] + float32(1.0) } } }
    }""",
    "groups of channels": """(x: float32[45, 2]) -> (y: float32[45, 2]) {
      allocate b: float32[12] in scratch
      serial i < 12 { b[i] = cast<float32>(i) }
      serial o < 3 { serial h < 2 { serial c < 15 { y[o * 15 + c, h] = x[o * 15 + c, h] + b[(o * 15 + c) / 4] } } }
    }""",
    "two halves": """(a: float32[8, 8]) -> (c: float32[8, 8]) {
      allocate b: float32[8, 8] in scratch
      serial i < 8 {
        serial j < 4 { b[i, j] = a[i, j] * float32(2.0) }
        serial k < 4 { b[i, k + 4] = a[i, k + 4] * float32(2.0) }
      }
      serial u < 8 { serial v < 8 { c[u, v] = b[u, v] + float32(1.0) } }
    }""",
    "two readers": """(a: float32[8, 8]) -> (c: float32[8, 8], d: float32[8, 8]) {
      allocate b: float32[8, 8] in scratch
      serial i < 8 { serial j < 8 { b[i, j] = a[i, j] * float32(2.0) } }
      serial u < 8 { serial v < 8 { c[u, v] = b[u, v] + float32(1.0) } }
      serial s < 8 { serial t < 8 { d[s, t] = b[s, t] + float32(1.0) } }
    }""",
    "chain of symbols": """(a: float32[n, m], b: float32[n, m]) -> (d: float32[n, m]) {
      allocate c: float32[n, m] in scratch
      serial i < n { serial j < m { c[i, j] = a[i, j] + b[i, j] } }
      serial u < n { serial v < m { d[u, v] = c[u, v] + float32(1.0) } }
    }""",
    "padded convolution": """
      input x: int8[3, 8, 8]
      input f: int8[2, 3, 3, 3]
      stage b: int8[3, 10, 10] at (r, s, t) = x[r, s - 1, t - 1; s >= 1 & s < 9 & t >= 1 & t < 9]
      stage y: int32[2, 4, 4] at (c, h, w) = reduce add over d < 3, p < 3, q < 3 from int32(0):
        cast<int32>(b[d, h * 2 + p, w * 2 + q]) * cast<int32>(f[c, d, p, q])""",
    "under a scope": """(x: float32[1]) -> (b: float32[8, 8], c: float32[8, 8]) {
      allocate a: float32[8, 8] in scratch
      serial i < 2 { serial j < 2 {
        serial p < 4 { serial q < 4 { a[i * 4 + p, j * 4 + q] = x[0] } }
        serial r < 4 { serial s < 4 { b[i * 4 + r, j * 4 + s] = a[i * 4 + r, j * 4 + s] + float32(1.0) } }
      } }
      serial u < 8 { serial v < 8 { c[u, v] = a[u, v] * float32(2.0) } }
    }""",
    "two consumers": """(x: float32[16]) -> (b: float32[16], c: float32[16]) {
      allocate a: float32[16] in scratch
      serial i < 4 {
        serial p < 4 { a[i * 4 + p] = x[i * 4 + p] }
        serial q < 4 { b[i * 4 + q] = a[i * 4 + q] + float32(1.0) }
      }
      serial k < 16 { c[k] = a[k] }
    }""",
    "two producers": """(x: float32[8]) -> (b: float32[8]) {
      allocate a: float32[8] in scratch
      serial o < 2 {
        serial i < 8 { a[i] = x[i] }
        serial j < 8 { a[j] = a[j] * float32(2.0) }
        serial k < 8 { b[k] = a[k] }
      }
    }""",
    "predicated producer": """(x: float32[15]) -> (b: float32[15]) {
      allocate a: float32[15] in scratch
      serial i < 2 { serial j < 8 { if i * 8 + j < 15 { a[i * 8 + j] = x[i * 8 + j] } } }
      serial u < 2 { serial v < 8 { if u * 8 + v < 15 { b[u * 8 + v] = a[u * 8 + v] + float32(1.0) } } }
    }""",
    "an index that is read": """(a: float32[7, 8], r: int32[1]) -> (c: float32[1, 8]) {
      serial o < 1 { serial i < 1 { serial j < 8 {
        c[i, j] = a[min(max(cast<int64>(r[i]), 0), 6), j]
      } } }
    }""",
    "in two regions": """(a: float32[6, 8], d: float32[6, 8]) -> (c: float32[6, 8]) {
      serial x < 6 { serial y < 8 { c[x, y] = d[x, y] } }
      serial o < 1 { serial i < 6 { serial j < 8 {
        if i < 4 { c[i, j] = a[i, j] * float32(2.0) }
        if j < 5 { c[i, j] = a[i, j] * float32(3.0) }
      } } }
    }""",
    "blocked product of symbols": """(a: float32[n, m], b: float32[m, p]) -> (c: float32[n, p]) {
      serial x < n { serial y < p { c[x, y] = float32(0.0) } }
      serial i < n { serial j < p { serial k0 < (m + 3) / 4 { serial k1 < 4 {
        if k1 < m - k0 * 4 { c[i, j] = c[i, j] + a[i, k0 * 4 + k1] * b[k0 * 4 + k1, j] }
      } } } }
    }""",
    "nested": """(a: float32[1, 16]) -> (b: float32[1]) {
      serial z < 1 { b[z] = float32(0.0) }
      serial i < 1 { serial o < 2 {
        allocate c: float32[8] in scratch
        serial p < 8 { c[p] = a[i, o * 8 + p] }
        serial q < 8 { b[i] = b[i] + c[q] }
      } }
    }""",
    "bytes": """
      input a: uint8[8, 16]
      input b: int8[12, 16]
      stage c: int32[8, 12] at (i, j) = reduce add over k < 16 from int32(0):
        cast<int32>(a[i, k]) * cast<int32>(b[j, k])""",
    "signed bytes": """
      input a: int8[8, 16]
      input b: int8[12, 16]
      stage c: int32[8, 12] at (i, j) = reduce add over k < 16 from int32(0):
        cast<int32>(a[i, k]) * cast<int32>(b[j, k])""",
    "two stages": """(a: float32[4, 6]) -> (c: float32[4, 6]) {
      parallel t < 4 bind "thread.x" { serial i < 6 {
        allocate b: float32[1] in scratch
        b[0] = a[t, i] * float32(2.0)
        c[t, i] = b[0] + float32(1.0)
      } }
    }""",
    "one iteration": """(a: float32[4, 1]) -> (c: float32[4, 1]) {
      parallel t < 4 bind "thread.x" { serial i < 1 {
        allocate b: float32[1] in scratch
        b[0] = a[t, i] * float32(2.0)
        c[t, i] = b[0] + float32(1.0)
      } }
    }""",
    "stages of symbols": """(a: float32[4, n]) -> (c: float32[4, n]) {
      parallel t < 4 bind "thread.x" { serial i < n {
        allocate b: float32[1] in scratch
        b[0] = a[t, i] * float32(2.0)
        c[t, i] = b[0] + float32(1.0)
      } }
    }""",
    "three stages": """(a: float32[4, 6]) -> (d: float32[4, 6]) {
      parallel t < 4 bind "thread.x" { serial i < 6 {
        allocate b: float32[1] in scratch
        allocate c: float32[1] in scratch
        b[0] = a[t, i] * float32(2.0)
        c[0] = b[0] + float32(2.0)
        d[t, i] = c[0] + float32(1.0)
      } }
    }""",
    "out of order": """(a: float32[4, 6]) -> (d: float32[4, 6]) {
      parallel t < 4 bind "thread.x" {
        allocate b: float32[1] in scratch
        b[0] = float32(0.0)
        serial i < 6 {
          b[0] = a[t, i] + b[0]
          d[t, i] = b[0] + float32(1.0)
        }
      }
    }""",
    "integer product": """
      input a: int32[4, 8]
      input b: int32[3, 8]
      stage c: int32[4, 3] at (i, j) = reduce add over k < 8 from int32(0): a[i, k] * b[j, k]""",
    "product with let": """(a: int32[4, 8], b: int32[3, 8]) -> (c: int32[4, 3]) {
      serial x < 4 { serial y < 3 { c[x, y] = int32(0) } }
      serial i < 4 { serial j < 3 { serial k < 8 {
        let v: int32 = a[i, k] * b[j, k]
        c[i, j] = c[i, j] + v
      } } }
    }""",
    "transposed sums": """(a: int32[4, 4], b: int32[4, 4]) -> (c: int32[4, 4]) {
      serial x < 4 { serial y < 4 { c[x, y] = int32(0) } }
      serial i < 4 { serial j < 4 { serial k < 4 { c[j, i] = c[j, i] + a[i, k] * b[k, j] } } }
    }""",
    "square sum": """
      input a: int32[3, 4, 5]
      stage c: int32[3] at (b) = reduce add over i < 4, j < 5 from int32(0): a[b, i, j] * a[b, i, j]""",
    "root of square sum": """
      input a: float32[3, 4, 5]
      stage c: float32[3] at (b) = reduce max over i < 4, j < 5 from float32(0.0): a[b, i, j] * a[b, i, j]
        then r: float32 = sqrt(r)""",
    "two products in a loop": """(a: int32[4, 4], b: int32[4, 4]) -> (c: int32[4, 4], d: int32[4, 4]) {
      serial x < 4 { serial y < 4 {
        c[x, y] = int32(0)
        d[x, y] = int32(0)
      } }
      serial k < 4 { serial i < 4 { serial j < 4 {
        c[i, j] = c[i, j] + a[i, k] * b[k, j]
        d[i, j] = d[i, j] + b[i, k] * a[k, j]
      } } }
    }""",
    "product and copy": """(a: int32[4, 4], b: int32[4, 4]) -> (d: int32[5, 5]) {
      allocate c: int32[5, 5] in scratch
      serial x < 5 { serial y < 5 { c[x, y] = int32(0) } }
      serial i < 4 { serial j < 4 { serial k < 4 { c[i, j] = c[i, j] + a[i, k] * b[k, j] } } }
      serial u < 5 { serial v < 5 { d[u, v] = c[u, v] } }
    }""",
    "integer row sums": """
      input a: int32[8, 6]
      stage b: int32[8] at (i) = reduce add over k < 6 from int32(0): a[i, k]""",
    "integer sums of squares": """
      input a: int32[8, 18]
      stage b: int32[8] at (i) = reduce add over k < 6 from int32(0): a[i, k * k / 2]""",
    "sums from one": """
      input a: int32[8, 6]
      stage b: int32[8] at (i) = reduce add over k < 6 from int32(1): a[i, k]""",
    "differences": """(a: int32[8, 6]) -> (b: int32[8]) {
      serial z < 8 { b[z] = int32(0) }
      serial i < 8 { serial k < 6 { b[i] = b[i] - a[i, k] } }
    }""",
    "sums of one": """(a: int32[8, 6]) -> (b: int32[8, 6]) {
      serial y < 8 { serial z < 6 { b[y, z] = int32(0) } }
      serial i < 8 { serial k < 6 { b[i, k] = b[i, k] + a[i, k] } }
    }""",
    "parallel sums": """(a: int32[6]) -> (b: int32[6]) {
      serial z < 6 { b[z] = a[z] }
      serial i < 3 { parallel k < 6 { b[k] = b[k] + a[k] } }
    }""",
    "one sum": """
      input a: int32[12]
      stage b: int32[1] at (o) = reduce add over k < 12 from int32(0): a[k]""",
    "sums of a sum": """
      input a: int32[3, 8]
      stage c: int32[3] at (i) = reduce add over k < 8 from int32(0): a[i, k]
      stage d: int32[3] at (u) = reduce add over l < 8 from int32(0): a[u, l] + c[u]""",
    "channel sums": """
      input a: int32[1, 4, 3, 3]
      stage b: int32[1, 4, 1, 1] at (n, c, h, w) = reduce add over p < 3, q < 3 from int32(0): a[n, c, h + p, w + q]""",
    "greatest and where": """(at: int32[3, 8], value: int32[3, 8]) -> (m: int32[3], v: int32[3]) {
      serial z < 3 {
        m[z] = int32(-1)
        v[z] = int32(-2147483648)
      }
      serial i < 3 { serial k < 8 {
        let w: int32 = select(v[i] >= value[i, k], m[i], at[i, k])
        let u: int32 = select(v[i] >= value[i, k], v[i], value[i, k])
        m[i] = w
        v[i] = u
      } }
    }""",
    "two tiled readers": """(a: float32[8, 8]) -> (c: float32[8, 8], d: float32[4, 4]) {
      allocate b: float32[8, 8] in scratch
      serial i < 8 { serial j < 8 { b[i, j] = a[i, j] * float32(2.0) } }
      serial p0 < 2 { serial q0 < 2 { serial p1 < 4 { serial q1 < 4 {
        c[p0 * 4 + p1, q0 * 4 + q1] = b[p0 * 4 + p1, q0 * 4 + q1] + float32(1.0)
      } } } }
      serial u0 < 2 { serial v0 < 2 { serial u1 < 2 { serial v1 < 2 {
        d[u0 * 2 + u1, v0 * 2 + v1] = b[u0 * 2 + u1, v0 * 2 + v1] + float32(2.0)
      } } } }
    }""",
    "loops of two extents": """(a: float32[4, 4]) -> (b: float32[2, 4], c: float32[4, 4]) {
      serial i < 2 { serial j < 4 { b[i, j] = a[i, j] * float32(2.0) } }
      serial u < 4 { serial v < 4 { c[u, v] = a[u, v] * float32(2.0) } }
    }""",
    "slice of joined": """(x: float32[4], y: float32[6], z: float32[8]) -> (s: float32[14]) {
      allocate b: float32[4] in scratch
      allocate g: float32[18] in scratch
      serial i < 4 { b[i] = x[i] * float32(2.0) }
      serial k < 18 {
        g[k] = select(k >= 14, b[k - 14; k >= 14], select(k >= 8, y[k - 8; k >= 8 & k < 14], z[k; k < 8]))
      }
      serial o < 1 { serial l < 14 { s[l] = g[l] } }
    }""",
    "products of a symbol": """(a: int32[8], b: int32[n, 8]) -> (c: int32[n]) {
      allocate r: int32[8, n] in scratch
      serial u < n { serial k < 8 { r[k, u] = a[k] * b[u, k] } }
      serial v < n {
        c[v] = int32(0)
        serial l < 8 { c[v] = c[v] + r[l, v] }
      }
    }""",
    "narrow product": """
      input a: int32[8, 4]
      input b: int32[4, 4]
      stage c: int32[8, 4] at (i, j) = reduce add over k < 4 from int32(0): a[i, k] * b[j, k]""",
    "wide product": """
      input a: int32[8, 8]
      input b: int32[8, 8]
      stage c: int32[8, 8] at (i, j) = reduce add over k < 8 from int32(0): a[i, k] * b[j, k]""",
    "narrow products": """
      input a: int32[2, 4, 4]
      input b: int32[2, 4, 4]
      stage c: int32[2, 4, 4] at (n, i, j) = reduce add over k < 4 from int32(0): a[n, i, k] * b[n, j, k]""",
    "outer products": """(a: int32[8, 4], b: int32[8, 4]) -> (c: int32[4, 4]) {
      serial x < 4 { serial y < 4 { c[x, y] = int32(0) } }
      serial k < 8 { serial i < 4 { serial j < 4 { c[i, j] = c[i, j] + a[k, i] * b[k, j] } } }
    }""",
    "product of bytes": """
      input a: int8[8, 4]
      input b: int8[4, 4]
      stage c: int32[8, 4] at (i, j) = reduce add over k < 4 from int32(0):
        cast<int32>(a[i, k]) * cast<int32>(b[j, k])""",
}  # fmt: skip

INSTRUCTIONS = {
    "mma": """(a: int32[4, 4], b: int32[4, 4]) -> (c: int32[4, 4]) {
      serial i < 4 { serial j < 4 { serial k < 4 { c[i, j] = c[i, j] + a[i, k] * b[j, k] } } }
    }""",
    "outer": """(a: int32[4], b: int32[4]) -> (c: int32[4, 4]) {
      serial i < 4 { serial j < 4 { c[i, j] = c[i, j] + a[i] * b[j] } }
    }""",
    "mma_bytes": """(a: int8[4, 4], b: int8[4, 4]) -> (c: int32[4, 4]) {
      serial i < 4 { serial j < 4 { serial k < 4 {
        c[i, j] = c[i, j] + cast<int32>(a[i, k]) * cast<int32>(b[j, k])
      } } }
    }""",
    "dp4a": """(a: int8[4], b: int8[4]) -> (c: int32[1]) {
      serial k < 4 { c[0] = c[0] + cast<int32>(a[k]) * cast<int32>(b[k]) }
    }""",
}  # fmt: skip
"""What instructions of the cases mean."""


class Case(NamedTuple):
    """A test of TVM: its file and name, the kernel, our steps, and our reason to refuse the last of them."""

    file: str
    name: str
    kernel: str
    steps: str
    refused: str = ""
    theirs: str = ""


SPLIT, ORDER, KIND, AT = "split_fuse", "reorder", "for_kind", "compute_at"
CACHE, SUMS, TENSOR, UNITS, PIPE = "cache_read_write", "reduction", "tensorize", "read_write_at", "software_pipeline"
PART, MERGE, FACTOR = "partition", "merge", "rfactor"
NO_SUM = "does not just add to '{}', or reduce into it by one operation"
TILED = "split i 4 -> by ty\nsplit j 4 -> bx tx\nsplit k 4 -> k0 k1\nreorder by bx ty tx k0 k1\ncompute_at c at tx\n"
BOUND = "bind by block.y\nbind bx block.x\nbind ty thread.y\nbind tx thread.x"

CASES = (
    Case(SPLIT, "fuse", "elementwise", "fuse i j k -> ijk"),
    Case(SPLIT, "split", "elementwise",
         "split i 2 -> i1 i2\nsplit i1 1 -> i0 i1\nsplit j 3 -> j0 j1\nsplit k 5 -> k0 k1"),
    Case(SPLIT, "split_with_inferred_factor", "elementwise",
         "split i 2 -> i0 i2\nsplit i2 2 -> i1 i2\nsplit j 3 -> j0 j1"),
    Case(SPLIT, "split_with_dynamic_inferred_factor", "symbolic",
         "split i 4 -> i0 i1\nsplit j 3 -> j0 j1\nsplit k 2 -> k0 k1"),
    Case(SPLIT, "split_with_predicate", "elementwise",
         "split i 3 -> i1 i2\nsplit i1 5 -> i0 i1\nsplit j 7 -> j0 j1\nsplit k 2 -> k0 k1"),
    Case(SPLIT, "fuse_fail_not_only_child", "two in a loop",
         "fuse j l -> jl", "between 'j' and 'l' stands more than loops: a block"),
    Case(SPLIT, "fuse_with_opaque_access", "opaque", "fuse k l -> kl"),
    Case(SPLIT, "split_with_opaque_access", "opaque", "split l 3 -> l0 l1"),
    Case(SPLIT, "split_with_non_positive_factors", "elementwise", "split j 0 -> j0 j1", "the factor is less than 1"),
    Case(SPLIT, "fuse_split_fail_with_thread_binding: fuse", "bound",
         "fuse j k -> jk", "'k' is parallel; fuse it before"),
    Case(SPLIT, "fuse_split_fail_with_thread_binding: split", "bound",
         "split k 10 -> k0 k1", "'k' is parallel already; split it before"),
    Case(SPLIT, "fuse_symbolic", "symbolic", "fuse i j -> ij"),
    Case(SPLIT, "fuse_symbolic: a symbol inside", "symbolic",
         "fuse i j k -> ijk"),
    Case(SPLIT, "split_symbolic", "symbolic", "split k 10 -> k0 k1"),
    Case(SPLIT, "fuse_fail_with_dependent_loops", "triangle", "fuse j k -> jk",
         theirs="wants extents that are the same everywhere"),
    Case(SPLIT, "fuse_fail_with_dependent_loops: both", "triangle", "fuse i j k -> ijk",
         "the extent of 'k' is not the same everywhere"),
    Case(SPLIT, "fuse_not_affine", "clipped", "fuse j k -> jk"),
    Case(SPLIT, "split_int64_extent_with_mixed_factors", "vector of 12", "split i 512 -> i0 i1"),
    Case(SPLIT, "split_int64_extent_with_int32_factors", "vector of 12",
         "split i 4 -> i3 i4\nsplit i3 1 -> i2 i3\nsplit i2 3 -> i1 i2\nsplit i1 1 -> i0 i1"),
    Case(SPLIT, "fused_symbolic_2D_tiling", "matrix of symbols",
         "split i 64 -> i0 i1\nsplit j 16 -> j0 j1\nreorder i0 j0 i1 j1"),
    Case(SPLIT, "fused_symbolic_2D_tiling: fuse", "matrix of symbols",
         "split i 64 -> i0 i1\nsplit j 16 -> j0 j1\nreorder i0 j0 i1 j1\nfuse i0 j0 -> ij"),
    Case(ORDER, "reorder", "four loops", "reorder l i"),
    Case(ORDER, "reorder2", "four loops", "reorder k i l"),
    Case(ORDER, "reorder_with_opaque_access", "opaque",
         "reorder l k", "'b' is written and used again along 'k', 'l', in that order", "takes a call for independent"),
    Case(ORDER, "reorder_overlapped_access", "overlapping", "reorder v0 v2 v1"),
    Case(ORDER, "reorder_overlapped_access: the other way", "overlapping",
         "reorder v1 v0", "'b' is written and used again along 'v0', 'v1', in that order"),
    Case(ORDER, "reorder_with_partial_affineness: not affine", "squares",
         "reorder v1 v0 v2", "'b' is written and used again along 'v0', 'v1', in that order"),
    Case(ORDER, "reorder_with_partial_affineness", "squares", "reorder v2 v1"),
    Case(ORDER, "reorder_with_cascade_tiled_ops", "pools", "split r 2 -> r0 r1\ncompute_at y at r0"),
    Case(ORDER, "reorder_with_predicate", "predicate", "reorder l i", theirs="knows no predicate over several loops"),
    Case(ORDER, "reorder_fail_with_multi_appearance_loops", "four loops",
         "reorder k i i", "it takes the names of two or more different loops"),
    Case(ORDER, "reorder_fail_with_non_single_branch_loop", "two in a loop",
         "reorder l i", "between 'i' and 'l' stands more than loops: a block"),
    Case(ORDER, "reorder_fail_with_non_single_branch_loop: both", "two in a loop",
         "reorder k i l", "'l' is not in one nest with the others"),
    Case(ORDER, "reorder_fail_with_loops_not_under_same_scope", "elementwise", "reorder k i", theirs="has scopes"),
    Case(ORDER, "reorder_fail_with_dependent_loops", "triangle",
         "reorder l i", "the extent of 'k' depends on another of them"),
    Case(ORDER, "reorder_fail_not_affine_bindings", "every second", "reorder l i", theirs="wants every index taken"),
    Case(KIND, "parallel", "matrix", "parallel i"),
    Case(KIND, "parallel_predicate", "matrix", "split j 3 -> j0 j1\nparallel j0"),
    Case(KIND, "parallel_reduction_block_iter", "product",
         "parallel k", "one iteration of 'k' writes 'c' where another reads or writes it"),
    Case(KIND, "parallel_not_quasi_affine", "sums of squares",
         "parallel i", theirs="wants affine indices of all loops"),
    Case(KIND, "parallel_not_compact_data_flow", "wrong sums",
         "parallel i", "one iteration of 'i' writes 'b' where another reads or writes it"),
    Case(KIND, "vectorize", "moved and split", "vectorize l1"),
    Case(KIND, "vectorize_predicate", "matrix", "split j 3 -> j0 j1\nvectorize i"),
    Case(KIND, "vectorize_opaque_block", "shift",
         "vectorize i", "one iteration of 'i' writes 'b' where another reads or writes it"),
    Case(KIND, "unroll", "row sums", "unroll i"),
    Case(KIND, "unroll_after_bind", "row sums",
         "bind i block.x\nunroll i", "'i' is parallel already", "takes the binding back"),
    Case(KIND, "bind1", "matrix", "bind i thread.x"),
    Case(KIND, "bind2", "moved and split", "bind j thread.x\nbind l0 thread.x"),
    Case(KIND, "bind_cross_thread_reduction", "row sums",
         "bind k thread.x", "one iteration of 'k' writes 'b' where another reads or writes it", "adds among threads"),
    Case(KIND, "bind_not_cross_thread_reduction", "row sums",
         "bind k block.x", "one iteration of 'k' writes 'b' where another reads or writes it"),
    Case(KIND, "bind_after_bind", "matrix",
         "bind i block.x\nbind i thread.x", "'i' is parallel already", "takes the binding back"),
    Case(KIND, "block_inside_init", "row sums", "compute_at b at i\nbind i thread.x"),
    Case(KIND, "vectorize_after_decompose", "sums in tiles", "vectorize v"),
    Case(KIND, "nested_block_bind", "matrix", "bind j thread.x\nbind i block.x"),
    Case(KIND, "nexted_block_bind_after_cache_read", "row sums",
         "compute_at b at i\ncache_read a at i in shared -> s\nbind i block.x"),
    Case(KIND, "vectorize_init", "sums in tiles", "vectorize q"),
    Case(KIND, "scatter_parallelize", "halves", "parallel i\nparallel j"),
    Case(AT, "compute_at_two_elementwise", "chain", "compute_at b at u"),
    Case(AT, "compute_at_blockized_1", "tiled chain", "compute_at b at v0"),
    Case(AT, "compute_at_blockized_2", "tiled chain",
         "split i 4 -> i0 i1\ncompute_at b at v0",
         "the loops that compute 'b' do not run over its dimensions", "moves blocks whole"),
    Case(AT, "compute_at_cuda_matmul_0", "product",
         "split i 4 -> by ty\nsplit j 4 -> bx tx\nreorder by bx ty tx k\ncompute_at c at tx\n"
         "bind by block.y\nbind bx block.x\nbind ty thread.y\nbind tx thread.x"),
    Case(AT, "compute_at_cuda_matmul_1 to 4", "product",
         "split i 4 -> by ty\nsplit j 4 -> bx tx\nsplit k 4 -> k0 k1\nreorder by bx ty tx k0 k1\n"
         "compute_at c at tx\nbind by block.y\nbind bx block.x\nbind ty thread.y\nbind tx thread.x\n"
         "cache_read a at k1 in register -> al\ncache_read b at k1 in register -> bl\n"
         "cache_read a at k0 in shared -> as by ty tx\ncache_read b at k0 in shared -> bs by ty tx"),
    Case(AT, "compute_at_reduction_block", "sum of row sums", "compute_at b at u"),
    Case(AT, "compute_at_tiled_pooling_read_cache", "pooling",
         "split h 4 -> h0 h1\nsplit w 4 -> w0 w1\nreorder h0 w0 h1 w1 p q\ncompute_at b at w0"),
    Case(AT, "compute_at_non_uniform_tiled_conv", "convolution",
         "split h 3 -> h0 h1\nsplit w 3 -> w0 w1\nreorder h0 w0 c h1 w1 d p q\ncompute_at b at w0"),
    Case(AT, "compute_at_concat", "joined", "compute_at b at k\ncompute_at c at k"),
    Case(AT, "compute_at_tiled_repeat_op", "repeated", "compute_at b at o"),
    Case(AT, "compute_at_rev_iter", "backwards",
         "compute_at b at u", "the loops that compute 'b' do not run over its dimensions", "inverts the index"),
    Case(AT, "read_out_of_bound", "next one", "compute_at b at j"),
    Case(AT, "compact_dataflow", "two readers in a loop", "compute_at b at v"),
    Case(AT, "compute_at_simplify_static_bound", "one column", "compute_at b at u"),
    Case(AT, "compute_at_simplify_symbolic_predicate", "matrix of symbols",
         "split j 8 -> j0 j1\ncache_read a at j0 in scratch -> near"),
    Case(AT, "compute_at_non_perfect_channel_group", "groups of channels", "compute_at b at o"),
    Case(AT, "fail_subtree_complete_block", "two halves",
         "compute_at b at u", "what computes 'b' is more than serial loops around one store"),
    Case(AT, "fail_loop_is_ancestor_of_block", "chain",
         "compute_at b at i", "no nest before that of 'i' computes 'b', or more than loops stand between"),
    Case(AT, "fail_output_block", "chain",
         "compute_at c at i", "no nest before that of 'i' computes 'c', or more than loops stand between"),
    Case(AT, "fail_all_consumers_under_loop", "two readers", "compute_at b at u", "'b' is needed as a whole elsewhere"),
    Case(AT, "fail_all_consumers_under_loop: the last", "two readers",
         "compute_at b at s", "'b' is needed as a whole elsewhere"),
    Case(AT, "compute_at_int64_loop", "chain of symbols", "compute_at c at v"),
    Case(AT, "compute_at_int64_loop: a row", "chain of symbols",
         "compute_at c at u", "the places in 'c' that are used have no bounds", "has buffers of a symbol's size"),
    Case(AT, "compute_at_to_index", "padded convolution", "compute_at b at c"),
    Case(CACHE, "cache_read_elementwise", "chain", "split i 8 -> o i\ncache_read a at o in scratch -> near"),
    Case(CACHE, "cache_read_under_scope", "under a scope", "cache_read a at r in register -> near"),
    Case(CACHE, "cache_read_location", "two consumers", "cache_read a at q in scratch -> near"),
    Case(CACHE, "cache_read_location: a loop that writes it", "two consumers",
         "cache_read a at i in scratch -> near", "'a' is written inside of 'i'"),
    Case(CACHE, "continuous_cache_read", "chain",
         "cache_read b at u in shared -> s\ncache_read s at v in register -> l"),
    Case(CACHE, "cache_read_with_block_predicate", "predicated producer", "cache_read a at u in shared -> s"),
    Case(CACHE, "cache_read_nested_buffer_access", "an index that is read", "cache_read r at o in scratch -> near"),
    Case(CACHE, "cache_read_nested_buffer_access: what it indexes", "an index that is read",
         "cache_read a at o in scratch -> near"),
    Case(CACHE, "cache_read_fail_multi_producer", "two producers",
         "cache_read a at o in scratch -> near", "'a' is written inside of 'o'"),
    Case(CACHE, "cache_read_fail_index_out_of_bound", "chain",
         "cache_read z at u in scratch -> near", "no buffers are called 'z'; there are a, c, b"),
    Case(CACHE, "cache_write_elementwise", "chain",
         "cache_write b at i in register -> l\ncache_write c at u in scratch -> g"),
    Case(CACHE, "cache_write_under_scope", "under a scope",
         "cache_write a at q in register -> l\ncache_write b at r in scratch -> g\n"
         "cache_write a at j in scratch -> h"),
    Case(CACHE, "cache_write_location", "two consumers", "cache_write a at i in scratch -> near"),
    Case(CACHE, "continuous_cache_write", "chain",
         "cache_write b at i in shared -> s\ncache_write s at j in register -> l"),
    Case(CACHE, "cache_write_with_block_predicate", "predicated producer",
         "cache_write a at i in shared -> s\ncache_write b at u in shared -> t"),
    Case(CACHE, "cache_write_fail_index_out_of_bound", "chain",
         "cache_write a at i in scratch -> near", "'a' is not written inside of 'i'"),
    Case(CACHE, "cache_write_fail_multi_producer", "two producers",
         "cache_write a at o in scratch -> near", theirs="wants one writer"),
    Case(CACHE, "cache_read_sibling_nested_block_predicates_use_union", "in two regions",
         "cache_read a at o in scratch -> near"),
    Case(CACHE, "cache_write_sibling_nested_block_predicates_use_union", "in two regions",
         "cache_write c at o in scratch -> near"),
    Case(CACHE, "symbolic_matmul_blocked_cache_read", "blocked product of symbols",
         "cache_read a at k0 in shared -> s"),
    Case(CACHE, "symbolic_matmul_blocked_cache_write", "blocked product of symbols",
         "cache_write c at j in register -> s"),
    Case(SUMS, "reduction_decompose0", "product",
         "reorder k i j\ncompute_at c at k", "iterations of 'k' share elements of 'c'", "puts the first values before"),
    Case(SUMS, "reduction_decompose2", "product", "compute_at c at j"),
    Case(SUMS, "reduction_decompose3", "product",
         "reorder i k j\ncompute_at c at k", "iterations of 'k' share elements of 'c'"),
    Case(SUMS, "reduction_decompose4", "product", "split i 4 -> i0 i1\nsplit k 3 -> k0 k1\ncompute_at c at i1"),
    Case(SUMS, "reduction_decompose_with_different_for_kind", "product",
         "reorder k i j\nvectorize j\nvectorize j.first"),
    Case(SUMS, "decompose_reduction_nested_block", "nested", "split p 4 -> p0 p1\nvectorize p1\nunroll q"),
    Case(SUMS, "decompose_reduction_with_thread_binding", "row sums", "bind i thread.x\nbind i.first thread.x"),
    Case(TENSOR, "tensorize_dot_product", "bytes", "split k 4 -> k0 k1\ntensorize k1 dot4_u8s8"),
    Case(TENSOR, "tensorize_vnni", "bytes",
         "split j 4 -> j0 j1\nsplit k 4 -> k0 k1\nreorder i j0 k0 j1 k1\ncompute_at c at j0\n"
         "tensorize k1 dot4_u8s8"),
    Case(TENSOR, "tensorize_arm_dot: other types", "signed bytes",
         "split k 4 -> k0 k1\ntensorize k1 dot4_u8s8", "'k1' is not what 'dot4_u8s8' means: 'a' is int8, not uint8"),
    Case(TENSOR, "tensor_intrin_look_up", "bytes",
         "tensorize k non_existent",
         "there is no instruction 'non_existent'; "
         "there are dot4_u8s8, dot2_s16, dot2_bf16, mma, outer, mma_bytes, dp4a"),
    Case(UNITS, "read_at_global_to_shared_ab", "product",
         "split i 4 -> by ty\nsplit j 4 -> bx tx\nsplit k 4 -> k0 k1\nreorder by bx ty tx k0 k1\n"
         "compute_at c at tx\ncache_write c at tx in register -> sum\nbind by block.y\nbind bx block.x\n"
         "bind ty thread.y\nbind tx thread.x\ncache_read a at k0 in shared -> as by ty tx\n"
         "cache_read b at k0 in shared -> bs by ty tx"),
    Case(PIPE, "simple_compute", "two stages", "pipeline i b"),
    Case(PIPE, "trivial_pipeline", "one iteration", "pipeline i b"),
    Case(PIPE, "dynamic_compute", "stages of symbols", "pipeline i b"),
    Case(PIPE, "three_stage_compute", "three stages", "pipeline i b c"),
    Case(PIPE, "error_reorder", "out of order", "pipeline i b", "'b' is used outside of 'i'"),
    Case(SPLIT, "fuse_with_opaque_block", "opaque", "fuse i j -> ij"),
    Case(SPLIT, "split_with_opaque_block", "opaque", "split i 3 -> i0 i1"),
    Case(SPLIT, "fuse_int64", "matrix", "fuse i j -> ij"),
    Case(SPLIT, "split_int64_factors", "matrix", "split i 4 -> i0 i1\nsplit j 2 -> j0 j1"),
    Case(ORDER, "reorder_fail_with_wrong_block_var_type", "elementwise",
         "reorder k i", theirs="believes what a block says of its iterators"),
    Case(KIND, "bind_thread_iter_var_dtype", "matrix", "bind i block.x\nbind j thread.x"),
    Case(AT, "compute_at_sliced_concatenate", "slice of joined", "compute_at g at o\ncompute_at b at o"),
    Case(AT, "shape_var_as_bound", "products of a symbol", "compute_at r at v"),
    Case(AT, "fail_not_in_same_scope", "tiled chain", "compute_at b at v0", theirs="has scopes"),
    Case(CACHE, "cache_read_fail_invalid_storage_scope", "matrix",
         "cache_read a at i in test_scope -> near", theirs="knows all memories; here a machine is asked later"),
    Case(CACHE, "cache_write_fail_invalid_storage_scope", "matrix",
         "cache_write b at i in test_scope -> near",
         theirs="knows all memories; here a machine is asked later"),
    Case(CACHE, "cache_read_opaque_access", "opaque",
         "cache_read b at k in scratch -> near", "'b' is written inside of 'k'", "is told what a block touches"),
    Case(CACHE, "cache_write_opaque_access", "opaque",
         "cache_write b at k in scratch -> near", "the places in 'b' that are used have no bounds",
         "is told what a block touches"),
    Case(CACHE, "cache_read_non_int32_shape", "matrix", "cache_read a at i in scratch -> near"),
    Case(CACHE, "cache_read_nested_seq", "two in a loop", "cache_read c at l in scratch -> near"),
    Case(CACHE, "inplace_cache_read", "one column", "cache_read b at v in register -> near"),
    Case(CACHE, "cache_inplace", "sums in tiles", "cache_write s at k in scratch -> near"),
    Case(CACHE, "cache_read_with_nested_block_predicate", "predicate", "cache_read a at k in scratch -> near"),
    Case(CACHE, "cache_write_with_nested_block_predicate", "predicate", "cache_write b at k in scratch -> near"),
    Case(SUMS, "reduction_decompose1", "row sums",
         "split i 4 -> i0 i1\nsplit k 3 -> k0 k1\nreorder i0 k0 i1 k1\ncompute_at b at i0"),
    Case(TENSOR, "tensorize_matmul", "narrow product", "split i 4 -> i0 i1\ntensorize i1 mma"),
    Case(TENSOR, "tensorize_matmul: tiles of a wide matrix", "wide product",
         "split i 4 -> i0 i1\nsplit j 4 -> j0 j1\nsplit k 4 -> k0 k1\nreorder i0 j0 k0 i1 j1 k1\ntensorize i1 mma",
         "'i1' is not what 'mma' means: 'c' does not lie in one piece", "gives an instruction strides"),
    Case(TENSOR, "tensorize_matmul: copied", "wide product",
         "split i 4 -> i0 i1\nsplit j 4 -> j0 j1\nsplit k 4 -> k0 k1\nreorder i0 j0 k0 i1 j1 k1\n"
         "cache_write c at j0 in register -> sum\ncache_read a at k0 in scratch -> left\n"
         "cache_read b at k0 in scratch -> right\ntensorize i1 mma"),
    Case(TENSOR, "tensorize_batch_matmul", "narrow products", "tensorize i mma"),
    Case(TENSOR, "tensorize_outer_product", "outer products", "tensorize i outer"),
    Case(TENSOR, "tensorize_matmul_mixed_dtype", "product of bytes", "split i 4 -> i0 i1\ntensorize i1 mma_bytes"),
    Case(TENSOR, "tensorize_matmul_mixed_dtype: of other types", "narrow product",
         "split i 4 -> i0 i1\ntensorize i1 mma_bytes", "'i1' is not what 'mma_bytes' means: the values differ"),
    Case(TENSOR, "tensorize_dp4a", "product of bytes", "tensorize k dp4a"),
    Case(UNITS, "read_at_global_to_shared_a", "product",
         TILED + BOUND + "\ncache_read a at k0 in shared -> as by ty tx"),
    Case(UNITS, "read_at_local_to_shared_c", "product", TILED + "cache_write c at tx in register -> sum\n" + BOUND),
    Case(PART, "loop_partition", "elementwise", "peel i 1 -> i1\npeel i1 1 -> i2\npeel j 2 -> j1"),
    Case(PART, "partition_with_inferred_factor", "elementwise", "peel i 2 -> i1\npeel k 1 -> k1\npeel k1 2 -> k2"),
    Case(PART, "partition_with_opaque_block", "opaque", "peel k 2 -> k1"),
    Case(PART, "partition_with_opaque_access", "opaque", "peel j 2 -> j1\npeel l 3 -> l1"),
    Case(PART, "partition_int64_extent_with_mixed_factors", "vector of 12", "peel i 1 -> i1\npeel i1 5 -> i2"),
    Case(PART, "partition_fail_symbolic", "symbolic", "peel k 10 -> k1", theirs="wants a number"),
    Case(PART, "partition_fail_out_of_bound", "elementwise",
         "peel i 1000 -> i1", "'i' has no more than 1000 iterations"),
    Case(PART, "partition_with_non_positive_factors", "elementwise",
         "peel j 0 -> j1", "the first iterations are less than 1"),
    Case(PART, "partition_fail_with_thread_binding", "bound",
         "peel k 2 -> k1", "'k' is parallel already; peel it before"),
    Case(MERGE, "merge", "two tiled readers", "merge p0 u0 -> m"),
    Case(MERGE, "merge2", "two tiled readers", "merge p0 u0 -> m\nmerge q0 v0 -> n"),
    Case(MERGE, "merge_fail_not_only_child", "under a scope",
         "merge r u -> m", "'u' does not stand directly behind 'r'"),
    Case(MERGE, "merge_fail_not_same_extent", "loops of two extents",
         "merge i u -> m", "'i' and 'u' have different extents"),
    Case(MERGE, "merge_fail_not_same_level", "chain", "merge i v -> m", "'v' does not stand directly behind 'i'"),
    Case(MERGE, "merge_fail_with_different_scope", "chain", "merge i u -> m", theirs="has scopes"),
    Case(FACTOR, "reduction_rfactor_matmul", "integer product",
         "split k 4 -> k0 k1\nsplit k1 2 -> k1 k2\nrfactor c at k2 in scratch -> parts"),
    Case(FACTOR, "reduction_rfactor_int64", "integer product",
         "split k 4 -> k0 k1\nreorder i j k1 k0\nrfactor c at k1 in scratch -> parts\nparallel k1"),
    Case(FACTOR, "reduction_rfactor_matmul_with_let", "product with let",
         "split k 4 -> k0 k1\nrfactor c at k1 in scratch -> parts"),
    Case(FACTOR, "reduction_rfactor_square_sum", "square sum", "rfactor c at j in scratch -> parts"),
    Case(FACTOR, "reduction_rfactor_square_sum_square_root", "root of square sum",
         "fuse i j -> ij\nsplit ij 5 -> f0 f1\nreorder b f1 f0\n"
         "rfactor c.total at f1 in scratch -> parts\nparallel f1"),
    Case(FACTOR, "reduction_rfactor_loop_multiple_children", "two products in a loop",
         "rfactor c at k in scratch -> parts", theirs="wants a block alone in its loops"),
    Case(FACTOR, "reduction_rfactor_not_stage_pipeline", "product and copy",
         "rfactor c at k in scratch -> parts", theirs="wants every element written before it is read"),
    Case(FACTOR, "reduction_rfactor_not_reduction_block1", "matrix",
         "rfactor b at i in scratch -> parts", f"'i' {NO_SUM.format('b')}"),
    Case(FACTOR, "reduction_rfactor_not_reduction_block2", "integer sums of squares",
         "rfactor b at k in scratch -> parts", theirs="wants affine indices"),
    Case(FACTOR, "reduction_rfactor_not_reduction_block3", "sums of one",
         "rfactor b at k in scratch -> parts", theirs="wants a loop that is summed over"),
    Case(FACTOR, "reduction_rfactor_not_serial_loop", "parallel sums",
         "rfactor b at k in scratch -> parts", "'k' is parallel already; split its sums before"),
    Case(FACTOR, "reduction_rfactor_not_same_buffer_access", "transposed sums",
         "rfactor c at k in scratch -> parts", theirs="wants the first value in the same block, at the same place"),
    Case(FACTOR, "reduction_rfactor_wrong_reduce_pattern1", "sums from one",
         "rfactor b at k in scratch -> parts", theirs="wants sums to begin with zero"),
    Case(FACTOR, "reduction_rfactor_wrong_reduce_pattern2", "differences",
         "rfactor b at k in scratch -> parts", f"'k' {NO_SUM.format('b')}"),
    Case(FACTOR, "reduction_rfactor_wrong_loops1", "integer row sums",
         "rfactor b at i in scratch -> parts", theirs="wants a loop that is summed over"),
    Case(FACTOR, "reduction_rfactor_wrong_loops2", "integer row sums",
         "split i 4 -> i0 i1\nsplit k 2 -> k0 k1\nfuse i1 k0 -> f\nrfactor b at k1 in scratch -> parts",
         theirs="wants a loop for each axis"),
    Case(FACTOR, "reduction_rfactor_zero_dim", "one sum", "rfactor b at k in scratch -> parts\nparallel k"),
    Case(FACTOR, "reduction_rfactor_outermost_loop_multiple_children", "sums of a sum",
         "split k 4 -> k0 k1\nrfactor c at k0 in scratch -> parts\nparallel k0"),
    Case(FACTOR, "reduction_rfactor_outermost_loop_multiple_children_fail", "sums of a sum",
         "split l 4 -> l0 l1\nrfactor d at l0 in scratch -> parts", theirs="wants what it reads computed elsewhere"),
    Case(FACTOR, "reduction_rfactor_predicate", "integer row sums",
         "split k 4 -> k0 k1\nrfactor b at k0 in scratch -> parts", theirs="knows no predicate there"),
    Case(FACTOR, "reduction_rfactor_spatial_only", "channel sums",
         "fuse p q -> pq\nrfactor b at pq in scratch -> parts"),
    Case(FACTOR, "reduction_rfactor_argmax", "greatest and where",
         "split k 4 -> k0 k1\nrfactor v at k1 in scratch -> parts",
         f"'k1' {NO_SUM.format('v')}", "reduces pairs"),
    Case(FACTOR, "reduction_rfactor_argmax_body_bufferstore_value_not_var", "greatest and where",
         "rfactor m at k in scratch -> parts", f"'k' {NO_SUM.format('m')}"),
    Case(KIND, "bind_cross_thread_reduction: in parts", "integer row sums",
         "rfactor b at k in shared -> parts\nbind k thread.x"),
)  # fmt: skip
