"""Repeated stores become loops that compilers write out, and compute the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.rows import THUMBV7EM
from graft.core.machine.target import Target
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.rewriting.rolling import rolled
from graft.core.tensor_ir.verifying.verifier import verify
from graft.plugins.c_source.backend import CBackend
from graft.plugins.c_source.functions import function_source

HEAD = "function f(x: float32[32]) -> (y: float32[32])"
CLEAR = "serial i < 32 { y[i] = float32(0.0) }\n"
REPEATED = {
    "places": ("\n".join(f"y[{n}] = x[{n + 3}]" for n in range(6)), "unrolled lane < 6"),
    "strides": ("\n".join(f"y[{n * 3}] = x[31 - {n}]" for n in range(8)), "y[lane * 3] = x[31 - 0 + lane * -1]"),
    "pairs": ("\n".join(f"y[{n * 2}] = x[{n}]\ny[{n * 2 + 1}] = y[{n * 2}]" for n in range(5)), "unrolled lane < 5"),
    "order": ("\n".join(f"y[{n + 1}] = y[{n}] + x[{n}]" for n in range(9)), "unrolled lane < 9"),
    "outer loop": (
        f"serial k < 2 {{ {' '.join(f'y[k * 6 + {n}] = x[(k + {n}) * 2]' for n in range(6))} }}",
        "unrolled",
    ),
    "a rest": ("\n".join([*(f"y[{n}] = x[{n}]" for n in range(20)), "y[31] = x[0]"]), "unrolled lane < 10"),
    "loads": (
        "".join(f"let b{n}: float32 = x[{n}]\n" for n in range(5))
        + "".join(f"y[{n}] = b{n} * x[9]\n" for n in range(5)),
        "y[lane] = x[lane] * x[9]",
    ),
}
OTHERS = {
    "few": "y[0] = x[0]\ny[1] = x[1]\ny[2] = x[2]\ny[3] = x[3]",
    "uneven": "\n".join(f"y[{n}] = x[{n * n}]" for n in range(6)),
    "numbers": "\n".join(f"y[{n}] = float32({n}.0)" for n in range(6)),
    "signs of zero": "\n".join(f"y[{n}] = float32({-0.0 if n in (1, 4, 5) else 0.0})" for n in range(6)),
    "operators": "\n".join(f"y[{n}] = x[{n}] {'+-'[n % 2]} x[9]" for n in range(3)),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_loop_computes_what_the_stores_did(name: str) -> None:
    body, expected = REPEATED[name]
    function = parse_function(f"{HEAD} {{ {CLEAR}{body} }}")
    made = replace(function, body=rolled(function.body))
    verify(made)
    assert expected in str(made)
    x = np.arange(32, dtype=np.float32) ** 2
    np.testing.assert_array_equal(run_function(made, [x])[0], run_function(function, [x])[0])


@pytest.mark.parametrize("name", OTHERS)
def test_stores_that_are_not_alike_or_few_stay(name: str) -> None:
    function = parse_function(f"{HEAD} {{ {CLEAR}{OTHERS[name]} }}")
    assert "unrolled" not in str(replace(function, body=rolled(function.body)))


def test_a_value_that_is_read_before_it_is_written_over_keeps_its_name() -> None:
    body = "let b: float32 = y[0]\ny[0] = x[0]\ny[1] = b"
    function = parse_function(f"{HEAD} {{ {CLEAR}{body} }}")
    assert "let b" in str(replace(function, body=rolled(function.body)))
    inner = parse_function(f"{HEAD} {{ {CLEAR} let b: float32 = x[0]\nserial k < 9 {{ y[k] = b }} }}")
    assert "let b" in str(replace(inner, body=rolled(inner.body))), "a load does not go into a loop"


def test_a_machine_of_one_core_has_no_tasks() -> None:
    loop = "parallel i < 32 { serial k < 4096 { y[i] = y[i] + x[i] } }"
    function = parse_function(f"{HEAD} {{ {CLEAR}{loop} }}")
    backend = CBackend(compiles=False)
    module = backend.emit([function], Target(THUMBV7EM))
    assert module.source is not None and "graft_parallel_for" not in module.source.text
    assert "graft_parallel_for" in function_source(function).text
