"""The reference of random models: `onnx.reference`, and operators that it computes otherwise than ONNX says."""

# mypy: disallow_untyped_calls=False
from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_loop import Loop as OnnxLoop

from graft.plugins.reference.own import OWN, Evaluator


class Loop(OnnxLoop):
    """Rounds without a condition, and what is collected stacked along a new axis (onnx 1.23: none, and joined)."""

    op_domain = ""
    body: Any
    _run_body: Any

    def _run(self, count, condition, *carried, context=None, body=None, attributes=None, bindings=None):  # type: ignore[no-untyped-def]  # fmt: skip
        held = dict(context or {})
        names, going = self.body.input_names, True if condition is None else bool(condition)
        state, collected, number = list(carried), [[] for _ in range(self.K)], 0  # type: ignore[var-annotated]
        while going and (count is None or number < count):
            given = [np.array(number, np.int64), np.array(going), *state]
            outputs = self._run_body({**held, **dict(zip(names, given, strict=True))}, attributes=attributes,
                                     bindings=bindings)  # fmt: skip
            going, state = bool(outputs[0]), list(outputs[1 : 1 + self.N])
            for kept, value in zip(collected, outputs[1 + self.N :], strict=True):
                kept.append(value)
            number += 1
        if self.K and not number:
            raise ValueError("nothing was collected, of a shape that nobody says")
        return self._check_and_fix_outputs((*state, *map(np.stack, collected)))


EVALUATORS: list[type[OpRun]] = [*OWN, Loop]


def quietly(model: Any, feeds: Any) -> list[Any]:
    """Return what a model's outputs are, without warnings about overflow."""
    with np.errstate(all="ignore"):
        return list(Evaluator(model, new_ops=EVALUATORS).run(None, feeds))
