import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import Target, target_named
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.operators.products.contraction import element, product
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.products import blocking, contraction, factors
from graft.core.schedule.selection import select
from graft.core.schedule.strategies.contractions.blocked_product import schedule_contraction
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Buffer, Stage
from graft.core.tensor_ir.verifying.verifier import verify

WIDE = target_named("x86-64-v4")
NARROW = target_named("x86-64")
TARGETS = {"wide": WIDE, "narrow": NARROW}


def buffer(name: str, shape: tuple[int, ...], dtype: str = "float32") -> Buffer:
    return Buffer(name, dtype, tuple(map(b.index, shape)))


def matmul(
    left: tuple[int, ...], right: tuple[int, ...], dtype: str = "float32", constant: bool = False, epilogue: str = ""
) -> tuple[Kernel, list[np.ndarray]]:
    shape = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    x, y, bias, out = (
        buffer("x", left, dtype),
        buffer("y", right, dtype),
        buffer("bias", shape[-1:], dtype),
        buffer("out", shape, dtype),
    )
    inputs, target = [x, y], out
    stages: list[Stage] = []
    if epilogue:
        target = buffer("sums", shape, dtype)
        inputs.append(bias)
    stages.append(product(target, (left, element(x, dtype)), (right, element(y, dtype)), dtype))
    if epilogue == "bias":
        stages.append(b.compute(out, lambda i: b.maximum(b.add(b.load(target, *i), b.load(bias, i[-1])), 0)))
    elif epilogue == "heavy":
        stages.append(
            b.compute(
                out, lambda i: b.intrinsic("tanh", b.intrinsic("exp", b.add(b.load(target, *i), b.load(bias, i[-1]))))
            )
        )
    random = np.random.default_rng(math.prod(shape) + left[-1])
    arrays = [random.integers(-4, 5, b.dims(item)).astype(dtype) for item in inputs]
    constants = {y: arrays[1]} if constant else {}
    return Kernel("kernel", tuple(inputs), (out,), tuple(stages), Trait.CONTRACTION, None, 0, constants), arrays


def check(kernel: Kernel, arrays: list[np.ndarray], target: Target) -> None:
    """The scheduled function computes what the stages say; inputs are small integers, so that sums are exact."""
    scheduled = schedule_contraction(kernel, target)
    contents = dict(zip(kernel.inputs, arrays, strict=True))
    expected = run_stages(kernel.stages, contents)
    inputs = [
        scheduled.packed.get(item, contents[item]).reshape(b.dims(parameter))
        for item, parameter in zip(kernel.inputs, scheduled.function.input_buffers, strict=True)
    ]
    outputs = run_function(scheduled.function, inputs)
    for item, output in zip(kernel.outputs, outputs, strict=True):
        np.testing.assert_array_equal(output.reshape(expected[item].shape), expected[item])


extents = st.integers(1, 37)


@settings(max_examples=12, deadline=None)
@given(m=extents, k=st.integers(1, 9), n=extents, constant=st.booleans(), narrow=st.booleans())
def test_a_matrix_product_of_any_shape_is_computed(m: int, k: int, n: int, constant: bool, narrow: bool) -> None:
    kernel, arrays = matmul((m, k), (k, n), constant=constant)
    check(kernel, arrays, NARROW if narrow else WIDE)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("shapes", [((2, 3, 5, 4), (2, 3, 4, 19)), ((6, 1, 3, 4), (1, 2, 4, 5)), ((2, 3, 4), (4, 18))])
def test_batches_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]], target: Target) -> None:
    check(*matmul(*shapes), target)


@pytest.mark.parametrize("constant", [True, False])
def test_a_constant_batch_is_packed_per_product(constant: bool) -> None:
    check(*matmul((3, 2, 4), (3, 4, 20), constant=constant), WIDE)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "float16"])
def test_other_element_types_are_computed(dtype: str) -> None:
    check(*matmul((5, 6), (6, 21), dtype), WIDE)


@pytest.mark.parametrize("epilogue", ["bias", "heavy"])
@pytest.mark.parametrize("shape", [((15, 3), (3, 33)), ((1, 7), (7, 40))])
def test_an_epilogue_is_applied_to_the_sums(shape: tuple[tuple[int, ...], tuple[int, ...]], epilogue: str) -> None:
    check(*matmul(*shape, epilogue=epilogue), WIDE)


