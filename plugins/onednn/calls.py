"""Calls of oneDNN's primitives in C, from the kernels that the JSON form has: tensors lie row-major, as in ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from graft.errors import CompileError
from graft.plugins.c_calls import CCall, CKernel, COperand

ELTWISE = {
    "relu": 32, "tanh": 33, "elu": 34, "square": 35, "abs": 36, "sqrt": 37, "linear": 38, "soft_relu": 39,
    "hardsigmoid": 40, "logistic": 41, "exp": 42, "gelu_tanh": 43, "swish": 44, "log": 45, "clip": 46, "pow": 48,
    "gelu_erf": 49, "round": 50, "mish": 51, "hardswish": 52,
}  # fmt: skip
BINARY = {"add": 131056, "mul": 131057, "max": 131058, "min": 131059, "div": 131060, "sub": 131061}
POOLING = {"max": 511, "average": 767, "average_exclude_padding": 1023}
SOFTMAX = {"softmax": 196608, "log_softmax": 196609}

Sizes = tuple[int, ...]
Window = ("strides", "dilates", "padding_l", "padding_r")


def call_of(kernel: CKernel) -> CCall:
    """Return the call of a kernel in oneDNN's terms; raise CompileError for a primitive without a call."""
    attributes = kernel.node.attributes
    y = _sizes(kernel.outputs[0])
    match attributes["primitive"]:
        case "convolution":
            return _convolution(kernel, y, attributes)
        case "matmul":
            return _matmul(kernel, y, attributes)
        case "pooling":
            x, size = _view(_sizes(kernel[0]), 0), _list(attributes["kernel"])
            strides, *window = (_list(attributes[name]) for name in Window)
            text = ", ".join((str(POOLING[attributes["algorithm"]]), x, _result(y), strides, size, *window))
        case "softmax":
            x = _view(_sizes(kernel[0]), 0)
            text = f"{SOFTMAX[attributes['algorithm']]}, {x}, {_result(y)}, {attributes['axis']}"
        case "eltwise":
            x = _view(_sizes(kernel[0]), 0)
            text = f"{ELTWISE[attributes['algorithm']]}, {x}, {_result(y)}, {{alpha}}, {{beta}}"
        case "binary":
            a, b = (_view(_padded(_sizes(kernel[number]), len(y)), number) for number in (0, 1))
            text = f"{BINARY[attributes['algorithm']]}, {a}, {b}, {_result(y)}"
        case other:
            raise CompileError(f"{kernel.where}: the primitive '{other}' has no call in C", node=kernel.name)
    return _kept(f"graft_onednn_{attributes['primitive']}({{kept}}, {text}, {_post_ops(kernel, y)})")


def _kept(text: str) -> CCall:
    return CCall(text, destroy="graft_onednn_destroy")


def _convolution(kernel: CKernel, y: Sizes, attributes: Mapping[str, Any]) -> CCall:
    w, groups = _sizes(kernel[1]), int(attributes["groups"])
    weights = w if groups == 1 else (groups, w[0] // groups, *w[1:])
    bias = _view(_sizes(kernel[2]), 2) if attributes["bias"] else "NULL"
    window = ", ".join(_list(attributes[name]) for name in Window)
    views = f"{_view(_sizes(kernel[0]), 0)}, {_view(weights, 1)}, {bias}, {_result(y)}"
    return _kept(f"graft_onednn_convolution({{kept}}, {views}, {window}, {_post_ops(kernel, y)})")


def _matmul(kernel: CKernel, y: Sizes, attributes: Mapping[str, Any]) -> CCall:
    """Return the call of a product, whose rows are one axis where the right side is a single matrix."""
    left, right = _sizes(kernel[0]), _sizes(kernel[1])
    transposed = attributes.get("transpose_a", 0), attributes.get("transpose_b", 0)
    if len(right) == 2 and len(left) == len(y) and not transposed[0]:
        left, y = (prod(left[:-1]), left[-1]), (prod(y[:-1]), y[-1])
    rank = len(y)
    views = [_matrix(_padded(one, rank), number, transposed[number]) for number, one in enumerate((left, right))]
    bias = _view(_padded(_sizes(kernel[2]), rank), 2) if attributes.get("bias") else "NULL"
    return _kept(f"graft_onednn_matmul({{kept}}, {', '.join(views)}, {bias}, {_result(y)}, {_post_ops(kernel, y)})")


def _post_ops(kernel: CKernel, y: Sizes) -> str:
    """Return the number of post-operations and their rows."""
    rows = []
    for row in kernel.node.attributes.get("post_ops", ()):
        if "input" in row:
            sizes = _sizes(kernel[row["input"]])
            seen = y if prod(sizes) == prod(y) else _padded(sizes, len(y))
            rows.append(f"{{{BINARY[row['algorithm']]}, 0, 0, {_view(seen, row['input'])}}}")
        else:
            rows.append(f"{{{ELTWISE[row['algorithm']]}, {row['alpha']!r}f, {row['beta']!r}f, NULL}}")
    return f"{len(rows)}, (const GraftPostOp[]){{{', '.join(rows)}}}" if rows else "0, NULL"


def _sizes(operand: COperand) -> Sizes:
    sizes = tuple(extent for extent in operand.shape if isinstance(extent, int))
    assert len(sizes) == operand.rank, f"'{operand.name}' has shape {operand.shape}"
    return sizes or (1,)


def _padded(sizes: Sizes, rank: int) -> Sizes:
    return (1,) * (rank - len(sizes)) + sizes


def _strides(sizes: Sequence[int]) -> list[int]:
    return [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]


def _list(values: Sequence[int]) -> str:
    return f"(const int64_t[]){{{', '.join(map(str, values))}}}"


def _view(sizes: Sizes, place: int | str, strides: Sequence[int] | None = None) -> str:
    """Return a view of the input at a place, or of an output by its name."""
    texts = (", ".join(map(str, one)) for one in (sizes, strides or _strides(sizes)))
    numbers = ", ".join(f"{{{text}}}" for text in texts)
    operand = f"inputs[{place}]" if isinstance(place, int) else place
    return f"&(const GraftView){{{len(sizes)}, {numbers}, {{{operand}}}}}"


def _result(sizes: Sizes) -> str:
    return _view(sizes, "Y")


def _matrix(sizes: Sizes, place: int, is_transposed: bool) -> str:
    if not is_transposed:
        return _view(sizes, place)
    strides, transposed = _strides(sizes), (*sizes[:-2], sizes[-1], sizes[-2])
    return _view(transposed, place, [*strides[:-2], strides[-1], strides[-2]])
