"""Instructions as bits."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.errors import ArtifactError, CompileError, MachineError
from graft.plugins.accelerator._simulator import simulate
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.encoding import (
    decode,
    decode_all,
    decode_micro_op,
    encode,
    encode_all,
    encode_micro_op,
)
from graft.plugins.accelerator.isa import (
    Alu,
    Finish,
    Gemm,
    Load,
    Memory,
    MicroOp,
    Operation,
    Store,
    field_table,
)
from graft.plugins.accelerator.simulator import FUNCTIONAL
from tests.plugins.accelerator.programs import CONFIGURATIONS, DEFAULT, SMALL, instructions, micro_ops


@settings(max_examples=60)
@given(st.data(), CONFIGURATIONS)
def test_an_instruction_comes_back_from_its_bytes(data, configuration):
    instruction = data.draw(instructions(configuration))
    assert decode(encode(instruction, configuration), configuration) == instruction


@settings(max_examples=60)
@given(st.data(), CONFIGURATIONS)
def test_a_micro_op_comes_back_from_its_bytes(data, configuration):
    micro_op = data.draw(micro_ops(configuration))
    assert decode_micro_op(encode_micro_op(micro_op, configuration), configuration) == micro_op


@given(st.binary(min_size=16, max_size=16), CONFIGURATIONS)
def test_any_16_bytes_are_an_instruction_or_an_error(data, configuration):
    try:
        instruction = decode(data, configuration)
    except ArtifactError:
        return
    assert encode(instruction, configuration) == data


@pytest.mark.parametrize("kind", [Load, Store, Gemm, Alu])
@pytest.mark.parametrize("beyond", ["least", "most"])
def test_a_number_beyond_its_field_is_an_error_not_another_field(kind, beyond):
    for field in field_table(DEFAULT)[kind]:
        if field.width == 1 or field.name in ("memory", "operation", "begin", "end"):
            continue
        value = field.least - 1 if beyond == "least" else field.most + 1
        with pytest.raises(CompileError, match=f"'{field.name}' is {value} and its {field.width} bits hold"):
            encode(kind(**{field.name: value}), DEFAULT)


def test_the_error_of_a_number_that_does_not_fit_says_what_would():
    with pytest.raises(CompileError) as caught:
        encode(Load(rows=70000), DEFAULT)
    assert str(caught.value) == "accelerator: load: 'rows' is 70000 and its 16 bits hold 0 to 65535"


def test_fields_lie_from_the_lowest_bit_upwards():
    word = int.from_bytes(encode(Load(memory=Memory.INPUT, sram=5, pop_next=True, pad_value=-1), DEFAULT), "little")
    assert (word & 7, word >> 3 & 15, word >> 7 & 7, word >> 10 & 0x1FFF) == (0, 0b0010, 2, 5)
    assert word >> 119 == 0xFF


def test_the_default_instructions_fit_into_128_bits_with_none_to_spare_for_products():
    used = {kind.mnemonic: 3 + sum(field.width for field in table) for kind, table in field_table(DEFAULT).items()}
    assert used == {"load": 127, "store": 103, "gemm": 128, "finish": 7, "alu": 127}


@pytest.mark.parametrize(
    ("instruction", "text"),
    [
        (Load(pop_previous=True), "load: the load unit has no previous unit to exchange tokens with"),
        (Store(push_next=True), "store: the store unit has no next unit to exchange tokens with"),
        (Load(memory=Memory.OUTPUT), "load: a load cannot fill the memory 'output'"),
        (Store(memory=Memory.WEIGHT), "store: a store cannot read the memory 'weight'"),
        (Load(memory=Memory.MICRO_OP, pad_left=1), "load: micro-ops cannot be padded"),
        (Gemm(begin=3, end=3), "gemm: the range of micro-ops from 3 to 3 is empty"),
        (
            Alu(operation=Operation.SCALE, immediate=256),
            "alu: the immediate number of scale is 256, and a zero point has 8 bits",
        ),
    ],
)
def test_an_instruction_without_a_meaning_is_not_encoded(instruction, text):
    with pytest.raises(CompileError) as caught:
        encode(instruction, DEFAULT)
    assert str(caught.value) == f"accelerator: {text}"


def test_lanes_of_blocks_that_are_not_square_are_damaged_everywhere():
    oblong = replace(DEFAULT, block_in=8, input_bytes=16 << 10, weight_bytes=128 << 10)
    text = "lanes need square blocks, and 8 inputs meet 16 outputs"
    lanes, stream = Gemm(lanes=True, outer=0), encode_all((Gemm(lanes=True, outer=0), Finish()), DEFAULT)
    for encoder in (encode, lambda one, configuration: encode_all([one], configuration)):
        with pytest.raises(CompileError) as refused:
            encoder(lanes, oblong)
        assert str(refused.value) == f"accelerator: gemm: {text}"
    with pytest.raises(ArtifactError) as damaged:
        decode_all(stream, oblong)
    assert str(damaged.value) == f"instruction 0: gemm: {text}"
    with pytest.raises(RuntimeError, match=r"^instruction 0 is damaged$"):
        simulate(astuple(oblong), stream, bytearray(64), FUNCTIONAL, 0, 1)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\7" + bytes(15), "instruction 1: no instruction has the opcode 7; the highest is 4"),
        (b"\3" + bytes(14) + b"\1", f"instruction 1: finish: the bits behind the last field are {1 << 113:#x} and"),
        (b"\0\3" + bytes(14), "instruction 1: load: no memory has the number 6"),
        (bytes(7), "a stream of 23 bytes is no whole number of 16-byte instructions"),
    ],
)
def test_a_damaged_stream_says_which_instruction(data, text):
    with pytest.raises(ArtifactError) as caught:
        decode_all(encode(Finish(), DEFAULT) + data, DEFAULT)
    assert str(caught.value).startswith(text)


def test_a_stream_comes_back():
    stream = (Load(sram=3), Gemm(pop_previous=True), Finish())
    assert decode_all(encode_all(stream, SMALL), SMALL) == stream


def test_a_micro_op_that_does_not_fit_is_an_error():
    with pytest.raises(CompileError) as caught:
        encode_micro_op(MicroOp(weight=1024), DEFAULT)
    assert str(caught.value) == "accelerator: micro-op: 'weight' is 1024 and its 10 bits hold 0 to 1023"


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"batch": 0}, "'batch' is 0, a number from 1 to 2147483647 is needed"),
        ({"latency": 1.5}, "'latency' is 1.5, a number from 1 to 1048576 is needed"),
        (
            {"block_in": 4096, "block_out": 8192},
            "an entry of 'weight' has 33554432 bytes, and at most 16777216 are allowed; make its blocks smaller",
        ),
        ({"weight_bytes": 300}, "'weight_bytes' is 300, which is no multiple of an entry of 256 bytes"),
        (
            {"weight_bytes": 512 * 1024},
            "a micro-op needs 33 bits and has 32; make a memory smaller or its blocks larger (entries now: input 2048, "
            "weight 2048, accumulator 2048, micro_op 8192)",
        ),
        (
            {"micro_op_bytes": 64 * 1024},
            "a GEMM instruction needs 130 bits and has 128; make a memory smaller or its blocks larger (entries now: "
            "input 2048, weight 1024, accumulator 2048, micro_op 16384)",
        ),
    ],
)
def test_a_configuration_that_cannot_be_encoded_says_by_how_much(sizes, text):
    with pytest.raises(MachineError) as caught:
        Configuration(**sizes)
    assert str(caught.value) == f"accelerator configuration: {text}"


def test_speed_is_no_part_of_what_programs_depend_on():
    assert Configuration(latency=7, port_bytes=16).digest == DEFAULT.digest
    assert Configuration(queue_depth=7).digest != DEFAULT.digest
