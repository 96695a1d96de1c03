"""MaxUnpool: indices of a whole image are places of its result as they are, and are not divided for that."""

from __future__ import annotations

import numpy as np
import onnx

from graft.core.machine.target import target_named
from graft.core.operators.definition.table import Trait
from graft.core.operators.lower import lower, lowering_of
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.verifying.verifier import verify
from graft.plugins.llvm.emit import assembly
from tests.core.operators.node_cases import node_of

TARGET = target_named("x86-64-v3")


def test_quotients_cancel_in_offsets() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2,3,5,7] x, int64[2,3,5,7] i) => (float[2,3,10,14] y)'
        "{ y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i) }"
    )
    x = np.zeros((2, 3, 5, 7), np.float32)
    view = node_of(model, (x, x.astype(np.int64)), (np.zeros((2, 3, 10, 14), np.float32),))
    lowering = lowering_of(view)
    kernel = Kernel("f", lowering.inputs, lowering.outputs, tuple(lower(lowering)), Trait.RECURRENT)  # type: ignore[arg-type]
    function = schedule(kernel, TARGET).function
    verify(function)
    assert "mulq" not in assembly(function, TARGET)
