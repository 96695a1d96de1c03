"""Rows of plugins: a custom operator of PyTorch's is compiled by what its vendor's plugin says of it."""

import textwrap

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.core.operators.definition.table import OPERATORS  # noqa: E402
from graft.errors import PluginError  # noqa: E402
from graft.plugins.registry.manager import PluginManager  # noqa: E402
from graft.torch import explain, export  # noqa: E402
from graft.torch.aten import plugin_rows  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@torch.library.custom_op("graft_test::gate", mutates_args=())
def gate(x: torch.Tensor, by: torch.Tensor, slope: float = 1.0) -> torch.Tensor:
    return x * torch.sigmoid(by * slope)


@gate.register_fake
def _(x, by, slope=1.0):
    return torch.empty_like(x)


HOOK = "from graft import hookimpl\n@hookimpl\ndef graft_torch_operators():\n    return "
PLAIN = (
    HOOK + "[('graft_test::gate', lambda b, out, x, by, slope=1.0:"
    " b.op('Mul', x, b.op('Sigmoid', b.op('Mul', by, b.constant(slope, by.dtype)))))]"
)
OWN = """
    import onnx
    from graft import hookimpl
    from graft.core.operators.definition import build as b
    from graft.core.operators.definition import demands as demand
    from graft.core.operators.definition.shape_rules import broadcasted
    from graft.core.operators.definition.table import Operator
    from graft.core.operators.definition.varying import anything
    from graft.core.operators.elementwise.arithmetic import ELEMENTWISE, binary
    from graft.torch.aten.builder import require

    Schema = onnx.defs.OpSchema
    def same(context):
        kind = onnx.TypeProto()
        kind.tensor_type.elem_type = context.get_input_type(0).tensor_type.elem_type
        context.set_output_type(0, kind)
    schema = Schema("Gate", "com.example.torchgates", 1, inputs=[Schema.FormalParameter(n, "T") for n in ("x", "by")],
                    outputs=[Schema.FormalParameter("y", "T")], type_constraints=[("T", ["tensor(float)"], "")])
    schema.set_type_and_shape_inference_function(same)

    @hookimpl
    def graft_operators():
        def lowered(x, by):
            return b.multiply(x, b.divide(1.0, b.add(b.intrinsic("exp", b.subtract(0.0, by)), 1.0)))
        return [Operator("Gate", ELEMENTWISE, binary(lowered), domain="com.example.torchgates", schema=schema,
                         demands=demand.broadcasting(0, 1), shapes=broadcasted, varies=anything)]

    def row(b, out, x, by, slope=1.0):
        require(slope == 1, "a gate with a slope")
        return b.op("Gate", x, by, domain="com.example.torchgates")

    @hookimpl
    def graft_torch_operators():
        return [("graft_test::gate", row)]
"""
X, BY = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12.0).reshape(3, 4) - 6
OPTIONS = {"backends": ["llvm"]}


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """Return what loads plugins of some texts, by name, in place of those that are installed."""
    manager = PluginManager(sources=[])
    monkeypatch.setattr(plugin_rows, "plugins", lambda: manager)
    monkeypatch.setattr(OPERATORS, "_rows", dict(OPERATORS._rows))  # what a plugin adds goes with it

    def loaded(**texts):
        for name, text in texts.items():
            path = tmp_path / f"{name}.py"
            path.write_text(textwrap.dedent(text), encoding="utf-8")
            manager.load_file(path)

    return loaded


def function(x, by, slope=1.0):
    return torch.relu(gate(x + 1, by, slope)) * 2


def test_without_a_plugin_the_operator_stays_in_pytorch(plugins):
    plugins()
    (row,) = [one for one in explain(function, (X, BY), options=OPTIONS).rows if "gate" in one.operator]
    assert (row.part, row.reason) == ("", "graft_test.gate.default has no row in the table")


@pytest.mark.parametrize("text", [PLAIN, OWN])
def test_a_plugins_row_compiles_its_operator(plugins, text):
    plugins(npu=text)
    explanation = explain(function, (X, BY), options={**OPTIONS, "strict": True})
    assert explanation.coverage == 1
    found = torch.compile(function, backend="graft", options=OPTIONS)(X, BY)
    torch.testing.assert_close(found, function(X, BY))


def test_a_plugins_operator_of_its_own_domain_is_exported(plugins):
    plugins(npu=OWN)

    class Module(torch.nn.Module):
        def forward(self, x, by):
            return function(x, by)

    model = export(Module(), (X, BY))
    assert [node.domain for node in model.graph if node.op_type == "Gate"] == ["com.example.torchgates"]
    assert model.graph.opset_imports["com.example.torchgates"] == 1


def test_a_row_may_refuse_a_form_of_its_operator(plugins):
    plugins(npu=OWN)
    explanation = explain(lambda x, by: function(x, by, 2.0), (X, BY), options=OPTIONS)
    (row,) = [one for one in explanation.rows if "gate" in one.operator]
    assert (row.part, row.reason) == ("", "a gate with a slope")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"npu": HOOK + "[('gate', len)]"},
         "plugin 'npu': graft_torch_operators gave ('gate', <built-in function len>); "
         "give pairs of a name, as in 'acme::gate', and a function"),
        ({"a": PLAIN, "b": PLAIN}, "plugin 'b': plugin 'a' has a row of 'graft_test::gate', too"),
        ({"npu": HOOK + "1 / 0"}, "plugin 'npu' raised ZeroDivisionError in graft_torch_operators: division by zero"),
    ],
)  # fmt: skip
def test_a_plugins_fault_is_the_reason_why_its_operator_stays(plugins, texts, message):
    plugins(**texts)
    with pytest.raises(PluginError) as caught:
        plugin_rows.rows_of_plugins()
    assert caught.value.message == message
    (row,) = [one for one in explain(function, (X, BY), options=OPTIONS).rows if "gate" in one.operator]
    assert row.reason.startswith(f"its row fails: PluginError: {message}")
    torch.testing.assert_close(torch.compile(function, backend="graft", options=OPTIONS)(X, BY), function(X, BY))
