"""Patterns with the texts that they print as."""

from __future__ import annotations

from graft.patterns import (
    Pattern,
    absent,
    dominates,
    is_composite,
    is_constant,
    is_if,
    is_input,
    is_op,
    is_region,
    outputs,
    repeat,
    wildcard,
)


def is_small(value: object) -> bool:
    return True


def diamond() -> Pattern:
    conv = is_op("Conv")(wildcard(), is_constant().named("w"), wildcard() | absent())
    return is_op("Relu")(conv) + conv


def two_diamonds() -> Pattern:
    inner = is_op("Tanh")(is_input("x"))
    outer = inner * inner
    return outer - outer


def recursive() -> Pattern:
    again = wildcard()
    return again.redirect_to(is_op("Relu")(again) | is_input())


RELU, ADD, EXP = is_op("Relu"), is_op("Add"), is_op("Exp")
TEXTS = [
    (is_op("Conv", "ConvTranspose")(wildcard(), ...), 'is_op("Conv", "ConvTranspose")(wildcard(), ...)'),
    (is_op("Gelu", domain="com.acme"), 'is_op("Gelu", domain="com.acme")'),
    (~is_constant(1.0) & is_op("Relu"), '(~is_constant(1.0)) & is_op("Relu")'),
    (is_op("Split")[1].has_rank(3, 4), 'is_op("Split").output(1).has_rank(3, 4)'),
    (wildcard().has_dtype("int8", "uint8"), 'wildcard().has_dtype("int8", "uint8")'),
    (wildcard().has_shape(1, None, "n", ...), 'wildcard().has_shape(1, None, "n", ...)'),
    (is_op("Conv").has_attr(group=1, pads=[1, 1]), 'is_op("Conv").has_attr(group=1, pads=[1, 1])'),
    (wildcard().where(is_small, "it is small"), 'wildcard().where(is_small, "it is small")'),
    (is_constant(where=is_small), "is_constant(where=is_small)"),
    (
        is_op("MatMul").optional(lambda x: is_op("Relu")(x)),
        'is_op("MatMul").optional(lambda x1: is_op("Relu")(x1))',
    ),
    (diamond(), 'p1 = is_op("Conv")(wildcard(), is_constant().named("w"), wildcard() | absent())\n'
                'is_op("Add")(is_op("Relu")(p1), p1)'),
    (two_diamonds(), 'p2 = is_op("Tanh")(is_input("x"))\np1 = is_op("Mul")(p2, p2)\nis_op("Sub")(p1, p1)'),
    (recursive(), 'p1 = wildcard()\np1.redirect_to(is_op("Relu")(p1) | is_input())\np1'),
    (
        repeat(lambda x: is_op("Relu")(x), is_input(), least=1),
        'p1 = wildcard()\np1.redirect_to(is_op("Relu")(p1) | is_input())\nis_op("Relu")(p1)',
    ),
    (RELU ^ ADD, 'is_op("Relu").used_by(is_op("Add"))'),
    (
        RELU >> ADD >> EXP,
        'p1 = is_op("Exp")\np2 = is_op("Add")\np3 = is_op("Relu")\n'
        "outputs(p1, p2, p3) & p3.only_used_by(p2) & p2.only_used_by(p1)",
    ),
    (RELU.used_by(ADD, 1), 'is_op("Relu").used_by(is_op("Add"), 1)'),
    (outputs(RELU, EXP), 'outputs(is_op("Relu"), is_op("Exp"))'),
    (dominates(RELU, EXP, ADD), 'dominates(is_op("Relu"), is_op("Exp"), is_op("Add"))'),
    (is_composite("npu.conv")(wildcard()), 'is_composite("npu.conv")(wildcard())'),
    (is_region(), "is_region()"),
    (is_if(wildcard(), RELU, EXP), 'is_op("If")(wildcard()).has_body("then_branch", is_op("Relu"))'
                                   '.has_body("else_branch", is_op("Exp"))'),
    (is_op("Concat")(RELU, EXP).in_any_order(), 'is_op("Concat")(is_op("Relu"), is_op("Exp")).in_any_order()'),
]  # fmt: skip
