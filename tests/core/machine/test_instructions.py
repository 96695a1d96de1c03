"""What the table says that an instruction means is what the tensor IR means by it."""

import numpy as np
import pytest

from graft.core.machine.instructions import DOTS, INSTRUCTIONS, Dot, instructions_of
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.numerics import intrinsic
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.runtime.dtypes import numpy_dtype

TEXT = (
    "function meaning(a: {left}[{n}], b: {right}[{n}], c: {total}[1]) -> (out: {result}[1]) {{\n  out[0] = {value}\n}}"
)
UNARY = {"round_bf16": "bfloat16", "round_f16": "float16"}


def numbers(dtype: str, count: int) -> np.ndarray:
    random = np.random.default_rng(count)
    if dtype in ("uint8", "int8", "int16", "int32"):
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, count, endpoint=True).astype(dtype)
    return random.integers(-8, 9, count).astype(np.float32).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("name", DOTS)
def test_a_dot_product_means_what_the_interpreter_computes(name: str) -> None:
    total, left, right, width = kinds = DOTS[name]
    meanings = {one.meaning for one in INSTRUCTIONS if one.name == name}
    assert meanings == {kinds.meaning} or name == "dot2_s16"  # which is `pairs_s16` and an addition
    text = TEXT.format(left=left, right=right, total=total, result=total, n=width, value=kinds.meaning)
    arrays = [numbers(left, width), numbers(right, width), numbers(total, 1)]
    (expected,) = run_function(parse_function(text), arrays)
    np.testing.assert_array_equal(intrinsic(name, (arrays[2], arrays[0], arrays[1]), total), expected)


@pytest.mark.parametrize("one", [one for one in INSTRUCTIONS if one.name not in DOTS], ids=lambda one: one.name)
def test_a_meaning_is_an_expression_of_the_tensor_ir(one) -> None:
    kind = "int16" if one.name == "pairs_s16" else "float32"
    result = "int32" if one.name == "pairs_s16" else UNARY.get(one.name, kind)
    verify(parse_function(TEXT.format(left=kind, right=kind, total=kind, result=result, n=2, value=one.meaning)))


def test_a_dot_product_says_how_its_lanes_are_added() -> None:
    assert Dot("int32", "int16", "int16", 2).meaning == (
        "c[0] + cast<int32>(a[0]) * cast<int32>(b[0]) + cast<int32>(a[1]) * cast<int32>(b[1])"
    )


def test_of_two_instructions_for_the_same_lanes_one_is_taken() -> None:
    found = instructions_of("x86_64", {"avx512vnni", "avx512vl", "avxvnni"})
    assert [one.lanes for one in found if one.name == "dot4_u8s8"] == [(4, 8, 16)]
