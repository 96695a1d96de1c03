"""Layers as a program: stages in order, tilings chosen, addresses in DRAM planned, and tokens put in at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np

from graft.errors import CompileError
from graft.plugins.accelerator.configuration import MICRO_OP_BYTES, Configuration
from graft.plugins.accelerator.emitter import LANES_AT, LOAD_ONES, Buffers, Emitted, Emitter, Plan
from graft.plugins.accelerator.frontend.layers import (
    Activation,
    Addition,
    Convolution,
    Layer,
    Packing,
    Product,
    inputs_of,
)
from graft.plugins.accelerator.isa import Finish, Instruction
from graft.plugins.accelerator.kernels import KernelMemory
from graft.plugins.accelerator.lowering import packings_for, stages_of
from graft.plugins.accelerator.program import Program, Role, Tensor, encode_micro_ops
from graft.plugins.accelerator.proof.contents import Source
from graft.plugins.accelerator.proof.dependences import with_tokens_and_places
from graft.plugins.accelerator.schedule import Scheduled, scheduled
from graft.plugins.accelerator.stages import Stage, refuse, with_addition
from graft.plugins.accelerator.tiling import SHARE, Kind, Rooms, Shape, Tiling, check_fits, search
from graft.plugins.accelerator.trial import cycles

MOST_SHARE = 1024  # where even a stage's smallest kernels of micro-ops are too many, it is refused
BUFFERS = 2


@dataclass(frozen=True, slots=True)
class Cost:
    """A layer's part of the program: instructions from ``first`` to ``last``, exclusive, and what the GEMM unit does.

    ``products`` are steps that multiply blocks or lanes by weights; of them, ``useful`` would do for the real channels.
    ``moves`` are steps that only bring numbers to the ALU.
    """

    name: str
    first: int
    last: int
    products: int
    useful: float
    moves: int


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program, what it was made of, and how the tensors that it takes and gives lie in DRAM, by their names there."""

    program: Program
    inputs: Mapping[str, Packing]
    outputs: Mapping[str, Packing]
    layers: tuple[Cost, ...]
    source: Source


def lower(
    layers: Sequence[Layer],
    outputs: Sequence[str],
    configuration: Configuration,
    buffers: int = BUFFERS,
    trials: int = 0,
) -> Lowered:
    """Return the program of layers, each behind those whose results it reads.

    What no layer makes is an input. With one buffer for each memory nothing runs ahead: no latency is hidden. So many
    ``trials`` of tilings of each stage are taken on the cycle simulator; without any, a model chooses. Raise
    CompileError, with the layer's name, where one fits in no tiling or the machine has no way to compute it.
    """
    check_configuration(configuration)
    return _Generator(tuple(layers), tuple(outputs), configuration, buffers, trials).run()


def check(layer: Layer, configuration: Configuration) -> None:
    """Raise CompileError, with the reason, for a layer that cannot be lowered."""
    check_configuration(configuration)
    stages = stages_of(layer, configuration)
    rooms = plan_of(stages, configuration, BUFFERS).rooms
    for stage in stages:
        check_fits(stage.name, stage.shape, rooms, configuration)


def check_configuration(configuration: Configuration) -> None:
    """Raise CompileError for a machine whose results cannot be its inputs."""
    if configuration.batch != 1 or configuration.block_in != configuration.block_out:
        raise CompileError(
            f"accelerator: configuration: layers need blocks of 1 x n x n, and these are {configuration.batch} x "
            f"{configuration.block_in} x {configuration.block_out}"
        )


