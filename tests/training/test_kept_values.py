"""Which values are kept: the cheapest choice of a chain against all that there are, and the smallest cut."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import graft
from graft.training.kept_values import ForwardPass

WIDTHS = (8, 40, 16, 64, 24, 48, 8, 32)


def chain() -> ForwardPass:
    """Return the forward pass of a chain of products, all of which the backward pass reads."""
    body = " ".join(f"h{i + 1} = MatMul (h{i}, w{i})" for i in range(len(WIDTHS) - 1))
    last = len(WIDTHS) - 1
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22]> net (float[64,8] h0) => (float loss) {{ {body} '
        f"s = Mul (h{last}, h{last}) loss = ReduceSum <keepdims = 0> (s) }}"
    )
    for i, shape in enumerate(pairwise(WIDTHS)):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), f"w{i}"))
    return forward_of(graft.grad(model))


def forward_of(model: ir.Model) -> ForwardPass:
    return ForwardPass.of(model, "loss")


def by_all_choices(forward: ForwardPass, budget: int) -> float:
    """Return the fewest seconds of any set of kept values of a chain within a budget."""
    values = [value for node in forward.nodes for value in node.outputs if value in forward.read]
    best = float("inf")
    for count in range(len(values) + 1):
        for kept in combinations(values, count):
            stored = again = peak = 0
            for value in values:
                if value in kept:
                    stored += forward.sizes[value]
                    peak, again = max(peak, stored + again), 0
                else:
                    again += forward.sizes[value]
            peak = max(peak, stored + again)
            if peak <= budget:
                best = min(best, sum(forward.seconds[one.producer()] for one in values if one not in kept))
    return best


@pytest.mark.parametrize("share", [0.55, 0.65, 0.75, 0.85, 0.95, 1.0])
def test_the_cheapest_choice_of_a_chain_is_the_best_there_is(share: float) -> None:
    forward = chain()
    budget = int(share * forward.bytes_read)
    kept = forward.cheapest(budget)
    best = by_all_choices(forward, budget)
    assert best == (float("inf") if kept is None else pytest.approx(forward.seconds_again(kept)))


def test_no_choice_is_within_too_small_a_budget() -> None:
    assert chain().cheapest(100) is None


def test_the_smallest_cut_keeps_results_of_products_alone() -> None:
    forward = chain()
    assert forward.by_min_cut() == forward.read
    assert forward.seconds_again(forward.by_min_cut()) == 0.0


def test_chens_choice_keeps_the_ends_of_segments() -> None:
    forward = chain()
    kept = forward.by_root()
    assert kept < forward.read
    assert forward.seconds_again(kept) > 0
