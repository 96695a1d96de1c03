"""Spans of tensors in a procedure: the first and the last call that touches their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graft.runtime.procedure import Call, TensorSpec


def spans_of(tensors: Sequence[TensorSpec], calls: Sequence[Call]) -> dict[int, tuple[int, int]]:
    """Return the first and last call for each tensor in use; what touches a view touches its owner too.

    What a copy reads in main memory for a device is in use until all calls are done: nobody says when it was read.
    """
    spans: dict[int, tuple[int, int]] = {}
    for step, call in enumerate(calls):
        for index in touched(call):
            for one in {index, owner_of(tensors, index)}:
                first = spans[one][0] if one in spans else step
                spans[one] = (first, max(step, spans[one][1]) if one in spans else step)
        if is_upload(tensors, call):
            for one in {call.inputs[0], owner_of(tensors, call.inputs[0])}:
                spans[one] = (spans[one][0], len(calls))
    return spans


def is_upload(tensors: Sequence[TensorSpec], call: Call) -> bool:
    """Return whether a call copies from main memory to a device."""
    return call.kind == "copy" and tensors[call.inputs[0]].device == 0 < tensors[call.outputs[0]].device


def owner_of(tensors: Sequence[TensorSpec], index: int) -> int:
    """Return the tensor that a tensor's bytes belong to: itself, unless it is a view."""
    return tensors[index].of if tensors[index].storage == "view" else index


def touched(call: Call) -> Iterator[int]:
    """Yield the tensors that a call reads or writes, those that it hands to bodies included."""
    yield from (index for index in (*call.inputs, *call.outputs) if index >= 0)
    for arguments in call.arguments:
        yield from arguments
