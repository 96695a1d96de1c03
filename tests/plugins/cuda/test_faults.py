"""Faults in device text: each is planted in the PTX of a real kernel, and the emulator finds it and says its cause."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import onnx
import pytest

from graft.core.schedule.parameters import Parameters
from graft.errors import GraftError
from graft.plugins.cuda import ptx
from graft.plugins.cuda.backend import CudaBackend
from graft.plugins.cuda.strategies.attention import USUAL
from tests.plugins.cuda.graphs import graph, node, ran
from tests.plugins.cuda.test_strategies import attention, given, product
from tests.plugins.cuda.test_warpgroups import SMALL, gemm


@dataclass(frozen=True)
class Case:
    """A kernel that Graft makes, by the strategy that makes it."""

    model: onnx.ModelProto
    tolerance: float
    parameters: Parameters | None = None
    target: str = "sm_80"


CASES = {
    "threads": Case(product(100, 48, 70), 2e-6),
    "tail": Case(product(37, 45, 66), 2e-6),
    "warps": Case(product(100, 128, 72, "float16"), 4e-3),
    "rows": Case(graph([node("Softmax", "x")], {"x": ("float32", [6, 700])}), 2e-6),
    "transposition": Case(graph([node("Transpose", "x", perm=[0, 2, 1])], {"x": ("float32", [6, 37, 100])}), 0),
    "attention": Case(attention(40, 200, 32, "float16", masked=True), 4e-3, replace(USUAL, stages=3)),
    "warpgroups": Case(gemm(64, 256, 64, "float16"), 1e-3, replace(SMALL, stages=2, bulk=False), "sm_90a"),
    "bulk": Case(gemm(64, 320, 64, "float16"), 1e-3, replace(SMALL, stages=2, bulk=True), "sm_90a"),
}


@dataclass(frozen=True)
class Fault:
    """A change of a kernel's PTX, at the match ``at`` of a pattern, and what is said of it.

    A kernel has its code twice: for pointers that are aligned, which runs here, behind that for all others. So matches
    are counted from the end.
    """

    case: str
    pattern: str
    by: str
    found: str
    at: int = -1

    def plant(self, text: str) -> str:
        """Return the text with the fault in it."""
        match = list(re.finditer(self.pattern, text))[self.at]
        changed = text[: match.start()] + match.expand(self.by) + text[match.end() :]
        assert changed != text
        return changed


BARRIER, COPY, COMMIT = r"bar\.sync \t0;", r"\tcp\.async\.c[ag].*\n", r"\tcp\.async\.commit_group;\n"
WAIT, LOOP = r"\tcp\.async\.wait_group \t\d;\n", r"mbarrier\.try_wait.*\n@.*\n"
FENCE, BULK = r"\tfence\.proxy\.async.*\n", r"\t?cp\.async\.bulk.*\n"
GROUP = r"wait_group\.sync\.aligned"
UNORDERED, UNCOVERED, UNWRITTEN = "nothing orders the two", "no wait has covered that", "which nothing has written"
UNENDED = "comes before a wgmma.commit_group and wgmma.wait_group that cover it"
WRONG = "the result is wrong"
FAULTS = {
    "a barrier is left out": Fault("threads", BARRIER, "", UNORDERED),
    "a barrier is a warp's": Fault("threads", BARRIER, r"bar.warp.sync \t-1;", UNORDERED),
    "a barrier of tiles for warps is a warp's": Fault("warps", BARRIER, r"bar.warp.sync \t-1;", UNORDERED),
    "a barrier of a row is left out": Fault("rows", BARRIER, "", UNORDERED),
    "a warp's barrier of a row is left out": Fault("rows", r"\tbar\.warp\.sync \t-1;\n", "", UNORDERED, -3),
    "a barrier is another one": Fault(
        "threads", BARRIER, r"bar.sync \t1;", "the emulator has one barrier, number 0, of whole blocks"
    ),
    "some threads jump over a barrier": Fault("threads", BARRIER, r"@%p1 bar.sync \t0;", UNORDERED),
    "a transposition has no barrier": Fault("transposition", BARRIER, "", UNORDERED),
    "one more group is under way": Fault("attention", r"wait_group \t1;", r"wait_group \t2;", UNCOVERED),
    "no group is waited for": Fault("warps", WAIT, "", UNCOVERED),
    "a group is not committed": Fault("attention", COMMIT, "", UNCOVERED),
    "the first group is not committed": Fault("warps", COMMIT, "", UNCOVERED, -3),
    "a copy is left out": Fault("warps", COPY, "", UNWRITTEN),
    "a copy has half of its bytes": Fault("warps", r"cp\.async\.cg(.*), 16;", r"cp.async.ca\1, 8;", UNWRITTEN),
    "a copy goes to another stage": Fault("warps", r"(cp\.async\S+ \[%\w+)\+(\d+)\]", r"\1]", UNCOVERED),
    "a copy comes from other terms": Fault(
        "warps", r"(cp\.async\S+ \[[^]]*\], \[%\w+)(\+\d+)?\]", r"\1+16]", "outside of all buffers"
    ),
    "a matrix is not transposed": Fault("warps", r"\.trans\.shared", ".shared", WRONG),
    "a matrix begins elsewhere": Fault("attention", r"(ldmatrix.*\[%\w+)(\+\d+)?\];", r"\1+16];", WRONG),
    "threads exchange what they have with others": Fault(
        "attention", r"(shfl\.sync\.bfly\.b32[^;]*), 2, 31", r"\1, 8, 31", WRONG
    ),
    "an exchange is within eight lanes": Fault(
        "attention", r"(shfl\.sync\.bfly\.b32[^;]*), 31, ", r"\1, 7, ", "it exchanges words within 8 lanes"
    ),
    "words of a factor are exchanged": Fault("warps", r"(mma\.sync[^;]*\s)\{(%\w+), (%\w+)\}", r"\1{\3, \2}", WRONG),
    "a factor is of another type": Fault("warps", r"f32\.f16\.f16\.f32", "f32.bf16.bf16.f32", WRONG),
    "half of the lanes do the work of a warp": Fault(
        "rows", r"(and\.b\d\d \t%\w+, %\w+), 31;", r"\1, 15;", UNORDERED
    ),
    "the columns of a thread are others": Fault("warps", r"(and\.b\d\d \t%\w+, %\w+), 3;", r"\1, 1;", UNORDERED),
    "the stage of a bulk copy is another one": Fault(
        "bulk", r"(and\.b64 \t%\w+, %\w+), 1;", r"\1, 0;", "it has not waited for the mbarrier"
    ),
    "the mask of a tail is one too wide": Fault("tail", r"setp\.gt\.u64", "setp.ge.u64", WRONG),
    "the mask of a tail is left out": Fault("tail", r"\t@%p\d+ bra .*\n", "", WRONG),
    "a store is at another place": Fault("tail", r"(st\.shared\S* \t\[%\w+)\+(\d+)\]", r"\1]", UNWRITTEN),
    "a vector is not aligned": Fault(
        "threads", r"(ld\.shared\.v4\.b32 .*\[%\w+)(\+-?\d+)?\]", r"\1+4]",
        "it reads 16 bytes at an address that is no multiple of 16",
    ),
    "a swizzle is none": Fault("warpgroups", r"\txor\.b", "\tor.b", UNORDERED),
    "nothing fences what threads write": Fault(
        "warpgroups", FENCE, "", "without a fence.proxy.async and a barrier for it"
    ),
    "sums are read before a wait": Fault("warpgroups", f"{GROUP} 0", f"{GROUP} 1".replace("\\", ""), UNENDED),
    "products are not committed": Fault("warpgroups", r"wgmma\.commit_group\.sync\.aligned;\n", "", UNENDED),
    "nothing fences the sums": Fault(
        "warpgroups", r"wgmma\.fence\.sync\.aligned;\n", "",
        "its sums have been written with no wgmma.fence behind that",
    ),
    "a descriptor has half of its stride": Fault(
        "warpgroups", r"(or\.b64 \t%\w+, %\w+), 46\d+;", r"\1, 4611686155866406912;", WRONG
    ),
    "an mbarrier is not initialised": Fault(
        "bulk", r"\tmbarrier\.init.*\n", "", "is no mbarrier: nothing has initialised it"
    ),
    "nothing fences an mbarrier": Fault("bulk", FENCE, "", "without a fence.proxy.async behind that", -2),
    "too few bytes are expected": Fault(
        "bulk", r"(expect_tx.*), 8192;", r"\1, 4096;",
        "it waits for an mbarrier that expects 4096 bytes, of which bulk copies bring 8192",
    ),
    "a bulk copy brings half": Fault(
        "bulk", r"(cp\.async\.bulk.*), 8192,", r"\1, 4096,",
        "it waits for an mbarrier that expects 8192 bytes, of which bulk copies bring 4096",
    ),
    "a bulk copy is left out": Fault(
        "bulk", BULK, "", "it waits for an mbarrier that expects 8192 bytes, of which bulk copies bring 0"
    ),
    "no thread waits for a bulk copy": Fault("bulk", LOOP, "", UNCOVERED),
    "the wait is for another phase": Fault("bulk", r"(mbarrier\.try_wait.*), (%\w+);", r"\1, 1;", UNCOVERED),
}  # fmt: skip
SAMPLE = {
    "a barrier is a warp's", "one more group is under way", "the columns of a thread are others",
    "sums are read before a wait",
    "nothing fences what threads write", "too few bytes are expected",
}  # fmt: skip
INPUTS = {name: given(case.model) for name, case in CASES.items()}
"""Once, so that each fault is looked for with the same numbers."""


def outcome(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what is said of a kernel with a fault."""
    case, own, schedule = CASES[fault.case], ptx.ptx_of, CudaBackend.schedule

    def wanted(self: CudaBackend, kernel: Any, target: Any, parameters: Any) -> Any:
        return schedule(self, kernel, target, case.parameters or parameters)

    monkeypatch.setattr(ptx, "ptx_of", lambda *given: fault.plant(own(*given)))
    monkeypatch.setattr(CudaBackend, "schedule", wanted)
    try:
        error = ran(case.model, INPUTS[fault.case], target=case.target).error
    except GraftError as found:
        return str(found)
    return "nothing is found" if error <= case.tolerance else WRONG


def marked(name: str) -> Any:
    return pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow)


@pytest.mark.parametrize("name", [*map(marked, FAULTS)])
def test_a_fault_in_the_text_of_a_kernel_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FAULTS[name].found in outcome(FAULTS[name], monkeypatch)


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_race_is_found_in_any_order_of_threads(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFT_EMULATOR_SEED", str(seed))
    assert UNORDERED in outcome(FAULTS["a barrier of a row is left out"], monkeypatch)
