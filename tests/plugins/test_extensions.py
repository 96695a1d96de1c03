"""What a plugin adds to the core by hooks: operators of its own, and passes over every model."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.driver import prepare
from graft.compiler.request import Request, choose
from graft.core.importer.load import load
from graft.core.operators.definition.table import OPERATORS, Operator
from graft.core.passes.pipeline import record_of
from graft.errors import GraftError, ModelError, PluginError
from graft.plugins.registry.manager import PluginManager

OPERATOR = """
import onnx
from graft.core.operators.definition.table import OPERATORS, Operator
from graft.plugins.hooks import hookimpl

Schema = onnx.defs.OpSchema


def same_type(context):
    context.set_output_type(0, context.get_input_type(0))


@hookimpl
def graft_operators():
    schema = Schema(
        "Halve", "com.example.{name}", 1,
        inputs=[Schema.FormalParameter("x", "T")],
        outputs=[Schema.FormalParameter("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
    )
    schema.set_type_and_shape_inference_function(same_type)
    negate = OPERATORS.get("Neg")
    return [Operator("Halve", negate.traits, negate.lower, negate.cost, domain="com.example.{name}", schema=schema)]
"""
PASS = """
import onnx_ir as ir
from graft.plugins.hooks import hookimpl


class ReluToAbs:
    name = "relu-to-abs"

    def run(self, model):
        found = [node for node in model.graph if node.op_type == "Relu"]
        for node in found:
            node.op_type = {operator!r}
        return bool(found)


@hookimpl
def graft_passes(stage):
    return [ReluToAbs()] if stage == {stage!r} else []
"""
MODEL = '<ir_version: 10, opset_import: ["" : 21{domains}]> g (float[2,3] x) => (float[2,3] y) {{ y = {operator}(x) }}'
X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)


def plugin(folder: Path, name: str, text: str) -> PluginManager:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    manager = PluginManager()
    manager.load_file(path)
    return manager


def model(operator: str, domain: str = "") -> onnx.ModelProto:
    domains = f', "{domain}" : 1' if domain else ""
    return onnx.parser.parse_model(
        MODEL.format(domains=domains, operator=f"{domain}.{operator}" if domain else operator)
    )


def test_an_operator_of_a_plugin_is_compiled_by_its_lowering(tmp_path: Path) -> None:
    source = model("Halve", "com.example.known")
    with pytest.raises(ModelError, match=r"unknown domain 'com\.example\.known'"):
        load(source)
    manager = plugin(tmp_path, "known", OPERATOR.replace("{name}", "known"))
    assert graft.plan(source, ["llvm"], manager=manager).coverage("llvm") == 1
    np.testing.assert_array_equal(graft.compile(source, ["llvm"], manager=manager)(X), -X)


def test_compiling_asks_the_plugins_for_operators_that_are_not_known() -> None:
    code = """
import graft.compiler.api
from graft.core.operators.definition.table import OPERATORS
assert OPERATORS.get("Tokenizer", "com.microsoft") is None  # no plugin is loaded
OPERATORS.discover()
assert OPERATORS.get("Tokenizer", "com.microsoft") is not None
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_domain_is_looked_for_in_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(OPERATORS, "discover", lambda: asked.append(True))
    with pytest.raises(ModelError):
        load(model("Halve", "com.example.absent"))
    assert asked == [True]


def test_an_operator_has_one_owner_a_domain_and_a_schema() -> None:
    schema = onnx.defs.OpSchema("Halve", "com.example.owned", 1)
    good = Operator("Halve", domain="com.example.owned", schema=schema)
    OPERATORS.admit(good, "plugin 'a'")
    OPERATORS.admit(good, "plugin 'a'")
    for wrong, message in (
        (good, "plugin 'b': operator 'Halve' of domain 'com.example.owned': plugin 'a' has it already"),
        ("Halve", "plugin 'b': graft_operators gave str; give Operator objects"),
        (
            Operator("Halve"),
            "plugin 'b': operator 'Halve' of domain '': give it a domain of your own, such as 'com.example'",
        ),
        (
            Operator("Halve", domain="com.example.bare"),
            "plugin 'b': operator 'Halve' of domain 'com.example.bare' has no schema; give an onnx.defs.OpSchema of it",
        ),
        (
            Operator("Third", domain="com.example.owned", schema=schema),
            "plugin 'b': operator 'Third' of domain 'com.example.owned' has the schema of 'Halve' of domain "
            "'com.example.owned'; give an onnx.defs.OpSchema of it",
        ),
    ):  # fmt: skip
        with pytest.raises(GraftError) as caught:
            OPERATORS.admit(wrong, "plugin 'b'")
        assert caught.value.message == message


@pytest.mark.parametrize("stage", ["import", "before-partition"])
def test_a_pass_of_a_plugin_changes_every_model(tmp_path: Path, stage: str) -> None:
    manager = plugin(tmp_path, "absolute", PASS.format(stage=stage, operator="Abs"))
    np.testing.assert_array_equal(graft.compile(model("Relu"), ["llvm"], manager=manager)(X), np.abs(X))
    prepared = prepare(model("Relu"), manager=manager)
    assert [str(step) for step in record_of(prepared) if step.name == "relu-to-abs"] == ["relu-to-abs: 1 -> 1 nodes"]
    assert graft.plan(model("Relu"), choose(["llvm"]), manager=manager).coverage("llvm") == 1


def test_a_pass_that_leaves_an_invalid_model_names_its_plugin(tmp_path: Path) -> None:
    manager = plugin(tmp_path, "broken", PASS.format(stage="import", operator="Rleu"))
    with pytest.raises(PluginError, match=r"plugin 'broken' raised AssertionError in pass 'relu-to-abs': .*Rleu"):
        prepare(model("Relu"), manager=manager)


def test_a_pass_has_a_name_of_its_own_and_can_run(tmp_path: Path) -> None:
    manager = plugin(tmp_path, "nothing", PASS.format(stage="import", operator="Abs").replace("def run", "def walk"))
    with pytest.raises(PluginError, match=r"graft_passes gave .*; give objects with a name and run\(model\) -> bool"):
        prepare(model("Relu"), manager=manager)
    text = PASS.format(stage="import", operator="Abs").replace('"relu-to-abs"', '"fold-constants"')
    with pytest.raises(GraftError, match="two passes are called 'fold-constants'; rename the plugin's"):
        prepare(model("Relu"), manager=plugin(tmp_path, "taken", text))


# ---- A backend's own lowering of an operator ----

OVERRIDE = """
import subprocess
import sys
from dataclasses import replace

import graft
from graft.core.operators.definition.table import OPERATORS


class Absolutely(graft.TensorIrBackend):
    name = "absolutely"

    def emit(self, functions, target):
        names = tuple(function.name for function in functions)
        return graft.Module("", "printed", names, "\\n".join(map(str, functions)).encode())


@graft.hookimpl
def graft_backends():
    return [Absolutely]


@graft.hookimpl
def graft_operators():
    return [replace(OPERATORS.get("Relu"), lower=OPERATORS.get("Abs").lower, backend="absolutely")]
"""


def test_a_backends_own_lowering_goes_before_the_one_for_all(tmp_path: Path) -> None:
    manager = plugin(tmp_path, "absolutely", OVERRIDE)
    request = Request(["absolutely"], cache=False, strict=True, manager=manager)
    (module,) = compile_model(model("Relu"), request).description.modules
    assert "abs(" in module.data.decode() and "max(" not in module.data.decode()
    np.testing.assert_array_equal(graft.compile(model("Relu"), ["llvm"], manager=manager)(X), np.maximum(X, 0))


def test_a_backends_own_lowering_has_one_owner_and_something_to_override() -> None:
    relu = OPERATORS.get("Relu")
    assert relu is not None
    own = replace(relu, backend="nobody")
    OPERATORS.admit(own, "plugin 'a'")
    OPERATORS.admit(own, "plugin 'a'")
    where = "plugin 'b': operator '{}' of domain '' for backend 'nobody'"
    for wrong, name, message in (
        (own, "Relu", ": plugin 'a' has it already"),
        (replace(own, lower=None), "Relu", " has no lowering; give it one"),
        (replace(own, name="Relo"), "Relo", " overrides nothing; the nearest is Relu"),
    ):
        with pytest.raises(GraftError) as caught:
            OPERATORS.admit(wrong, "plugin 'b'")
        assert caught.value.message == where.format(name) + message
    with pytest.raises(GraftError) as caught:
        OPERATORS.add(own)
    assert caught.value.message == "operator 'Relu' of domain '' is defined twice for backend 'nobody'"
