"""examples/model_explorer: an extension of Model Explorer, here with a made-up module of its interface if need be."""

import importlib.util
import json
import sys
from dataclasses import asdict, field, make_dataclass
from pathlib import Path
from types import ModuleType

import pytest

import graft
from graft.errors import GraftError
from tests.partition.graphs import small

FOLDER = Path(__file__).parents[2] / "examples" / "model_explorer"
FORMS = {
    "Graph": ("id nodes", "groupNodeAttributes tasksData"),
    "GraphNode": ("id label", "namespace attrs incomingEdges style"),
    "KeyValue": ("key value", ""), "GraphNodeStyle": ("", "backgroundColor"),
    "Edge": ("sourceNodeId targetNodeId", "label"),
    "IncomingEdge": ("sourceNodeId", "sourceNodeOutputId"), "EdgeOverlay": ("name edgeColor", "edges"),
    "GetConfigEditorsResult": ("configEditors", ""), "NodeDataProviderResult": ("", "result error"),
    "NodeDataProviderMetadata": ("", "id name description filter"), "GradientItem": ("stop", "bgColor"),
    "NodeDataProviderFilter": ("", "modelFileExts adapterIds"), "NodeDataResult": ("value", ""),
    "GraphNodeData": ("results", "gradient"), "AdapterMetadata": ("", "id name fileExts description"),
    "EdgeOverlaysData": ("name", "type overlays"), "TasksData": ("", "edgeOverlaysDataListLeftPane"),
}  # fmt: skip
"""The fields that must be given, and those that may be, in the order of Model Explorer 0.1.34."""


def made_up() -> ModuleType:
    module = ModuleType("model_explorer")
    forms = {}
    for name, (must, may) in FORMS.items():
        lists = [(one, object, field(default_factory=list)) for one in may.split()]
        forms[name] = make_dataclass(name, [*((one, object) for one in must.split()), *lists])
    module.__dict__.update(forms, Adapter=object, NodeDataProvider=object, ModelExplorerGraphs=dict)
    module.graph_builder = module.node_data_builder = module
    return module


@pytest.fixture
def extension(monkeypatch):
    if importlib.util.find_spec("model_explorer") is None:
        module = made_up()
        for name in ("model_explorer", "model_explorer.graph_builder", "model_explorer.node_data_builder"):
            monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "graft_model_explorer.main", raising=False)
    from graft_model_explorer import main

    yield main
    sys.modules.pop("graft_model_explorer.main", None)


def converted(extension, path):
    (graph,) = extension.GraftAdapter().convert(str(path), {})["graphs"]
    found = asdict(graph)
    json.dumps(found)
    return found


@pytest.fixture
def artifact(tmp_path):
    program = graft.compile(small("a = Relu(x)\nb = Exp(a)\ny = Add(b, a)"), ["llvm", "reference"])
    program.save(tmp_path / "small.graft")
    return tmp_path / "small.graft"


def test_an_artifact_has_operators_with_backend_and_reasons_in_groups_that_are_regions(extension, artifact):
    graph = converted(extension, artifact)
    nodes = {one["label"]: one for one in graph["nodes"]}
    told = {one["key"]: one["value"] for one in nodes["Exp"]["attrs"]}
    assert told["backend"] == "llvm" and told["why not reference"].startswith("lost-to:llvm")
    assert nodes["Exp"]["namespace"] == nodes["Relu"]["namespace"] != ""
    assert nodes["Exp"]["style"]["backgroundColor"] == extension.COLOURS[0]
    sources = [one["sourceNodeId"] for one in nodes["Add"]["incomingEdges"]]
    assert sorted(sources) == sorted([nodes["Exp"]["id"], nodes["Relu"]["id"]])
    assert graph["groupNodeAttributes"][""]["placement"].startswith("llvm 3/3")


def test_what_passes_between_backends_is_an_overlay(extension, artifact):
    (data,) = converted(extension, artifact)["tasksData"]["edgeOverlaysDataListLeftPane"]
    (overlay,) = data["overlays"]
    assert {one["label"].split()[1] for one in overlay["edges"]} == {"float32[2,3]"}
    assert len(overlay["edges"]) == 2  # the model's input and its output


def test_times_stand_at_the_operators_of_the_graph(extension, artifact):
    found = extension.GraftTimes().run("graft_times", str(artifact), "small.graft", {}, None).result
    nodes = {one["id"]: one["label"] for one in converted(extension, artifact)["nodes"]}
    assert sorted(nodes[one] for one in found.results) == ["Add", "Exp", "Relu"]
    assert len({one.value for one in found.results.values()}) == 1  # one kernel
    assert all(one.value > 0 for one in found.results.values())


def test_what_cannot_be_run_is_told(extension, tmp_path):
    (tmp_path / "damaged.graft").write_bytes(b"no artifact")
    found = extension.GraftTimes().run("graft_times", str(tmp_path / "damaged.graft"), "", {}, None)
    assert found.error.startswith("artifact is damaged")
    assert extension.GraftTimes().get_config_editors("graft_times").configEditors == []


def test_a_model_is_planned_with_what_is_installed(extension):
    path = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
    graph = converted(extension, path)
    kinds = {one["key"] for node in graph["nodes"] for one in node["attrs"]}
    assert "backend" in kinds and any(one.startswith("why not ") for one in kinds)


def test_a_plan_has_its_operators_with_backend_and_reasons(extension, artifact, tmp_path):
    plan = graft.Plan.of(extension.load(artifact))
    (tmp_path / "plan.json").write_text(plan.to_json())
    graph = converted(extension, tmp_path / "plan.json")
    nodes = {one["label"]: one for one in graph["nodes"]}
    told = {one["key"]: one["value"] for one in nodes["Exp"]["attrs"]}
    assert told["backend"] == "llvm" and told["why not reference"].startswith("lost-to:llvm")
    assert nodes["Exp"]["namespace"] == nodes["Relu"]["namespace"] == plan.placements[0].region
    assert graph["groupNodeAttributes"][""]["placement"] == plan.summary()
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(GraftError, match=r"other\.json': the file is not a plan"):
        converted(extension, tmp_path / "other.json")


@pytest.mark.filterwarnings("ignore")
def test_a_program_of_pytorch_is_planned(extension, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.randn(2),)), tmp_path / "m.pt2")
    assert "Relu" in {one["label"] for one in converted(extension, tmp_path / "m.pt2")["nodes"]}


def test_a_file_that_is_no_artifact_is_refused_with_its_name(extension, tmp_path):
    path = tmp_path / "damaged.graft"
    path.write_bytes(b"no artifact")
    with pytest.raises(GraftError, match=r"damaged\.graft' is damaged"):
        converted(extension, path)
