"""Bugs to plant into the good backend, each as the text that replaces a kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """A bug: the group of cases that finds it, the kernels that have it, and what the message or the case must say.

    ``said`` is a regular expression of the line ``CASE: TEXT`` of the first case that fails.
    """

    group: str
    source: str
    said: str


def _body(name: str, arguments: str, *lines: str) -> str:
    return "\n".join(["", "@kernel", f"def {name}(node, {arguments}):", *(f"    {line}" for line in lines)])


WRONG = r"output '\w+': "
WIDER = """
from graft.plugins.supports import rules_of
narrow = Npu.single
@graft.supports(*OPERATORS)
def single(self, node):
    return True if node.op_type in ("Add", "Transpose") else narrow(self, node)
Npu.single = single
Npu.rules = rules_of(Npu)
"""
"""Takes sums and movements of any type."""
POOL = "how = geometry(node, node.attribute('kernel_shape'))"
BUGS: dict[str, Bug] = {
    # ---- the process
    "NumPy's error state left otherwise": Bug(
        "1/Relu", _body("relu", "a", "np.seterr(under='raise')", "return np.maximum(a, 0)"),
        "changes settings of the process: numpy_errors",
    ),
    "the working directory left": Bug(
        "1/Relu", _body("relu", "a", "import os", "os.chdir('/')", "return np.maximum(a, 0)"),
        "changes settings of the process: directory",
    ),
    "random numbers of all begun anew": Bug(
        "1/Relu", _body("relu", "a", "np.random.seed(7)", "return np.maximum(a, 0)"),
        "changes settings of the process: random_numbers",
    ),
    "rounding toward infinity left": Bug(
        "1/Relu",
        _body("relu", "a", "ctypes.CDLL('libm.so.6').fesetround(UPWARD)", "return np.maximum(a, 0)")
        + "\nUPWARD = 0x400000 if __import__('platform').machine() == 'aarch64' else 0x800",
        "changes settings of the process: floats",
    ),
    "bits of new files left otherwise": Bug(
        "1/Relu", _body("relu", "a", "import os", "os.umask(0o77)", "return np.maximum(a, 0)"),
        "changes settings of the process: file_mode",
    ),
    # ---- windows
    "pads of the beginning and the end swapped": Bug(
        "1/MaxPool",
        _body("max_pool", "x", POOL, "k, s, p, d = how",
              "return patches(x, k, s, [*p[2:], *p[:2]], d, -np.inf).max((4, 5)).astype(np.float32)"),
        rf"hard-.*pads=.*{WRONG}",
    ),
    "pads of rows and columns swapped": Bug(
        "1/MaxPool",
        _body("max_pool", "x", POOL, "k, s, (a, b, c, d), e = how",
              "return patches(x, k, s, [b, a, d, c], e, -np.inf).max((4, 5)).astype(np.float32)"),
        r"pads=.*(output '|fails when it runs)",
    ),
    "strides of rows and columns swapped": Bug(
        "1/MaxPool",
        _body("max_pool", "x", POOL, "k, s, p, d = how",
              "return patches(x, k, s[::-1], p, d, -np.inf).max((4, 5)).astype(np.float32)"),
        r"strides=.*(fails when it runs|output ')",
    ),
    "dilations of one axis for both": Bug(
        "1/MaxPool",
        _body("max_pool", "x", POOL, "k, s, p, d = how",
              "return patches(x, k, s, p, [d[0]] * 2, -np.inf).max((4, 5)).astype(np.float32)"),
        r"dilations=.*(fails when it runs|output ')",
    ),
    "border of zeros under a maximum": Bug(
        "1/MaxPool", _body("max_pool", "x", POOL, "return patches(x, *how, 0).max((4, 5)).astype(np.float32)"),
        WRONG,
    ),
    "border counted in the mean": Bug(
        "1/AveragePool",
        _body("average_pool", "x", POOL, "return patches(x, *how, 0).mean((4, 5)).astype(np.float32)"),
        WRONG,
    ),
    "border never counted in the mean": Bug(
        "1/AveragePool",
        _body("average_pool", "x", POOL, "n = patches(np.ones_like(x), *how, 0).sum((4, 5))",
              "return (patches(x, *how, 0).sum((4, 5)) / n).astype(np.float32)"),
        rf"count_include_pad.*{WRONG}",
    ),
    "channels beyond 256 left out": Bug(
        "1/Conv",
        "\nwhole_conv = KERNELS['Conv']"
        + _body("conv", "x, w, bias=None",
                "few = x.shape[1] > 256 and node.attribute('group', 1) == 1",
                "x, w = (x[:, :256], w[:, :256]) if few else (x, w)",
                "return whole_conv(node, x, w, *([] if bias is None else [bias]))"),
        rf"257.*{WRONG}",
    ),
    "bias left out of groups": Bug(
        "1/Conv",
        "\nwhole_conv = KERNELS['Conv']"
        + _body("conv", "x, w, bias=None",
                "grouped = node.attribute('group', 1) > 1",
                "return whole_conv(node, x, w, *([] if bias is None or grouped else [bias]))"),
        rf"group=2.*{WRONG}",
    ),
    "groups in the wrong order": Bug(
        "1/Conv",
        "\nwhole_conv = KERNELS['Conv']"
        + _body("conv", "x, w, bias=None",
                "g = node.attribute('group', 1)",
                "x = np.concatenate(np.split(x, g, 1)[::-1], 1) if g == 2 else x",
                "return whole_conv(node, x, w, *([] if bias is None else [bias]))"),
        rf"group=2.*{WRONG}",
    ),
    # ---- broadcasts and elementwise
    "broadcast aligned left": Bug(
        "1/Add",
        _body("add", "a, b",
              "if a.ndim == 2 and b.ndim == 1 and a.shape[0] == b.shape[0]: return a + b[:, None]", "return a + b"),
        rf"shapes-3x3-3: {WRONG}",
    ),
    "column taken for a row": Bug(
        "1/Add",
        _body("add", "a, b",
              "if a.ndim == b.ndim == 2 and b.shape[1] == 1 and a.shape[1] == b.shape[0]: return a + b.T",
              "return a + b"),
        rf"shapes-3x3-3x1: {WRONG}",
    ),
    "tail beyond 4,096 elements": Bug(
        "1/Add",
        _body("add", "a, b", "y = a + b", "if y.size > 4096: y = y.reshape(-1); y[len(y) - len(y) % 8:] = 0",
              "return y.reshape(np.broadcast_shapes(a.shape, b.shape))"),
        rf"shape-4099: {WRONG}",
    ),
    "elements beyond 65,536": Bug(
        "1/Relu",
        _body("relu", "a", "y = np.maximum(a, 0)", "y.reshape(-1)[65536:] = 0", "return y"), rf"shape-99991: {WRONG}",
    ),
    "empty operands raise": Bug(
        "1/Relu", _body("relu", "a", "a.reshape(-1)[0]", "return np.maximum(a, 0)"),
        r"shape-0x3: fails when it runs: .*IndexError",
    ),
    "axes of one element left out": Bug(
        "1/Relu", _body("relu", "a", "return np.squeeze(np.maximum(a, 0))"),
        r"shape-1: fails when it runs: .*must be float32\[1\], the function returned float32\[\]",
    ),
    "subnormal numbers flushed to zero": Bug(
        "1/Add", _body("add", "a, b", "y = np.asarray(a + b)",
                       "return np.where(np.abs(y) < 1.17e-38, 0, y).astype(y.dtype)"),
        rf"subnormal: {WRONG}",
    ),
    "NaN becomes zero": Bug(
        "1/Relu", _body("relu", "a", "return np.fmax(a, np.float32(0))"), rf"special: {WRONG}0.0 instead of nan",
    ),
    "infinities clipped": Bug(
        "1/Add", _body("add", "a, b", "y = a + b",
                       "return np.clip(y, -3e38, 3e38).astype(y.dtype) if y.dtype.kind == 'f' else y"),
        rf"special: {WRONG}",
    ),
    "default of an attribute forgotten": Bug(
        "1/LeakyRelu",
        _body("leaky_relu", "a", "return np.where(a < 0, np.float32(node.attribute('alpha') if node.attribute('alpha') "
              "!= np.float32(0.01) else 0.1) * a, a).astype(np.float32)"),
        rf"default.*{WRONG}",
    ),
    "integers computed as floats": Bug(
        "1/Concat", _body("concat", "*parts", "y = np.concatenate(parts, node.attribute('axis'))",
                          "return (y.astype(np.float32) + np.float32(0.25)).astype(y.dtype)"),
        WRONG,
    ),
    # ---- operands
    "one operand, given twice, taken once": Bug(
        "1/Add", _body("add", "a, b", "same = a.ctypes.data == b.ctypes.data and a.size > 1",
                       "return a.copy() if same else a + b"),
        rf"add-x-for-y: {WRONG}",
    ),
    "a square of one operand doubled": Bug(
        "1/MatMul", _body("matmul", "a, b", "same = a.ctypes.data == b.ctypes.data and a.size > 1",
                          "return np.matmul(a, 2 * b if same else b)"),
        rf"hard-3x3-3x3-x0-for-x1: {WRONG}",
    ),
    "a constant on the left taken for one on the right": Bug(
        "1/MatMul",
        "\ndef load(self, graph, constants):\n    held = {one.ctypes.data for one in constants.values()}\n"
        "    def swapped(node, arrays):\n"
        "        left = arrays[0].ctypes.data in held and arrays[0].shape == arrays[1].shape\n"
        "        return self.kernel(node, arrays[::-1] if left else arrays)\n"
        "    return lambda inputs: graph.run(inputs, constants, swapped)\nNpu.load = load",
        rf"constant-x0: {WRONG}",
    ),
    "sign of zero lost in a movement": Bug(
        "1/Transpose", _body("transpose", "x", "return np.transpose(x, node.attribute('perm')) + np.float32(0)"),
        rf"special: {WRONG}0.0 instead of -0.0",
    ),
    "whole numbers through double precision": Bug(
        "1/Gather", _body("gather", "x, indices",
                          "return np.take(x.astype(np.float64), indices, node.attribute('axis', 0)).astype(x.dtype)"),
        rf"int64: {WRONG}",
    ),
    "double precision claimed and computed in single": Bug(
        "1/Add", WIDER + _body("add", "a, b", "y = a.astype(np.float32) + b.astype(np.float32)",
                               "return y.astype(a.dtype) if a.dtype == np.float64 else a + b"),
        rf"float64: {WRONG}",
    ),
    "bytes claimed and lost": Bug(
        "1/Transpose", WIDER + _body("transpose", "x", "y = np.transpose(x, node.attribute('perm'))",
                                     "return y * y.dtype.type(0) if y.dtype.itemsize == 1 else y"),
        rf"int8: {WRONG}",
    ),
    # ---- sizes
    "a batch of none raises": Bug(
        "1/Conv", "\nwhole_conv = KERNELS['Conv']"
        + _body("conv", "x, w, bias=None", "x[0]", "return whole_conv(node, x, w, *([] if bias is None else [bias]))"),
        "hard-0x3.*IndexError",
    ),
    "one axis taken for none": Bug(
        "1/Softmax", "\nwhole_softmax = KERNELS['Softmax']"
        + _body("softmax", "x", "return x if x.ndim == 1 else whole_softmax(node, x)"),
        rf"hard-7-axis=0: {WRONG}",
    ),
    "axes beyond four left as they are": Bug(
        "1/Transpose", "\nwhole_transpose = KERNELS['Transpose']"
        + _body("transpose", "x", "y = whole_transpose(node, x)", "return x.reshape(y.shape) if x.ndim > 4 else y"),
        rf"hard-2x3x1x5x2.*{WRONG}",
    ),
    "the size of the first call for all": Bug(
        "1/MaxPool",
        "\nNpu.shapes = 'symbolic'\ndef load(self, graph, constants):\n    sizes = {}\n    def sized(node, arrays):\n"
        "        first = sizes.setdefault(id(node), arrays[0].shape)\n"
        "        return [self.kernel(node, arrays)[0] * np.float32(first == arrays[0].shape)]\n"
        "    return lambda inputs: graph.run(inputs, constants, sized)\nNpu.load = load",
        "symbolic: a call in another size is wrong: ",
    ),
    # ---- products
    "no terms, and nothing written": Bug(
        "1/MatMul", _body("matmul", "a, b", "return np.full(np.matmul(a, b).shape, 7, np.float32) if a.shape[-1] == 0 "
                          "else np.matmul(a, b)"),
        rf"hard-3x0-0x2: {WRONG}7.0 instead of 0.0",
    ),
    "terms beyond 256 left out": Bug(
        "1/MatMul", _body("matmul", "a, b", "return np.matmul(a[..., :256], b[..., :256, :]) if b.ndim > 1 else a @ b"),
        rf"hard-3x257-257x2: {WRONG}",
    ),
    "wrong from 256 terms on": Bug(
        "1/MatMul", _body("matmul", "a, b", "y = np.matmul(a, b)", "return y * np.float32(2) if a.shape[-1] >= 256 "
                          "else y"),
        rf"hard-2x256-256x3: {WRONG}",
    ),
    "square operand transposed": Bug(
        "1/MatMul", _body("matmul", "a, b", "return np.matmul(a, b.T) if b.ndim == 2 and b.shape[0] == b.shape[1] "
                          "else np.matmul(a, b)"),
        rf"{WRONG}",
    ),
    "vector on the left taken for a column": Bug(
        "1/MatMul", _body("matmul", "a, b", "return np.matmul(b, a) if a.ndim == 1 and b.ndim == 2 "
                          "and b.shape[0] == b.shape[1] else np.matmul(a, b)"),
        rf"hard-3-3x3: {WRONG}",
    ),
    "first matrix of a batch for all": Bug(
        "1/MatMul", _body("matmul", "a, b", "y = np.matmul(a, b)",
                          "if a.ndim == 3 and b.ndim == 2: y = np.broadcast_to(y[:1], y.shape).copy()", "return y"),
        rf"hard-2x3x3-3x3: {WRONG}",
    ),
    "sums in half precision": Bug(
        "1/MatMul", _body("matmul", "a, b", "return np.matmul(a.astype(np.float16), b.astype(np.float16))"
                          ".astype(np.float32)"),
        WRONG,
    ),
    "NaN skipped in sums": Bug(
        "1/MatMul", _body("matmul", "a, b", "return np.matmul(np.where(np.isnan(a), 0, a).astype(np.float32), b)"),
        rf"-nan: {WRONG}",
    ),
    # ---- reductions
    "last axis taken for the first": Bug(
        "1/ReduceSum", _body("reduce_sum", "x, axes=None",
                             "axes = None if axes is None else [0 if one == -1 and x.shape[0] == x.shape[-1] else one "
                             "for one in axes]",
                             "if node.attribute('noop_with_empty_axes', 0) and not axes: return x",
                             "return x.sum(axes_of(node, x, axes), keepdims=bool(node.attribute('keepdims', 1)))"),
        r"hard-3x3--1.*must be float32\[3,1\], the function returned float32\[1,3\]",
    ),
    "a maximum begins with zero": Bug(
        "1/ReduceMax",
        _body("reduce_max", "x, axes=None",
              "if node.attribute('noop_with_empty_axes', 0) and (axes is None or not len(axes)): return x",
              "return x.max(axes_of(node, x, axes), keepdims=bool(node.attribute('keepdims', 1)), initial=0)"),
        rf"{WRONG}0.0 instead of -",
    ),
    "NaN lost under a maximum": Bug(
        "1/ReduceMax",
        _body("reduce_max", "x, axes=None",
              "if node.attribute('noop_with_empty_axes', 0) and (axes is None or not len(axes)): return x",
              "return np.fmax.reduce(x, axes_of(node, x, axes), keepdims=bool(node.attribute('keepdims', 1)), "
              "initial=-np.inf)"),
        rf"-nan: {WRONG}",
    ),
    "axis ignored": Bug(
        "1/Softmax", _body("softmax", "x", "y = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))",
                           "return (y / y.sum(-1, keepdims=True)).astype(np.float32)"),
        rf"axis.*{WRONG}",
    ),
    "large numbers overflow": Bug(
        "1/Softmax", _body("softmax", "x", "a = node.attribute('axis', -1)", "y = np.exp(x)",
                           "return (y / y.sum(a, keepdims=True)).astype(np.float32)"),
        rf"large_number.*{WRONG}nan instead of",
    ),
    "exclusive ignored backwards": Bug(
        "1/CumSum", _body("cum_sum", "x, axis", "axis, back = int(axis), bool(node.attribute('reverse', 0))",
                          "x = np.flip(x, axis) if back else x", "y = np.cumsum(x, axis, dtype=x.dtype)",
                          "y = y - x if node.attribute('exclusive', 0) and not back else y",
                          "return np.flip(y, axis) if back else y"),
        rf"exclusive.*{WRONG}",
    ),
    "first of equal numbers where the last is asked for": Bug(
        "1/ArgMax", _body("arg_max", "x", "axis = node.attribute('axis', 0)", "y = x.argmax(axis)",
                          "return np.expand_dims(y, axis) if node.attribute('keepdims', 1) else y"),
        rf"select_last_index.*{WRONG}",
    ),
    # ---- movements
    "inverse permutation": Bug(
        "1/Transpose", _body("transpose", "x", "p = node.attribute('perm')",
                             "return np.transpose(x, None if p is None else np.argsort(p))"),
        r"(output '|fails when it runs)",
    ),
    "operands in the opposite order": Bug(
        "1/Concat", _body("concat", "*parts", "return np.concatenate(parts[::-1], node.attribute('axis'))"), WRONG,
    ),
    "negative steps cut short": Bug(
        "1/Slice", "\ndef cut(x, start, end, axis, step):\n    return np.take(x, range(*__import__('builtins').slice("
        "start, max(end, 0) if step < 0 else end, step).indices(x.shape[axis])), axis)",
        r"(output '|fails when it runs)",
    ),
    "negative indices clipped": Bug(
        "1/Gather",
        _body("gather", "x, indices", "return np.take(x, np.maximum(indices, 0), node.attribute('axis', 0))"),
        WRONG,
    ),
    "edges repeated as zeros": Bug(
        "1/Pad", "\nwhole_pad = KERNELS['Pad']"
        + _body("pad", "x, pads, value=0", "y = whole_pad(node, x, pads, value)",
                "if node.attribute('mode') != 'edge': return y",
                "inside = np.pad(np.ones_like(x), [(int(a), int(b)) for a, b in zip(pads[:x.ndim], pads[x.ndim:])])",
                "return np.where(inside, y, 0).astype(x.dtype)"),
        rf"edge.*{WRONG}",
    ),
    # ---- state from call to call
    "a memo keyed by shapes": Bug(
        "1/Relu", "\nMEMO = {}" + _body("relu", "a", "return MEMO.setdefault((id(node), a.shape), np.maximum(a, 0))"),
        "a call with other numbers of the same shapes is wrong: ",
    ),
    "noise from run to run": Bug(
        "1/Relu", _body("relu", "a", "return np.maximum(a, 0) * np.float32(1 + np.random.uniform(-1, 1) * 1e-5)"),
        "two calls with the same inputs differ: ",
    ),
    "wrong from the third call on": Bug(
        "1/Relu", "\nCALLS = {}" + _body("relu", "a", "CALLS[id(node)] = CALLS.get(id(node), 0) + 1",
                                         "return np.maximum(a, 0) + np.float32(CALLS[id(node)] > 3)"),
        "(with other numbers|same inputs)",
    ),
    "sleeps": Bug(
        "1/Relu", _body("relu", "a", "time.sleep(0.4)", "return np.maximum(a, 0)"),
        "slow: a call takes 4.. ms, where the reference takes",
    ),
    "a scratch buffer that threads share": Bug(
        "5/threads", "\nSCRATCH = {}"
        + _body("add", "a, b", "s = SCRATCH.setdefault((a + b).shape, np.array(a + b))", "s[...] = a", "time.sleep(0)",
                "s += np.random.default_rng().random() * 0", "s += b", "time.sleep(1e-4)", "return s.copy()")
        + _body("relu", "a", "s = SCRATCH.setdefault(a.shape, np.array(a))", "s[...] = 0", "time.sleep(1e-4)",
                "np.maximum(s, a, out=s)", "return s.copy()"),
        "calls from 8 threads are wrong: ",
    ),
    "memory that is never given back": Bug(
        "5/memory-of-calls", "\nKEPT = []\ninner = Npu.kernel\ndef leaky(self, node, arrays):\n"
        "    KEPT.append(bytearray(100_000))\n    return inner(self, node, arrays)\nNpu.kernel = leaky",
        "the process grows by .* MiB in 3000 calls",
    ),
    "files that stay open": Bug(
        "5/memory-of-loads",
        "\nimport os\nOPEN = []\ndef load(self, graph, constants):\n    OPEN.append(os.open('/dev/null', 0))\n"
        "    return lambda inputs: graph.run(inputs, constants, self.kernel)\nNpu.load = load",
        "the process grows by .* open files in 80 loads",
    ),
    "what compiling leaves needed in calls": Bug(
        "4/without-compiler",
        "\nTABLES = []\ndef compile(self, region, options):\n    TABLES.append(1)\n"
        "    return graft.JsonBackend.compile(self, region, options)\nNpu.compile = compile"
        + _body("leaky_relu", "a", "alpha = np.float32(node.attribute('alpha', 0.01) if TABLES else 0)",
                "return np.where(a < 0, alpha * a, a).astype(np.float32)"),
        "without the compiler: output 'LeakyRelu/",
    ),
    # ---- what one shape, axis or attribute alone shows
    "the middle axis of three taken for the first": Bug(
        "1/CumSum", "\nwhole_sum = KERNELS['CumSum']"
        + _body("cum_sum", "x, axis", "return whole_sum(node, x, axis if x.ndim != 3 or int(axis) % 3 != 1 else 0)"),
        rf"hard-2x3x4--2.*{WRONG}",
    ),
    "the third part of a Concat also the fourth": Bug(
        "1/Concat", _body("concat", "*parts", "parts = list(parts)", "parts[3:4] = parts[2:3] * (len(parts) > 3)",
                          "return np.concatenate(parts, node.attribute('axis'))"),
        rf"hard-2x3-2x3-2x3-2x3.*{WRONG}",
    ),
    "negative axes lost where there are steps": Bug(
        "1/Slice", "\nwhole_slice = KERNELS['Slice']"
        + _body("slice", "x, starts, ends, axes=None, steps=None", "if steps is not None and axes is not None:",
                "    axes = [max(axis, 0) if step != 1 else axis for axis, step in zip(axes, steps)]",
                "return whole_slice(node, x, starts, ends, axes, steps)"),
        "hard-3x4--1--99--1--2.*must be float32",
    ),
    "indices of 32 bits without their sign": Bug(
        "1/Gather", _body("gather", "x, indices", "axis, long = node.attribute('axis', 0), indices.dtype == np.int64",
                          "return np.take(x, indices if long else abs(indices) % x.shape[axis], axis)"),
        rf"int32-indices: {WRONG}",
    ),
    "strides forgotten beside dilations": Bug(
        "1/Conv", "\nwhole_conv = KERNELS['Conv']"
        + _body("conv", "x, w, bias=None", "y = whole_conv(node, x, w, bias)",
                "both = max(node.attribute('strides') or [1]) > 1 and max(node.attribute('dilations') or [1]) > 1",
                "return y * np.float32(0.5) if both else y"),
        rf"dilations=2,3.*strides=2,1.*{WRONG}",
    ),
    "the first of a batch by a vector for all": Bug(
        "1/MatMul", _body("matmul", "a, b", "one = b.ndim == 1 and a.ndim == 3",
                          "return np.matmul(a[:1], b).repeat(len(a), 0) if one else np.matmul(a, b)"),
        rf"hard-3x2x4-4: {WRONG}",
    ),
    "a scalar left as it is": Bug(
        "1/Relu", _body("relu", "a", "return np.maximum(a, 0) if a.ndim else a"), rf"shape-scalar: {WRONG}",
    ),
    "images of one row without a maximum": Bug(
        "1/MaxPool", "\nwhole_pool = KERNELS['MaxPool']"
        + _body("max_pool", "x", "return whole_pool(node, x) * np.float32(x.shape[2] != 1)"),
        rf"hard-2x3x1x9.*{WRONG}",
    ),
    "a view read as if it were in one piece": Bug(
        "1/Relu", _body("relu", "a", "dense = np.empty(a.shape, a.dtype).strides",
                        "return np.maximum(np.lib.stride_tricks.as_strided(a, a.shape, dense), 0)"),
        rf"relu-of-a-view: {WRONG}",
    ),
    "a result's shape kept by that of the first operand": Bug(
        "1/Add", "\nNpu.shapes = 'symbolic'\nSHAPES = {}"
        + _body("add", "a, b", "y = a + b", "return np.resize(y, SHAPES.setdefault((id(node), a.shape), y.shape))"),
        "shapes-3x1-1x5-symbolic: ",
    ),
    "what an earlier call left behind the last element": Bug(
        "1/ReduceSum", "\nNpu.shapes = 'symbolic'\nPADDED = {}\nwhole_reduction = KERNELS['ReduceSum']"
        + _body("reduce_sum", "x, axes=None", "y = whole_reduction(node, x, axes)",
                "if x.ndim != 2 or axes is None or list(axes) != [-1] or x.shape[1] > 8 or len(x) > 8:", "    return y",
                "lanes = PADDED.setdefault(id(node), np.zeros((8, 8), np.float32))", "lanes[:len(x), :x.shape[1]] = x",
                "return lanes[:len(x)].sum(1, dtype=np.float32).reshape(y.shape)"),
        "hard-3x4--1.*-symbolic: two calls with the same inputs differ",
    ),
    "an option that a loaded program has lost": Bug(
        "4/options",
        "\nfrom dataclasses import dataclass\n@dataclass(frozen=True)\nclass Scaled:\n    exact: bool = True\n"
        "Npu.options, EXACT, inner_kernel = Scaled, [True], Npu.kernel\ndef compile(self, region, options):\n"
        "    EXACT[0] = self.options.exact\n    return graft.JsonBackend.compile(self, region, options)\n"
        "def rounded(self, node, arrays):\n    found = inner_kernel(self, node, arrays)[0]\n"
        "    return [found if EXACT[0] or found.dtype != np.float32 else found.astype(np.float16).astype(np.float32)]\n"
        "Npu.compile, Npu.kernel = compile, rounded",
        "loaded as npu:exact=false: output ",
    ),
}  # fmt: skip