@pytest.mark.parametrize("transposed", ["left", "right", "both"])
@pytest.mark.parametrize("constant", [True, False])
def test_transposed_factors_are_read_as_they_lie(transposed: str, constant: bool) -> None:
    m, k, n = 17, 5, 35
    x = buffer("x", (k, m) if transposed != "right" else (m, k))
    y = buffer("y", (n, k) if transposed != "left" else (k, n))
    out = buffer("out", (m, n))
    stage = b.reduce(
        out,
        "add",
        [k],
        lambda i, r: b.multiply(
            b.load(x, *((r[0], i[0]) if transposed != "right" else (i[0], r[0]))),
            b.load(y, *((i[1], r[0]) if transposed != "left" else (r[0], i[1]))),
        ),
    )
    random = np.random.default_rng(3)
    arrays = [random.integers(-4, 5, b.dims(item)).astype("float32") for item in (x, y)]
    constants = {x: arrays[0], y: arrays[1]} if constant else {}
    check(Kernel("kernel", (x, y), (out,), (stage,), Trait.CONTRACTION, None, 0, constants), arrays, WIDE)


def test_large_strides_are_packed_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "LARGE_SHARE", 1024 / (1 << 20))
    kernel, arrays = matmul((45, 3), (3, 300))
    check(kernel, arrays, WIDE)
    assert "panels" in repr(schedule_contraction(kernel, WIDE).function.body)


def test_a_product_of_no_two_factors_falls_back_to_plain_loops() -> None:
    x, out = buffer("x", (4, 5)), buffer("out", (4,))
    stage = b.reduce(out, "add", [5], lambda i, r: b.load(x, i[0], r[0]))
    arrays = [np.arange(20, dtype="float32").reshape(4, 5)]
    check(Kernel("kernel", (x,), (out,), (stage,), Trait.CONTRACTION), arrays, WIDE)


def test_both_outputs_of_a_chain_are_stored() -> None:
    kernel, arrays = matmul((3, 4), (4, 5), epilogue="bias")
    both = Kernel("kernel", kernel.inputs, (kernel.stages[0].buffer, *kernel.outputs), kernel.stages, kernel.anchor)
    check(both, arrays, WIDE)


def with_ways(ways: int) -> Target:
    """Return a target of whose first-level cache a way has fewer bytes."""
    first, *others = WIDE.machine.memories
    return replace(WIDE, machine=replace(WIDE.machine, memories=(replace(first, ways=ways), *others)))


def test_rows_that_compete_for_cache_lines_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    target = with_ways(128)
    monkeypatch.setattr(factors, "CONFLICT_ROWS", 2)
    kernel, arrays = matmul((13, 64), (64, 240), constant=True)
    check(kernel, arrays, target)
    assert "name='rows'" in repr(schedule_contraction(kernel, target).function.body)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("shape", [(29, 4 * 37 + 3, 70), (1, 150, 33), (15, 64, 19), (3, 131, 300)])
@pytest.mark.parametrize("threads", [1, 2])
def test_long_sums_are_cut_into_parts(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], constant: bool, threads: int
) -> None:
    monkeypatch.setattr(blocking, "SPAN_SHARE", 256 / (32 << 10))
    monkeypatch.setattr(blocking, "PARTIAL_SHARE", 16384 / (1 << 20))
    monkeypatch.setattr(contraction, "AHEAD_SHARE", 0)
    m, k, n = shape
    kernel, arrays = matmul((m, k), (k, n), constant=constant, epilogue="bias")
    target = replace(WIDE, threads=threads)
    check(kernel, arrays, target)
    function = schedule_contraction(kernel, target).function
    verify(function)
    assert ("name='partial'" in repr(function.body)) == (m > 14 and k > 80)


