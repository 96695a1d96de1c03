"""Fusion: text of a graph in, text of its groups out."""

import numpy as np
import pytest

from graft.core.operators.all import OPERATORS
from graft.plugins.codegen.grouping.fusion import fuse
from tests.plugins.llvm.graphs import region_of


def groups(text: str, constants: dict[str, np.ndarray] | None = None) -> list[str]:
    region = region_of(text, constants)
    return [str(group) for group in fuse(region.nodes(), {value.value for value in region.outputs}, OPERATORS)]


IMAGE = "float[1,8,6,6]"
WEIGHT = "float[8,8,1,1] w"


def test_a_convolution_takes_residual_and_activation() -> None:
    assert groups(f"""g ({IMAGE} x, {IMAGE} r, {WEIGHT}) => ({IMAGE} y) {{
        c = Conv (x, w)  s = Add (c, r)  y = Relu (s) }}""") == ["convolution: Conv Add Relu"]


def test_of_two_convolutions_one_takes_their_sum() -> None:
    assert groups(f"""g ({IMAGE} x, {WEIGHT}) => ({IMAGE} y) {{
        a = Conv (x, w)  b = Conv (x, w)  y = Add (a, b) }}""") == ["convolution: Conv", "convolution: Conv Add"]


def test_a_value_with_a_foreign_reader_ends_its_group() -> None:
    assert groups(f"""g ({IMAGE} x, {WEIGHT}) => ({IMAGE} y, {IMAGE} z) {{
        c = Conv (x, w)  y = Relu (c)  z = MaxPool <kernel_shape = [1, 1]> (c) }}""") == [
        "convolution: Conv",
        "elementwise: Relu",
        "pooling: MaxPool",
    ]


def test_a_diamond_joins_as_a_whole() -> None:
    assert groups(f"""g ({IMAGE} x, {WEIGHT}) => ({IMAGE} y) {{
        c = Conv (x, w)  s = Sigmoid (c)  y = Mul (c, s) }}""") == ["convolution: Conv Sigmoid Mul"]


def test_nested_diamonds_join_as_a_whole() -> None:
    assert groups("""g (float[4,8] x, float[8,8] w) => (float[4,8] y) {
        m = MatMul (x, w)  c = Mul (m, m)  d = Mul (c, m)  t = Tanh (d)  u = Add (t, m)  y = Relu (u) }""") == [
        "contraction: MatMul Mul Mul Tanh Add Relu"
    ]


def test_a_diamond_with_an_arm_that_leaves_the_region_stays_apart() -> None:
    assert groups("""g (float[4,8] x, float[8,8] w) => (float[4,8] y, float[4,8] s) {
        m = MatMul (x, w)  s = Sigmoid (m)  y = Mul (m, s) }""") == [
        "contraction: MatMul",
        "elementwise: Sigmoid",
        "elementwise: Mul",
    ]


def test_a_reader_of_another_shape_stays_apart() -> None:
    assert groups("""g (float[4,1] x, float[1,8] w, float[2,4,8] r) => (float[2,4,8] y) {
        m = MatMul (x, w)  y = Add (m, r) }""") == ["contraction: MatMul", "elementwise: Add"]


def test_a_view_is_no_kernel() -> None:
    assert groups("""g (float[4,8] x, float[8,8] w) => (float[1,32] y) {
        m = MatMul (x, w)  y = Flatten <axis = 0> (m) }""") == ["contraction: MatMul", "view: Flatten"]


def test_what_follows_a_view_that_only_adds_dimensions_of_1_joins() -> None:
    shape = {"s": np.array([1, 4, 8], np.int64)}
    assert groups(
        """g (float[4,8] x, float[8,8] w, float[1,4,8] r, int64[3] s) => (float[1,4,8] y) {
        m = MatMul (x, w)  v = Reshape (m, s)  y = Add (v, r) }""",
        shape,
    ) == ["contraction: MatMul Reshape Add"]
    assert groups(
        """g (float[4,8] x, float[8,8] w, float[1,4,8] r, int64[3] s) => (float[1,4,8] y) {
        m = MatMul (x, w)  v = Reshape (m, s)  t = Tanh (v)  y = Mul (v, t) }""",
        shape,
    ) == ["contraction: MatMul Reshape Tanh Mul"]


