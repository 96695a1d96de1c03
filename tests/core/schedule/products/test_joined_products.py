"""Products side by side: one function that computes what the kernels compute one after another."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import target_named
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.operators.products.contraction import element, product
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.products.epilogue import epilogue_of
from graft.core.schedule.products.joined_products import beside, beside_pays, fits, stacking_pays
from graft.core.schedule.strategies.contractions.blocked_product import schedule_contraction
from graft.core.schedule.strategies.nests.generic_nest import schedule_generic
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Buffer
from graft.core.tensor_ir.verifying.verifier import verify
from tests.core.schedule.strategies.contractions.test_blocked_product import NARROW, WIDE, buffer

EPILOGUES = ("", "bias", "heavy")


def one(x: Buffer, name: str, width: int, epilogue: str, constants: dict[Buffer, np.ndarray]) -> Kernel:
    """The product of ``x`` by a constant of so many columns, and what follows it."""
    *_, terms = shape = b.dims(x)
    weights, bias, out = (
        buffer(f"w{name}", (terms, width)),
        buffer(f"b{name}", (width,)),
        buffer(name, (*shape[:-1], width)),
    )
    random = np.random.default_rng(width)
    own = {weights: random.integers(-4, 5, (terms, width)).astype("float32")}
    sums = buffer(f"sums{name}", b.dims(out)) if epilogue else out
    stages = [product(sums, (shape, element(x, "float32")), (b.dims(weights), element(weights, "float32")), "float32")]
    if epilogue:
        own[bias] = random.integers(-4, 5, width).astype("float32")
        added = buffer(f"added{name}", b.dims(out)) if epilogue == "heavy" else out
        stages.append(b.compute(added, lambda i: b.add(b.load(sums, *i), b.load(bias, i[-1]))))
        if epilogue == "heavy":
            stages.append(b.compute(out, lambda i: b.intrinsic("tanh", b.intrinsic("exp", b.load(added, *i)))))
    constants.update(own)
    return Kernel(name, (x, *own), (out,), tuple(stages), Trait.CONTRACTION, None, 0, own, (name,))


def kernels(
    leading: tuple[int, ...], terms: int, parts: list[tuple[int, str]]
) -> tuple[list[Kernel], dict[Buffer, np.ndarray]]:
    """Kernels of one left factor, and what all their inputs hold."""
    x = buffer("x", (*leading, terms))
    arrays = {x: np.random.default_rng(terms).integers(-4, 5, (*leading, terms)).astype("float32")}
    return [one(x, f"y{number}", *part, arrays) for number, part in enumerate(parts)], arrays


def joined(found: list[Kernel]) -> Kernel:
    whole = beside(found, "kernel", WIDE)
    assert whole is not None
    return whole


def check(scheduled: Scheduled, whole: Kernel, found: list[Kernel], arrays: dict[Buffer, np.ndarray]) -> None:
    """The function gives what each kernel gives by itself; inputs are small integers, so that sums are exact."""
    verify(scheduled.function)
    given = {**arrays, **whole.constants}
    inputs = [
        scheduled.packed.get(item, given[item]).reshape(b.dims(parameter))
        for item, parameter in zip(whole.inputs, scheduled.function.input_buffers, strict=True)
    ]
    outputs = run_function(scheduled.function, inputs)
    for kernel, output in zip(found, outputs, strict=True):
        expected = run_stages(kernel.stages, arrays)[kernel.outputs[0]]
        np.testing.assert_array_equal(output.reshape(expected.shape), expected)


parts = st.lists(st.tuples(st.sampled_from((16, 32, 48, 80)), st.sampled_from(EPILOGUES)), min_size=2, max_size=4)


@settings(max_examples=12, deadline=None)
@given(
    leading=st.sampled_from(((), (1,), (7,), (29,), (2, 5))), terms=st.integers(1, 9), parts=parts, narrow=st.booleans()
)
def test_products_side_by_side_are_those_products(
    leading: tuple[int, ...], terms: int, parts: list[tuple[int, str]], narrow: bool
) -> None:
    found, arrays = kernels(leading, terms, parts)
    whole = joined(found)
    check(schedule_contraction(whole, NARROW if narrow else WIDE), whole, found, arrays)
    check(schedule_generic(whole, WIDE), whole, found, arrays)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_product_side_by_side_is_cut_into_parts(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graft.core.schedule.products.blocking.SPAN_SHARE", 256 / (32 << 10))
    found, arrays = kernels((15,), 101, [(96, "bias"), (16, ""), (48, "heavy")])
    whole = joined(found)
    scheduled = schedule_contraction(whole, replace(WIDE, threads=threads))
    assert "name='partial'" in repr(scheduled.function.body)
    check(scheduled, whole, found, arrays)


@pytest.mark.parametrize("vectors", [1, 2, 3, 4, 5, 8])
def test_a_tile_of_any_parameters_may_reach_into_the_next_product(vectors: int) -> None:
    found, arrays = kernels((9,), 5, [(96, ""), (16, "heavy"), (32, "bias")])
    whole = joined(found)
    wanted = ContractionParameters(rows=4, vectors=vectors)
    check(schedule_contraction(whole, WIDE, wanted), whole, found, arrays)


def linked(leading: tuple[int, ...], width: int, count: int) -> tuple[list[Kernel], dict[Buffer, np.ndarray]]:
    """Products of which each after the first multiplies its activation by what the one before gives."""
    found, arrays = kernels(leading, 5, [(width, "heavy")] * count)
    for number in range(1, count):
        kernel, before = found[number], found[number - 1].outputs[0]
        (last,) = kernel.outputs
        out = buffer(f"linked{number}", b.dims(last))
        stage = b.compute(out, lambda i, last=last, before=before: b.multiply(b.load(last, *i), b.load(before, *i)))
        inputs = (*kernel.inputs, before)
        found[number] = replace(kernel, inputs=inputs, outputs=(out,), stages=(*kernel.stages, stage))
    return found, arrays


@settings(max_examples=12, deadline=None)
@given(
    leading=st.sampled_from(((), (7,), (2, 5))), vectors=st.integers(1, 7), count=st.integers(2, 3),
    wanted=st.none() | st.integers(1, 8), narrow=st.booleans(),
)  # fmt: skip
def test_products_take_turns_if_one_reads_another(
    leading: tuple[int, ...], vectors: int, count: int, wanted: int | None, narrow: bool
) -> None:
    target = NARROW if narrow else WIDE
    found, arrays = linked(leading, 16 * vectors, count)
    inner = [kernel.outputs[0] for kernel in found[:-1]]
    whole = beside(found, "kernel", target, inner)
    assert whole is not None
    assert whole.outputs == found[-1].outputs
    stages = [stage for kernel in found for stage in kernel.stages]
    expected = run_stages(stages, arrays)[whole.outputs[0]]
    for scheduled in (
        schedule_contraction(whole, target, None if wanted is None else ContractionParameters(rows=3, vectors=wanted)),
        schedule_generic(whole, target),
    ):
        verify(scheduled.function)
        given_arrays = {**arrays, **whole.constants}
        inputs = [
            scheduled.packed.get(item, given_arrays[item]).reshape(b.dims(parameter))
            for item, parameter in zip(whole.inputs, scheduled.function.input_buffers, strict=True)
        ]
        (output,) = run_function(scheduled.function, inputs)
        np.testing.assert_array_equal(output.reshape(expected.shape), expected)


def test_a_result_that_is_read_elsewhere_too_is_stored_from_its_turn() -> None:
    found, _ = linked((4,), 32, 2)
    whole = beside(found, "kernel", WIDE)
    assert whole is not None
    assert [item.name for item in whole.outputs] == ["y0", "linked1"]
    epilogue = epilogue_of(whole.stages, whole.outputs)
    assert epilogue is not None
    assert (epilogue.turns, epilogue.lanes, epilogue.branches) == (2, 16, ())
    assert [columns for columns in (16, 32, 48, 64) if epilogue.allows(columns)] == [32, 64]


def test_bfloat16_products_side_by_side_are_dot_products() -> None:
    target = replace(target_named("x86-64-v4+avx512bf16"), precision="bf16")
    found, arrays = kernels((13,), 9, [(48, "bias"), (16, "")])
    whole = joined(found)
    scheduled = schedule_contraction(whole, target)
    assert scheduled.knobs["dot"] == "dot2_bf16"
    check(scheduled, whole, found, arrays)  # small integers are exact in bfloat16


def test_the_left_factor_is_an_input_once() -> None:
    found, _ = kernels((4,), 3, [(16, "bias"), (32, "")])
    whole = joined(found)
    assert [item.name for item in whole.inputs] == ["x", "beside", "by0"]
    assert whole.origin == ("y0", "y1")
    epilogue = epilogue_of(whole.stages, whole.outputs)
    assert epilogue is not None
    assert [(branch.begin, branch.end) for branch in epilogue.branches] == [(0, 16), (16, 48)]


def test_other_products_are_not_put_side_by_side() -> None:
    (first, second), _ = kernels((4,), 3, [(16, ""), (16, "")])
    (other, _), _ = kernels((4,), 3, [(16, ""), (16, "")])
    assert beside([first, second], "kernel", WIDE) is not None
    assert beside([first], "kernel", WIDE) is None, "one alone"
    assert beside([first, other], "kernel", WIDE) is None, "of another left factor"
    assert beside([first, replace(second, constants={})], "kernel", WIDE) is None, "computed at run time"
    (longer, _), _ = kernels((4,), 5, [(16, ""), (16, "")])
    assert beside([first, longer], "kernel", WIDE) is None, "of longer sums"
    x, w, out = first.inputs[0], buffer("w", (16, 3)), buffer("out", (4, 16))
    transposed = b.reduce(out, "add", [3], lambda i, r: b.multiply(b.load(x, i[0], r[0]), b.load(w, i[1], r[0])))
    constants = {w: np.ones((16, 3), np.float32)}
    kernel = Kernel("kernel", (x, w), (out,), (transposed,), Trait.CONTRACTION, None, 0, constants)
    assert beside([first, kernel], "kernel", WIDE) is None, "by a constant whose axes stand the other way"


@pytest.mark.parametrize("stride", [1, 17])
def test_columns_that_leave_a_gap_are_no_branches(stride: int) -> None:
    found, _ = kernels((4,), 3, [(16, ""), (16, "")])
    whole = joined(found)
    last = whole.stages[-1]
    moved = b.compute(last.buffer, lambda i: b.load(whole.stages[0].buffer, i[0], b.add(i[1], stride)))
    assert epilogue_of((*whole.stages[:-1], moved), whole.outputs) is None


def test_what_pays_is_read_off_the_tiles() -> None:
    assert fits(48, "float32", WIDE)
    assert not fits(40, "float32", WIDE)
    assert beside_pays(128, [768, 768, 768], "float32", WIDE)
    assert beside_pays(64, [512, 128, 128], "float32", WIDE)
    assert beside_pays(64, [1408, 1408], "float32", WIDE, turns=True)
    assert not beside_pays(64, [1408, 1424], "float32", WIDE, turns=True), "turns of different length"
    assert not beside_pays(64, [160] * 4, "float32", WIDE, turns=True), "too many for a tile"
    assert stacking_pays([64, 96, 16], 28 * 28, "float32", WIDE)
    assert stacking_pays([384, 192, 48], 49, "float32", WIDE)
    assert not stacking_pays([384, 200], 49, "float32", WIDE), "then vectors would be of pixels for all channels"
