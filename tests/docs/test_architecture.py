"""The dumps in docs/architecture.md are what the stages give."""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request, choose
from graft.core.graph.view import NodeView
from graft.core.machine.target import target_named
from graft.core.operators.all import OPERATORS
from graft.core.operators.lower import lower, lowering_of
from graft.core.tensor_ir.ir import Stage
from graft.core.tensor_ir.printer import print_function, print_stages
from graft.plugins.codegen.grouping.lowerings import Lowerings
from graft.plugins.codegen.lowered_groups import Values
from graft.plugins.codegen.region_kernels import RegionKernels
from graft.plugins.llvm.emit import emit_ir
from graft.runtime.procedure import procedure_to_json

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
AVX2 = target_named("x86-64-v3")
MODEL = """
<ir_version: 8, opset_import: ["": 18]>
block (float[1,4,8,8] x, float[8,4,3,3] w, float[8] scale, float[8] bias, float[8] mean, float[8] variance)
  => (float[1,8] y)
{
  c = Conv <pads = [1, 1, 1, 1]> (x, w)
  n = BatchNormalization (c, scale, bias, mean, variance)
  r = Relu (n)
  p = GlobalAveragePool (r)
  f = Flatten (p)
  y = Softsign (f)
}
"""


def model() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(MODEL)
    generator = np.random.default_rng(0)
    for value in proto.graph.input[1:]:
        shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        weight = generator.uniform(0.5, 1.5, shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(weight, value.name))
    return proto


def text_of(source: ir.Model) -> str:
    """Return ONNX's text without the list of weights."""
    text = ir.to_onnx_text(source, exclude_initializers=True)
    return re.sub(r"\n+", "\n", text).strip()


@cache
def dumps() -> dict[str, str]:
    reason = choose(["onednn"])[0].available()
    if reason is not None:
        pytest.skip(reason)
    compiled = compile_model(model(), Request(["onednn", "llvm"], threads=1))
    vendor, built_in = (compiled.regions[name] for name in sorted(compiled.regions, reverse=True))
    kernels = RegionKernels(built_in, OPERATORS, AVX2)
    outside = [value.value for value in built_in.outputs]
    lowered = Values(Lowerings(OPERATORS)).lower_group(kernels.groups.groups[-1], "softsign", outside)
    graph = json.loads(compiled.modules[vendor.name].data)
    nodes = [
        {key: node[key] for key in ("op", "name", "inputs") if key in node}
        | {"attributes": node["attrs"].get("attributes", {}), "shape": node["attrs"]["shape"]}
        for node in graph["nodes"]
    ]
    rest = {key: graph[key] for key in ("arg_nodes", "heads", "node_row_ptr")}
    lines = [*(json.dumps(node) for node in nodes), json.dumps(rest)]
    why = "\n".join(
        f"{row.node:4} {row.op_type:18} {row.backend:8} {row.code:15} {row.text}" for row in compiled.plan.why()
    )
    program = procedure_to_json(compiled.description.procedures[0])
    rows = [json.dumps(row) for row in (*program["tensors"], *program["calls"])]
    sizes = f"arena {program['arena_bytes']} bytes, lower bound {program['arena_bound']}"
    return {
        "imported": text_of(graft.load(model())),
        "normalized": text_of(compiled.normalized),
        "partitioned": text_of(compiled.partitioned),
        "plan": f"{compiled.plan.summary()}\n\n{why}",
        "json": "\n".join(lines),
        "stages": print_stages(lowered.kernel.stages).strip(),
        "scan": print_stages(recurrent_stages()).strip(),
        "scheduled": print_function(kernels.functions[0]).strip(),
        "llvm": body_of(emit_ir(kernels.functions[0], AVX2)),
        "program": "\n".join([*rows, sizes]),
    }


def recurrent_stages() -> tuple[Stage, ...]:
    """Return the stages of an RNN of two units."""
    node = onnx.helper.make_node("RNN", ["x", "w", "r"], ["y"], name="rnn", hidden_size=2)
    shapes = {"x": (5, 1, 3), "w": (1, 2, 3), "r": (1, 2, 2), "y": (5, 1, 1, 2)}
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = graft.load(onnx.helper.make_model(onnx.helper.make_graph([node], "rnn", values[:3], values[3:]))).graph
    return lower(lowering_of(NodeView(graph.node(0))))


def body_of(llvm: str) -> str:
    """Return the function that computes, without the one that unpacks its arguments."""
    found = re.search(r"define internal .*?\n}", llvm, flags=re.S)
    assert found is not None
    return found[0]


def filled(page: str) -> str:
    """Return the page with the block behind every marker replaced by its dump."""
    bare = re.sub(r"(<!-- dump: \w+ -->)\n\n```text\n.*?\n```\n", r"\1\n", page, flags=re.S)
    return re.sub(r"<!-- dump: (\w+) -->\n", lambda marker: f"{marker[0]}\n```text\n{dumps()[marker[1]]}\n```\n", bare)


def test_the_page_shows_what_the_stages_give(request):
    page = PAGE.read_text(encoding="utf-8")
    wanted = filled(page)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted, encoding="utf-8")
    else:
        assert page == wanted, "docs/architecture.md is stale; run pytest tests/docs --update-golden"
    assert set(re.findall(r"<!-- dump: (\w+) -->", page)) == set(dumps())
