"""A dominator takes all that lies between parent and child."""

from __future__ import annotations

from graft.patterns import (
    dominates,
    is_op,
)
from tests.patterns.graphs import hits


def test_a_dominator_takes_everything_between_parent_and_child() -> None:
    pattern = dominates(is_op("Conv"), is_op("Relu", "Exp", "Mul"), is_op("Sub"))
    conv = {"inputs": "float[1,1,2,3] x, float[1,1,1,1] w", "outputs": "float[1,1,2,3] y"}
    body = "c = Conv(x, w)\na = Relu(c)\nb = Exp(c)\nm = Mul(a, b)\ny = Sub(m, a)"
    found = hits(pattern, body, **conv)
    assert found is not None
    assert set(found) == {"c", "a", "b", "m", "y"}
    assert hits(pattern, body.replace("Mul", "Add"), **conv) is None
    leaking = {**conv, "outputs": "float[1,1,2,3] y, float[1,1,2,3] a"}
    assert hits(pattern, body, **leaking) is None
    assert hits(pattern, "c = Conv(x, w)\nd = Conv(x, w)\ny = Sub(c, d)", **conv) is None
    assert hits(is_op("Conv").dominates(is_op("Sub")), body, **conv) is not None


def test_every_arm_below_a_dominator_comes_from_the_parent() -> None:
    pattern = dominates(is_op("Conv"), is_op("Relu", "Exp", "Add"), is_op("Add"))
    given = {"inputs": "float[1,1,3,3] x, float[1,1,2,2] w, float[1,1,2,2] z", "outputs": "float[1,1,2,2] y"}
    constants = {"more": "<float[1] one = {1}>"}
    assert hits(pattern, "c = Conv(x, w)\nr = Relu(c)\ny = Add(r, c)", **given) is not None
    assert hits(pattern, "c = Conv(x, w)\nr = Relu(c)\ny = Add(r, z)", **given) is None
    assert hits(pattern, "c = Conv(x, w)\nr = Relu(c)\ne = Exp(z)\ny = Add(r, e)", **given) is None
    assert hits(pattern, "c = Conv(x, w)\nr = Relu(c)\ny = Add(r, one)", **given, **constants) is not None
    assert hits(pattern, "c = Conv(x, w)\nr = Relu(c)\ne = Exp(one)\ny = Add(r, e)", **given, **constants) is None
