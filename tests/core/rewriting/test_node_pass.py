"""The walk of passes that rewrite node by node."""

from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.node_rewrite import replace_node
from tests.partition.graphs import small


@dataclass(frozen=True)
class Negate(NodePass):
    """Relu becomes Neg, and takes the node behind it along."""

    name: ClassVar[str] = "negate"
    seen: list[str] = field(default_factory=list)

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        self.seen.append(node.op_type)
        if node.op_type != "Relu":
            return False
        (behind,) = node.outputs[0].consumers()
        replace_node(behind, "Neg", node.inputs)
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        return True


def test_the_walk_leaves_out_what_was_removed_and_what_is_new() -> None:
    model, one = small("a = Relu(x)\nb = Abs(a)\ny = Exp(b)"), Negate()
    assert one.run(model)
    assert one.seen == ["Relu", "Exp"]
    assert [node.op_type for node in model.graph] == ["Neg", "Exp"]
    assert not Negate().run(model)


def test_a_fresh_name_is_taken_once() -> None:
    names = Names(small("a = Relu(x)\ny = Exp(a)"))
    assert [names.fresh("a"), names.fresh("a"), names.fresh("c")] == ["a_2", "a_3", "c"]


def test_a_rewriter_knows_the_bytes_of_constants_and_the_operator_sets() -> None:
    rewriter = Rewriter(small("y = Add(x, x)"))
    assert rewriter.constant_bytes == 0
    assert rewriter.opsets.keys() >= {""}
