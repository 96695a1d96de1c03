"""Derivatives of convolutions and resizing, beside differences."""

from __future__ import annotations

import onnx
import pytest

import graft
from tests.core.differentiation.differences import of_text
from tests.core.operators.elementwise.test_derivatives import gradient


@pytest.mark.parametrize(
    ("attributes", "shapes"),
    [
        ("group = 2, strides = [2], dilations = [2], pads = [1, 3]", [(2, 4, 11), (6, 2, 3), (6,)]),
        ("pads = [4, 4, 4, 4], group = 2", [(2, 2, 10, 9), (2, 1, 9, 9), (2,)]),
        ("pads = [5, 5, 5, 5], strides = [2, 3]", [(2, 3, 12, 11), (2, 3, 9, 9), (2,)]),
        ('auto_pad = "SAME_LOWER", strides = [2, 1, 2]', [(1, 2, 5, 4, 3), (3, 2, 2, 2, 2), (3,)]),
        ("strides = [3, 2]", [(2, 2, 8, 7), (3, 2, 2, 2), (3,)]),
        ("pads = [1, 1]", [(1, 16, 5), (2, 16, 3), (2,)]),
        ("group = 2, strides = [2], pads = [1, 0]", [(2, 2, 258), (4, 1, 3), (4,)]),
        ("group = 3, dilations = [1, 2], pads = [1, 2, 0, 3]", [(2, 3, 5, 17), (3, 1, 3, 3), (3,)]),
        ("pads = [1, 1, 1, 1, 1, 1]", [(2, 1, 3, 2, 18), (1, 1, 3, 3, 3), (1,)]),
        ("pads = [1, 0, 2, 1], group = 2", [(2, 4, 12, 17), (6, 2, 3, 3), (6,)]),
        ("strides = [2, 2], pads = [1, 0, 1, 2], dilations = [1, 2]", [(2, 3, 23, 27), (2, 3, 3, 3), (2,)]),
        ("strides = [2]", [(1, 33, 261), (2, 33, 3), (2,)]),
    ],
)
def test_convolutions_of_any_rank(attributes: str, shapes: list[tuple[int, ...]]) -> None:
    assert of_text(f"y = Conv <{attributes}> (x, w, b)", dict(zip("xwb", shapes, strict=True))) <= 1


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_weights_have_one_convolution_and_those_of_an_unknown_batch_a_sum_each(
    channels: int, stride: int
) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 22]>
        g (float[BATCH,{channels},5,6] x, float[{channels},1,3,3] w) => (float loss) {{
        y = Conv <group = {channels}, pads = [1, 1, 1, 1], strides = [{stride}, {stride}]> (x, w)
        loss = ReduceSum <keepdims = 0> (y) }}"""
    of_images, of_places = (
        [node.op_type for node in graft.grad(onnx.parser.parse_model(text.replace("BATCH", batch)), wrt=["w"]).graph]
        for batch in ("2", "n")
    )
    assert (of_images.count("Conv"), of_images.count("MatMul"), of_images.count("ReduceSum")) == (2, 0, 2)
    assert (of_places.count("Conv"), of_places.count("MatMul"), of_places.count("ReduceSum")) == (1, 0, 10)


@pytest.mark.parametrize(("length", "sums"), [(126, 0), (127, 1)])
def test_sums_over_large_images_are_taken_image_by_image(length: int, sums: int) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 22]> g (float[n,32,{length}] x, float[4,32,1] w) => (float loss)
        {{ y = Conv <pads = [1, 0]> (x, w) z = Mul (y, y) loss = ReduceMean <keepdims = 0> (z) }}"""
    nodes = graft.grad(onnx.parser.parse_model(text), wrt=["w"]).graph
    assert [node.op_type for node in nodes].count("ReduceSum") == sums


@pytest.mark.parametrize(("batch", "products"), [("2", 1), ("n", 9)])
def test_small_images_of_known_extents_have_one_product_of_their_patches(batch: str, products: int) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 22]> g (float[{batch},32,8,8] x, float[4,32,3,3] w)
        => (float loss) {{ y = Conv <pads = [1, 1, 1, 1]> (x, w) loss = ReduceSum <keepdims = 0> (y) }}"""
    kinds = [node.op_type for node in graft.grad(onnx.parser.parse_model(text), wrt=["w"]).graph]
    assert (kinds.count("MatMul"), kinds.count("Gather")) == (products, int(products == 1))


@pytest.mark.parametrize(("batch", "stride", "products"), [("2", 1, 0), ("2", 2, 9), ("n", 1, 9)])
def test_large_images_of_a_known_batch_are_windows_of_one_convolution(batch: str, stride: int, products: int) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 22]> g (float[{batch},32,24,26] x, float[4,32,3,3] w)
        => (float loss) {{ y = Conv <pads = [1, 1, 1, 1], strides = [{stride}, {stride}]> (x, w)
        loss = ReduceSum <keepdims = 0> (y) }}"""
    kinds = [node.op_type for node in graft.grad(onnx.parser.parse_model(text), wrt=["w"]).graph]
    assert (kinds.count("MatMul"), kinds.count("Conv")) == (products, 1 + (products == 0))


