"""Which code a number has changes no result: a format is computed like the same format with permuted codes.

Borders, initial values, identities and defaults are numbers, not codes: zero stands at code 91 here, and code 0 is NaN
or something else.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest

import graft
from graft.core.operators.definition import build as b
from graft.datatypes.constants import code_of
from graft.datatypes.conversion import convert
from graft.datatypes.lowering import via
from graft.datatypes.registry import DatatypeRegistry
from graft.datatypes.shipped import DATATYPES
from graft.datatypes.small_float import SmallFloat
from graft.errors import DatatypeError, UnsupportedError
from tests.core.operators.node_cases import Case, all_cases
from tests.datatypes.permuted import register_permuted

FORMAT = SmallFloat(8, 3)
"""Four exponent bits and three of the fraction, with infinities; NaN from code 121 on."""
ORDERS = {"ordered": (1, 0), "shuffled": (37, 91), "headed": (1, 256 - 124)}
"""By type, where the codes stand: as the format has them, zero at 91, NaN at 0."""

NODES = """
    conv = Conv <pads = [2, 1, 1, 2]> (image, kernel)
    grouped = Conv <pads = [1, 1, 1, 1], group = 3> (image, groups)
    dilated = Conv <auto_pad = "SAME_UPPER", strides = [2, 2], dilations = [2, 2]> (image, kernel)
    transposed = ConvTranspose <strides = [2, 2], dilations = [2, 1]> (image, kernel_back)
    maxima = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (image)
    means = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (image)
    norms = LpPool <kernel_shape = [3, 2], pads = [1, 1, 1, 1]> (image)
    padded = Pad (image, widths)
    edged = CenterCropPad <axes = [2, 3]> (image, size)
    lower = Trilu <upper = 0> (image)
    sums = CumSum <exclusive = 1> (image, two)
    sampled = GridSample <mode = "nearest"> (image, grid)
    unpooled = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (pooled, places)
    columns = Col2Im <pads = [1, 1, 1, 1]> (blocks, size, window)
    normal = LayerNormalization (image, ones)
    soft = Softmax (image)
    clipped = Clip (image)
    largest = ReduceMax <keepdims = 0> (image, axis)
    least = ReduceMin <keepdims = 0> (image, axis)
    product = ReduceProd <keepdims = 0> (image, axis)
    logarithm = ReduceLogSumExp <keepdims = 0> (image, axis)
    hot = OneHot (indices, depth, pair)
    matrix = MatMul (rows, weights)
    gemm = Gemm <transB = 1> (rows, weights_back)
    states, last = GRU <hidden_size = 3> (sequence, gates, recurrence)
    best, where = TopK <axis = 1> (rows, axis)
