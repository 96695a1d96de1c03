"""Scales and zero points of integer inputs and outputs: found in the graph, told in headers and by reports."""

from __future__ import annotations

from pathlib import Path

import onnx.parser

import graft
from graft.compiler.quantized_values import quantized_values
from graft.runtime.tensor_info import Quantization

BORDERS = """<ir_version: 10, opset_import: ["" : 21]> g
  (int8[1,4] x, uint8[1,4] raw, int8[4] many, float[1,4] z, float dynamic)
  => (uint8[1,4] y, uint8[1,4] own, uint8[1,4] q)
  <float sx = {0.1}, int8 zx = {-3}, float sy = {2}, uint8 zy = {128}, float[4] each = {1, 2, 3, 4},
   int8[4] zeros = {0, 0, 0, 0}> {
    a = DequantizeLinear(x, sx, zx) b = Cast <to = 1> (raw) c = DequantizeLinear <axis = 0> (many, each, zeros)
    d = Add(a, b) e = Add(c, z) f = Add(d, e)
    y = QuantizeLinear(f, sy, zy) own = QuantizeLinear(f, dynamic) q = QuantizeLinear(f, sx) }"""


def test_one_known_scale_of_an_integer_at_the_border_is_told(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(BORDERS)
    tenth = 0.10000000149011612
    wanted = {"x": Quantization(tenth, -3), "y": Quantization(2.0, 128), "q": Quantization(tenth, 0)}
    assert quantized_values(graft.load(model)) == wanted
    program = graft.compile(model, ["c_source"], target="generic", threads=1)
    program.save(tmp_path / "m.graft")
    graft.runtime.load(tmp_path / "m.graft").export_c_project(tmp_path / "m")
    header = (tmp_path / "m" / "m.h").read_text(encoding="utf-8")
    assert " *   x: input 'x', int8[1, 4] of the numbers 0.100000001 * (value - -3)\n" in header
    macros = {line.split(" ", 1)[1] for line in header.split("\n") if "_SCALE" in line or "_ZERO_POINT" in line}
    assert macros == {"M_X_SCALE 0.100000001f", "M_X_ZERO_POINT (-3)", "M_Y_SCALE 2.00000000f", "M_Y_ZERO_POINT 128",
                      "M_Q_SCALE 0.100000001f", "M_Q_ZERO_POINT 0"}  # fmt: skip
