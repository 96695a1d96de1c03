"""Operands that are infinite or NaN, beside borders, fills and identities: every backend gives what ONNX says.

An operator that only moves elements writes its own value where none is moved to, and multiplies nothing: an infinity
stays where it is and makes no NaN beside it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest

import graft
from graft.plugins.reference.own import Evaluator
from graft.testkit.models.reference import EVALUATORS
from tests.plugins.onednn.models import needs_library

IMAGE, ROWS = "float[1,2,4,5] x", "float[4,5] x"
CASES = {
    "OneHot": ("int64[3] i, float[2] x", 'y = OneHot <axis = 0> (i, four, x)'),
    "OneHot-last": ("int64[3] i, float[2] x", 'y = OneHot (i, four, x)'),
    "Col2Im": ("float[1,8,9] x", 'y = Col2Im <pads = [1, 0, 0, 1]> (x, {3, 3}, {2, 2})'),
    "Col2Im-strides": ("float[1,8,4] x", 'y = Col2Im <strides = [3, 3]> (x, {6, 6}, {2, 2})'),
    "Pad": (ROWS, 'y = Pad (x, {1, 0, 0, 2})'),
    "Pad-value": (ROWS + ", float f", 'y = Pad (x, {1, 2, 0, 2}, f)'),
    "Pad-edge": (ROWS, 'y = Pad <mode = "edge"> (x, {1, 2, 1, 2})'),
    "Pad-reflect": (ROWS, 'y = Pad <mode = "reflect"> (x, {1, 2, 1, 2})'),
    "Pad-wrap": (ROWS, 'y = Pad <mode = "wrap"> (x, {1, 2, 1, 2})'),
    "Trilu": (ROWS, "y = Trilu <upper = 1> (x, k)"),
    "Trilu-lower": (ROWS, 'y = Trilu <upper = 0> (x)'),
    "Resize-nearest": (IMAGE, 'y = Resize <mode = "nearest"> (x, , , {1, 2, 7, 9})'),
    "CenterCropPad": (ROWS, 'y = CenterCropPad (x, {6, 3})'),
    "Expand": ("float[4,1] x", 'y = Expand (x, {4, 3})'),
    "Gather": (ROWS, 'y = Gather <axis = 1> (x, {4, 0, -1})'),
    "ScatterElements": (ROWS + ", int64[1,5] i, float[1,5] f", "y = ScatterElements <axis = 0> (x, i, f)"),
    "Transpose": (ROWS, "y = Transpose (x)"),
    "Concat": (ROWS, "y = Concat <axis = 1> (x, x)"),
    "DepthToSpace": ("float[1,4,2,3] x", "y = DepthToSpace <blocksize = 2> (x)"),
    "Where": (ROWS + ", bool[4,5] c, float[5] f", "y = Where (c, x, f)"),
    "MaxPool": (IMAGE, "y = MaxPool <kernel_shape = [2, 3], pads = [1, 1, 0, 1]> (x)"),
    "MaxPool-ceil": (IMAGE, "y = MaxPool <kernel_shape = [2, 2], strides = [3, 3], ceil_mode = 1> (x)"),
    "AveragePool": (IMAGE, "y = AveragePool <kernel_shape = [2, 3], pads = [1, 1, 0, 1]> (x)"),
    "AveragePool-pads": (
        IMAGE, "y = AveragePool <kernel_shape = [2, 3], pads = [1, 1, 0, 1], count_include_pad = 1> (x)"
    ),
    "ReduceMax": (ROWS, "y = ReduceMax <keepdims = 0> (x, {1})"),
    "ReduceMin": (ROWS, "y = ReduceMin <keepdims = 0> (x, {0})"),
    "ReduceSum": (ROWS, "y = ReduceSum <keepdims = 0> (x, {1})"),
    "CumSum": (ROWS, "y = CumSum <exclusive = 1> (x, k)"),
    "ConvTranspose": (IMAGE + ", float[2,1,2,2] w", "y = ConvTranspose (x, w)"),
    "ConvTranspose-strides": (IMAGE, "y = ConvTranspose <strides = [3, 2]> (x, weights)"),
    "Conv": (IMAGE, "y = Conv <pads = [1, 1, 1, 1]> (x, kernel)"),
}  # fmt: skip
"""Inputs and a node; a list of numbers in braces is a constant."""
WITHOUT_NAN = {"MaxPool", "MaxPool-ceil"}
"""ONNX does not say which is the larger of a number and NaN."""
ONEDNN = ("Transpose", "Concat", "MaxPool-ceil", "AveragePool", "AveragePool-pads", "Conv")
"""What oneDNN takes; not MaxPool, whose largest of infinities is the lowest finite number there (LOSES_NAN)."""
RUNS = 3


@cache
def model(name: str) -> onnx.ModelProto:
    inputs, node = CASES[name]
    constants = []
    while "{" in node:
        before, _, rest = node.partition("{")
        numbers, _, rest = rest.partition("}")
        constants.append(np.array([int(one) for one in numbers.split(",")]))
        node = f"{before}n{len(constants)}{rest}"
    random = np.random.default_rng(3)
    fixed = {f"n{place}": array for place, array in enumerate(constants, 1)} | {
        "k": np.array(1), "four": np.array(4), "kernel": random.uniform(0.5, 1, (2, 2, 3, 3)).astype(np.float32),
        "weights": np.float32([[[[1, np.inf], [2, -1]]], [[[-np.inf, 1], [0.5, 3]]]]),
    }  # fmt: skip
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 23]> g ({inputs}) => (y) {{ {node} }}'.replace("(y)", "(float[?] y)")
    )
    proto.graph.output[0].type.Clear()
    read = set(proto.graph.node[0].input)
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, key) for key, array in fixed.items() if key in read
    )
    return proto


def feeds(proto: onnx.ModelProto, seed: int, specials: tuple[float, ...]) -> dict[str, np.ndarray]:
    """Return inputs of which every fourth number is infinite or NaN, the corners always."""
    random = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}
    for value in proto.graph.input:
        shape = [one.dim_value for one in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if np.dtype(dtype).kind != "f":
            found[value.name] = random.integers(0, 2, shape).astype(dtype)
            continue
        array = random.uniform(0.5, 2, shape).astype(np.float32)
        where = random.random(shape) < 0.25
        array = np.where(where, random.choice(specials, shape), array).astype(np.float32)
        flat = array.reshape(-1)
        flat[0], flat[-1] = specials[seed % len(specials)], specials[(seed + 1) % len(specials)]
        found[value.name] = array
    return found


@pytest.mark.parametrize(("backend", "name"), [
    *(("llvm", name) for name in CASES), *(pytest.param("onednn", name, marks=needs_library) for name in ONEDNN),
    *(pytest.param(one, name, marks=pytest.mark.slow) for one in ("c_source", "cuda_emulator") for name in CASES),
])  # fmt: skip
def test_what_is_infinite_or_no_number_stays_where_it_belongs(backend: str, name: str) -> None:
    proto = model(name)
    program = graft.compile(proto, [backend], threads=1)
    specials = (np.inf, -np.inf) if name in WITHOUT_NAN else (np.inf, np.nan, -np.inf)
    for seed in range(RUNS):
        given = feeds(proto, seed, specials)
        (wanted,) = Evaluator(proto, new_ops=EVALUATORS).run(None, given)
        (found,) = program.run(given).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=f"seed {seed}")
