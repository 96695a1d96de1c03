"""From a region to a module: layers are read, a program is generated and proved, and its borders are written down."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.reject import Reject
from graft.core.rewriting.node_rewrite import is_operator
from graft.errors import CompileError
from graft.partition.region import Region
from graft.patterns.match import Match
from graft.plugins.accelerator.codegen import check, lower
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.frontend.layer_json import described
from graft.plugins.accelerator.frontend.layers import Activation, Layer, inputs_of, with_meaning
from graft.plugins.accelerator.frontend.operands import Form, Refusal, Scope, view_of
from graft.plugins.accelerator.frontend.operators import ALONE
from graft.plugins.accelerator.frontend.recognition import read
from graft.plugins.accelerator.frontend.segments import Segment, segments_of
from graft.plugins.accelerator.module import Argument, module_of
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.backend import CompiledRegion
from graft.runtime.procedure import Call, Module, Procedure, Storage, TensorSpec

BYTES = ("int8", "uint8")


def accepted(match: Match, configuration: Configuration) -> Reject | None:
    """Return why a match is no layer of the accelerator, None if it is one."""
    try:
        layer = read(match.root.node, Scope(lambda value: value.name or ""))
        check(layer, configuration)
    except Refusal as refusal:
        return refusal.reject
    except CompileError as error:
        return _reject_of(error)
    return None


def _reject_of(error: CompileError) -> Reject:
    """Return the reason of an error, which begins with its code where it is not about size."""
    text = error.message.removeprefix("accelerator: ")
    where, _, rest = text.partition("': ")
    code, _, what = (rest if where.startswith("'") else text).partition(": ")
    return Reject(code, what) if code in ("size", "attribute") else Reject("size", text)


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
    return bool(_forms(shapes[0]) & _forms(shapes[1]))


def _forms(shape: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Return all that a tensor of a shape may be seen as."""
    forms = [Form.MATRIX] + [Form.CHANNELS] * (len(shape) > 2)
    return {(*view_of(shape, form), form is Form.CHANNELS and len(shape) == 3 and shape[2] > 1) for form in forms}


@dataclass(slots=True)
class Network:
    """The layers of a region and its tensors of bytes by name; ``same`` says which of them a view is."""

    layers: list[Layer] = field(default_factory=list)
    tensors: dict[str, ValueView] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    sequences: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)

    def add(self, layer: Layer, *, moves: bool) -> None:
        """Append a layer, which moves bytes as they are, or means something."""
        self.layers.append(layer)
        self.moved |= {layer.output.name} if moves else set()
        self.sequences |= {one.name for one in (*inputs_of(layer), layer.output) if one.is_sequence}

    def name(self, value: ir.Value) -> str:
        """Return the name of the tensor that a value is, or is a view of."""
        name = value.name or ""
        if name in self.same:
            return self.same[name]
        self.tensors.setdefault(name, ValueView(value))
        return name


def network_of(region: Region) -> Network:
    """Return the layers of a region in order of execution; raise CompileError where a node is none."""
    network = Network()
    for node in region.nodes():
        found = region.composite(node)
        if found is None:
            source = node.node.inputs[0]
            assert source is not None, f"'{node.name}' is a view of nothing"
            network.same[node.outputs[0].name] = network.name(source)
            continue
        body = found[1]
        outer = {inner: value for inner, value in zip(body.inputs, node.node.inputs, strict=True) if value is not None}
        outer[body.outputs[0]] = node.node.outputs[0]
        scope = Scope(lambda value, outer=outer: network.name(outer.get(value, value)), network.sequences)  # type: ignore[misc]
        try:
            root = list(body)[-1]
            network.add(read(root, scope), moves=is_operator(root, *ALONE))
        except Refusal as refusal:
            raise CompileError(f"accelerator: '{node.name}': {refusal.reject}") from None
    network.layers = with_meanings(network.layers, network.moved)
    return network


def with_meanings(layers: Sequence[Layer], moved: Container[str]) -> list[Layer]:
    """Return layers of which those that move bytes see in them what others do: a tensor means one thing to all."""
    known: dict[str, Activation] = {}
    for layer in layers:
        if layer.output.name not in moved:
            known |= {one.name: one for one in (*inputs_of(layer), layer.output)}
    found = list(layers)
    for number in (*range(len(found)), *reversed(range(len(found)))):  # what is known goes forth, and back
        tensors = (*inputs_of(found[number]), found[number].output)
        meanings = {(known[one.name].scale, known[one.name].zero_point) for one in tensors if one.name in known}
        if found[number].output.name in moved and len(meanings) == 1:
            ((scale, zero),) = meanings
            found[number] = with_meaning(found[number], scale, zero)
            known |= {one.name: replace(one, scale=scale, zero_point=zero) for one in tensors}
    return found


