"""What a report says, without a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import graft
from graft.compiler.driver import prepare
from graft.errors import ArtifactError, GraftError
from graft.partition.placement.partitioner import partition
from graft.plugins.discovery import PluginSource
from graft.plugins.registry.manager import PluginManager
from graft.report.facts import INPUT, OUTPUT, Boundary, Drawing, Link, Report, Tensor, Vertex
from graft.report.gathering import report_on_artifact, report_on_model
from graft.report.html import html, type_text, write_html
from tests.partition.graphs import everything, small, toy

CHAIN = "a = Relu(x)\nb = Exp(a)\nc = Add(b, a)\ny = Relu(c)"
LOOP = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x) => (float[2] y)
<int64 count = {3}, bool go = {1}>
{
    [start] s = Relu(x)
    [loop] y = Loop (count, go, s) <body = body (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
        [keep] d = Identity(c)
        [add] t = Add(v, s)
        [norm] w = Relu(t)
    }>
}
"""


def report(text: str = CHAIN) -> Report:
    return report_on_model("chain.onnx", partition(small(text), [toy("npu", "Relu"), everything()]))


def data(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*)</script>', page)
    assert found is not None
    return dict(json.loads(found[1]))


def test_operators_have_types_bytes_and_reasons() -> None:
    facts = report().operators[2]
    assert (facts.op_type, facts.backend, facts.region) == ("Add", "rest", "rest_0")
    assert [(one.name, one.dtype, one.shape, one.size) for one in facts.inputs] == [
        ("b", "float32", (2, 3), 24),
        ("a", "float32", (2, 3), 24),
    ]
    assert [one.name for one in facts.outputs] == ["c"]
    assert str(facts.reasons["npu"]) == "no-pattern: npu has no rule for Add"


def test_boundaries_count_a_value_once_for_every_backend_that_reads_it() -> None:
    assert report().boundaries == (
        Boundary(INPUT, "npu", 1, 24),
        Boundary("npu", OUTPUT, 1, 24),
        Boundary("npu", "rest", 1, 24),
        Boundary("rest", "npu", 1, 24),
    )


def test_the_region_graph_shows_inputs_regions_and_outputs() -> None:
    drawn = report().regions
    assert [(one.kind, one.name, len(one.members)) for one in drawn.vertices] == [
        ("region", "npu_0", 1),
        ("region", "rest_0", 2),
        ("region", "npu_1", 1),
        ("input", "x", 0),
        ("output", "y", 0),
    ]
    links = {(one.source, one.target): [value.name for value in one.values] for one in drawn.links}
    assert links == {(3, 0): ["x"], (0, 1): ["a"], (1, 2): ["c"], (2, 4): ["y"]}
    first = drawn.vertices[0]
    assert ([one.name for one in first.inputs], [one.name for one in first.outputs]) == (["x"], ["a"])


def test_composites_are_opened() -> None:
    model = small("a = Add(x, x)\ny = Relu(a)")
    from graft.patterns import Composite, is_op, wildcard

    rows = [Composite("npu.add_relu", is_op("Relu")(is_op("Add")(wildcard(), wildcard())))]
    found = report_on_model("m", partition(model, [toy("npu", patterns=rows), everything()]))
    assert [(one.node, one.composite, [value.name for value in one.inputs]) for one in found.operators] == [
        ("a", "npu.add_relu", ["x"]),
        ("y", "npu.add_relu", ["a"]),
    ]


def test_control_flow_of_the_runtime_shows_its_bodies() -> None:
    model = prepare(onnx.parser.parse_model(LOOP))
    found = report_on_model("loop", partition(model, [toy("npu", "Relu"), everything()]))
    by_name = {one.node: one for one in found.operators}
    assert by_name["loop"].backend == "runtime"
    assert by_name["norm"].backend == "npu"
    names = [one.name for one in found.graph.vertices]
    links = {(names[one.source], names[one.target]) for one in found.graph.links}
    assert {("x", "start"), ("start", "loop"), ("start", "add"), ("add", "norm"), ("norm", "loop")} <= links
    assert html(found) == html(found)


@pytest.mark.parametrize(
    ("dtype", "shape", "text"),
    [
        ("float32", (1, 3), "float32[1,3]"), ("int8", ("n", None), "int8[n,?]"), ("bool", (), "bool[]"),
        ("float32", None, "float32[?]"), ("", (2,), "?[2]"), ("", None, "?[?]"),
    ],
)  # fmt: skip
def test_types_are_shown_as_far_as_they_are_known(
    dtype: str, shape: tuple[int | str | None, ...] | None, text: str
) -> None:
    assert type_text(Tensor("x", dtype, shape, None)) == text


def drawn(report: Report) -> tuple[list[list[Any]], list[list[Any]]]:
    """The vertices and edges of the graph of regions on the page of a report."""
    view: Any = data(html(report))["views"]
    return view["regions"]["vertices"], view["regions"]["edges"]


