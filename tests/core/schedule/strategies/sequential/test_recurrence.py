from __future__ import annotations

from dataclasses import replace

from graft.core.machine.target import target_named
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.sequential.recurrence import Phase, Recurrence, parts_of, side_by_side
from tests.core.schedule.strategies.sequential.test_recurrent_layers import kernel_of, two_layers


def test_a_layer_is_cut_where_a_stage_reads_other_units_of_its_step() -> None:
    projection, layer, last = parts_of(kernel_of())
    assert isinstance(projection, Phase) and isinstance(layer, Recurrence)
    assert [[stage.buffer.name for stage in phase.stages] for phase in layer.phases] == [["f", "q"], ["c", "h"]]
    assert [stage.buffer.name for stage in last] == ["y"]  # type: ignore[union-attr]


def test_products_of_one_state_are_computed_together() -> None:
    kernel = kernel_of()
    projection, gate, *others = kernel.stages
    twin = replace(gate, buffer=replace(gate.buffer, name="g"))
    _, layer, _ = parts_of(replace(kernel, stages=(projection, gate, twin, *others)))
    assert isinstance(layer, Recurrence)
    (sums,) = layer.phases[0].sums
    assert len(sums.weights) == 2


def test_a_sum_that_is_not_said_to_be_a_contraction_makes_no_layer() -> None:
    kernel = kernel_of()
    silent = replace(kernel, stages=tuple(replace(stage, structure=None) for stage in kernel.stages))
    assert schedule(silent, target_named("x86-64-v4")).strategy == "sequential_loops"


def test_directions_stand_side_by_side_behind_the_products_of_their_inputs() -> None:
    groups = side_by_side(list(parts_of(two_layers(5))))
    assert [[type(part) for part in group] for group in groups] == [
        [Phase], [Phase], [Recurrence, Recurrence], [tuple], [tuple]
    ]  # fmt: skip


def test_a_layer_on_top_of_another_comes_after_it() -> None:
    groups = side_by_side(list(parts_of(two_layers(3, second="h"))))
    assert [type(part) for group in groups for part in group if type(part) is not tuple] == [
        Phase, Recurrence, Phase, Recurrence
    ]  # fmt: skip
    assert all(len(group) == 1 for group in groups)
