import struct
import zlib
from dataclasses import replace

import numpy as np
import onnx
import pytest

import graft
from graft.errors import GraftError
from graft.runtime.program import Program
from graft_loom.emitter import OPCODES


def compiled(body, others=(), strict=True):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {body}')
    return graft.compile(model, ["loom", *others], strict=strict, cache=False)


def strategies(program):
    return [call.schedule["strategy"] for call in program.description.procedures[0].calls]


def test_its_schedule_deals_the_elements_of_numbers_and_of_symbols():
    product = "{ t = MatMul(x, w) z = Relu(t) }"
    assert strategies(compiled(f"(float[3,7] x, float[7,5] w) => (float[3,5] z) {product}")) == ["loom.lanes"]
    assert strategies(compiled(f"(float[n,7] x, float[7,5] w) => (float[n,5] z) {product}")) == ["loom.lanes_varying"]


def test_relu_keeps_nan():
    x = np.array([np.nan, -1, 2], np.float32)
    np.testing.assert_array_equal(compiled("(float[3] x) => (float[3] y) { y = Relu(x) }")(x), [np.nan, 0, 2])


def test_results_are_several_where_the_operator_has_several():
    program = compiled("(float[n,4] x) => (float[n,2] y, float[n,2] z) { y, z = Split<axis=1,num_outputs=2>(x) }")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y, z = program(x)
    np.testing.assert_array_equal(np.concatenate([y, z], 1), x)


def test_the_plan_says_why_not():
    text = '<ir_version: 10, opset_import: ["" : 21]> g (double[3] x) => (double[3] z) { y = Relu(x) z = Floor(y) }'
    plan = graft.plan(onnx.parser.parse_model(text), ["loom", "reference"])
    assert {row.op_type: str(row.reasons["loom"].text) for row in plan.placements} == {
        "Relu": "the loom loads float32 and bool, 'x' is float64",
        "Floor": "the loom has not been held to Floor",
    }


@pytest.mark.parametrize(("place", "is_sealed"), [(4, True), (6, True), (-3, True), (3, False), (-1, False)])
def test_a_damaged_program_is_no_crash(place, is_sealed):
    program = compiled("(float[3] x) => (float[3] y) { y = Relu(x) }")
    (module,) = program.description.modules
    words = list(struct.unpack(f"<{len(module.data) // 8}q", module.data))
    words[place] = 1 << 40
    if is_sealed:
        words[3] = zlib.crc32(struct.pack(f"<{len(words) - 4}q", *words[4:]))
    damaged = replace(module, data=struct.pack(f"<{len(words)}q", *words))
    description = replace(program.description, modules=(damaged,))
    with pytest.raises(GraftError, match="damaged: (?!its checksum)" if is_sealed else "damaged: its checksum"):
        Program.from_description(description)


def test_emitter_and_simulator_have_one_table():
    assert OPCODES["ADD_F"] == 0
    assert len(OPCODES) > 50
