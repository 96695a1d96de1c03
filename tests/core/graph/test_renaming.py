"""Copies of nodes between other values, their bodies included."""

from __future__ import annotations

from functools import partial

import onnx

from graft.core.graph.dimensions import unique
from graft.core.graph.renaming import renamed

NODE = """[n] y = If (c) <then_branch = one () => (float a) { t = Neg (x) a = Exp (t) },
                         else_branch = two () => (float b) { b = Neg (x) }>"""


def test_bodies_read_the_new_names_and_have_their_own() -> None:
    names = {"": "", "x": "u"}
    copy = renamed(onnx.parser.parse_node(NODE), names, {}, "s", partial(unique, taken={"x", "y", "t", "a", "b"}))
    assert names["y"] == copy.output[0] == "s/y"
    then, other = (attribute.g for attribute in copy.attribute)
    assert [list(node.input) for node in then.node] == [["u"], ["s/t"]]
    assert then.output[0].name == then.node[1].output[0] == "s/a"
    assert list(other.node[0].input) == ["u"]


def test_attributes_that_are_references_are_those_given() -> None:
    node = onnx.parser.parse_node("y = Elu (x)")
    node.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    fresh = partial(unique, taken={"x", "y"})
    given = {"slope": onnx.helper.make_attribute("slope", 2.0)}
    assert renamed(node, {}, given, "s", fresh).attribute[0].f == 2.0
    assert not renamed(node, {}, {}, "s", fresh).attribute
