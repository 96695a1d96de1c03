"""Layers in programs: cut only where a tensor changes its form."""

from __future__ import annotations

from graft.plugins.accelerator.frontend.layers import Activation, Addition, Layer, Product, Requantization, Requantize
from graft.plugins.accelerator.frontend.segments import segments_of

A, B, C, D = (Activation(name, 16, 16) for name in "abcd")


def copied(source: Activation, result: Activation) -> Layer:
    return Requantization(result.name, source, result)


def multiplied(left: Activation, right: Activation, result: Activation) -> Layer:
    return Product(result.name, left, right, result, Requantize())


def test_layers_that_read_tensors_as_they_are_made_are_one_program() -> None:
    (segment,) = segments_of([copied(A, B), Addition("c", A, B, C), copied(C, D)], ["d"])
    assert [layer.name for layer in segment.layers] == ["b", "c", "d"]
    assert (dict(segment.inputs), segment.outputs) == ({"a": "a"}, ("d",))


def test_a_right_hand_side_is_made_by_an_earlier_program() -> None:
    first, second = segments_of([copied(A, B), copied(A, C), multiplied(C, B, D)], ["d", "c"])
    assert [layer.name for layer in first.layers] == ["b", "c"]
    assert first.outputs == ("b", "c")
    assert [layer.name for layer in second.layers] == ["d"]
    assert dict(second.inputs) == {"c": "c", "b": "b"}


def test_a_right_hand_side_from_outside_cuts_nothing() -> None:
    assert len(segments_of([copied(A, C), multiplied(C, B, D)], ["d"])) == 1


def test_a_tensor_that_is_read_with_another_scale_is_made_by_an_earlier_program() -> None:
    other = Activation("b", 16, 16, scale=2.0)
    first, second = segments_of([copied(A, B), copied(other, C)], ["c"])
    assert (first.outputs, dict(second.inputs)) == (("b",), {"b": "b"})


def test_an_input_that_is_read_in_two_forms_has_two_names() -> None:
    other = Activation("a", 16, 4, 4)
    (segment,) = segments_of([copied(A, B), copied(other, C)], ["b", "c"])
    assert dict(segment.inputs) == {"a": "a", "a~1": "a"}
    last = segment.layers[1]
    assert isinstance(last, Requantization)
    assert last.input.name == "a~1"


def test_what_follows_an_earlier_program_does_not_wait_for_a_later_one() -> None:
    first, second = segments_of([copied(A, B), multiplied(A, B, C), copied(B, D)], ["c", "d"])
    assert [layer.name for layer in first.layers] == ["b", "d"]
    assert [layer.name for layer in second.layers] == ["c"]