def test_packed_panels_are_fetched_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, _ = matmul((29, 8), (8, 70), constant=True)
    assert "prefetch" not in str(schedule_contraction(kernel, WIDE).function)
    monkeypatch.setattr(contraction, "AHEAD_SHARE", 0)
    assert "call prefetch(" in str(schedule_contraction(kernel, WIDE).function)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_large_matrix_that_few_rows_meet_is_read_row_by_row(
    monkeypatch: pytest.MonkeyPatch, rows: int, threads: int
) -> None:
    monkeypatch.setattr(factors, "PACK_SHARE", 0)
    kernel, arrays = matmul((rows, 27), (27, 300), epilogue="bias")
    check(kernel, arrays, replace(WIDE, threads=threads))
    verify(schedule_contraction(kernel, WIDE).function)
    assert "name='partial'" in repr(schedule_contraction(kernel, WIDE).function.body)


@pytest.mark.parametrize("rows", [29, 90])
def test_rows_are_copied_block_by_block(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(blocking, "BLOCK_SHARE", (1 << 14) / (1 << 20))
    target = with_ways(512)
    monkeypatch.setattr(factors, "CONFLICT_ROWS", 2)
    kernel, arrays = matmul((rows, 16), (16, 240), constant=True)
    check(kernel, arrays, target)
    assert "name='rows'" in repr(schedule_contraction(kernel, target).function.body)


@pytest.mark.parametrize("far", [True, False])
def test_panels_packed_one_by_one_hold_sums_of_all_tiles(monkeypatch: pytest.MonkeyPatch, far: bool) -> None:
    monkeypatch.setattr(factors, "LARGE_SHARE", 1024 / (1 << 20))
    monkeypatch.setattr(factors, "MIN_TASKS", 4)
    monkeypatch.setattr(blocking, "SPAN_SHARE", 64 / (32 << 10))
    monkeypatch.setattr(blocking, "BLOCK_SHARE", (1 << 11) / (1 << 20))
    kernel, arrays = matmul((45, 31), (31, 300))
    if not far:
        monkeypatch.setattr(factors, "FAR_LINES", 1 << 14)
    check(kernel, arrays, WIDE)
    body = repr(schedule_contraction(kernel, WIDE).function.body)
    assert "name='partial'" in body
    assert ("name='panels'" in body) == far


@pytest.mark.parametrize("epilogue", ["", "bias", "heavy"])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("leading", [(3, 5), (2, 1, 2, 3)])
def test_an_image_times_a_matrix_is_scheduled_as_rows(leading: tuple[int, ...], constant: bool, epilogue: str) -> None:
    image, arrays = matmul((*leading, 6), (6, 20), constant=constant, epilogue=epilogue)
    rows, _ = matmul((math.prod(leading), 6), (6, 20), constant=constant, epilogue=epilogue)
    assert str(schedule_contraction(image, WIDE).function) == str(schedule_contraction(rows, WIDE).function)
    check(image, arrays, WIDE)


def test_a_product_for_each_of_several_matrices_keeps_its_axes() -> None:
    kernel, arrays = matmul((3, 5, 6), (3, 6, 20), constant=True)
    check(kernel, arrays, WIDE)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_a_matrix_that_one_column_meets_is_read_once_where_it_lies(dtype: str) -> None:
    """To turn it first, as for many columns, takes several times as long as the products."""
    kernel, arrays = matmul((100, 70), (70, 1), dtype)
    scheduled = select.schedule(kernel, WIDE)
    assert scheduled.strategy != "blocked_product", scheduled.knobs
    (found,) = run_function(scheduled.function, [array.ravel() for array in arrays])
    np.testing.assert_allclose(found.reshape(100, 1), arrays[0] @ arrays[1], rtol=1e-5)
    assert select.schedule(matmul((100, 70), (70, 2), dtype)[0], WIDE).strategy == "blocked_product"


@pytest.mark.parametrize(("rows", "tile"), [(4, (4, 6)), (8, (8, 3)), (128, (5, 5))])
def test_a_factor_from_afar_is_read_by_tiles_of_as_many_rows_as_there_are_few(rows: int, tile: tuple[int, int]) -> None:
    kernel, _ = matmul((rows, 512), (512, 512), constant=True)
    knobs = schedule_contraction(kernel, WIDE).knobs
    assert (knobs["rows"], knobs["vectors"]) == tile
