"""What a plan says about bfloat16 products is what the schedules do."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir import from_proto

from graft.compiler.driver import prepare
from graft.compiler.request import choose
from graft.core.graph.view import NodeView
from graft.core.importer.load import load
from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target, host_target
from graft.core.operators.all import OPERATORS
from graft.partition.placement.partitioner import partition
from graft.partition.region import Region, regions
from graft.plugins.codegen.moved_images import with_images_moved
from graft.plugins.codegen.region_groups import PRODUCTS
from graft.plugins.codegen.region_kernels import RegionKernels
from graft.plugins.llvm.backend import LlvmBackend
from tests.core.operators.node_cases import Case, all_cases
from tests.plugins.llvm.graphs import region_of

MOST_CASES = 4
"""Of one operator."""
BF16 = replace(host_target(), threads=1, precision="bf16")
SHAPES = {"w0": (64, 3, 7, 7), "w1": (8, 3, 3, 3), "w2": (64, 1, 3, 3), "w3": (32, 64, 3, 3), "w4": (32, 8, 3, 3),
          "w5": (16, 64, 1, 1), "m": (16, 12), "e": (8, 64, 1, 1)}  # fmt: skip
PARAMETERS = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in SHAPES.items())
WEIGHTS = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
GRAPHS = {
    "image": "g (float[1,3,16,16] x, {}) => (float[1,12] y) {{ a = Conv <strides = [2, 2], pads = [3, 3, 3, 3]> (x, w0)"
    " b = Conv <group = 64, pads = [1, 1, 1, 1]> (a, w2) c = Conv <pads = [1, 1, 1, 1]> (b, w3)"
    " d = Conv <group = 4, pads = [1, 1, 1, 1]> (c, w4) f = Concat <axis = 1> (d, c) k = Conv (f, w5)"
    " h = GlobalAveragePool (k) i = Flatten (h) y = MatMul (i, m) }}",
    "planes": "g (float[1,3,16,16] x, {}) => (float[1,8,1,1] y) {{ a = Conv (x, w1) b = Conv (x, w0)"
    " c = Relu (b) d = Conv (c, e) f = GlobalAveragePool (d) h = GlobalAveragePool (a) y = Add (f, h) }}",
    "one pixel": "g (float[1,64,1,1] x, {}) => (float[1,8,1,1] y) {{ y = Conv (x, e) }}",
    "row": "g (float[1,8] x, float[8,8] k, float[16,8] z, {}) => (float[1,8] y, float[16,8] u) {{"
    " y = MatMul (x, k) u = MatMul (z, k) }}",
    "float64": "g (double[4,8] x, double[8,8] k, {}) => (double[4,8] y) {{ y = MatMul (x, k) }}",
    "attention": "g (float[1,2,8,4] q, float[1,2,4,8] k, float[1,2,8,4] v, {}) => (float[1,2,8,4] y) {{"
    " a = MatMul (q, k) b = Softmax (a) y = MatMul (b, v) }}",
}


@pytest.mark.parametrize(
    "target",
    [
        BF16,
        replace(BF16, without=frozenset({"channels-last", "attention"})),
        Target(ROWS["generic"], 1, precision="bf16"),
    ],
)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_plan_names_the_nodes_whose_products_are_rounded(graph: str, target: Target) -> None:
    def region() -> Region:
        found = region_of(graph.format(PARAMETERS), WEIGHTS)
        for node in found.function:
            node.name = node.outputs[0].name
        return found

    kernels = RegionKernels(with_images_moved(region(), OPERATORS, target, LlvmBackend()), OPERATORS, target)
    done = {name for function in kernels.functions if "dot2_bf16" in str(function) for name in function.origin}
    named = LlvmBackend().rounded(region(), target)
    products = {node.name for node in region().function if node.op_type in ("Conv", "MatMul")}
    assert set(named) == done & products


def sums_products(node: NodeView) -> bool:
    return any(OPERATORS.has(node, trait) for trait in PRODUCTS)


def test_for_each_of_onnxs_own_cases_a_plan_agrees_with_what_is_compiled() -> None:
    seen = {True: 0, False: 0}
    by_operator: dict[str, list[Case]] = {}
    for case in all_cases().values():
        by_operator.setdefault(case.model.graph.node[0].op_type, []).append(case)
    sample = [case for cases in by_operator.values() for case in cases[:: -(-len(cases) // MOST_CASES)]]
    for case in sample:
        if not sums_products(NodeView(from_proto(case.model).graph.node(0))):
            continue
        for constant in (False, True):
            model = load(case.model)
            if constant:  # as weights would be
                for value, array in zip(model.graph.inputs[1:], case.inputs[1:], strict=False):
                    value.const_value = ir.tensor(array, name=value.name)
                    model.graph.initializers.add(value)
                del model.graph.inputs[1:]
            for region in regions(partition(prepare(model), choose(["llvm", "reference"])).model):
                if region.backend == "llvm":
                    kernels = RegionKernels(region, OPERATORS, BF16)
                    dots = [function for function in kernels.functions if "dot2_bf16" in str(function)]
                    products = {node.name for node in region.nodes() if sums_products(node)}
                    done = {name for function in dots for name in function.origin} & products
                    assert LlvmBackend().rounded(region, BF16) == done, case.name
                    seen[bool(done)] += 1
    assert min(seen.values()) > 5, seen


def test_in_float32_no_product_is_rounded() -> None:
    region = region_of(GRAPHS["image"].format(PARAMETERS), WEIGHTS)
    assert not LlvmBackend().rounded(region, replace(BF16, precision="float32"))
