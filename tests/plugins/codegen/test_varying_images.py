"""Convolution networks with a symbolic batch, height and width: one program, without a node in Python."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from benchmarks import zoo

MODELS = {
    "light_squeezenet": [(1, 224, 224), (2, 65, 131), (3, 96, 64)],
    "mobilenet_v2": [(1, 224, 224), (1, 65, 33), (1, 96, 160)],
}
"""Batches and sizes of images; mobilenet_v2 states its batch once more in a Reshape."""
POOLS = {
    "MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>": "two in every direction",
    "MaxPool<kernel_shape=[3,2],pads=[1,0,0,1],dilations=[2,1]>": "dilated",
    "AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>": "without the border",
    "AveragePool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1],count_include_pad=1>": "with the border",
    "GlobalMaxPool": "all",
}


def with_symbols(name: str) -> tuple[ir.Model, str]:
    model = zoo.model(name).clone()
    image = next(value for value in model.graph.inputs if value.const_value is None)
    image.shape = ir.Shape(["n", 3, "h", "w"])
    dependent = {image}
    for node in model.graph:
        if not dependent.isdisjoint(node.inputs):
            dependent.update(node.outputs)
            for value in node.outputs:
                value.shape = None
    return model, image.name or ""


@pytest.mark.parametrize("pool", POOLS, ids=POOLS.values())
def test_a_pool_behind_a_convolution_takes_images_of_every_size(pool: str) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[n,5,h,w] x) => (float[n,c,y,z] o) <float[19,5,1,1] k> { a = Conv(x, k) b = POOL(a) o = Relu(b) }"""
    model = onnx.parser.parse_model(text.replace("POOL", pool))
    weights = np.random.default_rng(0).standard_normal((19, 5, 1, 1)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    program, wanted = graft.compile(model, ["llvm", "reference"]), graft.compile(model, ["reference"])
    for size in ((1, 9, 9), (2, 3, 33), (0, 8, 8)):
        x = np.random.default_rng(1).standard_normal((size[0], 5, *size[1:])).astype(np.float32)
        np.testing.assert_allclose(program(x), wanted(x), rtol=1e-4, atol=1e-5, err_msg=f"{size}")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_network_takes_images_of_every_size(name: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    model, image = with_symbols(name)
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    plan = graft.plan(model, backends=["llvm", "reference"])
    assert {placement.backend for placement in plan.placements} == {"llvm"}
    program = graft.compile(model, backends=["llvm", "reference"])
    for batch, height, width in MODELS[name]:
        x = np.random.default_rng(0).standard_normal((batch, 3, height, width)).astype(np.float32)
        (wanted,), found = session.run(None, {image: x}), program.run({image: x})
        (result,) = found.values() if isinstance(found, dict) else found
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("backend", ["llvm", "c_source", "onednn", "reference"])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "AveragePool<count_include_pad = 1>", "LpPool"])
@pytest.mark.parametrize("pads", [(1, 0), (0, 0), (0, 1)])
def test_a_window_that_is_wider_than_its_image_reads_nothing_behind_it(
    backend: str, operator: str, pads: tuple[int, int]
) -> None:
    """Extents over two symbols: nothing bounds them from below, so a window that is too wide is one (as in onnx)."""
    name, _, rest = operator.partition("<")
    more = f", {rest.removesuffix('>')}" if rest else ""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]>
        pools (float[a,b] x) => (float[2,3,u,2] y) {{
          four = Constant<value_ints = [2, 3, -1, 2]>() images = Reshape(x, four)
          y = {name}<kernel_shape = [3, 1], strides = [3, 1], pads = [{pads[0]}, 0, {pads[1]}, 0]{more}>(images) }}"""
    )
    program = graft.compile(model, [*dict.fromkeys([backend, "reference"])])
    for size in (1, 2, 3, 5):
        x = np.random.default_rng(size).standard_normal((2, 6 * size)).astype(np.float32)
        images = x.reshape(2, 3, size, 2)
        count = max((size + sum(pads) - 3) // 3, 0) + 1
        for place in range(count):
            begin = 3 * place - pads[0]
            seen = images[:, :, max(begin, 0) : begin + 3]
            cells = min(begin + 3, size + pads[1]) - begin if more else seen.shape[2]
            wanted = {
                "MaxPool": lambda seen=seen, cells=cells: seen.max(2),
                "AveragePool": lambda seen=seen, cells=cells: seen.sum(2) / cells,
                "LpPool": lambda seen=seen, cells=cells: np.sqrt(np.square(seen).sum(2)),
            }[name]()
            np.testing.assert_allclose(np.asarray(program(x))[:, :, place], wanted, rtol=1e-5, atol=1e-6)
