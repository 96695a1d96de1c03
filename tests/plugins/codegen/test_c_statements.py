"""Statements of languages like C: one walk, and what each language says otherwise."""

from __future__ import annotations

import pytest

from graft.core.machine.target import Target
from graft.core.tensor_ir.ir import Function
from graft.core.tensor_ir.parser import parse_function
from graft.errors import CompileError
from graft.plugins.c_source.functions import function_source
from graft.plugins.cuda.launches import launches_of
from graft.plugins.cuda.machines import SM_80
from graft.plugins.cuda.source.kernels import kernel_c

BODY = """
    let position: int64 = block * 32 + thread
    if input[position] < float32(0.0) {
      output[position] = float32(0.0)
    } else {
      unrolled k < 2 { output[position] = output[position] + input[position] }
    }
"""
HEAD = "function kernel(input: float32[64]) -> (output: float32[64])"
C = parse_function(f"{HEAD} {{ serial block < 2 {{ serial thread < 32 {{ {BODY} }} }} }}")
CUDA = parse_function(
    f'{HEAD} {{ parallel block < 2 bind "block.x" {{ parallel thread < 32 bind "thread.x" {{ {BODY} }} }} }}'
)


def cuda_text(function: Function) -> str:
    (launch,) = launches_of(function).launches
    return kernel_c(launch, function, Target(SM_80)).text


def lines(text: str, first: str, last: str) -> list[str]:
    """The lines from one to another, without what stands before them."""
    every = [line.strip() for line in text.split("\n")]
    start = next(number for number, line in enumerate(every) if line.startswith(first))
    return every[start : every.index(last, start) + 1]


def test_a_branch_and_a_loop_read_alike_in_c_and_cuda() -> None:
    start = ["if (input[position] < 0.0f) {", "output[position] = 0.0f;"]
    loop = ["for (int64_t k = 0; k < 2; ++k) {", "output[position] = output[position] + input[position];", "}"]
    c, cuda = lines(function_source(C).text, "if (", ""), lines(cuda_text(CUDA), "if (", "")
    assert c[:9] == [*start, "}", "else {", "GRAFT_UNROLL(2)", *loop, "}"]
    assert cuda[:8] == [*start, "} else {", "#pragma unroll", *loop, "}"]


def test_each_language_names_what_it_cannot_order() -> None:
    body = 'issue "load" { push "load" -> "mac" }'
    with pytest.raises(CompileError) as caught:
        function_source(parse_function(f"{HEAD} {{ {body} }}"))
    assert caught.value.message == "function 'kernel' has threads in step or queues, which c_source cannot write"
    queued = f'{HEAD} {{ parallel block < 2 bind "block.x" {{ parallel thread < 32 bind "thread.x" {{ {body} }} }} }}'
    with pytest.raises(CompileError, match=r" has queues, which cuda_source cannot write$"):
        cuda_text(parse_function(queued))
