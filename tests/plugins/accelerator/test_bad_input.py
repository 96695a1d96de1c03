"""Programs that are damaged, too long, or loop: both simulators and the proof end with a message."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from graft.errors import ArtifactError, CompileError
from graft.plugins.accelerator._simulator import conflicts, simulate
from graft.plugins.accelerator.assembly import assemble
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.encoding import decode_all, encode, encode_all
from graft.plugins.accelerator.isa import Alu, Finish, Gemm, Load
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.proof.tokens import ProofError
from graft.plugins.accelerator.simulator import FUNCTIONAL

DEFAULT = Configuration()
FINISH = encode(Finish(), DEFAULT)
MODES = range(3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (FINISH[:-1], "a stream of 15 bytes is no whole number of 16-byte instructions"),
        (bytes(16 * (1 << 24) + 16), "there are 16777217 instructions, and at most 16777216 are allowed"),
        (b"\7" + bytes(15) + FINISH, "instruction 0 is damaged"),
        (FINISH[:-1] + b"\1", "instruction 0 is damaged"),
        (b"", "the program does not end with 'finish'"),
    ],
    ids=["cut", "long", "opcode", "rest", "empty"],
)
def test_a_stream_that_is_no_program_is_refused(mode: int, stream: bytes, text: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        simulate(astuple(DEFAULT), stream, bytearray(), mode, 0, 1)
    assert str(caught.value) == text


@pytest.mark.parametrize("mode", [FUNCTIONAL, 1])
def test_a_stream_that_loops_ends_when_its_steps_are_taken(mode: int) -> None:
    loop = Gemm(reset=True, outer=16383, inner=16383)
    with pytest.raises(RuntimeError) as caught:
        simulate(astuple(DEFAULT), encode_all([loop, Finish()], DEFAULT), bytearray(), mode, 0, 10**6)
    assert str(caught.value) == "instruction 0 takes 268402689 steps, and 1000000 are left"


def test_a_loop_is_not_proved() -> None:
    text = ".configuration\n.program\ngemm reset outer=16383 inner=16383 signal=alu\nfinish wait=gemm"
    with pytest.raises(ProofError, match="takes 268402689 steps, and at most 16777216 are allowed"):
        prove(assemble(text))


def test_a_program_of_another_configuration_has_other_fields() -> None:
    product = Gemm(source_inner=5, weight_outer=1023)
    smaller = replace(DEFAULT, input_bytes=8192, accumulator_bytes=65536)
    try:
        found = decode_all(encode_all([product, Finish()], DEFAULT), smaller)
    except ArtifactError:
        return
    assert found[0] != product


@pytest.mark.parametrize("sequence", [[0], [0, 2], [0, -1], [0, 1, 1]])
def test_an_order_that_is_none_is_refused(sequence: list[int]) -> None:
    order = b"".join(one.to_bytes(8, "little", signed=True) for one in sequence)
    with pytest.raises(RuntimeError, match="the order of instructions or the table of tensors is wrong"):
        conflicts(astuple(DEFAULT), encode_all([Alu(outer=0), Finish()], DEFAULT), bytearray(), order, b"")


@pytest.mark.parametrize("table", [(0, 17, 0), (-1, 4, 0), (8, 4, 0, 4, 4, 0)])
def test_a_tensor_outside_of_the_memory_is_refused(table: tuple[int, ...]) -> None:
    data = b"".join(one.to_bytes(8, "little", signed=True) for one in table)
    with pytest.raises(RuntimeError, match="the order of instructions or the table of tensors is wrong"):
        conflicts(astuple(DEFAULT), encode_all([Finish()], DEFAULT), bytearray(16), bytes(8), data)


@pytest.mark.parametrize("field", ["rows", "columns"])
def test_all_of_a_kind_are_refused_by_the_one_that_does_not_fit(field: str) -> None:
    wrong = Load(**{field: 70000})
    with pytest.raises(CompileError, match=f"load: '{field}' is 70000 and its 16 bits hold 0 to 65535"):
        encode_all([Load(), Gemm(), wrong, Finish()], DEFAULT)
