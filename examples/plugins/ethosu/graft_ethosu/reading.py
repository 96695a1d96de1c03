"""From ONNX nodes over quantised tensors to layers of integers, or why there is none."""

import math
from dataclasses import dataclass

import numpy as np

import graft

BYTES = ("int8", "uint8")
INTEGERS = (*BYTES, "int16")
LIMITS = ("Relu", "Clip")
ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu", "Erf",
    "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu",
    "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh",
    "ThresholdedRelu",
)  # fmt: skip
"""Operators of one operand that compute each element by itself: a table of 256 bytes says all of them."""
JOINING = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu")
"""Operators that join several elements; with one operand and constants they are tables, too."""


class Refused(Exception):
    """Why a layer is not taken."""

    def __init__(self, code, text):
        super().__init__(text)
        self.reject = graft.Reject(code, text)


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """What a number of a tensor stands for: ``(number - zero) * scale``, of one element or of one for each channel."""

    scale: np.ndarray
    zero: np.ndarray
    axis: int = 1

    def factor(self, what):
        """Return scale and zero point of a whole tensor; raise Refused where these are more."""
        if self.scale.size != 1 or self.zero.size != 1:
            raise Refused("attribute", f"{what} has a scale for each channel, and the tensor must have one")
        return float(self.scale[0]), int(self.zero[0])

    def along(self, numbers, rank):
        """Return numbers of channels so that they broadcast with a tensor."""
        return numbers.reshape([-1 if axis == self.axis % rank and len(numbers) > 1 else 1 for axis in range(rank)])

    def __eq__(self, other):
        return np.array_equal(self.scale, other.scale) and np.array_equal(self.zero, other.zero)


ITSELF = Meaning(np.ones(1), np.zeros(1, np.int64))


@dataclass(frozen=True, slots=True)
class Operand:
    """Integers and what they stand for; a constant that is not quantised has no meaning."""

    value: object
    """A view of the tensor, as Graft gives it."""
    meaning: Meaning | None

    @property
    def constant(self):
        """The contents, None where they are computed."""
        return self.value.constant


@dataclass(frozen=True, slots=True)
class Layer:
    """An operator over integers: its operands, its results, and the limits of the numbers that the first stands for."""

    node: object
    """A view of the ONNX node, as Graft gives it: its attributes count."""
    operator: str
    operands: tuple[Operand | None, ...]
    outputs: tuple[Operand, ...]
    lower: float = -math.inf
    upper: float = math.inf
    origin: str = ""

    def operand(self, index):
        """Return an operand that must be there."""
        found = self.operands[index] if index < len(self.operands) else None
        if found is None:
            raise Refused("attribute", f"input {index} is absent")
        return found

    def numbers(self, index):
        """Return a constant operand as numbers, None where it is absent; raise Refused where it is computed."""
        found = self.operands[index] if index < len(self.operands) else None
        if found is None:
            return None
        if found.constant is None:
            raise Refused("constant-required", f"input {index} is computed at run time")
        if found.meaning is None:
            return found.constant
        rank = found.constant.ndim
        scale, zero = (found.meaning.along(numbers, rank) for numbers in (found.meaning.scale, found.meaning.zero))
        return (found.constant.astype(np.float64) - zero) * scale


def producer(value):
    """Return the node that computes a value, None for none."""
    return None if value is None else value.producer


def is_a(node, *names):
    """Whether a node is an operator of ONNX by one of the names."""
    return node is not None and node.op_type in names and node.domain in ("", "ai.onnx")


def meaning_of(scale, zero, axis=1):
    """Return a meaning of constants; raise Refused where they are computed."""
    if scale is None or scale.constant is None or (zero is not None and zero.constant is None):
        raise Refused("constant-required", "a scale or zero point is computed at run time")
    factors = scale.constant.astype(np.float64).reshape(-1)
    points = np.zeros(1) if zero is None else zero.constant.astype(np.int64).reshape(-1)
    if not np.isfinite(factors).all() or (factors <= 0).any():
        raise Refused("attribute", "a scale is not a positive number")
    return Meaning(factors, points.astype(np.int64), axis)


def meaning_of_node(node):
    """Return what QuantizeLinear or DequantizeLinear says of its integers."""
    if node.attribute("block_size", 0):
        raise Refused("attribute", "blocks of elements have scales of their own")
    return meaning_of(node.input(1), node.input(2), node.attribute("axis", 1))


