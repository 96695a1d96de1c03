"""Operations of custom datatypes, run in NumPy and compiled."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, helper

import graft
from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes import shipped
from graft.datatypes.conversion import convert
from graft.datatypes.formats import Format, evaluate
from graft.datatypes.operations import COMPARISONS, operate
from graft.runtime.program import Program

assert shipped.DATATYPES
BINARY = ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max")
UNARY = ("Neg", "Abs", "Sqrt")
ORDER = {"EQ": "Equal", "LT": "Less", "LE": "LessOrEqual", "GT": "Greater", "GE": "GreaterOrEqual"}
FUNCTIONS = ("Exp", "Log", "Tanh", "Sigmoid", "Erf")


def format_of(dtype: str) -> Format:
    """Return a bundled format by its type."""
    format = shipped.DATATYPES.format(dtype)
    assert format is not None, dtype
    return format


def in_numpy(format: Format, operation: str, *codes: np.ndarray) -> np.ndarray:
    """Return an operation's results (float64, or bool) for storage bits, by the interpreter of the tensor IR."""

    def formula(*bits: Value) -> Value:
        result = operate(format, operation, tuple(map(format.decode, bits)))
        return result if operation in COMPARISONS else format.encode(result)

    result = evaluate(formula, *codes)
    return result if operation in COMPARISONS else format.to_numbers(result)


def all_codes(format: Format) -> np.ndarray:
    """Return every code of a format."""
    return np.arange(1 << format.bits, dtype=format.storage)


def all_pairs(format: Format) -> tuple[np.ndarray, np.ndarray]:
    """Return every pair of codes of an 8-bit format."""
    codes = all_codes(format)
    return np.repeat(codes, codes.size), np.tile(codes, codes.size)


def stratified_codes(format: Format, count: int, seed: int) -> np.ndarray:
    """Return codes with every exponent about equally often, both signs, few and many fraction bits, and all specials.

    A third are random codes, a third numbers of random exponents, a third those with short significands, where ties
    are frequent; then the extremes, their neighbours, one, zero and NaN.
    """
    random = np.random.default_rng(seed)
    span = np.log2(format.largest)
    exponents = random.uniform(-span, span, count)
    sign = random.choice([-1.0, 1.0], count)
    short = random.integers(1, 8, count) * sign * np.exp2(np.floor(exponents * 0.9))
    spread = [format.to_bits(np.exp2(exponents) * sign), format.to_bits(short)]
    anywhere = random.integers(0, 1 << format.bits, count, dtype=np.uint64).astype(format.storage)
    top = 1 << (format.bits - 1)
    around = np.array([place + step for place in (0, top, top >> 1, top + (top >> 1)) for step in (-2, -1, 0, 1, 2)])
    special = (around % (1 << format.bits)).astype(format.storage)
    mixed = np.stack([anywhere, *spread])[random.integers(0, 3, count), np.arange(count)]
    mixed[: special.size] = special[:count]
    random.shuffle(mixed)
    return mixed


def special_pairs(format: Format) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of special codes and of 200 others with them."""
    codes = np.unique(stratified_codes(format, 200, 9))
    return np.repeat(codes, codes.size), np.tile(codes, codes.size)


@cache
def program_of(dtype: str, size: int, functions: bool = False) -> Program:
    """Return a program of two float64 inputs that computes every operation in a custom type, one output each."""
    kind = TensorProto.DOUBLE
    nodes = [
        helper.make_node(name, ["x", "y"], [name], fmod=1)
        if name == "Mod"
        else helper.make_node(name, ["x", "y"], [name])
        for name in BINARY
    ]
    nodes += [helper.make_node(name, ["x"], [name]) for name in UNARY + (FUNCTIONS if functions else ())]
    outputs = [helper.make_tensor_value_info(node.output[0], kind, [size]) for node in nodes]
    nodes += [helper.make_node(name, ["x", "y"], [short]) for short, name in ORDER.items()]
    outputs += [helper.make_tensor_value_info(name, TensorProto.BOOL, [size]) for name in ORDER]
    inputs = [helper.make_tensor_value_info(name, kind, [size]) for name in "xy"]
    graph = helper.make_graph(nodes, "operations", inputs, outputs)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return graft.compile(convert(model, dtype), ["llvm"], threads=1)


def compiled(dtype: str, x: np.ndarray, y: np.ndarray, functions: bool = False) -> dict[str, np.ndarray]:
    """Return every operation's results for two arrays of codes, by the built-in compiler."""
    format = format_of(dtype)
    program = program_of(dtype, x.size, functions)
    return program.run({"x": format.to_numbers(x), "y": format.to_numbers(y)})
