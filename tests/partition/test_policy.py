"""Options of placement are what they say, or refused."""

from __future__ import annotations

import pytest

from graft.errors import GraftError
from graft.partition.policy import ORDERS, PLACEMENTS, Policy


def test_the_defaults_leave_everything_to_the_order_of_backends() -> None:
    policy = Policy()
    assert (policy.min_region_ops, policy.min_region_flops, policy.max_regions) == (0, 0, None)
    assert (policy.exclude_op, policy.exclude_node, policy.allow_inaccurate, dict(policy.pin)) == ((), (), (), {})
    assert (policy.match_order, policy.duplicate_dominated, policy.placement) == ("table", False, None)
    assert (policy.search_budget, policy.measure_seconds) == (64, 10.0)
    assert (ORDERS, PLACEMENTS) == (("table", "longest"), ("auto", "greedy", "model", "measured"))


@pytest.mark.parametrize(
    ("policy", "bounds"),
    [
        (Policy(), False),
        (Policy(min_region_ops=1), False),
        (Policy(min_region_ops=2), True),
        (Policy(min_region_flops=1), True),
        (Policy(max_regions=0), True),
    ],
)
def test_regions_are_looked_at_after_merging_where_something_bounds_them(policy: Policy, bounds: bool) -> None:
    assert policy.bounds_regions == bounds


@pytest.mark.parametrize(
    "options",
    [
        {"min_region_ops": -1},
        {"max_regions": -1},
        {"max_region_layers": 0},
        {"search_budget": -1},
        {"match_order": "shortest"},
        {"placement": "cheapest"},
        {"pin": ("conv", "npu")},
        {"exclude_op": 3},
        {"duplicate_dominated": "yes"},
    ],
)
def test_an_option_of_another_kind_is_refused_by_its_name(options: dict[str, object]) -> None:
    with pytest.raises(GraftError, match=f"Policy.*{next(iter(options))}"):
        Policy(**options)  # type: ignore[arg-type]