"""
SHAPES = {
    "image": (1, 3, 6, 5), "rows": (5, 19), "sequence": (4, 2, 3), "pooled": (1, 1, 2, 2), "blocks": (1, 4, 64),
}  # fmt: skip


FEW = ("conv", "padded", "means", "soft", "largest")
"""What is compiled by a C compiler, too, which takes its time over tables."""


@cache
def model(few: bool = False) -> onnx.ModelProto:
    """Every operator that writes or adds a constant, each by itself."""
    random = np.random.default_rng(4)
    constants = {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in {
            "kernel": (4, 3, 3, 2), "groups": (6, 1, 3, 3), "kernel_back": (3, 2, 3, 3), "weights": (19, 7),
            "weights_back": (7, 19), "gates": (1, 9, 3), "recurrence": (1, 9, 3),
        }.items()
    } | {
        "widths": np.array([0, 0, 1, 2, 0, 0, 2, 1]), "size": np.array([7, 7]), "window": np.array([2, 2]),
        "two": np.array(2),
        "axis": np.array([2]), "grid": random.uniform(-1.5, 1.5, (1, 3, 4, 2)).astype(np.float32), "depth": np.array(4),
        "places": np.array([[[[0, 3], [9, 14]]]]), "ones": np.ones(5, np.float32), "indices": np.array([0, 3, 1]),
        "pair": np.array([0, 1.5], np.float32),
    }  # fmt: skip
    lines = [line for line in NODES.splitlines() if not few or line.split(" = ")[0].strip() in FEW]
    graph = onnx.parser.parse_graph("g () => () {" + "\n".join(lines) + "}")
    results = [name for node in graph.node for name in node.output]
    graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in results)
    read = {name for node in graph.node for name in node.input}
    given = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in SHAPES.items() if name in read]
    graph.input.extend(given)
    graph.initializer.extend(onnx.numpy_helper.from_array(constants[name], name) for name in read & constants.keys())
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)
    return onnx.shape_inference.infer_shapes(proto)


@pytest.fixture(autouse=True, scope="module")
def formats() -> None:
    DATATYPES.register("stated", format=lambda bits: FORMAT if bits == 8 else None, widths=(8,))
    for name, (factor, offset) in ORDERS.items():
        register_permuted(DATATYPES, name, FORMAT, factor, offset)


def inputs(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    drawn = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    return {value.name: drawn[value.name] for value in proto.graph.input}


def results(proto: onnx.ModelProto, dtype: str, backend: str, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    program = graft.compile(convert(proto, f"custom[{dtype}]8"), [backend], strict=True, threads=1)
    return dict(program.run(given))


@cache
def expected() -> dict[str, np.ndarray]:
    return results(model(), "stated", "llvm", inputs(model()))


@pytest.mark.parametrize(("dtype", "backend"), [("ordered", "llvm"), ("shuffled", "llvm"), ("headed", "c_source")])
def test_the_codes_of_a_format_change_no_result(dtype: str, backend: str) -> None:
    proto = model(few=backend == "c_source")
    for name, numbers in results(proto, dtype, backend, inputs(proto)).items():
        np.testing.assert_array_equal(numbers, expected()[name], err_msg=name)


def test_a_constant_is_the_code_of_a_cast_and_a_limit_what_no_number_is_beyond() -> None:
    (zero,) = graft.datatypes.encode(np.zeros(1), "custom[shuffled]8")
    assert code_of(0.0, "custom[shuffled]8") == zero == 91
    largest = SmallFloat(8, 3, infinities=False, nan="top")  # an overflow is NaN
    registry = DatatypeRegistry()
    register_permuted(registry, "open", largest, 5, 7)
    for infinity, limit in ((np.inf, largest.largest), (-np.inf, largest.lowest)):
        code = np.array([code_of(infinity, "custom[open]8", registry)], np.uint8)
        assert graft.datatypes.decode(code, "custom[open]8", registry=registry) == limit
    registry.register_op(lambda: b.constant(17, "uint8"), "Lowest", None, "open")
    assert code_of(-np.inf, "custom[open]8", registry) == 17
    registry.register_op(via("float32"), "Lowest", None, "open")
    with pytest.raises(DatatypeError) as caught:
        code_of(-np.inf, "custom[open]8", registry)
    assert caught.value.message == (
        "Lowest of custom[open]8 has no operands to cast or to look up; register a C function or a function of "
        "expressions"
    )
    registry.register("castless", widths=(8,))
    assert code_of(0.0, "custom[castless]8", registry) is None


def by_operator() -> dict[str, list[Case]]:
    cases: dict[str, list[Case]] = {}
    for case in all_cases().values():
        if any(array.dtype.kind == "f" for array in (*case.inputs, *case.outputs)):
            cases.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return cases


def test_a_dropout_of_a_format_keeps_a_mask_that_is_an_output() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 22]>
        g (float[4] x) => (float[4] y, bool[4] mask) { y, mask = Dropout (x) }""")
    x = np.float32([1, -2, 0.5, 4])
    found = results(proto, "stated", "llvm", {"x": x})
    np.testing.assert_array_equal(found["y"], x)
    np.testing.assert_array_equal(found["mask"], [True] * 4)


@pytest.mark.conformance
@pytest.mark.parametrize("operator", sorted(by_operator()))
@pytest.mark.parametrize("backend", ["llvm", "c_source"])
def test_the_codes_of_a_format_change_no_case_of_onnx(operator: str, backend: str) -> None:
    cases = by_operator()[operator]
    for case in cases[:: 1 + len(cases) // 12]:
        given = dict(zip([value.name for value in case.model.graph.input], case.inputs, strict=True))
        try:
            first = results(case.model, "stated", backend, given)
        except UnsupportedError:
            continue
        for dtype in ORDERS:
            for name, numbers in results(case.model, dtype, backend, given).items():
                np.testing.assert_array_equal(numbers, first[name], err_msg=f"{case.name}: {name} of {dtype}")