def compile_region(region: Region, configuration: Configuration, trials: int = 0) -> Module | CompiledRegion:
    """Return a region's module, or several that run one after another; raise CompileError where one fits nowhere.

    So many ``trials`` of tilings of each layer are taken on the cycle simulator. An output that is a view of an input
    is no layer's.
    """
    network = network_of(region)
    wanted = dict.fromkeys(network.name(output.value) for output in region.outputs)
    computed = dict.fromkeys(name for name in wanted if name in {layer.output.name for layer in network.layers})
    found = segments_of(network.layers, computed) if computed else []
    if len(found) == 1 and computed == wanted:
        given, made = (_arguments(network, values) for values in (region.inputs, region.outputs))
        return _module(region.name, found[0], configuration, trials, given, made)
    return _procedure(region, network, found, configuration, trials)


Arguments = Mapping[str, Sequence[Argument]]


def _module(
    name: str, segment: Segment, configuration: Configuration, trials: int, given: Arguments, made: Arguments
) -> Module:
    """Return the module of one program, which is proved to mean one thing."""
    result = lower(segment.layers, list(segment.outputs), configuration, trials=trials)
    prove(result.program, result.source)
    inputs = [(name, packing, given[segment.inputs[packing.tensor.name]][0]) for name, packing in result.inputs.items()]
    outputs = [(name, packing, one) for name, packing in result.outputs.items() for one in made[packing.tensor.name]]
    kinds = {layer.name: type(layer).__name__.lower() for layer in segment.layers}
    notes = {
        "layers": [
            {
                "name": one.name, "kind": kinds.get(one.name, ""), "first": one.first, "last": one.last,
                "products": one.products, "useful": one.useful,
            }
            for one in result.layers
        ],
        "described": [described(layer) for layer in segment.layers],
        "outputs": list(segment.outputs),
    }  # fmt: skip
    return module_of(name, result.program, inputs, outputs, notes)


def _procedure(
    region: Region, network: Network, found: Sequence[Segment], configuration: Configuration, trials: int
) -> CompiledRegion:
    """Return the modules of several programs and the calls of them; tensors between them are the executor's."""
    count, sources = len(region.inputs), [network.name(value.value) for value in region.inputs]
    specs = [_spec(value, "input", index) for index, value in enumerate(region.inputs)]
    for index, value in enumerate(region.outputs):
        name, spec = network.name(value.value), _spec(value, "output", index)
        is_view = name in sources
        specs.append(replace(spec, storage="view", index=-1, of=sources.index(name)) if is_view else spec)
    places: dict[str, list[int]] = {}
    for number, value in enumerate((*region.inputs, *region.outputs)):
        places.setdefault(network.name(value.value), []).append(number)
    modules, calls = [], []
    for number, segment in enumerate(found):
        for name in segment.outputs:
            if name not in places:
                places[name] = [len(specs)]
                specs.append(_spec(network.tensors[name], "arena", -1))
        read = [places[name][0] for name in dict.fromkeys(segment.inputs.values())]
        written = [place for name in segment.outputs for place in places[name]]
        given, made = (_by_name(network, specs, numbers) for numbers in (read, written))
        symbol = f"{region.name}_{number}"
        modules.append(_module(symbol, segment, configuration, trials, given, made))
        calls.append(Call("call", tuple(read), tuple(written), number, symbol, origin=region.origin))
    outputs = tuple(range(count, count + len(region.outputs)))
    procedure = Procedure(region.name, tuple(specs), tuple(range(count)), outputs, tuple(calls))
    return CompiledRegion(tuple(modules), procedure)


def _spec(value: ValueView, storage: Storage, index: int) -> TensorSpec:
    return TensorSpec(value.name, value.dtype, value.static_shape, storage, index)


def _by_name(network: Network, specs: Sequence[TensorSpec], numbers: Sequence[int]) -> Arguments:
    """Return the arguments of a module's function, by the tensor that they are."""
    found: dict[str, list[Argument]] = {}
    for index, number in enumerate(numbers):
        spec = specs[number]
        name = network.same.get(spec.name, spec.name)
        found.setdefault(name, []).append(Argument(index, spec.static_shape or (), spec.dtype == "uint8"))
    return found


def _arguments(network: Network, values: Sequence[ValueView]) -> Arguments:
    """Return the arguments by the tensor of the program that they are; views of one are several."""
    specs = [_spec(value, "input", index) for index, value in enumerate(values)]
    return _by_name(network, specs, range(len(specs)))
