"""Kernels of extents that are known only when they run: one function, many shapes, on several machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.operators.definition.build import extents
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Buffer, If, Load, Select, Store, Variable
from graft.core.tensor_ir.ordered_stages import stage_expressions
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import loads, statement_expressions, walk_expressions, walk_statements

MACHINES = ["generic", "x86-64-v2", "x86-64-v3", "x86-64-v4"]
SIZES = [{"m": 0, "n": 5}, {"m": 1, "n": 1}, {"m": 3, "n": 17}, {"m": 7, "n": 64}, {"m": 40, "n": 33}]
PRODUCT = """
input a: float32[m, 24]
input w: float32[24, n]
input c: float32[n]
stage s: float32[m, n] at (i, j) = reduce add over k < 24 from float32(0.0): a[i, k] * w[k, j] as contraction()
stage y: float32[m, n] at (i, j) = s[i, j] + c[j]
"""
DEPTH = """
input a: float32[m, n]
input w: float32[n, 40]
stage y: float32[m, 40] at (i, j) = reduce add over k < n from float32(0.0): a[i, k] * w[k, j] as contraction()
"""
SOFTMAX = """
input x: float32[m, n]
stage t: float32[m] at (i) = reduce max over k < n from float32(-inf): x[i, k]
stage s: float32[m] at (i) = reduce add over k < n from float32(0.0): exp(x[i, k] - t[i])
stage y: float32[m, n] at (i, j) = exp(x[i, j] - t[i]) / s[i]
"""
TRANSPOSE = """
input x: float32[m, n]
stage y: float32[n, m] at (i, j) = x[j, i] + float32(1.0)
"""
COLUMNS = """
input x: float32[m, n]
stage y: float32[n] at (j) = reduce add over k < m from float32(0.0): x[k, j]
"""
ROWS_OF_TILES = """
input x: float32[m, 3, n]
stage y: float32[m, n, 3] at (i, j, k) = x[i, k, j] * float32(2.0)
"""
POOL = """
input x: float32[2, m, n]
stage y: float32[2, m, n] at (c, i, j) = reduce max over k0 < 3, k1 < 3 from float32(-inf): select(i + k0 - 1 >= 0 & i + k0 - 1 < m & j + k1 - 1 >= 0 & j + k1 - 1 < n, x[c, i + k0 - 1, j + k1 - 1; i + k0 - 1 >= 0 & i + k0 - 1 < m & j + k1 - 1 >= 0 & j + k1 - 1 < n], float32(-inf))
"""  # noqa: E501
TOTAL = """
input x: float32[m, n]
stage s: float32[m] at (i) = reduce add over k < n from float32(0.0): x[i, k]
stage y: float32[m] at (i) = s[i] * float32(0.5)
"""
ALL = """
input x: float32[m, 128]
stage y: float32[1] at (i) = reduce max over j < m, k < 128 from float32(-inf): x[j, k]
"""
KERNELS = {
    "pool": (POOL, Trait.POOLING, "clipped_windows"), "total": (TOTAL, Trait.REDUCTION, "split_reduction"),
    "short rows": (ROWS_OF_TILES, Trait.INJECTIVE, "fused_elementwise"),
    "product": (PRODUCT, Trait.CONTRACTION, "blocked_product"), "depth": (DEPTH, Trait.CONTRACTION, "blocked_product"),
    "softmax": (SOFTMAX, Trait.ROW_WISE, "fused_rows"), "transpose": (TRANSPOSE, Trait.INJECTIVE, "fused_elementwise"),
    "columns": (COLUMNS, Trait.REDUCTION, "split_reduction"), "all": (ALL, Trait.REDUCTION, "split_reduction"),
}  # fmt: skip


def kernel_of(text: str, trait: Trait, constants: Mapping[str, np.ndarray] | None = None) -> Kernel:
    stages = parse_stages(text)
    made = {stage.buffer for stage in stages}
    inputs = dict.fromkeys(load.buffer for stage in stages for load in loads(*stage_expressions(stage)))
    known = {buffer: (constants or {})[buffer.name] for buffer in inputs if buffer.name in (constants or {})}
    number = max((n for n, stage in enumerate(stages) if stage.reduction is not None), default=len(stages) - 1)
    outside = tuple(buffer for buffer in inputs if buffer not in made)
    return Kernel("kernel", outside, (stages[-1].buffer,), stages, trait, anchor_stage=number, constants=known)


def arrays_of(kernel: Kernel, sizes: Mapping[str, int]) -> dict[Buffer, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        buffer: [sizes[one.name] if isinstance(one, Variable) else one for one in extents(buffer)]
        for buffer in kernel.inputs
    }
    return {buffer: rng.standard_normal(shape).astype(np.float32) for buffer, shape in shapes.items()}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", KERNELS)
def test_one_function_computes_every_shape(name: str, machine: str) -> None:
    text, trait, strategy = KERNELS[name]
    kernel = kernel_of(text, trait)
    target = Target(ROWS[machine])
    scheduled = schedule(kernel, target)
    verify(scheduled.function, target.machine)
    assert scheduled.strategy == strategy
    for sizes in SIZES:
        arrays = arrays_of(kernel, sizes)
        wanted = run_stages(kernel.stages, arrays)[kernel.outputs[0]]
        (found,) = run_function(scheduled.function, [arrays[buffer] for buffer in kernel.inputs], [wanted.shape])
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6, err_msg=f"{sizes}")


@pytest.mark.parametrize("machine", MACHINES[1:])
@pytest.mark.parametrize("follower", ["s[i, j] + c[j]", "tanh(s[i, j] + c[j]) * sigmoid(s[i, j])"])
def test_a_single_row_of_many_packed_columns_is_multiplied_like_others(follower: str, machine: str) -> None:
    text = PRODUCT.replace("s[i, j] + c[j]", follower).replace("n]", "330]").replace("n)", "330)")
    weights = np.random.default_rng(1).standard_normal((24, 330)).astype(np.float32)
    kernel = kernel_of(text, Trait.CONTRACTION, {"w": weights})
    target = Target(ROWS[machine])
    scheduled = schedule(kernel, target)
    verify(scheduled.function, target.machine)
    for sizes in ({"m": 1}, {"m": 2}, {"m": 8}):
        arrays = {**arrays_of(kernel, sizes), next(iter(kernel.constants)): weights}
        wanted = run_stages(kernel.stages, arrays)[kernel.outputs[0]]
        given = [scheduled.packed.get(buffer, arrays[buffer]) for buffer in kernel.inputs]
        (found,) = run_function(scheduled.function, given, [wanted.shape])
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6, err_msg=f"{sizes}")


ATTENTION = """
input q: float32[h, m, 16]
input k: float32[h, n, 16] strides [k_pitch, 16, 1]
input v: float32[h, n, 20] strides [v_pitch, 20, 1]
stage s: float32[h, m, n] at (b, i, j) = reduce add over t < 16 from float32(0.0): q[b, i, t] * k[b, j, t]
  as contraction()