def test_what_follows_a_view_that_splits_a_dimension_stays_apart() -> None:
    assert groups(
        """g (float[4,8] x, float[8,8] w, int64[3] s) => (float[4,2,4] y) {
        m = MatMul (x, w)  v = Reshape (m, s)  y = Relu (v) }""",
        {"s": np.array([4, 2, 4], np.int64)},
    ) == ["contraction: MatMul", "view: Reshape", "elementwise: Relu"]


def test_elementwise_operators_follow_one_another() -> None:
    assert groups("g (float[4] x) => (float[4] y) { a = Exp (x)  b = Neg (a)  y = Relu (b) }") == [
        "elementwise: Exp Neg Relu"
    ]


def test_an_elementwise_group_takes_all_operands_that_it_alone_reads() -> None:
    assert groups("""g (float[4,8] x, float[4,8] y) => (float[4,8] z) {
        a = Mul (x, x)  b = Neg (y)  c = Sigmoid (b)  d = Add (a, c)  z = Relu (d) }""") == [
        "elementwise: Mul Neg Sigmoid Add Relu"
    ]


def test_an_operand_that_is_seen_outside_or_repeated_stays_apart() -> None:
    assert groups("""g (float[4,8] x, float[8] y, float[4,8] w) => (float[4,8] z, float[4,8] b) {
        a = Mul (x, x)  b = Neg (w)  r = Neg (y)  c = Sub (a, b)  z = Add (c, r) }""") == [
        "elementwise: Neg",
        "elementwise: Neg",
        "elementwise: Mul Sub Add",
    ]


def test_moves_join_elementwise_operators_without_repeating_work() -> None:
    for n in (4, "n"):
        assert groups(f"g (float[{n},8] x) => (float[8,{n}] y) {{ a = Exp (x)  y = Transpose (a) }}") == [
            "elementwise: Exp Transpose"
        ]
    padded = (
        'g (float[{n},8] x, int64[4] p) => (float[12,{n}] y) {{ a = Pad <mode = "edge"> (x, p)  y = Transpose (a) }}'
    )
    pads = {"p": np.array([0, 2, 0, 2])}
    assert groups(padded.format(n="n"), pads) == ["injective: Pad", "injective: Transpose"]
    assert groups(
        "g (float[4,1] x, int64[2] n) => (float[4,8] y) { a = Exp (x)  y = Expand (a, n) }",
        {"n": np.array([4, 8], np.int64)},
    ) == ["elementwise: Exp", "injective: Expand"]


def test_a_normalisation_takes_what_follows_its_only_result() -> None:
    assert groups("""g (float[4,8] x, float[8] s) => (float[4,8] y) {
        n = LayerNormalization (x, s)  y = Relu (n) }""") == ["row_wise: LayerNormalization Relu"]


