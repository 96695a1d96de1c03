"""A trial of a tiling: what one stage, in a program of its own, takes on the cycle simulator."""

from __future__ import annotations

import math

from graft.core.operators.definition.build import dims
from graft.core.tensor_ir import ir
from graft.core.types import element_bits
from graft.plugins.accelerator.configuration import MICRO_OP_BYTES
from graft.plugins.accelerator.emitter import LOAD_ONES, Buffers, Emitter, Plan
from graft.plugins.accelerator.isa import Finish
from graft.plugins.accelerator.kernels import KernelMemory
from graft.plugins.accelerator.program import Program, Role, Tensor, encode_micro_ops
from graft.plugins.accelerator.proof.dependences import with_tokens
from graft.plugins.accelerator.schedule import scheduled
from graft.plugins.accelerator.simulator import cycles_of
from graft.plugins.accelerator.stages import Stage
from graft.plugins.accelerator.tiling import Tiling


def cycles(stage: Stage, tiling: Tiling, plan: Plan) -> float:
    """Return the cycles of a stage in tiles; infinitely many where there is no room for its micro-ops."""
    configuration = plan.configuration
    done, tensors, places = scheduled(stage, tiling, configuration), list[Tensor](), dict[str, int]()
    unit, end = math.lcm(*configuration.entry_bytes.values()), 0
    for one in done.function.parameters:
        role = Role.WORKSPACE if one.name == "y" else Role.INPUT
        size = element_bits(one.dtype) // 8 * _elements(one)
        entry = {"w": "weight", "v": "accumulator"}.get(one.name, "input")
        places[one.name] = end // configuration.entry_bytes[entry]
        tensors.append(Tensor(one.name, role, end, -(-size // unit) * unit))
        end = tensors[-1].end
    emitted = Emitter(stage, done, plan, Buffers.of(plan.rooms), places, 0, configuration.accumulator_latency).emit()
    if len(emitted.micro_ops) > configuration.micro_op_entries:
        return math.inf
    kernels = KernelMemory(configuration.micro_op_entries, end // MICRO_OP_BYTES)
    loads = [*([LOAD_ONES] if stage.needs_ones else []), *kernels.place(stage.name, emitted.micro_ops)[1]]
    data = encode_micro_ops(kernels.micro_ops, configuration)
    tensors.append(Tensor("micro_ops", Role.MICRO_OPS, end, len(data), data))
    instructions = (*loads, *emitted.head, *emitted.body, *emitted.rest, Finish())
    return cycles_of(with_tokens(Program(configuration, tuple(tensors), instructions))).counters.cycles


def _elements(buffer: ir.Buffer) -> int:
    """Return how many elements a tensor has from the first to the last."""
    strides = [int(one.value) for one in buffer.strides or () if isinstance(one, ir.Constant)]
    return strides[0] * dims(buffer)[0] if strides else math.prod(dims(buffer))
