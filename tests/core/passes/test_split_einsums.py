"""Einsums of several operands as products of two after another."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper, parser

import graft
from graft.core.importer.load import load
from graft.core.passes.normalize import normalize
from graft.datatypes.conversion import convert


def model_of(equation: str, shapes: list[str], result: str, kind: str = "float") -> ModelProto:
    """An Einsum of operands a, b and so on."""
    names = [chr(ord("a") + number) for number in range(len(shapes))]
    inputs = ", ".join(f"{kind}[{shape}] {name}" for name, shape in zip(names, shapes, strict=True))
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({kind}[{result}] y)
    {{ y = Einsum<equation = "{equation}">({", ".join(names)}) }}"""
    return parser.parse_model(text)


def equations(model: ModelProto) -> list[str]:
    """Return the equations of a model after it is simplified."""
    simplified = load(model)
    normalize(simplified)
    return [node.attributes["equation"].as_string() for node in simplified.graph if node.op_type == "Einsum"]


CASES = (
    ("ij,jk,kl->il", ["30, 40", "40, 50", "50, 20"], "30, 20", ["bc,cd->bd", "ab,bd->ad"]),
    ("etf,efd,te->td", ["6, t, 14", "6, 14, 7", "t, 6"], "t, 7", ["abc,acd->abd", "abd,ba->bd"]),
    ("...ij,jk,...kl->...il", ["2, 8, 9", "9, 10", "1, 10, 4"], "2, 8, 4", ["cd,ade->ace", "abc,ace->abe"]),
)


@pytest.mark.parametrize(("equation", "shapes", "result", "wanted"), CASES, ids=[one for one, *_ in CASES])
@pytest.mark.parametrize("kind", ["float", "float16", "int32"])
def test_two_operands_are_multiplied_first(
    equation: str, shapes: list[str], result: str, wanted: list[str], kind: str
) -> None:
    model = model_of(equation, shapes, result, kind)
    assert equations(model) == wanted
    random = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    extents = [[int(one) if one.isdigit() else 5 for one in shape.split(", ")] for shape in shapes]
    arrays = [random.integers(-2, 3, one).astype(dtype) for one in extents]
    found = graft.compile(model, ["llvm"], threads=1, cache=False)(*arrays)
    np.testing.assert_allclose(found, np.einsum(equation, *[one.astype(np.float64) for one in arrays]), rtol=1e-3)


@pytest.mark.parametrize(
    ("equation", "shapes", "result"),
    [
        ("i,j,k->ijk", ["3", "4", "5"], "3, 4, 5"),
        ("ij,ij,ij->", ["6, 7", "6, 7", "6, 7"], ""),
        ("ij,jk->ik", ["6, 7", "7, 8"], "6, 8"),
    ],
)
def test_what_is_no_less_work_in_parts_stays_one_sum(equation: str, shapes: list[str], result: str) -> None:
    assert equations(model_of(equation, shapes, result)) == [equation]


def test_sums_of_a_custom_datatype_stay_as_the_equation_has_them() -> None:
    """Each of its operations is rounded: in parts the result would be another one."""
    model = model_of("ij,jk,kl->il", ["30, 40", "40, 50", "50, 20"], "30, 20", "float")
    converted = convert(model, "custom[posit]16")
    normalize(converted)
    assert [one.attributes["equation"].as_string() for one in converted.graph if one.op_type == "Einsum"] == [
        "ij,jk,kl->il"
    ]