stage c: float32[h, m] at (b, i) = reduce max over j < n from float32(-inf): s[b, i, j]
stage z: float32[h, m] at (b, i) = reduce add over j < n from float32(0.0): exp(s[b, i, j] - c[b, i])
stage p: float32[h, m, n] at (b, i, j) = exp(s[b, i, j] - c[b, i]) / z[b, i]
stage y: float32[h, m, 20] at (b, i, f) = reduce add over j < n from float32(0.0): p[b, i, j] * v[b, j, f]
  as contraction()
"""


@pytest.mark.parametrize("machine", MACHINES[1:])
def test_attention_reads_caches_with_a_pitch(machine: str) -> None:
    kernel = kernel_of(ATTENTION, Trait.ATTENTION)
    target = Target(ROWS[machine])
    scheduled = schedule(kernel, target)
    verify(scheduled.function, target.machine)
    assert scheduled.strategy == "fused_attention"
    for sizes in ({"h": 2, "m": 1, "n": 300}, {"h": 1, "m": 4, "n": 7}, {"h": 2, "m": 5, "n": 33}):
        arrays = arrays_of(kernel, sizes)
        for buffer in kernel.inputs[1:]:
            room = np.full((sizes["h"], sizes["n"] + 3, arrays[buffer].shape[2]), np.nan, np.float32)
            room[:, : sizes["n"]] = arrays[buffer]
            arrays[buffer] = room[:, : sizes["n"]]
        wanted = run_stages(kernel.stages, arrays)[kernel.outputs[0]]
        (found,) = run_function(scheduled.function, [arrays[buffer] for buffer in kernel.inputs], [wanted.shape])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=f"{sizes}")


def test_vectors_of_windows_within_an_open_image_are_read_without_masks() -> None:
    scheduled = schedule(kernel_of(POOL, Trait.POOLING), Target(ROWS["x86-64-v3"]))
    (test,) = (one for one in walk_statements(scheduled.function.body) if isinstance(one, If))
    for body, masked in ((test.then_body, False), (test.else_body, True)):
        assert body is not None
        nodes = [one for s in walk_statements(body) for one in walk_expressions(*statement_expressions(s))]
        assert any(isinstance(one, Select) for one in nodes) == masked
        assert any(one.mask is not None for one in nodes if isinstance(one, Load)) == masked


def test_parts_of_rows_are_written_in_vectors() -> None:
    text = """
