"""Any parameters give the same result, and parameters are data."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import (
    COLUMNS,
    PACKINGS,
    AttentionParameters,
    ContractionParameters,
    Parameters,
    WinogradParameters,
    from_json,
    of_family,
    to_json,
)
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.errors import TuningError
from tests.core.schedule.convolutions import NARROW, WIDE, convolution
from tests.core.schedule.products.test_dot_grouping import PLAIN, VNNI, matmul_integer
from tests.core.schedule.strategies.attention.test_fused_attention import attention_kernel
from tests.core.schedule.strategies.contractions.test_blocked_product import matmul


def optional(low: int, high: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(low, high)


contractions = st.builds(
    ContractionParameters,
    rows=optional(1, 40),
    vectors=optional(1, 12),
    unroll=optional(1, 20),
    block_bytes=optional(1, 4096),
    span_bytes=optional(1, 256),
    packing=st.none() | st.sampled_from(PACKINGS),
    columns=st.none() | st.sampled_from(COLUMNS),
)
winograds = st.builds(
    WinogradParameters,
    pieces=st.integers(1, 8),
    block=optional(1, 60),
    rows=optional(1, 40),
    vectors=optional(1, 12),
)
attentions = st.builds(AttentionParameters, rows=optional(1, 40), vectors=optional(1, 12), keys=optional(1, 64))
anything = st.none() | contractions | winograds | attentions
targets = st.sampled_from([WIDE, NARROW])


def check(kernel: Kernel, arrays: list[np.ndarray], target: Target, parameters: Parameters | None, tolerance: float):
    scheduled = schedule(kernel, target, parameters)
    contents = dict(zip(kernel.inputs, arrays, strict=True))
    inputs = [
        scheduled.packed.get(item, contents[item]).reshape(b.dims(parameter))
        for item, parameter in zip(kernel.inputs, scheduled.function.input_buffers, strict=True)
    ]
    (output,) = run_function(scheduled.function, inputs)
    expected = run_stages(kernel.stages, contents)[kernel.outputs[0]]
    np.testing.assert_allclose(output.reshape(expected.shape), expected, rtol=tolerance, atol=10 * tolerance)


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 70)),
    constant=st.booleans(),
    target=targets,
    parameters=contractions,
)
def test_any_parameters_of_a_product_give_the_same_result(
    shape: tuple[int, int, int], constant: bool, target: Target, parameters: ContractionParameters
) -> None:
    m, k, n = shape
    kernel, arrays = matmul((m, k), (k, n), constant=constant, epilogue="bias")
    check(kernel, arrays, target, parameters, 0)


@settings(max_examples=10, deadline=None)
@given(
    shape=st.tuples(st.integers(2, 30), st.integers(1, 40), st.integers(2, 70)),
    constant=st.booleans(),
    target=st.sampled_from([VNNI, PLAIN]),
    parameters=contractions,
)
def test_any_parameters_of_a_product_of_bytes_give_the_same_result(
    shape: tuple[int, int, int], constant: bool, target: Target, parameters: ContractionParameters
) -> None:
    m, k, n = shape
    kernel, arrays = matmul_integer((m, k), (k, n), points=("scalar", "each"), constant="y" if constant else "")
    check(kernel, arrays, target, parameters, 0)


@settings(max_examples=16, deadline=None)
@given(
    source=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(3, 9), st.integers(3, 9)),
    outputs=st.sampled_from([3, 16]),
    window=st.sampled_from([1, 3]),
    stride=st.integers(1, 2),
    parameters=contractions | winograds,
)
def test_any_parameters_of_a_convolution_give_the_same_result(
    source: tuple[int, ...], outputs: int, window: int, stride: int, parameters: Parameters
) -> None:
    pads = [window // 2] * 4
    kernel, arrays = convolution(source, (outputs, source[1], window, window), strides=[stride] * 2, pads=pads)
    check(kernel, arrays, WIDE, parameters, 1e-3 if isinstance(parameters, WinogradParameters) else 0)


@settings(max_examples=8, deadline=None)
@given(queries=st.integers(1, 25), keys=st.integers(1, 20), target=targets, parameters=attentions)
def test_any_parameters_of_attention_give_the_same_result(
    queries: int, keys: int, target: Target, parameters: AttentionParameters
) -> None:
    kernel = attention_kernel(2, queries, keys, 5, 7)
    random = np.random.default_rng(3)
    arrays = [random.standard_normal(b.dims(item)).astype(np.float32) for item in kernel.inputs]
    check(kernel, arrays, target, parameters, 2e-5)


@settings(max_examples=10, deadline=None)
@given(parameters=anything)
def test_parameters_of_another_family_change_nothing(parameters: Parameters | None) -> None:
    kernel, _ = matmul((5, 6), (6, 21))
    plain = schedule(kernel, WIDE).function
    if of_family(parameters, ContractionParameters) is None:
        assert str(schedule(kernel, WIDE, parameters).function) == str(plain)


def test_parameters_are_what_the_schedule_does() -> None:
    kernel, _ = matmul((40, 8), (8, 64), constant=True)
    knobs = schedule(kernel, WIDE, ContractionParameters(rows=3, vectors=2)).knobs
    assert (knobs["rows"], knobs["vectors"]) == (3, 2)
    assert schedule(kernel, WIDE).knobs["rows"] != 3
    image, _ = convolution((1, 4, 12, 12), (16, 4, 3, 3), pads=[1] * 4)
    for pieces in (2, 4):
        scheduled = schedule(image, WIDE, WinogradParameters(pieces, 1))
        assert (scheduled.strategy, scheduled.knobs["pieces"]) == ("winograd", pieces)
    assert schedule(image, WIDE, ContractionParameters()).strategy == "direct_convolution"


def test_winograds_algorithm_stays_switched_off() -> None:
    image, _ = convolution((1, 4, 12, 12), (16, 4, 3, 3), pads=[1] * 4)
    without = replace(WIDE, without=frozenset({"winograd"}))
    scheduled = schedule(image, without, WinogradParameters(4, 1))
    assert scheduled.strategy == "direct_convolution"
    assert str(scheduled.refusals["winograd"]) == "user-excluded: Winograd's algorithm is switched off"


@given(parameters=anything)
def test_parameters_survive_the_way_through_json(parameters: Parameters | None) -> None:
    assert from_json(to_json(parameters)) == parameters


def test_parameters_read_as_one_line() -> None:
    assert to_json(None) == "null"
    assert to_json(ContractionParameters(rows=14, vectors=2)) == '{"family": "contraction", "rows": 14, "vectors": 2}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{",
            "parameters '{' are no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        (
            '{"family": "other"}',
            'parameters \'{"family": "other"}\' are of no known family; '
            "there are contraction, winograd_blocks, attention, block_tile, attention_tile, block",
        ),
        (
            "[3]",
            "parameters '[3]' are of no known family; "
            "there are contraction, winograd_blocks, attention, block_tile, attention_tile, block",
        ),
        (
            '{"family": "winograd_blocks", "pieces": 0, "block": 1}',
            'parameters \'{"family": "winograd_blocks", "pieces": 0, "block": 1}\' '
            "of a winograd_blocks have no pieces 0",
        ),
        (
            '{"family": "contraction", "columns": "rows"}',
            'parameters \'{"family": "contraction", "columns": "rows"}\' of a contraction have no columns \'rows\'',
        ),
    ],
)
def test_what_is_no_parameters_is_refused(text: str, message: str) -> None:
    with pytest.raises(TuningError) as caught:
        from_json(text)
    assert str(caught.value) == message


def test_incomplete_parameters_are_refused() -> None:
    with pytest.raises(TuningError, match=r"are not complete: .*'pieces'"):
        from_json('{"family": "winograd_blocks", "block": 2}')
