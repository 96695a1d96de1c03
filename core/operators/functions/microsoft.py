"""Operators of ``com.microsoft`` that ONNX Runtime's optimiser writes: activations, normalisations, fused products."""

from __future__ import annotations

import numpy as np
import onnx

from graft.core.operators.definition.adjoint import Vjp
from graft.core.operators.definition.function_body import MICROSOFT, OPSET, Body, Function
from graft.core.operators.definition.table import Trait, define


def add(name: str, function: Function, domain: str = MICROSOFT, vjp: Vjp | None = None) -> None:
    """Add an operator that is expanded to the table."""
    define(name, frozenset({Trait.EXPANDED}), domain=domain, function=function, vjp=vjp)


# ---- Activations --------------------------------------------------------------------------------------------------


def _gelu(f: Body) -> None:
    f.give(0, f("Gelu", f.added(f.input(0), f.input(1))))


def _fast_gelu(f: Body) -> None:
    f.give(0, f("Gelu", f.added(f.input(0), f.input(1)), approximate="tanh"))


def _quick_gelu(f: Body) -> None:
    x = f.input(0)
    f.give(0, f("Mul", x, f("Sigmoid", f.scaled(x, f.attribute("alpha", 1.702)))))


def _bias_split_gelu(f: Body) -> None:
    left, right = f.several(2, "Split", f.added(f.input(0), f.input(1)), axis=-1, num_outputs=2)
    f.give(0, f("Mul", left, f("Gelu", right)))


def activated(f: Body, x: str) -> str:
    """Return what the attribute ``activation`` makes of a fused product."""
    name = f.attribute("activation", "")
    if not name:
        return x
    parameters: list[float | None] = [*f.attribute("activation_params", []), None, None]
    alpha, beta = parameters[:2]
    alpha, beta = f.attribute("activation_alpha", alpha), f.attribute("activation_beta", beta)
    if name == "Clip":
        low, high = alpha, beta
        return f("Clip", x, f.like(-np.inf if low is None else low, x), f.like(np.inf if high is None else high, x))
    if name == "QuickGelu":
        return f("Mul", x, f("Sigmoid", f.scaled(x, 1.702 if alpha is None else alpha)))
    given = {"alpha": alpha, "beta": beta, "approximate": f.attribute("approximate")}
    given |= {key: f.attribute(f"activation_{key}") for key in ("gamma", "axis")}
    known = onnx.defs.get_schema(name, OPSET).attributes if onnx.defs.has(name, OPSET) else {}
    return f(name, x, **{key: value for key, value in given.items() if key in known and value is not None})


add("Gelu", _gelu)
add("BiasGelu", _gelu)
add("FastGelu", _fast_gelu)
add("GemmFastGelu", lambda f: f.give(
    0, f("Gelu", f.added(f("MatMul", f.input(0), f.input(1)), f.input(2)), approximate="tanh")))  # fmt: skip
add("QuickGelu", _quick_gelu)
add("BiasSplitGelu", _bias_split_gelu)

# ---- Normalisation ------------------------------------------------------------------------------------------------


def _layer_norm(f: Body) -> None:
    """As ONNX's, which came later: ONNX Runtime wrote it into models of older opsets."""
    count = len(f.node.output)
    given = f.attributes("axis", "epsilon", "stash_type")
    results = f.several(max(count, 1), "LayerNormalization", *f.inputs, **given)
    for number in range(count):
        f.give(number, results[number])


def _simplified(f: Body) -> None:
    f.require(not f.wants(1), "its second output, the inverse deviation, is for training")
    f.give(0, f("RMSNormalization", *f.inputs[:2], **f.attributes("axis", "epsilon", "stash_type")))


def _skip(f: Body, bias: int, norm: str) -> None:
    total = f.added(f.input(0), f.input(1), f.input(bias))
    f.require(not f.wants(1) and not f.wants(2), "its outputs of mean and deviation are for training")
    scale = [one for one in (f.input(2), f.input(3) if bias == 4 else "") if one]
    f.give(0, f(norm, total, *scale, axis=-1, epsilon=f.attribute("epsilon", 1e-12 if bias == 4 else 1e-5)))
    f.give(3, total)


