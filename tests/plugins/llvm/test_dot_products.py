"""Dot products in generated code: the instruction where a target has it, the same numbers where it has not."""

import numpy as np
import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import host_target, target_named
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.operators.products.contraction import element, product
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.strategies.contractions.blocked_product import schedule_contraction
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Buffer, Expression, Function, Intrinsic, Load, Ramp, Store
from graft.core.types import Type
from graft.plugins.llvm.emit import assembly, compile_functions
from graft.runtime.dtypes import numpy_dtype

KINDS = {
    "dot4_u8s8": ("int32", "uint8", "int8", 4),
    "dot2_s16": ("int32", "int16", "int16", 2),
    "dot2_bf16": ("float32", "bfloat16", "bfloat16", 2),
}
VNNI = target_named("x86-64-v4+avx512vnni+avx512bf16")
ARM = target_named("armv8-a")
MATRICES = {"x": (64, 64), "y": (64, 64), "out": (64, 64)}
ROWED = [target_named(name) for name, row in ROWS.items() if row.arch in ("x86_64", "aarch64")]
TARGETS = {target.machine.name: target for target in (*ROWED, host_target())}


def dot_function(name: str, lanes: int) -> Function:
    """``out = intrinsic(sum, a, b)`` for one vector of each."""
    total, left, right, width = KINDS[name]
    sizes = {"sum": (total, lanes), "a": (left, lanes * width), "b": (right, lanes * width), "out": (total, lanes)}
    buffers = {key: Buffer(key, dtype, (b.index(size),)) for key, (dtype, size) in sizes.items()}

    def whole(key: str) -> Expression:
        size = sizes[key][1]
        return Load(buffers[key], (Ramp(b.index(0), 1, size),))

    value = Intrinsic(name, (whole("sum"), whole("a"), whole("b")), Type(total, lanes))
    return Function("dot", tuple(buffers.values()), 1, Store(buffers["out"], (Ramp(b.index(0), 1, lanes),), value))


def extremes(dtype: str, size: int, seed: int) -> np.ndarray:
    """Numbers with the largest and smallest of a type among them."""
    random = np.random.default_rng(seed)
    if dtype == "bfloat16":
        return random.integers(-8, 9, size).astype("float32").astype(numpy_dtype(dtype))
    if dtype == "float32":
        return random.integers(-8, 9, size).astype("float32")
    limits = np.iinfo(dtype)
    some = random.integers(limits.min, limits.max, size, dtype, endpoint=True)
    return np.where(random.random(size) < 0.4, random.choice([limits.min, limits.max], size), some).astype(dtype)


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("name", KINDS)
def test_a_dot_product_is_exact_on_every_target(name: str, lanes: int, cpu: str, load_image) -> None:
    target = TARGETS[cpu]
    if not target.features <= host_target().features:
        pytest.skip(f"this processor is no {cpu}")
    function = dot_function(name, lanes)
    image = load_image(compile_functions([function], target))
    for seed in range(4):
        arrays = [extremes(item.dtype, b.dims(item)[0], seed) for item in function.input_buffers]
        (expected,) = run_function(function, arrays)
        found = np.empty_like(expected)
        assert image.status("dot", arrays, [found]) == 0
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("name", "instruction"), [("dot4_u8s8", "vpdpbusd"), ("dot2_bf16", "vdpbf16ps")])
def test_the_instruction_is_used_where_there_is_one(name: str, instruction: str) -> None:
    assert instruction in assembly(dot_function(name, 16), VNNI)
    assert instruction not in assembly(dot_function(name, 16), target_named("x86-64-v4"))


def test_an_instruction_that_is_slower_than_multiply_adds_is_left_out() -> None:
    tiles = target_named("x86-64-v4+avx512vnni+avx512bf16+amx-bf16")
    assert "vdpbf16ps" not in assembly(dot_function("dot2_bf16", 16), tiles)
    assert "vpdpbusd" in assembly(dot_function("dot4_u8s8", 16), tiles)


def test_pairs_of_16_bits_are_multiplied_and_added_by_one_instruction() -> None:
    for name, lanes in (("x86-64", 4), ("x86-64-v3", 8), ("x86-64-v4", 16)):
        assert "pmaddwd" in assembly(dot_function("dot2_s16", lanes), target_named(name))


def test_bytes_are_never_multiplied_with_saturation() -> None:
    for target in ROWED:
        assert "pmaddubsw" not in assembly(dot_function("dot4_u8s8", 8), target)


@pytest.mark.parametrize("name", KINDS)
def test_another_architecture_has_them_as_arithmetic(name: str) -> None:
    assert {"dot4_u8s8": "mla", "dot2_s16": "mla", "dot2_bf16": "fmla"}[name] in assembly(dot_function(name, 4), ARM)


def test_the_float32_kernel_multiplies_and_adds_in_vectors_on_aarch64() -> None:
    x, y, out = (Buffer(name, "float32", tuple(map(b.index, shape))) for name, shape in MATRICES.items())
    stage = product(out, (MATRICES["x"], element(x, "float32")), (MATRICES["y"], element(y, "float32")), "float32")
    kernel = Kernel("kernel", (x, y), (out,), (stage,), Trait.CONTRACTION)
    text = assembly(schedule_contraction(kernel, ARM).function, ARM)
    fused = [line for line in text.splitlines() if line.split()[:1] == ["fmla"]]
    assert len(fused) >= 24, "the register tile has fewer accumulators than hide the latency"
    assert all(".4s" in line for line in fused)
    assert "bl\tfma" not in text
