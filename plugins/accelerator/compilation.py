"""From a region to a module: layers are read, a program is generated and proved, and its borders are written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.model.view import NodeView, ValueView
from graft.core.reject import Reject
from graft.errors import CompileError
from graft.partition.region import Region
from graft.patterns.match import Match
from graft.plugins.accelerator.codegen import Lowered, check, lower
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.layers import Activation, Layer, inputs_of
from graft.plugins.accelerator.module import Argument, module_of
from graft.plugins.accelerator.proof import prove
from graft.plugins.accelerator.recognition import Refusal, read, view_of
from graft.runtime.procedure import Module

BYTES = ("int8", "uint8")


def accepted(match: Match, configuration: Configuration) -> Reject | None:
    """Return why a match is no layer of the accelerator, None if it is one."""
    try:
        layer = read(match.root.node, lambda value: value.name or "")
        check(layer, configuration)
    except Refusal as refusal:
        return refusal.reject
    except CompileError as error:
        return Reject("size", error.message)
    return None


def is_alias(node: NodeView) -> bool:
    """Whether a node gives bytes another shape under which they lie in DRAM as before."""
    if node.op_type not in ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity") or node.dtype not in BYTES:
        return False
    source, output = node.input(0), node.outputs[0]
    shapes = (None if source is None else source.static_shape, output.static_shape)
    if source is None or source.is_constant or shapes[0] is None or shapes[1] is None:
        return False
    if not all(2 <= len(shape) <= 4 and all(shape) for shape in shapes if shape is not None):
        return False
    return view_of(shapes[0], is_matrix=False) == view_of(shapes[1], is_matrix=False)


@dataclass(slots=True)
class Network:
    """The layers of a region; ``same`` says which tensor a view is."""

    layers: list[Layer] = field(default_factory=list)
    same: dict[str, str] = field(default_factory=dict)

    def name(self, value: ir.Value) -> str:
        """Return the name of the tensor that a value is a view of."""
        name = value.name or ""
        return self.same.get(name, name)

    def activations(self) -> dict[str, Activation]:
        """Return all tensors by name; raise CompileError where two nodes understand one differently."""
        found: dict[str, Activation] = {}
        for layer in self.layers:
            for one in (*inputs_of(layer), layer.output):
                known = found.setdefault(one.name, one)
                if known != one:
                    raise CompileError(
                        f"accelerator: tensor '{one.name}' is {_spelled(known)} for one layer and {_spelled(one)} for "
                        f"'{layer.name}'; both must read it alike"
                    )
        return found


def _spelled(one: Activation) -> str:
    return f"{'x'.join(map(str, one.shape))} of scale {one.scale:g} and zero point {one.zero_point}"


def network_of(region: Region) -> Network:
    """Return the layers of a region in order of execution; raise CompileError where a node is none."""
    network = Network()
    for node in region.nodes():
        found = region.composite(node)
        if found is None:
            network.same[node.outputs[0].name] = network.name(node.node.inputs[0])  # type: ignore[arg-type] # is_alias
            continue
        body = found[1]
        outer = {inner: value for inner, value in zip(body.inputs, node.node.inputs, strict=True) if value is not None}
        outer[body.outputs[0]] = node.node.outputs[0]
        try:
            layer = read(list(body)[-1], lambda value, outer=outer: network.name(outer[value]))  # type: ignore[misc]
        except Refusal as refusal:
            raise CompileError(f"accelerator: '{node.name}': {refusal.reject}") from None
        network.layers.append(layer)
    if not network.layers:
        raise CompileError(f"accelerator: region '{region.name}' computes nothing")
    return network


def lowered(region: Region, configuration: Configuration) -> tuple[Network, Lowered]:
    """Return the layers of a region and its program, which is proved to mean one thing."""
    network = network_of(region)
    network.activations()
    names = dict.fromkeys(network.name(output.value) for output in region.outputs)
    result = lower(network.layers, list(names), configuration)
    prove(result.program)
    return network, result


def compile_region(region: Region, configuration: Configuration) -> Module:
    """Return a region's module; raise CompileError for what fits in no program."""
    network, result = lowered(region, configuration)
    given = _arguments(network, region.inputs)
    made = _arguments(network, region.outputs)
    inputs = [(name, packing, given[packing.tensor.name][0]) for name, packing in result.inputs.items()]
    outputs = [
        (name, packing, one) for name, packing in result.outputs.items() for one in made[packing.tensor.name]
    ]
    return module_of(region.name, result.program, inputs, outputs)


def _arguments(network: Network, values: Sequence[ValueView]) -> dict[str, list[Argument]]:
    """Return the arguments by the tensor of the program that they are; views of one are several."""
    found: dict[str, list[Argument]] = {}
    for index, value in enumerate(values):
        shape = value.static_shape
        assert shape is not None, f"'{value.name}' has no static shape"
        found.setdefault(network.name(value.value), []).append(Argument(index, shape, value.dtype == "uint8"))
    return found
