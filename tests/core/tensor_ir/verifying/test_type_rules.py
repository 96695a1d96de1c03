import pytest

from graft.core.tensor_ir.ir import (
    Binary,
    Bitcast,
    Broadcast,
    Buffer,
    Constant,
    Expression,
    Horizontal,
    Intrinsic,
    Load,
    Ramp,
    Select,
    Shuffle,
    Unary,
    Variable,
)
from graft.core.tensor_ir.verifying.type_rules import access_fault, is_foreign, layout_fault, type_fault
from graft.core.types import BOOL, FLOAT32, INT64, Type

F, N, L = Variable("f", FLOAT32), Variable("n"), Variable("l", BOOL)
WIDE = Variable("wide", FLOAT32.with_lanes(4))
BYTES = Variable("bytes", Type("uint8", 3))
GOOD: tuple[Expression, ...] = (
    Constant(1, INT64), Constant(1.5, FLOAT32), Constant(True, BOOL), F, Ramp(N, 2, 4), Broadcast(F, 4),
    Unary("not", L), Unary("bitnot", N), Unary("sqrt", F), Binary("mod", N, N), Binary("fmod", F, F),
    Binary("and", L, L),
    Binary("xor", N, N), Binary("min", L, L), Binary("lt", F, F), Select(L, F, F), Bitcast(WIDE, "uint8"),
    Shuffle((WIDE, WIDE), (0, 7)), Horizontal("max", WIDE), Intrinsic("exp", (F,), FLOAT32),
    Intrinsic("extern:f", (N, F), FLOAT32), Intrinsic("round_bf16", (F,), Type("bfloat16")),
)  # fmt: skip
FAULTS: tuple[tuple[Expression, str], ...] = (
    (Constant(1, BOOL), "the constant 1 of type bool"),
    (Constant(1.0, INT64), "the constant 1.0 of type int64"),
    (Constant(True, INT64), "the constant True of type int64"),
    (Ramp(F, 1, 4), "a ramp of 4 lanes from float32"),
    (Ramp(N, 1, 1), "a ramp of 1 lanes from int64"),
    (Broadcast(WIDE, 4), "a broadcast of float32x4 to 4 lanes"),
    (Unary("not", N), "'not' of int64; integers have 'bitnot'"),
    (Unary("sqrt", N), "'sqrt' of int64; it is for floats"),
    (Unary("neg", L), "'neg' of bool"),
    (Binary("add", F, N), "the operands of 'add' are float32 and int64"),
    (Binary("fmod", N, N), "'fmod' of int64; it is for floats; integers have 'mod'"),
    (Binary("mod", F, F), "'mod' of float32; it is for integers; floats have 'fmod'"),
    (Binary("and", F, F), "'and' of float32; it is for bool and integers"),
    (Select(L, F, N), "the arms of a select are float32 and int64"),
    (Select(N, F, F), "the condition of a select is int64, not bool"),
    (Select(L, WIDE, WIDE), "the condition of a select is bool, not boolx4"),
    (Bitcast(BYTES, "int32"), "a bitcast from uint8x3 to int32, of which no whole number has as many bits"),
    (Shuffle((WIDE, F), (5,)), "a shuffle of 5 lanes has no lane 5"),
    (Shuffle((WIDE, N), (0,)), "a shuffle of vectors of different element types"),
    (Horizontal("sub", WIDE), "'sub' across the lanes of float32x4"),
    (Horizontal("add", F), "'add' across the lanes of float32"),
    (Intrinsic("exp", (F, F), FLOAT32), "'exp' takes 1 arguments, not 2"),
    (Intrinsic("exp", (N,), INT64), "'exp' of int64 giving int64; all must be one float type"),
    (Intrinsic("round_bf16", (F,), FLOAT32), "'round_bf16' of float32 giving float32; it rounds float32"),
    (Intrinsic("swish", (F,), FLOAT32), "the intrinsic 'swish' is unknown; a C symbol is written 'extern:swish'"),
    (Intrinsic("dot4_u8s8", (N,), INT64), "'dot4_u8s8' of int64; it takes int32, uint8x4, int8x4"),
)


@pytest.mark.parametrize("node", GOOD, ids=str)
def test_an_expression_of_the_right_types_has_no_fault(node: Expression) -> None:
    assert type_fault(node) is None


@pytest.mark.parametrize(("node", "fault"), FAULTS, ids=[fault for _, fault in FAULTS])
def test_a_fault_names_the_operator_and_the_types(node: Expression, fault: str) -> None:
    assert type_fault(node) == fault


def test_indices_are_int64_and_vectors_of_one_length() -> None:
    four, eight = Ramp(N, 1, 4), Ramp(N, 1, 8)
    assert access_fault((N, four), None) is None
    assert access_fault((F,), None) == "an index is float32, not int64"
    assert access_fault((four, eight), None) == "vector indices of different lanes"
    assert access_fault((four,), L) == "the mask is bool, not boolx4"
    assert type_fault(Load(Buffer("x", "float32", (N,)), (F,))) == "an index is float32, not int64"


def test_only_what_the_ir_does_not_define_is_foreign() -> None:
    assert [is_foreign(name) for name in ("exp", "dot2_bf16", "round_bf16", "extern:f", "mma")] == [False] * 4 + [True]


def test_a_parameter_has_a_stride_for_each_axis() -> None:
    assert layout_fault(Buffer("x", "float32", (N, N), (N, N))) is None
    assert layout_fault(Buffer("x", "float32", (N, N), (N,))) == "'x' has 2 axes and 1 strides"
    assert layout_fault(Buffer("x", "float32", (F,))) == "an extent of 'x' is float32, not int64"
    assert layout_fault(Buffer("x", "float32", (N,), (F,))) == "a stride of 'x' is float32, not int64"
