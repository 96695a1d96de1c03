"""The numbers of devices in procedures as another program counts them, and the texts of copies between memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graft.runtime.procedure import Call, Device, Procedure


def on_devices(procedure: Procedure, own: Sequence[Device], devices: Sequence[Device]) -> Procedure:
    """Return a procedure that counts ``own`` as part of a program that counts ``devices``, which are more."""
    if not devices:
        return procedure
    number = [0, *(1 + list(devices).index(device) for device in own)]
    arenas = [0] * len(devices)
    for place, size in zip(number[1:], procedure.device_arenas, strict=False):
        arenas[place - 1] = size
    tensors = tuple(replace(one, device=number[one.device]) if one.device else one for one in procedure.tensors)
    return replace(procedure, tensors=tensors, device_arenas=tuple(arenas))


def call_text(call: Call, procedure: Procedure, devices: Sequence[str]) -> str:
    """Return what a call that is no function does: its kind, and for a copy between memories where it goes."""
    if call.kind != "copy":
        return call.kind
    source, target = (procedure.tensors[one].device for one in (call.inputs[0], call.outputs[0]))
    places = ("cpu", *devices)
    return call.kind if source == target else f"copy to {places[target]}"