def operand_of(value):
    """Return an operand: what it is dequantised from, or the constant that it is; raise Refused for other numbers."""
    if value is None:
        return None
    node = producer(value)
    if is_a(node, "DequantizeLinear"):
        return Operand(node.input(0), meaning_of_node(node))
    if value.is_constant or value.dtype in INTEGERS:
        return Operand(value, None if value.is_constant else ITSELF)
    raise Refused("dtype", f"'{value.name}' is {value.dtype}, and the NPU computes on integers: quantise what makes it")


def read(root):
    """Return the layer that ends in a node; raise Refused with the reason where there is none."""
    if is_a(root, "QLinearConv", "QLinearMatMul"):
        return _qlinear(root)
    if not is_a(root, "QuantizeLinear"):
        results = tuple(Operand(one, ITSELF) for one in root.outputs)
        if any(one.value.dtype not in (*INTEGERS, "int64", "") for one in results):
            raise Refused("no-pattern", f"the result of {root.op_type} is not quantised")
        return Layer(root, root.op_type, tuple(map(operand_of, root.inputs)), results, origin=root.name)
    result = Operand(root.outputs[0], meaning_of_node(root))
    if result.value.dtype not in INTEGERS:
        raise Refused("dtype", f"the result is {result.value.dtype}; the NPU has {', '.join(INTEGERS)}")
    lower, upper, value, names = -math.inf, math.inf, root.input(0), [root.name]
    while is_a(node := producer(value), *LIMITS):
        low, high = (0.0, math.inf) if node.op_type == "Relu" else _bounds(node)
        lower, upper = max(lower, low), min(max(upper, low), high)
        value = node.input(0)
        names.insert(0, node.name)
    if is_a(node, "DequantizeLinear"):
        return Layer(node, "Identity", (operand_of(value),), (result,), lower, upper, root.name)
    if node is None:
        raise Refused("no-pattern", "what is quantised is computed by nothing")
    names.insert(0, node.name)
    core, operands = node, tuple(node.inputs)
    if is_a(node, "Add") and (product := next((one for one in map(producer, operands) if is_a(one, "MatMul")), None)):
        (bias,) = (one for one in operands if producer(one) != product)
        core, operands = product, (*product.inputs, bias)
    return Layer(core, core.op_type, tuple(map(operand_of, operands)), (result,), lower, upper, " ".join(names))


def _bounds(node):
    bounds = []
    for index, default in ((1, -math.inf), (2, math.inf)):
        value = node.input(index)
        if value is not None and (value.constant is None or value.constant.size != 1):
            raise Refused("constant-required", f"a bound of Clip '{node.name}' is computed at run time")
        bounds.append(default if value is None else float(value.constant.reshape(-1)[0]))
    return bounds


def _qlinear(node):
    is_conv = node.op_type == "QLinearConv"
    x = Operand(node.input(0), meaning_of(node.input(1), node.input(2)))
    w = Operand(node.input(3), meaning_of(node.input(4), node.input(5), 0 if is_conv else -1))
    result = Operand(node.outputs[0], meaning_of(node.input(6), node.input(7)))
    bias = node.input(8) if is_conv else None
    scale = x.meaning.scale * w.meaning.scale
    added = None if bias is None else Operand(bias, Meaning(scale, np.zeros(1, np.int64), 0))
    return Layer(node, node.op_type.removeprefix("QLinear"), (x, w, added), (result,), origin=node.name)


def table_of(root, builder):
    """Return the integers that a chain of elementwise operators reads, its result and its table; raise Refused.

    The table is what ONNX's reference computes of each of the 256 bytes. What is read twice is one tensor of the
    builder's, whatever its names.
    """
    if not is_a(root, "QuantizeLinear"):
        raise Refused("no-pattern", f"the result of {root.op_type} is not quantised")
    result = Operand(root.outputs[0], meaning_of_node(root))
    nodes, sources, waiting = [root], {}, [root.input(0)]
    while waiting:
        node = producer(waiting.pop())
        if is_a(node, "DequantizeLinear"):
            sources.setdefault(builder.read(node.input(0)).tensor.name, []).append(node.input(0))
        elif is_a(node, *ELEMENTWISE, *JOINING):
            waiting += [one for one in node.inputs if one is not None and not one.is_constant]
        else:
            raise Refused("no-pattern", "no table: an operator in the chain is not computed element by element")
        if node not in nodes:
            nodes.append(node)
    if len(sources) != 1:
        raise Refused("no-pattern", f"no table: {len(sources)} tensors are read, and a table has one index")
    ((source, *more),) = sources.values()
    if source.dtype not in BYTES or result.value.dtype not in BYTES:
        raise Refused("dtype", f"a table has bytes, got {source.dtype} and {result.value.dtype}")
    from graft_ethosu.tables import evaluated

    return Operand(source, ITSELF), result, evaluated(root, nodes, [source, *more])