def _embed(f: Body) -> None:
    """Words, positions and segments, summed and normalised; ``mask_index`` counts the words of a row."""
    ids, segments, mask = f.input(0), f.input(1), f.input(7)
    total = f("Gather", f.input(2), ids)
    if f.input(8):
        total = f("Add", total, f("Gather", f.input(3), f.input(8)))
    else:
        total = f("Add", total, f.sliced(f.input(3), 0, 0, f.extent(ids, 1)))
    if segments:
        total = f("Add", total, f("Gather", f.input(4), segments))
    given = f.attribute("epsilon", 1e-12)
    f.give(0, f("LayerNormalization", total, f.input(5), f.input(6), axis=-1, epsilon=given))
    if f.wants(1):
        if mask:
            f.give(1, f("ReduceSum", mask, f.ints(1), keepdims=0))
        else:
            f.give(1, f("Expand", f.constant(np.int32(0)), f.extent(ids, 0)))
    f.give(2, total)


def _group_norm(f: Body) -> None:
    """``[n, ..., c]`` or ``[n, c, ...]``, with an addition before (SkipGroupNorm) and x * sigmoid(x) behind."""
    x, rank, last = f.input(0), f.rank(f.input(0)), f.attribute("channels_last", 1)
    if f.node.op_type == "SkipGroupNorm":
        skip = f.input(3)
        if f.rank(skip) == 2:
            skip = f.unsqueezed(skip, *(range(1, rank - 1) if last else range(2, rank)))
        bias = f.input(4) if last or not f.input(4) else f.unsqueezed(f.input(4), *range(1, rank - 1))
        x = f.added(x, skip, bias)
        f.give(1, x)
    kind = f.dtype(x)
    parts = f.transposed(x, 0, rank - 1, *range(1, rank - 1)) if last else x
    scale, bias = f.cast(f.input(1), kind), f.cast(f.input(2), kind)
    groups = f.attribute("groups")
    y = f("GroupNormalization", parts, scale, bias, num_groups=groups, epsilon=f.attribute("epsilon", 1e-5))
    f.types[y] = f.types[parts]
    y = f.transposed(y, 0, *range(2, rank), 1) if last else y
    f.give(0, f("Mul", y, f("Sigmoid", y)) if f.attribute("activation") else y)


add("LayerNormalization", _layer_norm)
add("SimplifiedLayerNormalization", _simplified)
add("SkipLayerNormalization", lambda f: _skip(f, 4, "LayerNormalization"))
add("SkipSimplifiedLayerNormalization", lambda f: _skip(f, 3, "RMSNormalization"))
add("EmbedLayerNormalization", _embed)
add("GroupNorm", _group_norm)
add("SkipGroupNorm", _group_norm)

# ---- Products -----------------------------------------------------------------------------------------------------


def _operand(f: Body, x: str, transposed: int, batch_transposed: int) -> str:
    """``transBatch`` moves the first axis of a batch before the last but one."""
    rank = f.rank(x)
    if batch_transposed and rank > 2:
        x = f.transposed(x, *range(1, rank - 1), 0, rank - 1)
    return f.swapped(x) if transposed and rank > 1 else x


def _matmul(f: Body) -> None:
    left = _operand(f, f.input(0), f.attribute("transA", 0), f.attribute("transBatchA", 0))
    right = _operand(f, f.input(1), f.attribute("transB", 0), f.attribute("transBatchB", 0))
    product = f.scaled(f("MatMul", left, right), f.attribute("alpha", 1.0))
    f.give(0, activated(f, product))


def _gemm(f: Body) -> None:
    given = f.attributes("alpha", "beta", "transA", "transB")
    f.give(0, activated(f, f("Gemm", *f.inputs, **given)))


CONVOLUTION = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _conv(f: Body, last: bool) -> None:
    """A convolution, the addition of a fourth input, and an activation; ``last``: channels last in images."""
    x, weights, bias, skip = (f.input(number) for number in range(4))
    rank = f.rank(x)
    if last:
        x = f.transposed(x, 0, rank - 1, *range(1, rank - 1))
        weights = f.transposed(weights, 0, rank - 1, *range(1, rank - 1))
        skip = skip and f.transposed(skip, 0, rank - 1, *range(1, rank - 1))
    y = f.convolved(x, weights, bias, **f.attributes(*CONVOLUTION))
    y = activated(f, f.added(y, skip))
    f.give(0, f.transposed(y, 0, *range(2, rank), 1) if last else y)


