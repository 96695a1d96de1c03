"""The calls of XNNPACK's operators in C (`calls.h`): geometry, packed weights, and what limits the result."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod
from typing import Any

import numpy as np

from graft.plugins.c_calls import C, CCall, CKernel, COperand
from graft.plugins.json_graph import BodyOperator
from graft.plugins.xnnpack.operators import ROWS

DESTROY = "graft_xnnpack_destroy"
Sizes = tuple[int, ...]


def call_of(kernel: CKernel) -> CCall:
    """Return the call of a kernel."""
    operator = kernel.body[0]
    match (row := ROWS[operator.op]).kind:
        case "convolution":
            return _convolution(kernel, operator)
        case "pool" | "global pool":
            return _pool(kernel, operator, row.name)
        case "matmul" | "gemm":
            return _product(kernel, operator)
        case "softmax":
            columns = _sizes(kernel[0])[-1]
            return _call("softmax", "{rows}, {columns}, {x}, {Y}", kernel, rows=_rows(kernel[0]), columns=columns)
        case "binary":
            return _binary(kernel, operator, row.name)
        case _:
            return _call(row.name, "{Y.size}, {parameters:float}, {x}, {Y}", kernel, parameters=_parameters(kernel))


def _call(name: str, text: str, kernel: CKernel, **values: object) -> CCall:
    return CCall(f"graft_xnnpack_{name}({{kept}}, {text})", {"x": kernel[0], **values}, destroy=DESTROY)


# ---- What is read of a kernel ----


def _sizes(operand: COperand) -> Sizes:
    sizes = tuple(extent for extent in operand.shape if isinstance(extent, int))
    assert len(sizes) == operand.rank, f"'{operand.name}' has shape {operand.shape}"
    return sizes


def _rows(operand: COperand) -> int:
    return prod(_sizes(operand)[:-1])


def _operand(kernel: CKernel, operator: BodyOperator, index: int) -> COperand | None:
    """Return an input of an operator that is one of the kernel's."""
    source = operator.inputs[index] if index < len(operator.inputs) else None
    return kernel.inputs[source[1]] if source is not None and source[0] == -1 else None


def _limits(kernel: CKernel) -> tuple[float, float]:
    """Return between which numbers the last operator leaves what it gets."""
    operator = kernel.body[-1]
    if operator.op == "Clip":
        low, high = (_operand(kernel, operator, index) for index in (1, 2))
        return (-inf if low is None else float(low.value)), (inf if high is None else float(high.value))
    return (0.0 if operator.op == "Relu" else -inf), inf


def _parameters(kernel: CKernel) -> list[float]:
    given = kernel.body[0].attributes
    match kernel.body[0].op:
        case "Relu" | "Clip":
            return list(_limits(kernel))
        case "LeakyRelu" | "Elu":
            return [float(given["alpha"])]
    return []


def _binary(kernel: CKernel, operator: BodyOperator, title: str) -> CCall:
    low, high = _limits(kernel)
    values: dict[str, object] = {"low": low, "high": high}
    sides = []
    for number, name in enumerate("ab"):
        values[name] = operand = _operand(kernel, operator, number)
        assert operand is not None, kernel.where
        sizes = _sizes(operand) or (1,)
        sides.append(f"{len(sizes)}, (const size_t[]){{{', '.join(map(str, sizes))}}}, {{{name}}}")
    return _call(title, f"{', '.join(sides)}, {{low}}, {{high}}, {{Y}}", kernel, **values)


# ---- Products ----


def _product(kernel: CKernel, operator: BodyOperator) -> CCall:
    w, bias = _operand(kernel, operator, 1), _operand(kernel, operator, 2)
    assert w is not None, kernel.where
    if operator.op == "MatMul":
        adds = [one for one in kernel.body if one.op == "Add"]
        bias = next((one for add in adds for n in (0, 1) if (one := _operand(kernel, add, n)) is not None), None)
    is_transposed = bool(operator.attributes.get("transB", 0))
    outputs, inputs = _sizes(w) if is_transposed else _sizes(w)[::-1]
    low, high = _limits(kernel)
    return _call(
        "fully_connected", "{rows}, {inputs}, {outputs}, {x}, {w}, {bias}, {low}, {high}, {flags}, {Y}", kernel,
        rows=_rows(kernel[0]), inputs=inputs, outputs=outputs, w=w, bias=bias, low=low, high=high,
        flags=C("0" if is_transposed else "XNN_FLAG_TRANSPOSE_WEIGHTS"),
    )  # fmt: skip


# ---- Images ----


def _convolution(kernel: CKernel, operator: BodyOperator) -> CCall:
    w, bias = _operand(kernel, operator, 1), _operand(kernel, operator, 2)
    assert w is not None and w.constant is not None, kernel.where
    packed = {w.name: np.ascontiguousarray(w.constant.transpose(0, 2, 3, 1))}
    text = "{groups}, {x}, {w}, {bias}, {low}, {high}, {Y}"
    return _windowed("convolution", text, kernel, _sizes(w)[2:], packed, groups=operator.attributes["group"],
                     w=w, bias=bias)  # fmt: skip


def _pool(kernel: CKernel, operator: BodyOperator, title: str) -> CCall:
    size = tuple(operator.attributes.get("kernel_shape", ())) or _sizes(kernel[0])[1:3]
    return _windowed(title, "{x}, {low}, {high}, {Y}", kernel, size, {})


def _windowed(
    name: str, text: str, kernel: CKernel, size: Sizes, packed: dict[str, np.ndarray], **values: object
) -> CCall:
    """Return a call on images, which have channels last: their extents, and the windows."""
    x, y = _sizes(kernel[0]), _sizes(kernel.outputs[0])
    given = kernel.body[0].attributes
    strides, dilations = (tuple(given.get(one) or (1, 1)) for one in ("strides", "dilations"))
    pads = _pads(given, x, y, size, strides, dilations)
    rows = [*x, y[3], *size, *strides, *dilations, *pads]
    image = f"&(const GraftImage){{{', '.join(map(str, rows))}}}"
    low, high = _limits(kernel)
    known = {"x": kernel[0], "low": low, "high": high, **values}
    return CCall(f"graft_xnnpack_{name}({{kept}}, {image}, {text})", known, packed, destroy=DESTROY)


def _pads(given: Mapping[str, Any], x: Sizes, y: Sizes, size: Sizes, strides: Sizes, dilations: Sizes) -> list[int]:
    """Return the padding: above, right, below, left."""
    pads, mode = list(given.get("pads") or (0,) * 4), given.get("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = [0] * 4
    elif mode != "NOTSET":
        for axis in range(2):
            extent = (size[axis] - 1) * dilations[axis] + 1
            total = max((y[1 + axis] - 1) * strides[axis] + extent - x[1 + axis], 0)
            before = total // 2 if mode == "SAME_UPPER" else total - total // 2
            pads[axis], pads[axis + 2] = before, total - before
    return [pads[0], pads[3], pads[2], pads[1]]
