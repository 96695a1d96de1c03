"""Transforms of lengths of every kind, against NumPy's, compiled and by the definition of their stages."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.lower import lower, lowering_of
from graft.core.operators.products.fast_fourier import LARGEST, SIDE_BY_SIDE, radices, roots
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Intrinsic
from graft.core.tensor_ir.visit import walk_expressions
from graft.plugins.codegen.grouping.lowerings import Lowerings

LENGTHS = (1, 2, 3, 5, 7, 8, 9, 13, 16, 22, 31, 35, 61, 64, 67, 100, 127, 134, 256, 480, 997, 1000)
"""One factor, several, few and many side by side, primes that are summed and primes that are convolved."""


def model(length: int, parts: int, kind: str = "double", batch: str = "3", **attributes: int) -> onnx.ModelProto:
    bins = length // 2 + 1 if attributes.get("onesided") and not attributes.get("inverse") else length
    said = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g ({kind}[{batch},{length},{parts}] x) => '
        f"({kind}[{batch},{bins},2] y) <int64 axis = {{1}}> {{ y = DFT <{said}> (x, , axis) }}"
    )


def signal(length: int, parts: int, batch: int = 3) -> np.ndarray:
    return np.random.default_rng(length).standard_normal((batch, length, parts))


def as_complex(pairs: np.ndarray) -> np.ndarray:
    return pairs[..., 0] + (1j * pairs[..., 1] if pairs.shape[-1] == 2 else 0)


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_transform_of_any_length_is_that_of_numpy_to_the_last_bits(length: int, inverse: int) -> None:
    x = signal(length, 2)
    wanted = (np.fft.ifft if inverse else np.fft.fft)(as_complex(x))
    y = graft.compile(model(length, 2, inverse=inverse), ["llvm"], threads=1, cache=False)(x)
    assert np.abs(as_complex(y) - wanted).max() <= 4e-15 * max(1, np.log2(length)) * np.abs(wanted).max()


@pytest.mark.parametrize("length", [1, 6, 100, 67])
def test_half_of_a_spectrum_of_real_numbers_is_transformed_for_any_number_of_rows(length: int) -> None:
    x = signal(length, 1, 5).astype(np.float32)
    program = graft.compile(model(length, 1, "float", "n", onesided=1), ["llvm"], threads=1, cache=False)
    wanted = np.fft.rfft(x[..., 0].astype(np.float64))
    np.testing.assert_allclose(as_complex(program(x)), wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("length", [12, 26, 71])
def test_stages_mean_the_same_without_the_tables_that_are_known(length: int) -> None:
    graph = ir.from_proto(onnx.shape_inference.infer_shapes(model(length, 2, inverse=0))).graph
    lowering = lowering_of(NodeView(graph[0]))
    stages = lower(lowering, OPERATORS)
    x = signal(length, 2)
    made = run_stages(stages, {lowering.input(0): x})
    for table, contents in lowering.known.items():
        np.testing.assert_allclose(made[table], contents, atol=1e-12)
    np.testing.assert_allclose(as_complex(made[lowering.output()]), np.fft.fft(as_complex(x)), atol=1e-11)


def test_kernels_read_tables_instead_of_computing_them() -> None:
    graph = ir.from_proto(onnx.shape_inference.infer_shapes(model(71, 2, inverse=0))).graph
    lowerings = Lowerings(OPERATORS)
    stages = lowerings.take(NodeView(graph[0]))
    assert lowerings.known
    computed = {stage.buffer for stage in stages if stage.buffer not in lowerings.known}
    nodes = [node for stage in stages if stage.buffer in computed for node in walk_expressions(stage.value)]
    assert not any(isinstance(node, Intrinsic) for node in nodes)


def test_roots_of_quarter_turns_are_whole_numbers() -> None:
    for length in (4, 8, 12, 100):
        cosine, sine = roots(length)
        quarters = np.arange(4) * (length // 4)
        np.testing.assert_array_equal(cosine[quarters], [1, 0, -1, 0])
        np.testing.assert_array_equal(sine[quarters], [0, 1, 0, -1])


@pytest.mark.parametrize("length", LENGTHS)
def test_factors_leave_vectors_of_transforms_where_they_can(length: int) -> None:
    factors = radices(length)
    assert np.prod(factors) == length
    if any(length % one == 0 for one in range(SIDE_BY_SIDE, 2 * SIDE_BY_SIDE)):
        assert factors[0] >= SIDE_BY_SIDE
    assert max(factors) <= LARGEST or length in (67, 127, 134, 997)
