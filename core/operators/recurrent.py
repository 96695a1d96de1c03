"""Recurrent layers: RNN, LSTM and GRU, which lower to functions in loops."""

from __future__ import annotations

from graft.core.model.view import NodeView
from graft.core.operators.contraction import shape_of
from graft.core.operators.cost import traffic
from graft.core.operators.recurrent_layer import GATES, NEED_ALPHA, PLAIN
from graft.core.operators.recurrent_loops import recurrent_function
from graft.core.operators.table import OPERATORS, Cost, Lowering, Operator, Trait
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Function
from graft.core.types import is_custom


def _lower(lowering: Lowering) -> Function:
    return recurrent_function(lowering)


def _cost(node: NodeView) -> Cost:
    x, w, r = (shape_of(node.input(number)) for number in range(3))
    steps = x[0] * x[1]
    return Cost(2 * w[0] * w[1] * steps * (w[2] + r[2]), traffic(node))


def _accept(node: NodeView) -> Reject | None:
    if node.dtype not in ("float32", "float64") and not is_custom(node.dtype):
        return Reject("dtype", f"{node.op_type} of {node.dtype}; float32, float64 and custom types are lowered")
    known = {name.lower() for name in (*PLAIN, *NEED_ALPHA)}
    unknown = [name for name in node.attribute("activations") or [] if name.lower() not in known]
    if unknown:
        return Reject("attribute", f"activation '{unknown[0]}' of {node.op_type} is not known")
    return None


for _name in GATES:
    OPERATORS.add(Operator(_name, frozenset({Trait.RECURRENT}), _lower, _cost, _accept))
