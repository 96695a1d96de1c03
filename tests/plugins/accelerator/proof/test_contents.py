"""The proof knows what each slot holds: faults that are planted into the generator and into programs are refused."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import graft
from graft.errors import InternalError
from graft.plugins.accelerator import codegen, emitter, kernels, nests, tiling, windows
from graft.plugins.accelerator.codegen import Lowered, lower
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.encoding import encode_all
from graft.plugins.accelerator.frontend.layers import Activation, Addition, Convolution, Layer, Product, Requantize
from graft.plugins.accelerator.isa import Finish, Instruction
from graft.plugins.accelerator.program import Program, Role
from graft.plugins.accelerator.proof import dependences
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.proof.tokens import ProofError
from graft.plugins.accelerator.simulator import run_functional
from tests.plugins.accelerator.test_backend import small_network
from tests.plugins.accelerator.test_codegen import convolution, residual_network
from tests.plugins.accelerator.test_micro_op_memory import chain

SMALL = Configuration(input_bytes=4096, weight_bytes=32768, accumulator_bytes=16384, micro_op_bytes=8192)
RING = Configuration(weight_bytes=2048, accumulator_bytes=8192, micro_op_bytes=256)
NETWORK = (residual_network(), ["classes", "sum"], SMALL)
WRAPPING = (chain(Activation("x", 96, 13, 11), [1], 130), ["y0"], RING)
RETURNING = (chain(Activation("x", 96, 9, 7), [1] * 5, 96, 96, 160, 96, 96), ["y4"], RING)
X = Activation("x", 40, 9, 7, zero_point=-128)
MOVED = (
    [
        Addition("z", X, Activation("w", 40, 9, 7, scale=0.3), Activation("z", 40, 9, 7, scale=0.7)),
        convolution("y", Activation("z", 40, 9, 7, scale=0.7), 24),
    ],
    ["y"],
    SMALL,
)
NO_FORWARDING = ([convolution("y", Activation("x", 64, 28, 28), 64)], ["y"], Configuration(accumulator_latency=4))
LEFT, RIGHT = Activation("l", 40, 9, zero_point=-128), Activation("r", 24, 40, zero_point=5)
COMPUTED = ([Product("p", LEFT, RIGHT, Activation("p", 24, 9), Requantize(divisor=40.0))], ["p"], SMALL)
LANES = (
    [
        Convolution(
            "d", X, Activation("d", 40, 9, 7), np.random.default_rng(5).integers(-255, 256, (40, 1, 3, 3)),
            Requantize(divisor=90.0), pads=(1, 1, 1, 1), groups=40,
        )
    ],
    ["d"],
    SMALL,
)  # fmt: skip
Case = tuple[list[Layer], list[str], Configuration]
CASES: dict[str, Case] = {
    "network": NETWORK, "ring": WRAPPING, "returning": RETURNING, "moved": MOVED, "computed": COMPUTED, "lanes": LANES,
    "not forwarding": NO_FORWARDING,
}  # type: ignore[dict-item]  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_the_generator_makes_holds_what_its_layers_mean(case: Case) -> None:
    lowered = lower(*case)
    prove(lowered.program, lowered.source)


# ---- Faults of the generator --------------------------------------------------------------------------------------

Fault = tuple[Any, str, str, str, Case]
GENERATOR, KERNELS, RING_OF = codegen._Generator, kernels.Kernels, kernels.KernelMemory
FAULTS: dict[str, Fault] = {
    "the next stage's micro-ops over those that are still read": (
        GENERATOR, "_instructions", "[*rest, *loads, *emitted.head, *emitted.body]",
        "[*loads, *emitted.head, *rest, *emitted.body]", WRAPPING),
    "actions before the products of their tile": (
        emitter.Emitter, "_end_tile", "emitted.body += emitted.rest", "emitted.body[:0] = emitted.rest", NETWORK),
    "micro-ops that are believed to be there after the ring has wrapped": (
        RING_OF, "place", "self.resident.clear()", "pass", RETURNING),
    "a ring that does not move on": (RING_OF, "place", "self.end += len(key)", "pass", RETURNING),
    "micro-ops one entry too far": (RING_OF, "place", "return base, ", "return base + 1, ", NETWORK),
    "micro-ops from the entry behind in DRAM": (
        RING_OF, "place", "self.address + start", "self.address + start + 1", NETWORK),
    "micro-ops without the last": (RING_OF, "place", "columns=len(key)", "columns=len(key) - 1", NETWORK),
    "a load that is left out": (tiling.Slots, "take", "return found, is_new", "return found, False", NETWORK),
    "what a buffer holds, by its stage alone": (
        emitter.Emitter, "_load", "(self.number, windows)", "self.number", NETWORK),
    "buffers of accumulators upon each other": (
        emitter.Plan, "accumulator", "slot * self.rooms.accumulator", "slot", NETWORK),
    "a workspace that is too small": (
        codegen, "placed", "place + sizes[name] <= start", "place <= start", NETWORK),
    "results of the entry behind": (emitter.Emitter, "_stored", ".base\n", ".base + 1\n", NETWORK),
    "a tile stored one place further": (windows.Window, "store", "dram=self.dram", "dram=self.dram + 1", NETWORK),
    "inputs one entry too far": (windows.Window, "load", "sram=base + self.sram", "sram=base + self.sram + 1", MOVED),
    "rows one place further apart": (
        windows.Window, "load", "stride=rows.stride", "stride=rows.stride + 1", NETWORK),
    "padding on the other side": (
        windows.Window, "load", "pad_left=columns.start, pad_right=columns.extent - columns.stop",
        "pad_right=columns.start, pad_left=columns.extent - columns.stop", NETWORK),
    "padding of zeros": (windows.Window, "load", "else pad_value", "else 0", NETWORK),
    "operands that are swapped": (
        KERNELS, "_instruction", "[value_at(place, point) for place in places]",
        "[value_at(place, point) % 128 for place in (places[0], *places[:0:-1])]", COMPUTED),
    "sums that begin with what was there": (KERNELS, "steps", "reset=True", "reset=False", NETWORK),
    "a product that is added twice": (
        KERNELS, "_instruction", "not summed or any(values[: len(summed)])", "True", NETWORK),
    "sums that are interleaved with others": (
        KERNELS, "_interleaved", "stop=one.extent // part, steps=_times(one.steps, part)",
        "stop=one.extent // part, steps=one.steps", NO_FORWARDING),
    "loops whose steps are swapped": (KERNELS, "_instruction", "one.steps,", "one.steps[::-1],", NETWORK),
    "a kernel whose rows are its columns": (
        nests._Builder, "_blocks", "self._place(0, r, p), self._place(1, c, q)",
        "self._place(0, r, q), self._place(1, c, p)", NETWORK),
    "constants of the first block for all": (nests._Builder, "_act", "VECTORS if action.by_block else 0", "0", NETWORK),
    "a zero point that is not taken away": (
        nests._Builder, "_correct", "-zero // times_of(zero)", "zero", COMPUTED),
    "a row of weights further on": (
        nests._Builder, "_lanes", "self._place(0, r, p), self._place(1, c, q)", "self._place(0, r, q), r", LANES),
    "a token that nobody waits for": (
        dependences._Builder, "add", "(other - unit) * direction > 0", "(other - unit) * direction > 1", NETWORK),
    "an addition to the wrong number": (
        nests._Builder, "_act", "beside if action.on_moved else total", "total", MOVED),
}  # fmt: skip


def planted(owner: Any, name: str, text: str, instead: str) -> Callable[..., Any]:
    """The function with a part of its text exchanged."""
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert text in source, source
    names = dict(vars(inspect.getmodule(function)))
    exec(compile(source.replace(text, instead), "planted", "exec"), names)  # the tree's own text
    found: Callable[..., Any] = names[name]
    return found


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_of_the_generator_is_refused(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, text, instead, case = fault
    monkeypatch.setattr(owner, name, planted(owner, name, text, instead))
    with pytest.raises(ProofError):  # where data are missing, tokens cannot be put in
        _lower_and_prove(*case)


def _lower_and_prove(*case: Any) -> None:
    lowered = lower(*case)
    prove(lowered.program, lowered.source)


def test_the_store_of_something_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, text, instead, case = FAULTS["the next stage's micro-ops over those that are still read"]
    monkeypatch.setattr(owner, name, planted(owner, name, text, instead))
    lowered = lower(*case)
    prove(lowered.program)
    with pytest.raises(ProofError) as caught:
        prove(lowered.program, lowered.source)
    assert str(caught.value) == (
        "internal error: accelerator: instruction 279 'store output sram=79 dram=1552 rows=3 columns=5 stride=11 "
        "wait=alu signal=alu' stores entry 688 of 'y0', and it does not hold what 'y0' means"
    )


def test_a_program_that_fails_its_proof_is_not_hidden_by_another_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, text, instead, _ = FAULTS["padding on the other side"]
    monkeypatch.setattr(owner, name, planted(owner, name, text, instead))
    with pytest.raises(InternalError, match=r"^internal error: accelerator: instruction .* stores entry .* of "):
        graft.compile(small_network(), ["accelerator", "reference"])


# ---- Faults of programs -------------------------------------------------------------------------------------------


def mutant(lowered: Lowered, rng: np.random.Generator) -> Program:
    """A program one of whose instructions has another number in a field, is left out, or comes one later."""
    instructions = list(lowered.program.instructions)
    index = int(rng.integers(len(instructions) - 1))
    match int(rng.integers(8)):
        case 0:
            del instructions[index]
        case 1:
            instructions[index : index + 2] = instructions[index : index + 2][::-1]
        case 2:
            return _with_another_micro_op(lowered.program, rng)
        case _:
            instructions[index] = _changed(instructions[index], rng)
    return replace(lowered.program, instructions=tuple(instructions))


def _changed(instruction: Instruction, rng: np.random.Generator) -> Instruction:
    numbers = [one.name for one in fields(instruction) if isinstance(getattr(instruction, one.name), int)]
    name = str(rng.choice(numbers))
    value = getattr(instruction, name)
    if isinstance(value, bool):
        return replace(instruction, **{name: not value})  # type: ignore[arg-type]
    return replace(instruction, **{name: type(value)(value + int(rng.choice([-1, 1])))})  # type: ignore[arg-type]


def _with_another_micro_op(program: Program, rng: np.random.Generator) -> Program:
    *others, micro_ops = program.tensors
    assert micro_ops.role is Role.MICRO_OPS
    data = bytearray(micro_ops.data)
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return replace(program, tensors=(*others, replace(micro_ops, data=bytes(data))))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_program_that_is_changed_is_refused_or_computes_the_same(case: Case) -> None:
    rng, lowered, refused = np.random.default_rng(0), lower(*case), 0
    inputs = {name: rng.bytes(packing.bytes) for name, packing in lowered.inputs.items()}
    expected = run_functional(lowered.program, inputs, 1).outputs
    for number in range(30):
        try:
            program = mutant(lowered, rng)
            encode_all(program.instructions, program.configuration)
        except Exception:  # no instruction at all: a field too wide, an unknown operation
            continue
        try:
            prove(program, lowered.source)
        except ProofError:
            refused += 1
            continue
        assert run_functional(program, inputs, number).outputs == expected, number
    assert refused > 5
    assert isinstance(lowered.program.instructions[-1], Finish)
