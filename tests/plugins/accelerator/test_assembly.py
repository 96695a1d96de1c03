"""Programs as text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.plugins.accelerator.assembly import AssemblyError, assemble, disassemble, instruction_text
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import Alu, Finish, Gemm, Load, Memory, Operation
from graft.plugins.accelerator.program import Program, Role, Tensor, encode_micro_ops
from tests.plugins.accelerator.programs import CONFIGURATIONS, instructions, micro_ops


@st.composite
def programs(draw):
    configuration = draw(CONFIGURATIONS)
    tensors, end = [], 0
    for role in draw(st.lists(st.sampled_from(Role), max_size=4)):
        data = b""
        if role is Role.MICRO_OPS:
            data = encode_micro_ops(draw(st.lists(micro_ops(configuration), max_size=3)), configuration)
        elif role is Role.CONSTANT:
            data = draw(st.binary(max_size=70))
        size = len(data) if role.is_constant else draw(st.integers(0, 99))
        offset = end + draw(st.integers(0, 9))
        tensors.append(Tensor(draw(st.text(max_size=4)), role, offset, size, data))
        end = offset + size
    return Program(configuration, tuple(tensors), tuple(draw(st.lists(instructions(configuration), max_size=6))))


@given(programs())
@settings(max_examples=60)
def test_a_program_comes_back_from_its_text(program):
    assert assemble(disassemble(program)) == program


def test_text_leaves_out_what_is_usual():
    assert instruction_text(Load(memory=Memory.INPUT, dram=4, columns=8, pop_next=True)) == (
        "load input dram=4 columns=8 wait=gemm"
    )
    assert instruction_text(Gemm(reset=True, pop_previous=True, pop_next=True, push_previous=True)) == (
        "gemm reset wait=load,alu signal=load"
    )
    assert instruction_text(Alu(operation=Operation.SHIFT_RIGHT, use_immediate=True, immediate=-2)) == (
        "alu shift_right use_immediate immediate=-2"
    )


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("0108000001080080", ["    .micro_op destination=1 source=1", "    .bytes 01080080"]),
        ("010800000108", ["    .micro_op destination=1 source=1", "    .bytes 0108"]),
    ],
    ids=["bits behind the last field", "bytes behind the last micro-op"],
)
def test_what_no_micro_op_of_the_text_says_is_written_as_bytes(data, lines):
    configuration = Configuration(weight_bytes=128 << 10)  # of whose micro-ops 31 bits mean something
    tensor = Tensor("m", Role.MICRO_OPS, 0, len(data) // 2, bytes.fromhex(data))
    program = Program(configuration, (tensor,), (Finish(),))
    text = disassemble(program)
    assert text.splitlines()[2:4] == lines
    assert assemble(text) == program


def test_comments_and_empty_lines_are_nothing():
    text = (
        '; a program\n.configuration batch=1 ; as usual\n\n.tensor "a;b" input offset=0 size=4\n.program\nfinish ; "\n'
    )
    assert assemble(text).tensors == (Tensor("a;b", Role.INPUT, 0, 4),)


START = '.configuration\n.tensor "x" micro_ops offset=0 size=4\n  .micro_op source=1\n.program\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("load input", "line 1, column 1: expected '.configuration' first, found 'load'"),
        ("", "line 1, column 1: expected '.configuration', found the end of the line"),
        (".configuration\n", "line 2, column 1: expected '.program', found the end of the line"),
        (".configuration\n.tensr", "line 2, column 1: expected '.tensor', '.bytes', '.micro_op' or '.program', found "
         "'.tensr'; did you mean '.tensor'?"),
        (".configuration batch=x", "line 1, column 22: expected a whole number, found 'x'"),
        (".configuration\n.tensor x", "line 2, column 9: expected the tensor's name in quotation marks, found 'x'"),
        ('.configuration\n.tensor "x', "line 2, column 9: expected a closing quotation mark, found '\"'"),
        ('.configuration\n.tensor "x" inptu', "line 2, column 13: expected a role (input, output, constant, micro_ops, "
         "workspace), found 'inptu'; did you mean 'input'?"),
        ('.configuration\n.tensor "x" input size=1', "line 2, column 25: expected offset= and size=, found the end of "
         "the line"),
        ('.configuration\n.tensor "x" constant offset=0 size=4\n .bytes 12\n.program',
         "line 2, column 1: expected 4 bytes of data for a tensor of the role 'constant', got 1 bytes, found "
         "'.tensor'"),
        ('.configuration\n.tensor "x" constant offset=0 size=4\n .bytes 1g',
         "line 3, column 9: expected hexadecimal bytes, found '1g'"),
        (START + "laod input", "line 5, column 1: expected an instruction (load, store, gemm, finish, alu), found "
         "'laod'; did you mean 'load'?"),
        (START + "load", "line 5, column 5: expected a memory (micro_op, weight, input, accumulator, output, "
         "accumulator_8), found the end of the line"),
        (START + "store output sram=1 rwos=3", "line 5, column 21: expected one of dram=, rows=, columns=, stride=, "
         "wait=, signal=, found 'rwos=3'; did you mean 'rows'?"),
        (START + "  gemm outer=0x4001", "line 5, column 14: expected a number from 0 to 16383, found '0x4001'"),
        (START + "alu add wait=gemm,stor", "line 5, column 19: expected a neighbour of the alu unit (gemm, store), "
         "found 'stor'; did you mean 'store'?"),
        (START + "store output wait=load", "line 5, column 19: expected a neighbour of the store unit (alu), found "
         "'load'"),
        (START + "alu add begin=4 end=2", "line 5, column 1: expected an instruction that has a meaning (alu: the "
         "range of micro-ops from 4 to 2 is empty), found 'alu'"),
        (".configuration block_in=8 input_bytes=16384 weight_bytes=131072\n.program\ngemm lanes", "line 3, column 1: "
         "expected an instruction that has a meaning (gemm: lanes need square blocks, and 8 inputs meet 16 outputs), "
         "found 'gemm'"),
    ],
)  # fmt: skip
def test_an_error_says_where_and_what_was_expected(text, message):
    with pytest.raises(AssemblyError) as caught:
        assemble(text)
    assert str(caught.value) == message


@given(st.text(alphabet=".configuration\n program\"load=1,;weight'", max_size=60))
def test_any_text_is_a_program_or_an_error_of_the_family(text):
    try:
        assert isinstance(assemble(START + text), Program)
    except AssemblyError as error:
        assert error.line >= 1 and error.column >= 1