def test_a_node_with_two_results_takes_nothing() -> None:
    assert groups("""g (float[4,8] x) => (float[4,4] y, float[4,4] z) {
        a, b = Split <num_outputs = 2, axis = 1> (x)  y = Relu (a)  z = Neg (b) }""") == [
        "injective: Split",
        "elementwise: Relu",
        "elementwise: Neg",
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_node_is_in_one_group_and_groups_run_in_order(seed: int) -> None:
    generator = np.random.default_rng(seed)
    names, lines = ["x"], []
    for number in range(12):
        operator = generator.choice(["Relu", "Add", "Mul", "MatMul", "Softmax", "Transpose", "Sigmoid"])
        count = 2 if operator in ("Add", "Mul", "MatMul") else 1
        chosen = ", ".join(generator.choice(names, count))
        lines.append(f"v{number} = {operator} ({chosen})")
        names.append(f"v{number}")
    region = region_of(f"g (float[4,4] x) => (float[4,4] v11) {{ {'  '.join(lines)} }}")
    outputs = {value.value for value in region.outputs}
    found = fuse(region.nodes(), outputs, OPERATORS)
    assert sorted(node.name for group in found for node in group.nodes) == sorted(n.name for n in region.nodes())
    written = {value.value for value in region.inputs}
    for group in found:
        inside = {value for node in group.nodes for value in node.node.outputs}
        read = {value for node in group.nodes for value in node.node.inputs if value is not None}
        assert read - inside <= written
        written |= set(group.tail.node.outputs)


ATTENTION = "g (float[1,5,2,4] q, float[1,6,2,4] k, float[1,6,2,4] v, float[1,1,5,6] m) => ({results}) {{" \
    " a = Transpose <perm = [0,2,1,3]> (q)  b = Transpose <perm = [0,2,3,1]> (k)" \
    " c = Transpose <perm = [0,2,1,3]> (v)  d = MatMul (a, b)  e = Add (d, m)  f = Softmax {axis} (e)" \
    " h = MatMul (f, c)  y = Transpose <perm = [0,2,1,3]> (h)  {rest} }}"  # fmt: skip


def attention(results: str = "float[1,5,2,4] y", axis: str = "", rest: str = "") -> list[str]:
    return groups(ATTENTION.format(results=results, axis=axis, rest=rest))


def test_attention_is_one_kernel_with_the_transpositions_around_it() -> None:
    assert attention() == [
        "attention: Transpose Transpose Transpose MatMul Add Softmax MatMul Transpose"
    ]  # fmt: skip


def test_attention_whose_weights_are_seen_outside_is_taken_apart() -> None:
    assert "row_wise: Softmax" in attention("float[1,5,2,4] y, float[1,2,5,6] f")


def test_softmax_along_another_axis_is_no_attention() -> None:
    assert "row_wise: Softmax" in attention(axis="<axis = 2>")


def test_a_transposition_with_another_reader_stays_outside_attention() -> None:
    assert attention("float[1,5,2,4] y, float[1,2,5,4] r", rest="r = Relu (a)") == [
        "injective: Transpose",
        "attention: Transpose Transpose MatMul Add Softmax MatMul Transpose",
        "elementwise: Relu",
    ]


def test_a_chain_that_takes_two_products_is_no_attention() -> None:
    text = (
        "g (float[2,5,4] q, float[2,4,6] k, float[2,6,4] v) => (float[2,5,4] y) {"
        " a = MatMul (q, k)  b = Neg (a)  c = Add (a, b)  d = Softmax (c)  y = MatMul (d, v) }"
    )
    assert groups(text) == ["contraction: MatMul Neg Add", "row_wise: Softmax", "contraction: MatMul"]


BYTES = "uint8[1,8,6,6]"
SCALE = "float s, uint8 z"


def test_a_residual_of_bytes_is_widened_where_it_is_added() -> None:
    assert groups(f"""g ({IMAGE} x, {BYTES} r, {WEIGHT}, {SCALE}) => ({BYTES} y) {{
        c = Conv (x, w)  d = DequantizeLinear (r, s, z)  a = Add (c, d)  y = QuantizeLinear (a, s, z) }}""") == [
        "convolution: (DequantizeLinear) Conv Add QuantizeLinear"
    ]


def test_bytes_with_many_readers_are_widened_by_each_that_may_and_once_for_the_others() -> None:
    assert groups(f"""g ({BYTES} r, {WEIGHT}, {SCALE}) => ({IMAGE} a, {IMAGE} b, {IMAGE} c) {{
        d = DequantizeLinear (r, s, z)  a = Tanh (d)  b = Exp (d)  c = Conv (d, w) }}""") == [
        "elementwise: DequantizeLinear",
        "elementwise: (DequantizeLinear) Tanh",
        "elementwise: (DequantizeLinear) Exp",
        "convolution: Conv",
    ]


def test_an_integer_convolution_reads_and_stores_in_the_order_of_its_transpositions() -> None:
    assert groups("""g (uint8[1,6,6,8] x, int8[8,8,3,3] w, uint8 z) => (float[1,4,4,8] y) {
        t = Transpose <perm = [0, 3, 1, 2]> (x)  c = ConvInteger (t, w, z)
        u = Transpose <perm = [0, 2, 3, 1]> (c)  y = Cast <to = 1> (u) }""") == [
        "convolution: (Transpose) ConvInteger Transpose Cast"
    ]


def test_a_dequantised_value_that_leaves_the_region_is_stored() -> None:
    assert groups(f"""g ({BYTES} r, {SCALE}) => ({IMAGE} d, {IMAGE} y) {{
        d = DequantizeLinear (r, s, z)  y = Tanh (d) }}""") == [
        "elementwise: DequantizeLinear",
        "elementwise: (DequantizeLinear) Tanh",
    ]


def test_parts_of_what_a_kernel_widens_are_no_views_of_it() -> None:
    assert groups(
        f"""g ({BYTES} r, {SCALE}, int64[2] n) => (float[1,3,6,6] y, float[1,5,6,6] v) {{
        d = DequantizeLinear (r, s, z)  y, v = Split <axis = 1> (d, n) }}""",
        {"n": np.array([3, 5])},
    ) == [
        "injective: (DequantizeLinear) Split",
    ]
    assert groups(f"""g ({BYTES} r, {SCALE}, int64[1] b, int64[1] e, int64[1] a) => (float[1,3,6,6] y) {{
        d = DequantizeLinear (r, s, z)  y = Slice (d, b, e, a) }}""",
        {"b": np.array([2]), "e": np.array([5]), "a": np.array([1])}) == [
        "injective: (DequantizeLinear) Slice",
    ]  # fmt: skip


def test_a_shape_that_a_check_compares_is_stored_before_the_result_that_has_it() -> None:
    assert groups("""g (float[3,1] x) => (float[1] y) {
        s = Shape <start = 1> (x)  y = ConstantOfShape (s) }""") == [
        "injective: Shape",
        "injective: ConstantOfShape",
    ]


def test_a_shape_that_a_kernel_computes_is_stored_before_a_view_is_checked_against_it() -> None:
    assert (
        groups("""g (int64[2] a, float[1,2] x) => (float[2,1] y) <float[2,1] r> {
        s = Neg(a)  r = Reshape(x, s)  y = Neg(r) }""")[0]
        == "elementwise: Neg"
    )


def test_a_scatter_reads_its_indices_as_they_are_before_they_are_expanded() -> None:
    text = """g (float[4,9] x, int64[1,6] i, float[4,6] u) => (float[4,9] yMORE) <int64[2] shape = {4, 6}> {
        e = Expand (i, shape)  y = ScatterElements <axis = 1, reduction = "add"> (x, e, u)REST }"""
    alone = text.replace("MORE", "").replace("REST", "")
    assert groups(alone) == ["recurrent: Expand ScatterElements"]
    read_again = text.replace("MORE", ", int64[4,6] z").replace("REST", "  z = Neg (e)")
    assert groups(read_again) == ["injective: Expand", "recurrent: ScatterElements", "elementwise: Neg"]


def test_a_scatter_computes_updates_that_are_larger_than_what_they_are_made_of() -> None:
    text = """g (float[4,9] x, int64[4,12] i, float[4,6,1] u, float[OTHER] v) => (float[4,9] y)
        <int64[2] shape = {4, 12}> {
        m = Mul (u, v)  r = Reshape (m, shape)  y = ScatterElements <axis = AXIS, reduction = "add"> (x, i, r) }"""
    small = text.replace("OTHER", "6,2").replace("AXIS", "1")
    assert groups(small) == ["recurrent: Mul Reshape ScatterElements"]
    assert "recurrent: ScatterElements" in groups(small.replace("6,2", "4,6,2"))
    assert "recurrent: ScatterElements" in groups(small.replace("axis = 1", "axis = 0"))


@pytest.mark.parametrize(
    ("order", "shape", "found"),
    [
        ("0, 2, 1", "8,5,4", ["contraction: Transpose MatMul Relu"]),
        ("2, 0, 1", "4,5,8", ["injective: Transpose", "contraction: MatMul Relu"]),
        ("0, 2, 1", "2,5,4", ["injective: Transpose", "contraction: MatMul Relu"]),
    ],
)
def test_many_products_read_left_factors_by_their_columns(order: str, shape: str, found: list[str]) -> None:
    count = "2" if shape.startswith("2") else "8"
    assert (
        groups(f"""g (float[{shape}] x, float[{count},5,6] w) => (float[{count},4,6] y) {{
        t = Transpose <perm = [{order}]> (x)  m = MatMul (t, w)  y = Relu (m) }}""")
        == found
    )


def test_a_left_factor_may_be_the_second_result_of_its_node() -> None:
    found = groups(
        """g (float[4,5,6] x, float[4,3,2] w) => (float[4,5,2] y) <int64[2] s = {3, 3}> {
        a, b = Split <axis = -1> (x, s)  y = MatMul (b, w) }"""
    )
    assert found[-1] == "contraction: MatMul"
