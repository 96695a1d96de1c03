"""Rows of a table that can never form are refused, and rows that an earlier one leaves nothing are told."""

from __future__ import annotations

import logging

import pytest

from graft.errors import PatternError
from graft.partition.placement.partitioner import partition
from graft.patterns import Composite, Pattern, is_composite, is_constant, is_if, is_op, wildcard
from graft.patterns.checks.tables import require_composites, shadowed
from tests.partition.graphs import everything, small, toy

CONV = is_op("Conv")(wildcard(), is_constant(), ...)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (wildcard().has_rank(4), "the pattern has no operator, so that it has no node to compute"),
        (
            is_op("Relu")(is_composite("npu.conv")),
            "the pattern holds a call of a composite or a region, which is in no composite",
        ),
        (is_if(wildcard()), "the pattern holds If, and control flow is in no composite"),
        (
            is_op("Add")(wildcard(), is_op("Constant")),
            "the pattern holds Constant, and constants are folded; write is_constant()",
        ),
        (is_op("Cnov"), "the pattern names an unknown operator 'Cnov'; did you mean 'Conv'?"),
    ],
)
def test_a_row_that_can_never_form_is_refused_with_its_name(pattern: Pattern, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        require_composites("npu", [Composite("npu.row", pattern)])
    assert str(caught.value) == f"composite 'npu.row' of backend 'npu': {message}"


@pytest.mark.parametrize(
    ("earlier", "later", "is_shadowed"),
    [
        (is_op("Relu"), is_op("Relu")(CONV), True),
        (is_op("Relu")(wildcard()), is_op("Relu")(CONV), True),
        (is_op("Relu", "Exp")(wildcard() | CONV), is_op("Relu")(CONV).has_dtype("float32"), True),
        (is_op("Relu")(CONV), is_op("Relu")(CONV), True),
        (is_op("Conv")(wildcard(), ...), CONV, True),
        (is_op("Conv").has_attr(group=1), is_op("Conv").has_attr(group=1, auto_pad="NOTSET"), True),
        (is_op("Conv").has_attr(group=1), CONV, False),
        (is_op("Relu").has_dtype("float32"), is_op("Relu")(CONV), False),
        (is_op("Relu")(CONV), is_op("Relu")(wildcard()), False),
        (is_op("Relu")(CONV), is_op("Relu")(is_op("Conv")(is_op("Exp"), is_constant(), ...)), False),
        (is_op("Add")(wildcard(), wildcard()), is_op("Relu")(wildcard() + wildcard()), False),
        (is_op("Add")(same := wildcard(), same), wildcard() + wildcard(), False),
    ],
)
def test_a_row_whose_matches_an_earlier_one_takes_is_found(earlier: Pattern, later: Pattern, is_shadowed: bool) -> None:
    rows = Composite("npu.earlier", earlier), Composite("npu.later", later)
    assert list(shadowed(rows)) == ([(rows[1], rows[0])] if is_shadowed else [])
    checked = Composite("npu.earlier", earlier, check=lambda match: None), rows[1]
    assert list(shadowed(checked)) == []


def test_a_row_that_is_left_nothing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    rows = (Composite("npu.relu", is_op("Relu")), Composite("npu.conv_relu", is_op("Relu")(CONV)))
    npu = toy("npu", patterns=rows)
    with caplog.at_level(logging.WARNING, "graft.partition"):
        for _ in range(2):
            partition(small("y = Relu(x)"), [npu, everything()])
    assert caplog.messages == [
        "composite 'npu.conv_relu' of backend 'npu' never forms: the earlier row 'npu.relu' takes whatever it matches; "
        "put 'npu.conv_relu' first"
    ]
