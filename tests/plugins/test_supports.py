import numpy as np
import onnx_ir as ir
import pytest

import graft
from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.errors import PluginError
from graft.patterns import is_op, wildcard
from graft.patterns.composite import Composite
from graft.plugins.backend import Backend
from graft.plugins.registry.fence import FencedBackend
from graft.plugins.supports import supports

MATMUL_RELU = is_op("Relu")(is_op("MatMul")(wildcard(), wildcard()))


class Npu(Backend):
    name = "npu"

    @supports(MATMUL_RELU)
    def matmul_relu(self, match):
        return True

    @supports(MATMUL_RELU, name="npu.second")
    def second_choice(self, match):
        return Reject("cost", "never")

    @supports("MatMul", "Gemm")
    def products(self, node):
        return Reject("rank", f"{node.op_type} of any rank")

    @supports("Gemm")
    def gemm(self, node):
        return True

    @supports("com.example::Fast")
    def fast(self, node):
        return True


def node(op_type: str, domain: str = "") -> NodeView:
    return NodeView(ir.Node(domain, op_type, [ir.Value(name="x")], name="n"))


def test_marked_methods_become_composites_in_order_of_definition():
    assert [one.name for one in Npu().patterns] == ["npu.matmul_relu", "npu.second"]
    assert Npu().patterns[0].pattern is MATMUL_RELU
    assert Npu().patterns[1].check(None) == Reject("cost", "never")


def test_the_first_rule_that_accepts_an_operator_wins():
    assert Npu().supports(node("Gemm")) is True


def test_the_first_refusal_is_the_reason():
    assert Npu().supports(node("MatMul")) == Reject("rank", "MatMul of any rank")


def test_an_operator_without_a_rule_is_refused_with_a_reason():
    assert Npu().supports(node("Conv")) == Reject("no-pattern", "npu has no rule for Conv")


def test_an_operator_of_another_domain_needs_its_domain_in_the_rule():
    assert Npu().supports(node("Fast", "com.example")) is True
    assert Npu().supports(node("Gemm", "com.example")) == Reject("no-pattern", "npu has no rule for Gemm")
    assert Npu().supports(node("Gemm", "ai.onnx")) is True


def test_a_subclass_overrides_rules_and_keeps_the_others():
    class Better(Npu):
        @supports("Conv")
        def convolution(self, node):
            return True

        @supports("MatMul")
        def products(self, node):
            return True

    assert [rule.method for rule in Better.rules if rule.is_operator] == ["convolution", "products", "gemm", "fast"]
    assert Better().supports(node("MatMul")) is True


@pytest.mark.parametrize(
    ("what", "shown"), [((), "nothing"), (("MatMul", 3), "'MatMul', 3")], ids=["nothing", "mixture"]
)
def test_misuse_of_the_decorator_is_an_error(what, shown):
    with pytest.raises(PluginError) as caught:
        supports(*what)
    assert caught.value.message == (
        f'supports() takes operator names or one pattern, got {shown}; write supports("MatMul") or supports(pattern)'
    )


def test_marking_something_that_is_not_a_method_is_an_error():
    with pytest.raises(PluginError) as caught:
        supports("MatMul")(3)
    assert caught.value.message == "supports() marks a method, got 3; write it above the method's def"


class Careless(Backend):
    name = "careless"

    def __init__(self, answer):
        self.answer = answer

    def supports(self, node):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    @graft.supports(MATMUL_RELU, name="careless.pattern")
    def pattern(self, match):
        return self.supports(match)


def test_a_bare_false_is_a_refusal_without_a_reason_and_is_remarked_upon_once():
    fenced = FencedBackend(Careless(False), "careless-plugin")
    assert fenced.supports(node("Relu")) == Reject("no-pattern", "careless gave no reason")
    fenced.supports(node("Relu"))
    assert fenced.remarks == [
        "backend 'careless': supports(Relu (node 'n')) returned a bare False; return graft.Reject(code, text) instead"
    ]


def test_an_answer_of_another_type_is_an_error():
    with pytest.raises(PluginError) as caught:
        FencedBackend(Careless(None), "careless-plugin").supports(node("Relu"))
    assert caught.value.message == (
        "backend 'careless': supports(Relu (node 'n')) returned NoneType None; return True or graft.Reject(code, text)"
    )


def test_an_exception_in_supports_names_the_plugin_and_is_chained():
    with pytest.raises(PluginError) as caught:
        FencedBackend(Careless(KeyError("k")), "careless-plugin").supports(node("Relu"))
    assert caught.value.message == (
        "plugin 'careless-plugin' raised KeyError in supports(Relu (node 'n')) of backend 'careless': 'k'"
    )
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_check_of_a_pattern_is_fenced_too():
    (composite,) = FencedBackend(Careless(ValueError("v")), "careless").patterns
    with pytest.raises(PluginError) as caught:
        composite.check(node("Relu"))
    assert caught.value.message == ("plugin 'careless' raised ValueError in the check of 'careless.pattern': v")
    fenced = FencedBackend(Careless(False), "careless")
    assert fenced.patterns[0].check(node("Relu")) == Reject("no-pattern", "careless gave no reason")
    assert len(fenced.remarks) == 1


def test_a_check_accepts_with_true_or_none():
    for answer in (True, None):
        (composite,) = FencedBackend(Careless(answer), "careless").patterns
        assert composite.check(node("Relu")) is None


class Extended(Backend):
    name = "extended"
    control_flow = True

    def simulate(self, steps):
        return 10 // steps


def test_what_a_backend_adds_is_reached_through_the_fence():
    fenced = FencedBackend(Extended(), "extended")
    assert (fenced.control_flow, fenced.simulate(5)) == (True, 2)
    assert not hasattr(fenced, "legalize")
    with pytest.raises(PluginError) as caught:
        fenced.simulate(0)
    assert caught.value.message.startswith("plugin 'extended' raised ZeroDivisionError in simulate: ")


class Typo(Backend):
    name = "typo"

    @supports("MatMull")
    def product(self, node):
        return True


def test_a_misspelt_operator_is_an_error_with_the_nearest_name():
    with pytest.raises(PluginError) as caught:
        Typo().supports(node("Relu"))
    assert caught.value.message == (
        "backend 'typo': supports('MatMull') on 'Typo.product' names an unknown operator; did you mean 'MatMul'?"
    )


def test_operators_of_other_domains_are_taken_as_they_are():
    class Other(Backend):
        name = "other"

        @supports("com.acme::Glue", "ai.onnx::Relu")
        def glue(self, node):
            return True

    assert Other().supports(node("Relu"))


def test_numpy_booleans_count_as_answers():
    for answer, expected in ((np.True_, None), (np.False_, Reject("no-pattern", "careless gave no reason"))):
        fenced = FencedBackend(Careless(answer), "careless")
        assert fenced.patterns[0].check(node("Relu")) == expected
        assert (fenced.supports(node("Relu")) is True) is (expected is None)


class Changing(Backend):
    name = "changing"
    patterns = (Composite("changing.relu", is_op("Relu")(wildcard())),)


def test_fenced_rows_stay_the_same_objects_until_the_backend_has_others(monkeypatch):
    fenced = FencedBackend(Changing(), "changing")
    (first,) = fenced.patterns
    assert fenced.patterns[0] is first
    other = Composite("changing.tanh", is_op("Tanh")(wildcard()), lambda match: None)
    monkeypatch.setattr(Changing, "patterns", (other,))
    (second,) = fenced.patterns
    assert (second.name, fenced.patterns[0]) == ("changing.tanh", second)