def plan_of(stages: Sequence[Stage], configuration: Configuration, buffers: int) -> Plan:
    """Return how the memories are divided for stages."""
    vectors = max((len(stage.vectors) for stage in stages if stage.vectors is not None), default=0)
    corrected = any(any(stage.corrections) for stage in stages)
    before, lanes = (2 if corrected else int(any(stage.needs_ones for stage in stages))), 0
    if any(stage.shape.kind is Kind.LANES for stage in stages):
        # A micro-op's index counts rows here, so that it reaches no further.
        before = max(before, configuration.weight_entries // configuration.block_out)
        lanes = max(0, before - LANES_AT) // buffers
    rooms = Rooms(
        buffers,
        (configuration.input_entries - corrected) // buffers,
        (configuration.weight_entries - before) // buffers,
        (configuration.accumulator_entries - 2 * vectors) // (buffers + (buffers > 1)),
        lanes,
    )
    return Plan(configuration, rooms, before, vectors)


@dataclass(slots=True)
class _Choice:
    """The stages of a layer and, if an addition was fused into them, those of both layers apart."""

    stages: list[Stage]
    apart: list[Stage]


@dataclass(slots=True)
class _Generator:
    layers: tuple[Layer, ...]
    outputs: tuple[str, ...]
    configuration: Configuration
    buffers: int
    trials: int = 0
    inputs: dict[str, Packing] = field(default_factory=dict)
    tilings: dict[tuple[Shape, int], Tiling] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    schedules: dict[object, Scheduled] = field(default_factory=dict)

    def run(self) -> Lowered:
        """Return the program with what surrounds it."""
        choices = self._choices()
        plan = plan_of([stage for one in choices for stage in one.stages], self.configuration, self.buffers)
        stages = [stage for one in choices for stage in self._fitting(one, plan)]
        activations = {one.name: one for layer in self.layers for one in (*inputs_of(layer), layer.output)}
        outputs = {name: self._blocks(activations[name]) for name in self.outputs}
        tensors = self._tensors(stages, outputs, activations)
        addresses = {tensor.name: tensor.offset for tensor in tensors}
        addresses |= {name: addresses["workspace"] + place for name, place in self.places.items()}
        end = self._aligned(tensors[-1].end)
        kernels = KernelMemory(self.configuration.micro_op_entries, end // MICRO_OP_BYTES)
        instructions, spans = self._instructions(stages, plan, addresses, kernels)
        data = encode_micro_ops(kernels.micro_ops, self.configuration)
        tensors.append(Tensor("micro_ops", Role.MICRO_OPS, end, len(data), data))
        program, places = with_tokens_and_places(Program(self.configuration, tuple(tensors), tuple(instructions)))
        costs = tuple(_cost(stage, places[first], places[last - 1] + 1) for stage, first, last, _ in spans)
        source = Source(tuple(stages), tuple(places[end - 1] + 1 for *_, end in spans), addresses)
        return Lowered(program, self.inputs, outputs, costs, source)

    # ---- Stages ---------------------------------------------------------------------------------------------------

    def _choices(self) -> list[_Choice]:
        makers = {layer.output.name: number for number, layer in enumerate(self.layers)}
        fused = dict(self._fused(makers))
        choices = []
        for number, layer in enumerate(self.layers):
            if number in fused.values():
                continue
            stages = self._stages_of(layer, makers)
            if number not in fused:
                choices.append(_Choice(stages, []))
                continue
            addition = self.layers[fused[number]]
            assert isinstance(addition, Addition), addition
            other = addition.right if addition.left.name == layer.output.name else addition.left
            limits, lanes = (addition.lower, addition.upper), self.configuration.block_out
            both = [with_addition(one, layer.output, other, addition.output, limits, lanes) for one in stages]
            if other.name not in makers:
                self.inputs[other.name] = self._blocks(other)
            choices.append(_Choice(both, [*stages, *self._stages_of(addition, makers)]))
        return choices

    def _fused(self, makers: Mapping[str, int]) -> Iterator[tuple[int, int]]:
        """Yield convolutions and the additions that they do themselves: whose other number is there before."""
        readers: dict[str, list[int]] = {name: [] for name in makers}
        for number, layer in enumerate(self.layers):
            for one in inputs_of(layer):
                readers.setdefault(one.name, []).append(number)
        for number, layer in enumerate(self.layers):
            if not isinstance(layer, Addition) or layer.left.name == layer.right.name:
                continue
            left, right = (makers.get(one.name, -1) for one in (layer.left, layer.right))
            maker = max(left, right)
            if maker >= 0 and left != right and isinstance(self.layers[maker], Convolution | Product):
                name = self.layers[maker].output.name
                if readers[name] == [number] and name not in self.outputs:
                    yield maker, number

    def _stages_of(self, layer: Layer, makers: Mapping[str, int]) -> list[Stage]:
        packing = None
        for one in inputs_of(layer):
            if one.name not in makers:
                self.inputs.setdefault(one.name, self._blocks(one))
        if isinstance(layer, Convolution) and layer.input.name not in makers:
            packing = self._best_packing(layer)
            if packing.kernel != (1, 1):
                name = f"{layer.input.name}/{layer.name}"
                self._drop_unread(layer.input.name)
                self.inputs[name] = packing
                layer = replace(layer, input=replace(layer.input, name=name))
        if isinstance(layer, Product) and isinstance(layer.right, Activation):
            layer = self._with_packed_right(layer, makers)
        return stages_of(layer, self.configuration, packing)

    def _drop_unread(self, name: str) -> None:
        """Forget the plain form of an input that only one layer reads, in a form of its own."""
        if sum(one.name == name for layer in self.layers for one in inputs_of(layer)) == 1:
            self.inputs.pop(name, None)

    def _with_packed_right(self, layer: Product, makers: Mapping[str, int]) -> Product:
        right, lanes = layer.right, self.configuration.block_out
        assert isinstance(right, Activation), layer.name
        if right.name in makers:
            raise refuse(layer.name, f"operand: weights '{right.name}' are computed in the same program")
        rows, columns = -(-right.height // lanes), -(-right.channels // lanes)
        name = f"{right.name}/{layer.name}"
        self._drop_unread(right.name)
        self.inputs[name] = Packing(right, lanes, rows, columns, fill=right.zero_point, transposed=True)
        return replace(layer, right=replace(right, name=name))

    def _best_packing(self, layer: Convolution) -> Packing:
        def time(packing: Packing) -> float:
            stages = stages_of(layer, self.configuration, packing)
            rooms = plan_of(stages, self.configuration, self.buffers).rooms
            return sum(min(search(one.name, one.shape, rooms, self.configuration).values()) for one in stages)

        ways = list(packings_for(layer, self.configuration.block_in))
        return min(ways, key=time) if len(ways) > 1 else ways[0]

    def _blocks(self, tensor: Activation) -> Packing:
        return Packing(tensor, self.configuration.block_in, tensor.height, tensor.width, fill=tensor.zero_point)

    def _fitting(self, choice: _Choice, plan: Plan) -> list[Stage]:
        """Return stages that fit, with their tilings chosen; an addition that does not fit beside products is apart."""
        try:
            for stage in choice.stages:
                self._choose(stage, plan)
        except CompileError:
            if not choice.apart:
                raise
            for stage in choice.apart:
                self._choose(stage, plan)
            return choice.apart
        return choice.stages

    def _choose(self, stage: Stage, plan: Plan, share: int = SHARE) -> Tiling:
        if (stage.shape, share) not in self.tilings:
            found = search(
                stage.name, stage.shape, plan.rooms, self.configuration, share, self.trials,
                lambda one: cycles(stage, one, plan),
            )  # fmt: skip
            self.tilings[stage.shape, share] = min(found, key=found.__getitem__)
        return self.tilings[stage.shape, share]

    # ---- DRAM -----------------------------------------------------------------------------------------------------

    def _aligned(self, address: int) -> int:
        unit = math.lcm(*self.configuration.entry_bytes.values())
        return -(-address // unit) * unit

    def _tensors(
        self, stages: Sequence[Stage], outputs: Mapping[str, Packing], activations: Mapping[str, Activation]
    ) -> list[Tensor]:
        """Return inputs, outputs, what lives between them, and constants."""
        found: list[Tensor] = []

        def add(name: str, role: Role, size: int, data: bytes = b"") -> None:
            start = self._aligned(found[-1].end) if found else 0
            found.append(Tensor(name, role, start, size, data))

        for name, packing in self.inputs.items():
            add(name, Role.INPUT, packing.bytes)
        for name, packing in outputs.items():
            add(name, Role.OUTPUT, packing.bytes)
        made = dict.fromkeys(stage.output.tensor for stage in stages)
        between = {name: self._aligned(self._blocks(activations[name]).bytes) for name in made if name not in outputs}
        self.places = placed(stages, between)
        add("workspace", Role.WORKSPACE, max((self.places[name] + between[name] for name in between), default=0))
        for number, stage in enumerate(stages):
            prefix = f"{stage.output.tensor}/{number}"
            if stage.vectors is not None:
                vectors = np.ascontiguousarray(stage.vectors).tobytes()
                add(f"{prefix}/vectors", Role.CONSTANT, len(vectors), vectors)
            if isinstance(stage.weights, bytes) and stage.weights:
                add(f"{prefix}/weights", Role.CONSTANT, len(stage.weights), stage.weights)
        return found

    # ---- Instructions ---------------------------------------------------------------------------------------------

    def _instructions(
        self, stages: Sequence[Stage], plan: Plan, addresses: Mapping[str, int], kernels: KernelMemory
    ) -> tuple[list[Instruction], list[tuple[Stage, int, int, int]]]:
        """Return the instructions and, for each stage, its first, the one behind it, and that behind its last store."""
        buffers, rest = Buffers.of(plan.rooms), list[Instruction]()
        instructions: list[Instruction] = []
        if any(stage.needs_ones for stage in stages):
            instructions.append(LOAD_ONES)
        spans = []
        for number, stage in enumerate(stages):
            emitted, buffers = self._emitted(stage, plan, buffers, addresses, number)
            base, loads = kernels.place(stage.name, emitted.micro_ops)
            emitted, first = emitted.at(base), len(instructions)
            # The rest of the stage before reads micro-ops, and maybe where these will stand.
            instructions += [*rest, *loads, *emitted.head, *emitted.body]
            rest = emitted.rest
            spans.append((stage, first, len(instructions), len(instructions) + len(rest)))
        return [*instructions, *rest, Finish()], spans

    def _emitted(
        self, stage: Stage, plan: Plan, buffers: Buffers, addresses: Mapping[str, int], number: int
    ) -> tuple[Emitted, Buffers]:
        """Return a stage's instructions and the buffers behind it, in smaller tiles where its micro-ops do not fit."""
        share, distance = SHARE, self.configuration.accumulator_latency
        while True:
            after = deepcopy(buffers)
            tiling, own = self._choose(stage, plan, share), self._parameters(stage, addresses, number)
            key = (stage.structure, tiling)
            if key not in self.schedules:
                self.schedules[key] = scheduled(stage, tiling, self.configuration)
            emitted = Emitter(stage, self.schedules[key], plan, after, own, number, distance).emit()
            if len(emitted.micro_ops) <= self.configuration.micro_op_entries or (share >= MOST_SHARE and distance == 1):
                return emitted, after
            # First sums are no longer interleaved, then tiles become smaller.
            share, distance = (share, 1) if distance > 1 else (share * 2, 1)

    def _parameters(self, stage: Stage, addresses: Mapping[str, int], number: int) -> dict[str, int]:
        """Return the places of a stage's parameters in DRAM, by their names in its function, in entries."""
        prefix, sizes = f"{stage.output.tensor}/{number}", self.configuration.entry_bytes
        blocks = {f"x{place}": one for place, one in enumerate(stage.inputs)} | {"y": stage.output}
        blocks |= {"other": stage.moved} if stage.moved else {}
        found = {name: addresses[one.tensor] // sizes["input"] + one.first * one.plane for name, one in blocks.items()}
        if stage.weights:
            weights = stage.weights if isinstance(stage.weights, str) else f"{prefix}/weights"
            found["w"] = addresses[weights] // sizes["weight"]
        if stage.vectors is not None:
            found["v"] = addresses[f"{prefix}/vectors"] // sizes["accumulator"]
        return found


def placed(stages: Sequence[Stage], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return places in the workspace of tensors that live between stages: largest first, where there is room."""
    lives: dict[str, list[int]] = {}
    for number, stage in enumerate(stages):
        names = [stage.output.tensor, *(one.tensor for one in stage.inputs)]
        for name in [*names, *([stage.moved.tensor] if stage.moved else [])]:
            lives.setdefault(name, []).append(number)
    found: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        begin, end = lives[name][0], lives[name][-1]
        others = sorted(
            (found[other], found[other] + sizes[other])
            for other in found
            if lives[other][0] <= end and begin <= lives[other][-1]
        )
        place = 0
        for start, stop in others:
            if place + sizes[name] <= start:
                break
            place = max(place, stop)
        found[name] = place
    return found


def _cost(stage: Stage, first: int, last: int) -> Cost:
    shape = stage.shape
    steps = shape.images * shape.area
    multiplies = shape.kind in (Kind.BLOCKS, Kind.LANES)
    moves = shape.outputs * shape.moved if multiplies else shape.steps
    products = (shape.steps - moves) * steps if multiplies else 0
    return Cost(stage.name, first, last, products, stage.useful, moves * steps)
