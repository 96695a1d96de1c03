"""Parts of a network with channels last: which values, and that the results stay the same."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from graft.core.machine.machine import Machine
from graft.core.machine.rows import GENERIC, X86_64_V3, X86_64_V4
from graft.core.machine.target import CompileOptions, Precision, Target, host_target
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, Preference, Strategy, of_kernel
from graft.core.tensor_ir.anchors import Window
from graft.plugins.codegen.grouping.lowerings import Lowerings
from graft.plugins.codegen.grouping.region_layout import CHANNELS_LAST, Layout, Layouts, RegionGraph, region_layouts
from graft.plugins.codegen.region_groups import RegionGroups
from graft.plugins.llvm.backend import LlvmBackend
from tests.plugins.llvm.execute import execute
from tests.plugins.llvm.graphs import HEADER, region_of

RANDOM = np.random.default_rng(0)
SHAPES = {
    "w0": (20, 3, 3, 3), "w1": (20, 1, 3, 3), "w2": (12, 20, 1, 1), "w3": (20, 12, 1, 1), "w4": (8, 20, 1, 1),
    "w5": (20, 8, 1, 1), "w6": (20, 20, 3, 3), "k0": (20, 1, 1), "k1": (6, 1),
}  # fmt: skip
WEIGHTS = {name: (RANDOM.standard_normal(shape) / 4).astype(np.float32) for name, shape in SHAPES.items()}
PARAMETERS = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in SHAPES.items())


def network(
    middle: str = "f = Relu (e)", result: str = "float[2,20,1,1] y", last: str = "y = GlobalAveragePool (i)"
) -> str:
    """A first convolution, a depthwise and a pointwise one, ``middle``, a sum, a gate by channel, and ``last``."""
    return (
        f"g (float[2,3,11,13] x, {PARAMETERS}) => ({result}) {{"
        " a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0)  b = Relu (a)"
        " c = Conv <group = 20, pads = [1, 1, 1, 1]> (b, w1)  d = Relu (c)  n = Conv (d, w2)  e = Conv (n, w3)"
        f" {middle}  h = Add (f, b)"
        " p = GlobalAveragePool (h)  q = Conv (p, w4)  r = Relu (q)  s = Conv (r, w5)  t = Sigmoid (s)  i = Mul (h, t)"
        f" {last} }}"
    )


def layouts(
    text: str,
    constants: dict[str, np.ndarray] = WEIGHTS,
    precision: Precision = "float32",
    machine: Machine = GENERIC,
) -> Layouts:
    region = region_of(text, constants)
    target = Target(machine, 1, precision=precision)
    outputs = {value.value for value in region.outputs}
    return region_layouts(RegionGraph(region.nodes(), outputs, Lowerings(OPERATORS), target))


def last_values(text: str, constants: dict[str, np.ndarray] = WEIGHTS, precision: Precision = "float32") -> list[str]:
    found = layouts(text, constants, precision, X86_64_V4 if precision == "bf16" else GENERIC)
    assert {layout.order for layout in found.values()} <= {CHANNELS_LAST}
    return sorted(value.name or "" for value in found)


def test_a_network_with_depthwise_convolutions_keeps_channels_last() -> None:
    assert last_values(network()) == list("abcdefhinpqrst")


def test_only_convolutions_are_looked_at_where_no_weights_are_constant() -> None:
    region = region_of(network(), {})
    outputs = {value.value for value in region.outputs}
    lowerings = Lowerings(OPERATORS)
    assert not region_layouts(RegionGraph(region.nodes(), outputs, lowerings, Target(GENERIC, 1)))
    read = {value.name for value in lowerings.values.values()}
    assert "w0" in read and "d" in read
    assert read.isdisjoint({"h", "t", "i", "y"}), "of elementwise nodes and pools"


@pytest.mark.parametrize(
    ("inputs", "outputs", "group", "dilation", "found"),
    [
        (32, 32, 1, 1, ["a", "b", "z"]),
        (32, 32, 1, 2, []),  # slower with channels last
        (32, 12, 1, 1, []),  # of four channels in a vector, which are computed in vain
        (32, 3, 1, 1, []),
        (32, 32, 4, 1, []),
    ],
)
def test_a_part_has_channels_last_where_that_saves_cycles(
    inputs: int, outputs: int, group: int, dilation: int, found: list[str]
) -> None:
    pads = [dilation] * 4
    text = (
        f"g (float[1,3,32,32] x, float[{inputs},3,3,3] u, float[{outputs},{inputs // group},3,3] w,"
        f" float[8,{outputs},1,1] v) => (float[1,8,1,1] y) {{ z = Conv <pads = [1, 1, 1, 1]> (x, u)"
        f" a = Conv <group = {group}, pads = {pads}, dilations = [{dilation}, {dilation}]> (z, w)  b = Relu (a)"
        " c = GlobalAveragePool (b)  y = Conv (c, v) }"
    )
    shapes = {"u": (inputs, 3, 3, 3), "w": (outputs, inputs // group, 3, 3), "v": (8, outputs, 1, 1)}
    constants = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    chosen = layouts(text, constants, machine=X86_64_V3)
    assert sorted(str(value.name) for value in chosen if value.name != "c") == found
    # With masks, a first convolution of few channels loses more than the next one saves.
    assert not [value.name for value in layouts(text, constants, machine=X86_64_V4) if value.name != "c"]


def test_a_concat_in_the_graphs_order_copies_parts_that_have_channels_last(load_image: Any) -> None:
    text = (
        "g (float[1,16,9,9] x, float[16,16,3,3] w) => (float[1,32,9,9] y) {"
        " a = Conv <pads = [1, 1, 1, 1]> (x, w)  b = Relu (x)  y = Concat <axis = 1> (a, b) }"
    )
    weights = {"w": RANDOM.standard_normal((16, 16, 3, 3)).astype(np.float32)}

    class Moving(LlvmBackend):
        def layouts(self, graph: RegionGraph) -> Layouts:
            made = {value for node in graph.nodes for value in node.node.outputs}
            return {value: Layout(CHANNELS_LAST, "to be moved") for value in made if value.name == "a"}

    image = RANDOM.standard_normal((1, 16, 9, 9)).astype(np.float32)
    compiled = Moving().compile(region_of(text, weights), CompileOptions(host_target()))
    (result,) = execute(compiled, [image], load_image)
    (expected,) = ReferenceEvaluator(onnx.parser.parse_model(f"{HEADER} {text}")).run(None, {"x": image, **weights})
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_constants_that_differ_from_channel_to_channel_go_along_with_channels_last() -> None:
    assert last_values(network("u = Mul (e, k0)  f = Relu (u)")) == list("abcdefhinpqrstu")
    assert last_values(network("u = Mul (e, k1)  f = Relu (u)")) == []


def test_a_layout_says_which_strategy_wants_it_and_for_which_node() -> None:
    found = {value.name: layout.reason for value, layout in layouts(network()).items()}
    assert set(found.values()) == {"depthwise_nhwc of Conv (node 'c') has channels last"}
    between = (
        "g (float[1,6,9,20] x, float[20,1,3,3] w1) => (float[1,4,7,20] y) {"
        " a = Transpose <perm = [0, 3, 1, 2]> (x)  c = Conv <group = 20> (a, w1)"
        " y = Transpose <perm = [0, 2, 3, 1]> (c) }"
    )
    found = {value.name: layout.reason for value, layout in layouts(between).items()}
    assert found == dict.fromkeys(
        "ac", "depthwise_nhwc of Conv (node 'c') has channels last, as the Transposes around it do"
    )


def test_an_image_that_a_first_convolution_reads_keeps_its_channels_first() -> None:
    shapes = {"w": (3, 3, 3, 3), "a": (3, 1, 3, 3), "b": (20, 3, 1, 3), "c": (20, 1, 3, 3)}
    parameters = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in shapes.items())
    text = (
        f"g (float[1,3,11,13] x, {parameters}) => (float[1,20,1,1] y) {{ z = Conv (x, w)  d = Conv <group = 3> (z, a)"
        "  e = Conv (d, b)  f = Conv <group = 20> (e, c)  y = GlobalAveragePool (f) }"
    )
    assert last_values(text, {name: np.ones(shape, np.float32) for name, shape in shapes.items()}) == ["e", "f"]


def test_what_a_first_convolution_makes_of_an_open_image_has_channels_last() -> None:
    text = """g (float[1,3,SIZES] x, float[32,3,7,7] w) => (float[1,32,1,1] y) {
        a = Conv <strides = [2, 2]> (x, w)  b = LeakyRelu (a)  y = GlobalAveragePool (b) }"""
    weights = {"w": np.ones((32, 3, 7, 7), np.float32)}
    assert last_values(text.replace("SIZES", "h,w"), weights) == ["a", "b"]
    assert last_values(text.replace("SIZES", "32,32"), weights) == []


def test_a_gate_that_is_a_view_is_read_in_any_order() -> None:
    text = """g (float[1,3,h,w] x, float[32,3,4,4] w, int64[4] s) => (float[1,32,1,1] y) {
        a = Conv <strides = [2, 2]> (x, w)  p = GlobalAveragePool (a)  f = Flatten (p)  t = Sigmoid (f)
        r = Reshape (t, s)  b = Mul (a, r)  y = GlobalAveragePool (b) }"""
    constants = {"w": np.ones((32, 3, 4, 4), np.float32), "s": np.array([1, 32, 1, 1])}
    assert last_values(text, constants) == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        network("f = Conv <pads = [1, 1, 1, 1]> (e, w6)"),
        network("f = Transpose <perm = [0, 1, 2, 3]> (e)"),
        network(result="float[2,20,1,1] y, float[2,20,6,7] h"),
        network(last="y = MaxPool <kernel_shape = [6, 7]> (i)"),
    ],
    ids=["window of 3 x 3", "Transpose", "value seen outside", "pooling"],
)
def test_what_asks_for_channels_first_gets_them_throughout(text: str) -> None:
    assert last_values(text) == []


def test_without_depthwise_convolutions_channels_stay_first() -> None:
    assert (
        last_values(
            network().replace("group = 20, pads = [1, 1, 1, 1]> (b, w1)", "group = 1, pads = [1, 1, 1, 1]> (b, w6)")
        )
        == []
    )
    computed = {name: array for name, array in WEIGHTS.items() if name != "w1"}
    assert last_values(network(), computed) == []


def test_in_bfloat16_all_convolutions_without_groups_keep_channels_last() -> None:
    wide = network("f = Conv <pads = [1, 1, 1, 1]> (e, w6)", last="y = MaxPool <kernel_shape = [6, 7]> (i)")
    assert last_values(wide, precision="bf16") == list("abcdefhinpqrst")
    plain = wide.replace("group = 20, pads = [1, 1, 1, 1]> (b, w1)", "group = 1, pads = [1, 1, 1, 1]> (b, w6)")
    assert last_values(plain, precision="bf16") == list("abcdefhinpqrst")


def test_in_bfloat16_a_pool_passes_channels_last_on_and_may_change_the_order() -> None:
    pooled = network("o = MaxPool <kernel_shape = [1, 1]> (e)  f = Relu (o)")
    assert last_values(pooled, precision="bf16") == list("abcdefhinopqrst")
    transposed = network("o = Transpose <perm = [0, 1, 2, 3]> (e)  f = MaxPool <kernel_shape = [1, 1]> (o)")
    assert last_values(transposed, precision="bf16") == []
    alone = (
        f"g (float[2,3,11,13] x, {PARAMETERS}) => (float[2,20,11,13] y) {{ a = Conv <pads = [1, 1, 1, 1]> (x, w0)"
        " m = MaxPool <kernel_shape = [1, 1]> (a) n = Transpose <perm = [0, 1, 2, 3]> (m) y = Relu (n) }"
    )
    assert last_values(alone, precision="bf16") == []


@pytest.mark.parametrize(("extents", "found"), [("h,w", list("abcde")), ("20,20", [])], ids=["open", "numbers"])
def test_what_moves_pixels_of_open_images_passes_channels_last_on(extents: str, found: list[str]) -> None:
    text = (
        f"g (float[2,3,{extents}] x, float[4] scales, int64[8] pads, {PARAMETERS}) => (float[2,40,1,1] y) {{"
        ' a = Conv <pads = [1, 1, 1, 1]> (x, w0)  b = Resize <mode = "linear"> (a, none, scales)'
        ' c = Pad <mode = "reflect"> (b, pads)  d = Conv (c, w6)  e = Concat <axis = 1> (d, d)'
        " y = GlobalAveragePool (e) }"
    ).replace("none", "")
    constants = {"scales": np.float32([1, 1, 2, 2]), "pads": np.int64([0, 0, 1, 1] * 2)}
    assert last_values(text, {**WEIGHTS, **constants}) == found


def test_a_plugins_convolution_says_by_its_stages_what_it_is() -> None:
    region = region_of(network(), WEIGHTS)
    node = next(node for node in region.function if node.outputs[0].name == "c")
    node.domain, node.op_type = "com.example", "Blur"
    conv = OPERATORS.get("Conv")
    assert conv is not None
    outputs = {value.value for value in region.outputs}
    for traits, found in ((conv.traits, 14), (frozenset[Trait](), 0)):
        table = OperatorTable()
        schema = onnx.defs.OpSchema("Blur", "com.example", 1)
        for operator in (*OPERATORS, replace(conv, name="Blur", domain="com.example", traits=traits, schema=schema)):
            table.add(operator)
        graph = RegionGraph(region.nodes(), outputs, Lowerings(table), Target(GENERIC, 1))
        assert len(region_layouts(graph)) == found
    onnx.defs.deregister_schema("Blur", 1, "com.example")


def test_a_backends_own_strategies_may_prefer_layouts() -> None:
    own = Strategy("npu.windows", CONVOLUTIONS, of_kernel(lambda kernel, target: None), prefers=prefers_last)

    class Npu(LlvmBackend):
        strategies = (own,)

    text = network().replace("group = 20, pads = [1, 1, 1, 1]> (b, w1)", "group = 1, pads = [1, 1, 1, 1]> (b, w6)")
    region = region_of(text, WEIGHTS)
    groups = RegionGroups(region, OPERATORS, host_target(), Npu())
    reasons = {layout.reason for layout in groups.layouts.values()}
    assert reasons == {"npu.windows of Conv (node 'c') has channels last"}


def prefers_last(window: Window, target: Target) -> Preference | None:
    return Preference("last", "last", gains=True) if window.inputs == window.outputs else None


def test_a_backend_may_store_values_in_any_order_of_axes(load_image: Any) -> None:
    class Reversing(LlvmBackend):
        def layouts(self, graph: RegionGraph) -> Layouts:
            made = {value for node in graph.nodes for value in node.node.outputs} - set(graph.outputs)
            orders = {value: tuple(reversed(range(len(value.shape or ())))) for value in made}
            return {value: Layout(order, "everything is the other way round") for value, order in orders.items()}

    image = RANDOM.standard_normal((2, 3, 11, 13)).astype(np.float32)
    compiled = Reversing().compile(region_of(network(), WEIGHTS), CompileOptions(host_target()))
    (result,) = execute(compiled, [image], load_image)
    evaluator = ReferenceEvaluator(onnx.parser.parse_model(f"{HEADER} {network()}"))
    (expected,) = evaluator.run(None, {"x": image, **WEIGHTS})
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", [True, False])
def test_the_layout_keeps_the_answer(layout: bool, load_image: Any) -> None:
    image = RANDOM.standard_normal((2, 3, 11, 13)).astype(np.float32)
    target = replace(host_target(), without=frozenset(() if layout else ("channels-last",)))
    text = network("u = Mul (e, k0)  f = Relu (u)")
    compiled = LlvmBackend().compile(region_of(text, WEIGHTS), CompileOptions(target))
    (result,) = execute(compiled, [image], load_image)
    evaluator = ReferenceEvaluator(onnx.parser.parse_model(f"{HEADER} {text}"))
    (expected,) = evaluator.run(None, {"x": image, **WEIGHTS})
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


VIEWED = {
    "softmax and a view": "b = Reshape (x, rows)  a = Softmax (b)  z = Reshape (a, image)",
    "shuffled channels": "a = Reshape (x, groups)  b = Transpose <perm = [0, 2, 1, 3, 4]> (a)  z = Reshape (b, image)",
    "part of the channels": "a = Conv <pads = [1, 1, 1, 1]> (x, dense)  z = Slice (a, first, last, axis)",
    "split channels": "a = Conv <pads = [1, 1, 1, 1]> (x, dense)  z, rest = Split <axis = 1> (a, halves)",
}


@pytest.mark.parametrize("reversing", [False, True])
@pytest.mark.parametrize("before", VIEWED.values(), ids=VIEWED.keys())
def test_what_lies_in_the_memory_of_another_value_keeps_its_layout(
    before: str, reversing: bool, load_image: Any
) -> None:
    class Reversing(LlvmBackend):
        def layouts(self, graph: RegionGraph) -> Layouts:
            (image,) = (one for node in graph.nodes for one in node.node.outputs if one.name == "z")
            return {image: Layout(CHANNELS_LAST, "so it is said")}

    constants = {
        "depthwise": RANDOM.standard_normal((16, 1, 3, 3)).astype(np.float32),
        "dense": RANDOM.standard_normal((32, 16, 3, 3)).astype(np.float32) / 8,
        "rows": np.array([1, 16, 64]), "image": np.array([1, 16, 8, 8]), "groups": np.array([1, 2, 8, 8, 8]),
        "first": np.array([0]), "last": np.array([16]), "axis": np.array([1]), "halves": np.array([16, 16]),
        "pixels": np.array([2, 3]),
    }  # fmt: skip
    parameters = ", ".join(
        f"{'float' if one.dtype == np.float32 else 'int64'}[{','.join(map(str, one.shape))}] {name}"
        for name, one in constants.items()
    )
    text = (
        f"g (float[1,16,8,8] x, {parameters}) => (float[1,16] y) {{ {before}"
        " c = Conv <group = 16, pads = [1, 1, 1, 1]> (z, depthwise)  y = ReduceMean <keepdims = 0> (c, pixels) }"
    )
    image = RANDOM.standard_normal((1, 16, 8, 8)).astype(np.float32)
    backend = Reversing() if reversing else LlvmBackend()
    (result,) = execute(backend.compile(region_of(text, constants), CompileOptions(host_target())), [image], load_image)
    (expected,) = ReferenceEvaluator(onnx.parser.parse_model(f"{HEADER} {text}")).run(None, {"x": image, **constants})
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("machine", [X86_64_V3, X86_64_V4])
def test_what_moves_pixels_of_known_images_reads_and_writes_one_order(machine: Machine) -> None:
    text = (
        "g (float[1,3,64,64] x, float[64,3,3,3] w, float[1,64,3,3] v, int64[8] pads) => (float[1,1,32,32] y) {"
        " a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)  b = Relu (a)"
        ' c = Pad <mode = "reflect"> (b, pads)  y = Conv (c, v) }'
    )
    weights = {name: np.ones(shape, np.float32) for name, shape in (("w", (64, 3, 3, 3)), ("v", (1, 64, 3, 3)))}
    found = layouts(text, {**weights, "pads": np.int64([0, 0, 1, 1] * 2)}, machine=machine)
    assert {value.name for value in found} & {"b", "c"} in (set(), {"b", "c"})
