"""The thirty kernels of PolyBench/C 4.2 (Pouchet, Yuki), written anew as functions of the tensor IR.

What a kernel computes, in which order, is PolyBench's; ``n``, ``m``, ``p`` and ``q`` are extents, which are numbers or
stay variables. A matrix that PolyBench updates in place is copied to the output first; where it is divided by, its
diagonal grows. ``alpha`` is 1.5, ``beta`` 1.25, and there are three time steps.
"""

import re

import numpy as np

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.rewriting.simplify import simplify_statement

KERNELS = {
    "correlation": """(x: float32[n, m]) -> (c: float32[m, m]) {
      allocate mean: float32[m] in scratch
      allocate dev: float32[m] in scratch
      allocate z: float32[n, m] in scratch
      serial j < m {
        mean[j] = float32(0.0)
        serial i < n { mean[j] = mean[j] + x[i, j] }
        mean[j] = mean[j] / cast<float32>(n)
      }
      serial j1 < m {
        dev[j1] = float32(0.0)
        serial i1 < n { dev[j1] = dev[j1] + (x[i1, j1] - mean[j1]) * (x[i1, j1] - mean[j1]) }
        dev[j1] = sqrt(dev[j1] / cast<float32>(n))
        dev[j1] = select(dev[j1] <= float32(0.1), float32(1.0), dev[j1])
      }
      serial i2 < n { serial j2 < m {
        z[i2, j2] = x[i2, j2] - mean[j2]
        z[i2, j2] = z[i2, j2] / (sqrt(cast<float32>(n)) * dev[j2])
      } }
      serial a < m {
        c[a, a] = float32(1.0)
        serial b < m - 1 - a {
          c[a, a + 1 + b] = float32(0.0)
          serial k < n { c[a, a + 1 + b] = c[a, a + 1 + b] + z[k, a] * z[k, a + 1 + b] }
          c[a + 1 + b, a] = c[a, a + 1 + b]
        }
      }
    }""",
    "covariance": """(x: float32[n, m]) -> (c: float32[m, m]) {
      allocate mean: float32[m] in scratch
      allocate z: float32[n, m] in scratch
      serial j < m {
        mean[j] = float32(0.0)
        serial i < n { mean[j] = mean[j] + x[i, j] }
        mean[j] = mean[j] / cast<float32>(n)
      }
      serial i2 < n { serial j2 < m { z[i2, j2] = x[i2, j2] - mean[j2] } }
      serial a < m { serial b < m - a {
        let e: int64 = a + b
        c[a, e] = float32(0.0)
        serial k < n { c[a, e] = c[a, e] + z[k, a] * z[k, e] }
        c[a, e] = c[a, e] / (cast<float32>(n) - float32(1.0))
        c[e, a] = c[a, e]
      } }
    }""",
    "gemm": """(a: float32[n, m], b: float32[m, p], d: float32[n, p]) -> (c: float32[n, p]) {
      serial i < n {
        serial j < p { c[i, j] = d[i, j] * float32(1.25) }
        serial k < m { serial l < p { c[i, l] = c[i, l] + float32(1.5) * a[i, k] * b[k, l] } }
      }
    }""",
    "gemver": """(a: float32[n, n], u: float32[n], v: float32[n], r: float32[n], s: float32[n], y: float32[n],
      z: float32[n]) -> (b: float32[n, n], x: float32[n], w: float32[n]) {
      serial i < n { serial j < n { b[i, j] = a[i, j] + u[i] * v[j] + r[i] * s[j] } }
      serial f < n { x[f] = float32(0.0) }
      serial i1 < n { serial j1 < n { x[i1] = x[i1] + float32(1.25) * b[j1, i1] * y[j1] } }
      serial i2 < n { x[i2] = x[i2] + z[i2] }
      serial g < n { w[g] = float32(0.0) }
      serial i3 < n { serial j3 < n { w[i3] = w[i3] + float32(1.5) * b[i3, j3] * x[j3] } }
    }""",
    "gesummv": """(a: float32[n, n], b: float32[n, n], x: float32[n]) -> (y: float32[n]) {
      allocate s: float32[n] in scratch
      serial i < n {
        s[i] = float32(0.0)
        y[i] = float32(0.0)
        serial j < n {
          s[i] = a[i, j] * x[j] + s[i]
          y[i] = b[i, j] * x[j] + y[i]
        }
        y[i] = float32(1.5) * s[i] + float32(1.25) * y[i]
      }
    }""",
    "symm": """(a: float32[m, m], b: float32[m, n], d: float32[m, n]) -> (c: float32[m, n]) {
      serial r < m { serial s < n { c[r, s] = d[r, s] } }
      serial i < m { serial j < n {
        allocate t: float32[] in register
        t[] = float32(0.0)
        serial k < i {
          c[k, j] = c[k, j] + float32(1.5) * b[i, j] * a[i, k]
          t[] = t[] + b[k, j] * a[i, k]
        }
        c[i, j] = float32(1.25) * c[i, j] + float32(1.5) * b[i, j] * a[i, i] + float32(1.5) * t[]
      } }
    }""",
    "syr2k": """(a: float32[n, m], b: float32[n, m], d: float32[n, n]) -> (c: float32[n, n]) {
      serial r < n { serial s < n { c[r, s] = d[r, s] } }
      serial i < n {
        serial j < i + 1 { c[i, j] = c[i, j] * float32(1.25) }
        serial k < m { serial l < i + 1 {
          c[i, l] = c[i, l] + a[l, k] * float32(1.5) * b[i, k] + b[l, k] * float32(1.5) * a[i, k]
        } }
      }
    }""",
    "syrk": """(a: float32[n, m], d: float32[n, n]) -> (c: float32[n, n]) {
      serial r < n { serial s < n { c[r, s] = d[r, s] } }
      serial i < n {
        serial j < i + 1 { c[i, j] = c[i, j] * float32(1.25) }
        serial k < m { serial l < i + 1 { c[i, l] = c[i, l] + float32(1.5) * a[i, k] * a[l, k] } }
      }
    }""",
    "trmm": """(a: float32[m, m], d: float32[m, n]) -> (b: float32[m, n]) {
      serial r < m { serial s < n { b[r, s] = d[r, s] } }
      serial i < m { serial j < n {
        serial k < m - 1 - i { b[i, j] = b[i, j] + a[i + 1 + k, i] * b[i + 1 + k, j] }
        b[i, j] = float32(1.5) * b[i, j]
      } }
    }""",
    "2mm": """(a: float32[n, m], b: float32[m, p], c: float32[p, q], e: float32[n, q]) -> (d: float32[n, q]) {
      allocate t: float32[n, p] in scratch
      serial i0 < n { serial j0 < p { t[i0, j0] = float32(0.0) } }
      serial i < n { serial j < p { serial k < m { t[i, j] = t[i, j] + float32(1.5) * a[i, k] * b[k, j] } } }
      serial i1 < n { serial j1 < q {
        d[i1, j1] = e[i1, j1] * float32(1.25)
        serial k1 < p { d[i1, j1] = d[i1, j1] + t[i1, k1] * c[k1, j1] }
      } }
    }""",
    "3mm": """(a: float32[n, m], b: float32[m, p], c: float32[p, q], d: float32[q, n]) -> (g: float32[n, n]) {
      allocate e: float32[n, p] in scratch
      allocate f: float32[p, n] in scratch
      serial i < n { serial j < p { e[i, j] = float32(0.0) } }
      serial i1 < n { serial j1 < p { serial k1 < m { e[i1, j1] = e[i1, j1] + a[i1, k1] * b[k1, j1] } } }
      serial i2 < p { serial j2 < n {
        f[i2, j2] = float32(0.0)
        serial k2 < q { f[i2, j2] = f[i2, j2] + c[i2, k2] * d[k2, j2] }
      } }
      serial i3 < n { serial j3 < n {
        g[i3, j3] = float32(0.0)
        serial k3 < p { g[i3, j3] = g[i3, j3] + e[i3, k3] * f[k3, j3] }
      } }
    }""",
    "atax": """(a: float32[m, n], x: float32[n]) -> (y: float32[n]) {
      allocate t: float32[m] in scratch
      serial f < n { y[f] = float32(0.0) }
      serial i < m {
        t[i] = float32(0.0)
        serial j < n { t[i] = t[i] + a[i, j] * x[j] }
        serial k < n { y[k] = y[k] + a[i, k] * t[i] }
      }
    }""",
    "bicg": """(a: float32[n, m], p0: float32[m], r: float32[n]) -> (s: float32[m], u: float32[n]) {
      serial f < m { s[f] = float32(0.0) }
      serial i < n {
        u[i] = float32(0.0)
        serial j < m {
          s[j] = s[j] + r[i] * a[i, j]
          u[i] = u[i] + a[i, j] * p0[j]
        }
      }
    }""",
    "doitgen": """(x: float32[n, m, p], w: float32[p, p]) -> (a: float32[n, m, p]) {
      allocate s: float32[p] in scratch
      serial r < n { serial e < m { serial f < p { a[r, e, f] = x[r, e, f] } } }
      serial i < n { serial j < m {
        serial k < p {
          s[k] = float32(0.0)
          serial l < p { s[k] = s[k] + a[i, j, l] * w[l, k] }
        }
        serial k1 < p { a[i, j, k1] = s[k1] }
      } }
    }""",
    "mvt": """(a: float32[n, n], x0: float32[n], y0: float32[n], u: float32[n], v: float32[n])
      -> (x: float32[n], y: float32[n]) {
      serial f < n {
        x[f] = x0[f]
        y[f] = y0[f]
      }
      serial i < n { serial j < n { x[i] = x[i] + a[i, j] * u[j] } }
      serial i1 < n { serial j1 < n { y[i1] = y[i1] + a[j1, i1] * v[j1] } }
    }""",
    "cholesky": """(x: float32[n, n]) -> (a: float32[n, n]) {
      serial r < n { serial s < n { a[r, s] = select(r == s, x[r, s] + float32(9.0), x[r, s]) } }
      serial i < n {
        serial j < i {
          serial k < j { a[i, j] = a[i, j] - a[i, k] * a[j, k] }
          a[i, j] = a[i, j] / a[j, j]
        }
        serial l < i { a[i, i] = a[i, i] - a[i, l] * a[i, l] }
        a[i, i] = sqrt(a[i, i])
      }
    }""",
    "durbin": """(r: float32[n]) -> (y: float32[n]) {
      allocate z: float32[n] in scratch
      allocate alpha: float32[] in register
      allocate beta: float32[] in register
      allocate sum: float32[] in register
      if n > 0 { y[0] = neg(r[0]) }
      beta[] = float32(1.0)
      if n > 0 { alpha[] = neg(r[0]) }
      serial k0 < n - 1 {
        let k: int64 = k0 + 1
        beta[] = (float32(1.0) - alpha[] * alpha[]) * beta[]
        sum[] = float32(0.0)
        serial i < k { sum[] = sum[] + r[k - i - 1] * y[i] }
        alpha[] = neg(r[k] + sum[]) / beta[]
        serial i1 < k { z[i1] = y[i1] + alpha[] * y[k - i1 - 1] }
        serial i2 < k { y[i2] = z[i2] }
        y[k] = alpha[]
      }
    }""",
    "gramschmidt": """(x: float32[m, n]) -> (q0: float32[m, n], r: float32[n, n]) {
      allocate a: float32[m, n] in scratch
      serial e < m { serial f < n { a[e, f] = x[e, f] } }
      serial g < n { serial h < n { r[g, h] = float32(0.0) } }
      serial k < n {
        allocate nrm: float32[] in register
        nrm[] = float32(0.0)
        serial i < m { nrm[] = nrm[] + a[i, k] * a[i, k] }
        r[k, k] = sqrt(nrm[])
        serial i1 < m { q0[i1, k] = a[i1, k] / r[k, k] }
        serial j < n - 1 - k {
          r[k, k + 1 + j] = float32(0.0)
          serial i2 < m { r[k, k + 1 + j] = r[k, k + 1 + j] + q0[i2, k] * a[i2, k + 1 + j] }
          serial i3 < m { a[i3, k + 1 + j] = a[i3, k + 1 + j] - q0[i3, k] * r[k, k + 1 + j] }
        }
      }
    }""",
    "lu": """(x: float32[n, n]) -> (a: float32[n, n]) {
      serial r < n { serial s < n { a[r, s] = select(r == s, x[r, s] + float32(9.0), x[r, s]) } }
      serial i < n {
        serial j < i {
          serial k < j { a[i, j] = a[i, j] - a[i, k] * a[k, j] }
          a[i, j] = a[i, j] / a[j, j]
        }
        serial j1 < n - i { serial k1 < i { a[i, i + j1] = a[i, i + j1] - a[i, k1] * a[k1, i + j1] } }
      }
    }""",
    "ludcmp": """(z: float32[n, n], b: float32[n]) -> (x: float32[n], a: float32[n, n]) {
      allocate y: float32[n] in scratch
      allocate w: float32[] in register
      serial r < n { serial s < n { a[r, s] = select(r == s, z[r, s] + float32(9.0), z[r, s]) } }
      serial i < n {
        serial j < i {
          w[] = a[i, j]
          serial k < j { w[] = w[] - a[i, k] * a[k, j] }
          a[i, j] = w[] / a[j, j]
        }
        serial j1 < n - i {
          w[] = a[i, i + j1]
          serial k1 < i { w[] = w[] - a[i, k1] * a[k1, i + j1] }
          a[i, i + j1] = w[]
        }
      }
      serial i2 < n {
        w[] = b[i2]
        serial j2 < i2 { w[] = w[] - a[i2, j2] * y[j2] }
        y[i2] = w[]
      }
      serial i3 < n {
        let e: int64 = n - 1 - i3
        w[] = y[e]
        serial j3 < n - 1 - e { w[] = w[] - a[e, e + 1 + j3] * x[e + 1 + j3] }
        x[e] = w[] / a[e, e]
      }
    }""",
    "trisolv": """(l: float32[n, n], b: float32[n]) -> (x: float32[n]) {
      serial i < n {
        x[i] = b[i]
        serial j < i { x[i] = x[i] - l[i, j] * x[j] }
        x[i] = x[i] / l[i, i]
      }
    }""",
    "deriche": """(x: float32[n, m]) -> (o: float32[n, m]) {
      allocate u: float32[n, m] in scratch
      allocate v: float32[n, m] in scratch
      allocate x1: float32[] in register
      allocate y1: float32[] in register
      allocate y2: float32[] in register
      serial i < n {
        y1[] = float32(0.0)
        y2[] = float32(0.0)
        x1[] = float32(0.0)
        serial j < m {
          u[i, j] = float32(0.5) * x[i, j] + float32(0.25) * x1[] + float32(0.375) * y1[] + float32(0.125) * y2[]
          x1[] = x[i, j]
          y2[] = y1[]
          y1[] = u[i, j]
        }
      }
      serial i1 < n {
        y1[] = float32(0.0)
        y2[] = float32(0.0)
        x1[] = float32(0.0)
        serial j1 < m {
          let e: int64 = m - 1 - j1
          v[i1, e] = float32(0.5) * x1[] + float32(0.375) * y1[] + float32(0.125) * y2[]
          x1[] = x[i1, e]
          y2[] = y1[]
          y1[] = v[i1, e]
        }
      }
      serial i2 < n { serial j2 < m { o[i2, j2] = float32(0.75) * (u[i2, j2] + v[i2, j2]) } }
      serial j3 < m {
        x1[] = float32(0.0)
        y1[] = float32(0.0)
        serial i3 < n {
          u[i3, j3] = float32(0.5) * o[i3, j3] + float32(0.25) * x1[] + float32(0.375) * y1[]
          x1[] = o[i3, j3]
          y1[] = u[i3, j3]
        }
      }
      serial i4 < n { serial j4 < m { o[i4, j4] = u[i4, j4] * float32(0.75) } }
    }""",
    "floyd_warshall": """(w: int32[n, n]) -> (d: int32[n, n]) {
      serial r < n { serial s < n { d[r, s] = w[r, s] } }
      serial k < n { serial i < n { serial j < n { d[i, j] = min(d[i, j], d[i, k] + d[k, j]) } } }
    }""",
    "nussinov": """(s: int32[n]) -> (t: int32[n, n]) {
      serial e < n { serial f < n { t[e, f] = int32(0) } }
      serial i0 < n {
        let i: int64 = n - 1 - i0
        serial j0 < i0 {
          let j: int64 = i + 1 + j0
          t[i, j] = max(t[i, j], t[i, j - 1])
          t[i, j] = max(t[i, j], t[i + 1, j])
          if i < j - 1 {
            t[i, j] = max(t[i, j], t[i + 1, j - 1] + select(s[i] + s[j] == int32(3), int32(1), int32(0)))
          } else { t[i, j] = max(t[i, j], t[i + 1, j - 1]) }
          serial k < j - i - 1 { t[i, j] = max(t[i, j], t[i, i + 1 + k] + t[i + 2 + k, j]) }
        }
      }
    }""",
    "adi": """(x: float32[n, n]) -> (u: float32[n, n]) {
      allocate v: float32[n, n] in scratch
      allocate p0: float32[n, n] in scratch
      allocate q0: float32[n, n] in scratch
      serial r < n { serial s < n { u[r, s] = x[r, s] } }
      serial t < 3 {
        serial i < n - 2 {
          v[0, i + 1] = float32(1.0)
          p0[i + 1, 0] = float32(0.0)
          q0[i + 1, 0] = v[0, i + 1]
          serial j < n - 2 {
            p0[i + 1, j + 1] = float32(0.5) / (float32(0.25) * p0[i + 1, j] + float32(2.0))
            q0[i + 1, j + 1] = (u[j + 1, i] + u[j + 1, i + 1] * float32(3.0) - float32(0.5) * q0[i + 1, j])
              / (float32(0.25) * p0[i + 1, j] + float32(2.0))
          }
          v[n - 1, i + 1] = float32(1.0)
          serial j1 < n - 2 {
            v[n - 2 - j1, i + 1] = p0[i + 1, n - 2 - j1] * v[n - 1 - j1, i + 1] + q0[i + 1, n - 2 - j1]
          }
        }
        serial i2 < n - 2 {
          u[i2 + 1, 0] = float32(1.0)
          p0[i2 + 1, 0] = float32(0.0)
          q0[i2 + 1, 0] = u[i2 + 1, 0]
          serial j2 < n - 2 {
            p0[i2 + 1, j2 + 1] = float32(0.5) / (float32(0.25) * p0[i2 + 1, j2] + float32(2.0))
            q0[i2 + 1, j2 + 1] = v[i2, j2 + 1] + v[i2 + 1, j2 + 1] * float32(3.0) - float32(0.5) * q0[i2 + 1, j2]
          }
          u[i2 + 1, n - 1] = float32(1.0)
          serial j3 < n - 2 {
            u[i2 + 1, n - 2 - j3] = p0[i2 + 1, n - 2 - j3] * u[i2 + 1, n - 1 - j3] + q0[i2 + 1, n - 2 - j3]
          }
        }
      }
    }""",
    "fdtd_2d": """(x: float32[n, m], y: float32[n, m], h: float32[n, m], s: float32[3])
      -> (ex: float32[n, m], ey: float32[n, m], hz: float32[n, m]) {
      serial a < n { serial b < m {
        ex[a, b] = x[a, b]
        ey[a, b] = y[a, b]
        hz[a, b] = h[a, b]
      } }
      serial t < 3 {
        if n > 0 { serial j < m { ey[0, j] = s[t] } }
        serial i1 < n - 1 { serial j1 < m {
          ey[i1 + 1, j1] = ey[i1 + 1, j1] - float32(0.5) * (hz[i1 + 1, j1] - hz[i1, j1])
        } }
        serial i2 < n { serial j2 < m - 1 {
          ex[i2, j2 + 1] = ex[i2, j2 + 1] - float32(0.5) * (hz[i2, j2 + 1] - hz[i2, j2])
        } }
        serial i3 < n - 1 { serial j3 < m - 1 {
          hz[i3, j3] = hz[i3, j3] - float32(0.75) * (ex[i3, j3 + 1] - ex[i3, j3] + ey[i3 + 1, j3] - ey[i3, j3])
        } }
      }
    }""",
    "heat_3d": """(x: float32[n, n, n]) -> (a: float32[n, n, n]) {
      allocate b: float32[n, n, n] in scratch
      serial e < n { serial f < n { serial g < n {
        a[e, f, g] = x[e, f, g]
        b[e, f, g] = x[e, f, g]
      } } }
      serial t < 2 {
        serial i < n - 2 { serial j < n - 2 { serial k < n - 2 {
          b[i + 1, j + 1, k + 1] = float32(0.125) * (a[i + 2, j + 1, k + 1] + a[i, j + 1, k + 1])
            + float32(0.125) * (a[i + 1, j + 2, k + 1] + a[i + 1, j, k + 1])
            + float32(0.125) * (a[i + 1, j + 1, k + 2] + a[i + 1, j + 1, k]) + float32(0.25) * a[i + 1, j + 1, k + 1]
        } } }
        serial i1 < n - 2 { serial j1 < n - 2 { serial k1 < n - 2 {
          a[i1 + 1, j1 + 1, k1 + 1] = float32(0.125) * (b[i1 + 2, j1 + 1, k1 + 1] + b[i1, j1 + 1, k1 + 1])
            + float32(0.125) * (b[i1 + 1, j1 + 2, k1 + 1] + b[i1 + 1, j1, k1 + 1])
            + float32(0.125) * (b[i1 + 1, j1 + 1, k1 + 2] + b[i1 + 1, j1 + 1, k1])
            + float32(0.25) * b[i1 + 1, j1 + 1, k1 + 1]
        } } }
      }
    }""",
    "jacobi_1d": """(x: float32[n]) -> (a: float32[n]) {
      allocate b: float32[n] in scratch
      serial e < n {
        a[e] = x[e]
        b[e] = x[e]
      }
      serial t < 3 {
        serial i < n - 2 { b[i + 1] = float32(0.375) * (a[i] + a[i + 1] + a[i + 2]) }
        serial j < n - 2 { a[j + 1] = float32(0.375) * (b[j] + b[j + 1] + b[j + 2]) }
      }
    }""",
    "jacobi_2d": """(x: float32[n, m]) -> (a: float32[n, m]) {
      allocate b: float32[n, m] in scratch
      serial e < n { serial f < m {
        a[e, f] = x[e, f]
        b[e, f] = x[e, f]
      } }
      serial t < 3 {
        serial i < n - 2 { serial j < m - 2 {
          b[i + 1, j + 1] = float32(0.2) * (a[i + 1, j + 1] + a[i + 1, j] + a[i + 1, j + 2] + a[i + 2, j + 1]
            + a[i, j + 1])
        } }
        serial i1 < n - 2 { serial j1 < m - 2 {
          a[i1 + 1, j1 + 1] = float32(0.2) * (b[i1 + 1, j1 + 1] + b[i1 + 1, j1] + b[i1 + 1, j1 + 2] + b[i1 + 2, j1 + 1]
            + b[i1, j1 + 1])
        } }
      }
    }""",
    "seidel_2d": """(x: float32[n, n]) -> (a: float32[n, n]) {
      serial e < n { serial f < n { a[e, f] = x[e, f] } }
      serial t < 3 { serial i < n - 2 { serial j < n - 2 {
        a[i + 1, j + 1] = (a[i, j] + a[i, j + 1] + a[i, j + 2] + a[i + 1, j] + a[i + 1, j + 1] + a[i + 1, j + 2]
          + a[i + 2, j] + a[i + 2, j + 1] + a[i + 2, j + 2]) / float32(9.0)
      } } }
    }""",
}  # fmt: skip

