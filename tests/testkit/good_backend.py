"""A good backend of 17 operators, as the text of a plugin file."""

GOOD = '''
import ctypes
import time
import numpy as np
import graft

OPERATORS = (
    "Add", "Relu", "LeakyRelu", "MatMul", "MaxPool", "AveragePool", "Conv", "ReduceSum", "ReduceMax", "Softmax",
    "Transpose", "Concat", "Slice", "Gather", "Pad", "CumSum", "ArgMax",
)

class Npu(graft.JsonBackend):
    name = "npu"

    @graft.supports(*OPERATORS)
    def single(self, node):
        whole = node.op_type in ("Add", "Concat", "Gather") and node.dtype == "int64"
        if node.dtype != "float32" and not whole:
            return graft.Reject("dtype", "float32 only")
        if node.attribute("auto_pad", "NOTSET") != "NOTSET" or node.attribute("ceil_mode", 0):
            return graft.Reject("attribute", "pads only as numbers")
        if node.op_type in ("MaxPool", "AveragePool", "Conv") and node.inputs[0].rank != 4:
            return graft.Reject("rank", "images only")
        if node.op_type == "MaxPool" and len(node.outputs) > 1:
            return graft.Reject("attribute", "no indices")
        if node.op_type == "Pad" and (node.attribute("mode", "constant") == "wrap" or len(node.inputs) > 3):
            return graft.Reject("attribute", "no wrapping and no axes")
        return True

    def load(self, graph, constants):
        return lambda inputs: graph.run(inputs, constants, self.kernel)

    def kernel(self, node, arrays):
        return [np.asarray(KERNELS[node.name](node, *arrays))]

KERNELS = {}

def kernel(function):
    KERNELS[{"average_pool": "AveragePool", "max_pool": "MaxPool", "matmul": "MatMul", "leaky_relu": "LeakyRelu",
             "reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "cum_sum": "CumSum", "arg_max": "ArgMax"}.get(
        function.__name__, function.__name__.title())] = function
    return function

def patches(x, kernel, strides, pads, dilations, fill):
    """Return the windows of images as [n, c, rows, columns, kernel rows, kernel columns]."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel)]
    found = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    return found[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]

def geometry(node, kernel):
    return (
        kernel, node.attribute("strides") or [1, 1], node.attribute("pads") or [0] * 4,
        node.attribute("dilations") or [1, 1],
    )

@kernel
def add(node, a, b): return a + b

@kernel
def relu(node, a): return np.maximum(a, 0)

@kernel
def leaky_relu(node, a):
    return np.where(a < 0, np.float32(node.attribute("alpha", 0.01)) * a, a).astype(np.float32)

@kernel
def matmul(node, a, b): return np.matmul(a, b)

@kernel
def max_pool(node, x):
    return patches(x, *geometry(node, node.attribute("kernel_shape")), -np.inf).max((4, 5)).astype(np.float32)

@kernel
def average_pool(node, x):
    how = geometry(node, node.attribute("kernel_shape"))
    total = patches(x, *how, 0).sum((4, 5))
    ones = np.ones_like(x)
    if node.attribute("count_include_pad", 0):
        return (total / np.prod(how[0])).astype(np.float32)
    return (total / patches(ones, *how, 0).sum((4, 5))).astype(np.float32)

@kernel
def conv(node, x, w, bias=None):
    groups = node.attribute("group", 1)
    found = patches(x, *geometry(node, list(w.shape[2:])), 0)
    parts = zip(np.split(found, groups, 1), np.split(w, groups, 0))
    y = np.concatenate([np.einsum("ncijkl,mckl->nmij", one, own) for one, own in parts], 1)
    return (y if bias is None else y + bias[:, None, None]).astype(np.float32)

def axes_of(node, x, axes):
    return tuple(int(one) for one in axes) if axes is not None and len(axes) else tuple(range(x.ndim))

@kernel
def reduce_sum(node, x, axes=None):
    if node.attribute("noop_with_empty_axes", 0) and (axes is None or not len(axes)):
        return x
    return x.sum(axes_of(node, x, axes), keepdims=bool(node.attribute("keepdims", 1)), dtype=x.dtype)

@kernel
def reduce_max(node, x, axes=None):
    if node.attribute("noop_with_empty_axes", 0) and (axes is None or not len(axes)):
        return x
    return x.max(axes_of(node, x, axes), keepdims=bool(node.attribute("keepdims", 1)), initial=-np.inf)

@kernel
def softmax(node, x):
    axis = node.attribute("axis", -1)
    y = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return (y / y.sum(axis, keepdims=True)).astype(np.float32)

@kernel
def transpose(node, x): return np.transpose(x, node.attribute("perm"))

@kernel
def concat(node, *parts): return np.concatenate(parts, node.attribute("axis"))

@kernel
def slice(node, x, starts, ends, axes=None, steps=None):
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps):
        x = cut(x, int(start), int(end), int(axis), int(step))
    return x

def cut(x, start, end, axis, step):
    size = x.shape[axis]
    start, end = (one + size if one < 0 else one for one in (start, end))
    if step > 0:
        places = np.arange(min(max(start, 0), size), min(max(end, 0), size), step)
    else:
        places = np.arange(min(max(start, -1), size - 1), min(max(end, -1), size - 1), step)
    return np.take(x, places, axis)

@kernel
def gather(node, x, indices): return np.take(x, indices, node.attribute("axis", 0))

@kernel
def pad(node, x, pads, value=0):
    count = len(pads) // 2
    both = [(int(one), int(other)) for one, other in zip(pads[:count], pads[count:])]
    mode = node.attribute("mode", "constant")
    for axis, (one, other) in enumerate(both):
        x = np.take(x, np.arange(max(-one, 0), x.shape[axis] - max(-other, 0)), axis)
    both = [(max(one, 0), max(other, 0)) for one, other in both]
    return np.pad(x, both, mode, **({"constant_values": value} if mode == "constant" else {}))

@kernel
def cum_sum(node, x, axis):
    axis, back = int(axis), bool(node.attribute("reverse", 0))
    x = np.flip(x, axis) if back else x
    y = np.cumsum(x, axis, dtype=x.dtype)
    y = y - x if node.attribute("exclusive", 0) else y
    return np.flip(y, axis) if back else y

@kernel
def arg_max(node, x):
    axis = node.attribute("axis", 0)
    last = node.attribute("select_last_index", 0)
    found = x.shape[axis] - 1 - np.flip(x, axis).argmax(axis) if last else x.argmax(axis)
    return np.expand_dims(found, axis) if node.attribute("keepdims", 1) else found
'''