def test_vertices_are_as_wide_as_their_text_and_long_text_is_cut_in_its_middle() -> None:
    long, most = "abcdefghij" * 4, 29
    names = ("x", long[:most], long[: most + 1])
    vertices = tuple(Vertex("region", name, "llvm", (0,) * (number + 1)) for number, name in enumerate(names))
    short = Vertex("input", "x", "", outputs=(Tensor("x", "float32", (1, 3, 224, 224), 4),))
    found, _ = drawn(replace(report(), regions=Drawing((*vertices, short), ())))
    assert [(one[6], one[7]) for one in found] == [
        ("x", "1 operator"), (names[1], "2 operators"), (f"{long[:14]}…{long[16:30]}", "3 operators"),
        ("x", "float32[1,3,224,224]"),
    ]  # fmt: skip
    assert [one[5] for one in found] == [round(30 + 7.4 * 10 * 0.92, 1), 250.0, 250.0, round(30 + 7.4 * 20 * 0.92, 1)]
    least = Vertex("input", "x", "", outputs=(Tensor("x", "bool", (), 1),))
    assert drawn(replace(report(), regions=Drawing((least,), ())))[0][0][5] == 96.0


def test_edges_have_the_bytes_of_their_values_unless_some_are_unknown() -> None:
    vertices = tuple(Vertex("region", name, "llvm") for name in "ab")
    known, unknown = (Tensor("x", "float32", (size,), size) for size in (8, None))
    for values, size in (((known, known), 16), ((known, unknown), None), ((), 0)):
        _, edges = drawn(replace(report(), regions=Drawing(vertices, (Link(0, 1, values),))))
        assert edges == [[0, 1, [], size]]


def test_a_page_starts_with_regions_where_there_are_several() -> None:
    region, given = Vertex("region", "a", "llvm"), Vertex("input", "x", "", outputs=(Tensor("x", "bool", (), 1),))
    for vertices, start in (((region, region), "regions"), ((region, given, given), "operators"), ((), "operators")):
        assert data(html(replace(report(), regions=Drawing(vertices, ()))))["start"] == start


def test_equal_reports_give_equal_pages() -> None:
    assert html(report()) == html(report())


def test_the_page_refers_to_nothing_outside() -> None:
    page = html(report())
    assert "default-src 'none'" in page
    assert re.findall(r"""(?:src|href|action)\s*=\s*["']?(?!#)[^\s"'>]+""", page) == []
    assert re.findall(r"https?://|@import|url\(|fetch\(|XMLHttpRequest|WebSocket", page) == []


def test_the_data_cannot_end_their_element() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    model.graph[0].name = "</script><!--<script>"
    page = html(report_on_model("<&>", partition(model, [toy("npu", "Relu"), everything()])))
    assert page.count("</script>") == 2
    assert data(page)["operators"][0]["node"] == "</script><!--<script>"  # type: ignore[index]
    assert "<h1>&lt;&amp;&gt;</h1>" in page


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "page.html"
    with pytest.raises(GraftError) as caught:
        write_html(report(), path)
    assert str(caught.value) == (
        f"cannot write report '{path}': there is no folder '{path.parent}', make it first; nothing was written"
    )


def test_an_artifact_shows_its_contents(tmp_path: Path) -> None:
    path = tmp_path / "chain.graft"
    graft.compile(small(CHAIN), ["reference"]).save(path)
    found = report_on_artifact(path)
    assert found.plan.summary().startswith("reference 4/4 ops")
    assert found.operators[2].inputs[0].shape == (2, 3)
    page = html(found)
    for part in ("<h2>Artifact</h2>", "<code>reference_0</code>", "constants.safetensors", "model.onnx"):
        assert part in page


def test_an_artifact_with_a_strange_manifest_is_damaged(tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "odd.graft"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", "{}")
    with pytest.raises(ArtifactError) as caught:
        report_on_artifact(path)
    assert str(caught.value) == f"'{path}' has a damaged manifest: KeyError 'metadata'"


PLUGIN = """
from graft.plugins.hooks import hookimpl

@hookimpl
def graft_report_sections(report):
    return [("NPU <load>", f"<p id='npu'>{len(report.operators)} operators</p>")]
"""


def test_a_plugin_adds_a_section(tmp_path: Path) -> None:
    path = tmp_path / "sections.py"
    path.write_text(PLUGIN, encoding="utf-8")
    manager = PluginManager(sources=[PluginSource("sections", str(path), is_file=True)])
    result = partition(small(CHAIN), [])
    page = html(report_on_model("chain.onnx", result, manager))
    assert "<h2>NPU &lt;load&gt;</h2>" in page
    assert "<p id='npu'>4 operators</p>" in page


def test_an_operator_that_nobody_takes_is_shown() -> None:
    found = report_on_model("m", partition(small(CHAIN), [toy("npu", "Relu")]))
    assert "nobody" in html(found)
    assert [one.kind for one in found.regions.vertices].count("operator") == 2