INTEGERS = ("gemm", "syrk", "2mm", "atax", "mvt", "bicg", "doitgen", "trmm")
"""Kernels that are tried with integers, too, whose sums may change their order."""


def kernel(name: str, extents: dict[str, int], dtype: str = "float32") -> ir.Function:
    """Return a kernel; extents that are not given stay variables."""
    text = re.sub(r"\b[nmpq]\b", lambda found: str(extents.get(found[0], found[0])), KERNELS[name])
    if dtype != "float32":
        text = re.sub(r"float32\((\d+)\.\d+\)", rf"{dtype}(\1)", text).replace("float32", dtype)
    function = parse_function(f"function f{text}")
    body = simplify_statement(function.body)
    return ir.Function(function.name, function.parameters, function.outputs, body)


def shapes(buffers: tuple[ir.Buffer, ...], extents: dict[str, int]) -> list[tuple[int, ...]]:
    """Return the shapes of parameters, whose extents are numbers or variables."""
    return [
        tuple(extents[one.name] if isinstance(one, ir.Variable) else int(one.value) for one in buffer.shape)
        for buffer in buffers
    ]


def inputs(function: ir.Function, extents: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    """Return arrays to run a kernel on: sums of them in another order have other bits."""
    random = np.random.default_rng(seed)
    return [
        random.integers(-3, 4, shape).astype(buffer.dtype)
        if buffer.dtype.startswith("int")
        else (random.random(shape) + 0.25).astype(buffer.dtype)
        for buffer, shape in zip(function.input_buffers, shapes(function.input_buffers, extents), strict=True)
    ]
