"""Hardware costs: sums by hand, tables that users and plugins give, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import graft
from graft.errors import GraftError
from graft.measure.hardware_cost import TABLES, CostTable, cheapest, cost_of, table_of
from graft.plugins.registry.manager import PluginManager
from graft.quantization.preparation import in_floats
from tests.quantization.networks import model

TEXT = """g (float[2,3,8,8] x) => (float[2,4] y) {
    [c] a = Conv <pads = [1,1,1,1]> (x, w)
    [r] b = Relu (a)
    [m] h = GlobalAveragePool (b)
    [f] i = Flatten (h)
    [fc] y = MatMul (i, v)
}"""
NET = model(TEXT, w=(5, 3, 3, 3), v=(5, 4))
CONV, MATRIX = 2 * 5 * 8 * 8 * 27, 2 * 4 * 5
TABLE = CostTable(
    "t", "", {"int8": (2.0, 10.0), "float32": (5.0, 30.0)}, {"int32": (0.5, 1.0), "float32": (1.0, 7.0)}, read=0.25
)


def test_energy_is_summed_over_products_and_a_unit_of_each_kind_is_counted_once() -> None:
    formats = lambda product: ("int8", "int8", "") if product.node.name == "c" else ("int4", "float32", "")  # noqa: E731
    found = cost_of(in_floats(NET), formats, 100, TABLE)
    assert found.energy_uj == pytest.approx((CONV * 2.5 + MATRIX * 6.0 + 800 * 0.25) / 1e6)
    assert found.area_um2 == 10 + 1 + 30 + 7
    assert cost_of(in_floats(NET), lambda _: ("int8", "int8", ""), 0, TABLE).area_um2 == 11


@pytest.mark.parametrize(
    ("sums", "energy", "area"), [("", 2.5, 11.0), ("int16", 2.2, 12.0), ("int24", 2.5, 11.0), ("float16", 3.0, 17.0)]
)
def test_sums_of_a_type_are_added_by_the_cheapest_adder_that_holds_it(sums: str, energy: float, area: float) -> None:
    table = CostTable("t", "", TABLE.multiply, {**TABLE.add, "int16": (0.2, 2.0)})
    found = cost_of(in_floats(NET), lambda _: ("int8", "int8", sums), 0, table)
    assert found.energy_uj == pytest.approx((CONV + MATRIX) * energy / 1e6)
    assert found.area_um2 == area
    with pytest.raises(GraftError) as caught:
        cost_of(in_floats(NET), lambda _: ("int8", "int8", "posit16"), 0, table)
    has = "it has int32, float32, int16: add one to the table"
    assert caught.value.message == f"table of costs 't' has no adder for posit16; {has}"


def test_the_sweep_counts_the_accumulators_of_recipes_and_of_layers() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
    own = CostTable("t", "", TABLE.multiply, {**TABLE.add, "int16": (0.25, 2.0), "float16": (0.75, 3.0)})
    sums = {"base": "int8-channel", "accumulators": "int16", "name": "sums"}
    layers = {"base": "int8-channel", "layers": {"fc": {"blocks": "mxfp4", "accumulators": "float16"}}, "name": "l"}
    recipes = [sums, {"base": "mxfp4", "accumulators": "float16", "name": "blocks"}, layers]
    found = {row.name: row for row in graft.sweep(NET, [], {"x": x}, recipes=recipes, costs=own).rows}
    assert found["sums"].energy_uj == pytest.approx((CONV + MATRIX) * 2.25 / 1e6)
    assert found["blocks"].energy_uj == pytest.approx((CONV + MATRIX) * 5.75 / 1e6)
    assert found["l"].energy_uj == pytest.approx((CONV * 2.5 + MATRIX * 5.75) / 1e6)
    assert found["l"].weight_bits < found["sums"].weight_bits


@pytest.mark.parametrize(
    ("weight", "activation", "unit"),
    [("int8", "int8", "int8"), ("int4", "uint8", "int8"), ("int8", "float32", "float32"), ("int16", "int8", "int32"),
     ("float8e4m3fn", "float8e5m2", "bfloat16"), ("float16", "bfloat16", "float32"),
     ("float4e2m1", "bfloat16", "bfloat16"), ("int4", "bfloat16", "bfloat16")],
)  # fmt: skip
def test_the_cheapest_multiplier_that_holds_both_is_taken(weight: str, activation: str, unit: str) -> None:
    assert cheapest(TABLES["7nm"], weight, activation) == unit


def test_the_sweep_has_energy_and_area_of_types_and_of_recipes() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
    own = CostTable("t", "", {**TABLE.multiply, "posit16": (3.0, 20.0)}, {**TABLE.add, "posit16": (1.5, 5.0)})
    report = graft.sweep(NET, ["posit16", "mxfp4"], {"x": x}, recipes=["int8", "int4-weights"], costs=own)
    energy = {row.name: row.energy_uj for row in report.rows}
    both = (CONV + MATRIX) / 1e6
    assert energy == pytest.approx(
        {"float32": both * 6, "posit16": both * 4.5, "mxfp4": both * 6, "int8": both * 2.5, "int4-weights": both * 6}
    )
    assert {row.name: row.area_um2 for row in report.rows}["posit16"] == 25.0
    assert graft.sweep(NET, ["posit16"], {"x": x}).rows[1].energy_uj is None


def test_a_file_changes_a_table_and_a_plugin_gives_one(tmp_path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('base = "45nm"\nsource = "measured"\nread = 2\n[multiply]\nposit16 = [1.5, 900]\nint8 = 0.1\n')
    found = table_of(path)
    assert (found.source, found.read, found.multiply["posit16"]) == ("measured", 2, (1.5, 900.0))
    assert found.multiply["int8"] == (0.1, None)
    assert found.multiply["float32"] == TABLES["45nm"].multiply["float32"]
    (tmp_path / "tables.py").write_text(
        "from graft import hookimpl\n@hookimpl\ndef graft_cost_tables():\n"
        "    from graft.measure.hardware_cost import CostTable\n    return [CostTable('npu', 'ours')]\n"
    )
    manager = PluginManager()
    manager.load_file(tmp_path / "tables.py")
    assert table_of("npu", manager).source == "ours"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("multipl = 1", "has no field 'multipl'; it may have name, source, multiply, add, read"),
        ("multiply = 3", "'multiply' is int; give figures by format"),
        ("read = 'x'", "'read' is 'x'; give a text, of 'read' a number"),
        (
            "[add]\nint8 = [1, 2, 3]",
            "'add' of int8' is [1, 2, 3]; give picojoules, or [picojoules, square micrometres]",
        ),
        ("[add]\nint8 = -1", "'add' of int8' is -1; give picojoules, or"),
        ("[add", "cannot be read"),
        ('base = "46nm"', "no table of costs is called '46nm'; did you mean '45nm', or give a .toml file"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, content: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(content)
    with pytest.raises(GraftError) as caught:
        table_of(path)
    assert message in str(caught.value)


def test_a_format_without_a_unit_is_refused_by_name() -> None:
    with pytest.raises(GraftError) as caught:
        cheapest(TABLES["45nm"], "posit16", "posit16")
    assert str(caught.value) == (
        "table of costs '45nm' has no multiplier for posit16 by posit16; it has int8, int32, float16, float32: add one "
        "to the table"
    )
    with pytest.raises(GraftError, match="adds neither float32 nor float16; add one to the table"):
        cost_of(in_floats(NET), lambda _: ("float16", "float16", ""), 0, CostTable("t", "", {"float16": (1.0, None)}))
