"""What stands around `wgmma`: its sums are the instruction's from the fence before it until a wait covers its group."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from graft.errors import CompileError
from graft.plugins.cuda.emulator.ptx_text import Instruction, Label, PtxFunction

_REGISTER = re.compile(r"%[\w$.]+")
MULTIPLY, FENCE, COMMIT, WAIT = (f"wgmma.{one}" for one in ("mma_async", "fence", "commit_group", "wait_group"))


@dataclass
class _State:
    """The instructions that are under way in the code behind a label, and registers that no fence has seen since."""

    current: list[Instruction] = field(default_factory=list)
    groups: list[list[Instruction]] = field(default_factory=list)
    is_fenced: bool = False
    written: set[str] = field(default_factory=set)

    def under_way(self) -> list[Instruction]:
        return [*self.current, *(one for group in self.groups for one in group)]


def check_warpgroups(function: PtxFunction) -> None:
    """Raise CompileError where sums of wgmma are touched under way, or where it reads what no fence lets it see."""
    if not any(isinstance(one, Instruction) and one.name.startswith(MULTIPLY) for one in function.body):
        return
    state = _State()
    for one in function.body:
        if isinstance(one, Label):
            _ended(function, state, None)
            state = _State()
        elif one.name.startswith("wgmma."):
            _step(function, state, one)
        else:
            _touched(function, state, one)


def _step(function: PtxFunction, state: _State, one: Instruction) -> None:
    if one.name.startswith(MULTIPLY):
        seen = set(_REGISTER.findall(one.operands[0]))
        if not state.is_fenced or state.written & seen:
            raise _fault(function, one, "its sums have been written with no wgmma.fence behind that")
        state.current.append(one)
    elif one.name.startswith(FENCE):
        state.is_fenced = True
        state.written.clear()
    elif one.name.startswith(COMMIT):
        state.groups.append(state.current)
        state.current = []
    elif one.name.startswith(WAIT):
        pending = int(one.operands[0])
        state.groups = state.groups[len(state.groups) - pending :] if pending else []


def _touched(function: PtxFunction, state: _State, one: Instruction) -> None:
    names = set(_REGISTER.findall(" ".join(one.operands)))
    for other in state.under_way():
        if names & set(_REGISTER.findall(other.operands[0])):
            _ended(function, state, one)
    if one.root in {"bra", "ret", "bar", "barrier"}:
        _ended(function, state, one)
    state.written |= names


def _ended(function: PtxFunction, state: _State, by: Instruction | None) -> None:
    for other in state.under_way():
        where = f"line {by.line}" if by is not None else "the next label"
        why = f"{where} comes before a wgmma.commit_group and wgmma.wait_group that cover it"
        raise _fault(function, other, why)


def _fault(function: PtxFunction, one: Instruction, why: str) -> CompileError:
    return CompileError(f"kernel '{function.name}', line {one.line} ({one.name}): {why}", function=function.name)