def _max_pool(f: Body) -> None:
    x, rank = f.input(0), f.rank(f.input(0))
    given = f.attributes("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    y = f("MaxPool", f.transposed(x, 0, rank - 1, *range(1, rank - 1)), **given)
    f.give(0, f.transposed(y, 0, *range(2, rank), 1))


def _inverse(f: Body) -> None:
    """By Gauss and Jordan, row by row, without pivots: for small matrices of a known size whose minors are not 0."""
    x = f.input(0)
    size = f.shape(x)[-1]
    f.require(isinstance(size, int) and size <= 4, f"matrices of extent {size}; those up to 4 are inverted")
    assert isinstance(size, int)
    minors = [[_minor(f, x, size, row, column) for column in range(size)] for row in range(size)]
    entries = [f("Unsqueeze", _entry(f, x, 0, column), f.ints(-1)) for column in range(size)]
    terms = [f("Mul", entry, f.unsqueezed(minors[0][column], -1)) for column, entry in enumerate(entries)]
    determinant = f.unsqueezed(f.added(*terms), -1)
    rows = [
        f.concatenated(*[f.unsqueezed(f.unsqueezed(minors[column][row], -1), -1) for column in range(size)], axis=-1)
        for row in range(size)
    ]
    adjugate = f.concatenated(*rows, axis=-2)
    f.give(0, f("Div", adjugate, determinant))


def _entry(f: Body, x: str, row: int, column: int) -> str:
    line = f("Gather", x, f.constant(np.int64(row)), axis=-2)
    return f("Gather", line, f.constant(np.int64(column)), axis=-1)


def _minor(f: Body, x: str, size: int, row: int, column: int) -> str:
    """Return the signed determinant of what is left without a row and a column."""
    rows = [one for one in range(size) if one != row]
    columns = [one for one in range(size) if one != column]
    return f.scaled(_determinant(f, x, rows, columns), (-1.0) ** (row + column))


def _determinant(f: Body, x: str, rows: list[int], columns: list[int]) -> str:
    if not rows:
        first = _entry(f, x, 0, 0)
        return f("Add", f("Mul", first, f.like(0, x)), f.like(1, x))
    if len(rows) == 1:
        return _entry(f, x, rows[0], columns[0])
    terms = []
    for place, column in enumerate(columns):
        rest = _determinant(f, x, rows[1:], [one for one in columns if one != column])
        terms.append(f.scaled(f("Mul", _entry(f, x, rows[0], column), rest), (-1.0) ** place))
    return f.added(*terms)


for _name in ("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation"):
    add(_name, _matmul)
add("FusedGemm", _gemm)
add("FusedConv", lambda f: _conv(f, last=False))
add("NhwcFusedConv", lambda f: _conv(f, last=True))
add("NhwcConv", lambda f: _conv(f, last=True))
add("NhwcMaxPool", _max_pool)
add("Inverse", _inverse)

# ---- What ONNX has under the same or another name -----------------------------------------------------------------


def _bias_softmax(f: Body) -> None:
    """Softmax over all axes from one on, of a sum in which the bias is repeated inside or outside of the batch."""
    x, bias, rank = f.input(0), f.input(1), f.rank(f.input(0))
    axis = f.attribute("axis", 1) % rank
    if f.attribute("is_inner_broadcast", 1) == 0 and f.rank(bias) < rank:
        bias = f.unsqueezed(bias, *range(rank - f.rank(bias)))
    total = f("Add", x, bias)
    if axis == rank - 1:
        f.give(0, f.softmax(total))
        return
    flat = f.reshaped(total, *[0] * axis, -1)
    f.give(0, f("Reshape", f.softmax(flat), f("Shape", x)))


def _pad(f: Body) -> None:
    pads = f.reshaped(f.input(1), -1) if f.rank(f.input(1)) != 1 else f.input(1)
    value = f.input(2) and (f.reshaped(f.input(2)) if f.rank(f.input(2)) else f.input(2))
    f.give(0, f("Pad", f.input(0), pads, *filter(None, [value]), mode=f.attribute("mode", "constant")))


def _range(f: Body) -> None:
    start, limit, delta = (f.input(number) for number in range(3))
    kind = onnx.helper.tensor_dtype_to_np_dtype(f.dtype(start))
    ends = [f("Squeeze", one) if f.rank(one) else one for one in (start, limit)]
    step = (f("Squeeze", delta) if f.rank(delta) else delta) if delta else f.constant(np.ones((), kind))
    f.give(0, f("Range", *ends, step))


def _same(op_type: str, *names: str) -> Function:
    def function(f: Body) -> None:
        results = f.several(len(f.node.output), op_type, *f.inputs, **f.attributes(*names))
        for number, value in enumerate(results):
            f.give(number, value)

    return function


add("Trilu", _same("Trilu", "upper"))
add("GatherND", _same("GatherND"))
add("BiasSoftmax", _bias_softmax)
add("BiasAdd", lambda f: f.give(0, f.added(f.input(0), f.input(1), f.input(2))))
add("Pad", _pad)
add("Range", _range)
add("ExpandDims", lambda f: f.give(0, f("Unsqueeze", f.input(0), f.reshaped(f.cast(f.input(1), 7), -1))))