input x: float32[m, 96]
stage y: float32[m, 48] at (i, j) = x[i, j]
stage z: float32[m, 48] at (i, j) = x[i, j + 48]
"""
    kernel = kernel_of(text, Trait.INJECTIVE)
    kernel = replace(kernel, outputs=tuple(stage.buffer for stage in kernel.stages))
    scheduled = schedule(kernel, Target(ROWS["x86-64-v4"]))
    stores = [one for one in walk_statements(scheduled.function.body) if isinstance(one, Store)]
    assert {store.value.type.lanes for store in stores} == {16}


JOINED = """
input a: uint8[m, 3, n, W]
input c: uint8[m, 5, n, W]
stage d: float32[m, 3, n, W] at (i, j, l, k) = cast<float32>(a[i, j, l, k]) * float32(0.5)
stage e: float32[m, 5, n, W] at (i, j, l, k) = cast<float32>(c[i, j, l, k]) * float32(0.25)
stage y: float32[m, 8, n, W] at (i, j, l, k) = select(j < 3, d[i, min(j, 2), l, k], e[i, max(j - 3, 0), l, k])
"""


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("width", [1, 4, 7, 16, 40])
def test_computed_parts_that_are_joined_have_loops_of_their_own_and_vectors_along_short_axes(
    machine: str, width: int
) -> None:
    kernel = kernel_of(JOINED.replace("W", str(width)), Trait.INJECTIVE)
    target = Target(ROWS[machine])
    function = schedule(kernel, target).function
    verify(function, target.machine)
    stores = [one for one in walk_statements(function.body) if isinstance(one, Store)]
    assert not [one for store in stores for one in walk_expressions(store.value) if isinstance(one, Select)]
    assert any(one.value.type.lanes > 1 for one in stores) == (machine != "generic")
    for rows in (0, 1, 5):
        rng = np.random.default_rng(0)
        arrays = {one: rng.integers(0, 256, (rows, extents(one)[1], 2, width), np.uint8) for one in kernel.inputs}  # type: ignore[arg-type]
        wanted = run_stages(kernel.stages, arrays)[kernel.outputs[0]]
        (found,) = run_function(function, [arrays[buffer] for buffer in kernel.inputs], [wanted.shape])
        np.testing.assert_array_equal(found, wanted)