@pytest.mark.parametrize(("channels", "products"), [(1, 2), (3, 5), (20, 25), (32, 49)])
def test_places_of_few_channels_have_a_product_in_common(channels: int, products: int) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 22]> g (float[2,{channels},12,12] x, float[4,{channels},7,7] w)
        => (float loss) {{ y = Conv <pads = [3, 3, 3, 3]> (x, w) loss = ReduceSum <keepdims = 0> (y) }}"""
    nodes = graft.grad(onnx.parser.parse_model(text), wrt=["w"]).graph
    assert [node.op_type for node in nodes].count("MatMul") == products


@pytest.mark.parametrize(("channels", "stride", "copies"), [(3, 2, 1), (32, 1, 0), (32, 2, 1)])
def test_few_channels_and_pixels_that_lie_apart_are_copied_with_channels_last(
    channels: int, stride: int, copies: int
) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 22]> g (float[n,{channels},25,25] x, float[4,{channels},3,3] w)
        => (float loss) {{ y = Conv <strides = [{stride}, {stride}]> (x, w) loss = ReduceSum <keepdims = 0> (y) }}"""
    nodes = graft.grad(onnx.parser.parse_model(text), wrt=["w"]).graph
    orders = [list(node.attributes["perm"].as_ints()) for node in nodes if node.op_type == "Transpose"]
    assert orders.count([0, 2, 3, 1]) == copies


@pytest.mark.parametrize(
    ("attributes", "shapes"),
    [
        (
            "group = 2, strides = [3], dilations = [2], pads = [1, 0], output_padding = [1]",
            [(2, 4, 5), (4, 3, 3), (6,)],
        ),
        ('auto_pad = "SAME_UPPER", strides = [2, 2]', [(1, 2, 3, 4), (2, 3, 3, 3), (3,)]),
        ("output_shape = [10], strides = [2]", [(1, 2, 4), (2, 1, 2), (1,)]),
    ],
)
def test_transposed_convolutions(attributes: str, shapes: list[tuple[int, ...]]) -> None:
    assert of_text(f"y = ConvTranspose <{attributes}> (x, w, b)", dict(zip("xwb", shapes, strict=True))) <= 1


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_resizing_up_and_down(mode: str, coordinates: str) -> None:
    given = f'mode = "{mode}", coordinate_transformation_mode = "{coordinates}"'
    sizes = "z = Constant <value_ints = [1, 2, 7, 3]> ()"
    assert of_text(f"{sizes} y = Resize <{given}> (x, , , z)", {"x": (1, 2, 4, 5)}) <= 1
    scales = "z = Constant <value_floats = [1.5, 0.6]> ()"
    assert of_text(f"{scales} y = Resize <{given}, axes = [3, 2]> (x, , z)", {"x": (1, 2, 4, 5)}) <= 1


def test_columns_are_gathered_again() -> None:
    nodes = """i = Constant <value_ints = [4, 5]> () k = Constant <value_ints = [2, 2]> ()
        y = Col2Im <strides = [1, 2], pads = [0, 1, 0, 0]> (x, i, k)"""
    assert of_text(nodes, {"x": (1, 8, 9)}) <= 1


@pytest.mark.parametrize(
    "attributes",
    ["sampling_ratio = 2, spatial_scale = 0.5",
     'coordinate_transformation_mode = "output_half_pixel", output_height = 2, output_width = 3'],
)  # fmt: skip
def test_regions_have_the_gradients_of_their_samples(attributes: str) -> None:
    text = f"""r = Constant <value = double[3,4] {{0.3, 0.6, 3.1, 4.2, -2.1, -0.3, 9.2, 2.9, 1.1, 1.3, 1.4, 1.2}}> ()
        i = Constant <value_ints = [1, 0, 1]> () y = RoiAlign <{attributes}> (x, r, i)"""
    assert of_text(text, {"x": (2, 2, 6, 5)}) <= 1


def test_the_largest_of_a_region_has_its_gradient() -> None:
    """Regions of one image: that of all has its largest and, for its left half, the first; one outside has none."""
    nodes = """s = Constant <value_ints = [1, 1, 2, 3]> () i = Reshape (x, s)
        r = Constant <value = float[3,5] {0, 0, 0, 2, 1, 0, 0, 0, 1, 1, 0, 9, 9, 12, 12}> ()
        y = MaxRoiPool <pooled_shape = [1, 2]> (i, r)"""
    assert gradient(nodes, x=[5, 1, 2, 5, 7, 7])["x"] == [1, 0, 0, 0, 3, 0]


@pytest.mark.parametrize(
    ("attributes", "shapes"),
    [
        ("group = 2, offset_group = 2, strides = [2, 1], pads = [1, 0, 1, 2], dilations = [1, 2]",
         [(2, 4, 5, 6), (4, 2, 2, 3), (2, 24, 3, 4), (4,), (2, 12, 3, 4)]),
        ("pads = [0, 0, 0, 0]", [(1, 2, 4, 4), (3, 2, 2, 2), (1, 8, 3, 3), (3,), (1, 4, 3, 3)]),
    ],
)  # fmt: skip
def test_convolutions_that_read_at_offsets(attributes: str, shapes: list[tuple[int, ...]]) -> None:
    assert of_text(f"y = DeformConv <{attributes}> (x, w, o, b, m)", dict(zip("xwobm", shapes, strict=True))) <= 1
