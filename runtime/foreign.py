"""Texts about what foreign code made: its objects and exceptions, whose own methods may raise or fill pages."""

from __future__ import annotations

import opcode
import signal

LONGEST = 500
_RAISE = opcode.opmap["RAISE_VARARGS"]
_NAME = type.__dict__["__name__"]


def kind_of(value: object) -> str:
    """Return the name of a value's type, whatever its metaclass says."""
    return str(_NAME.__get__(type(value)))


def shown(value: object) -> str:
    """Return the `repr` of a value in one line, or what it is where that raises."""
    try:
        text = repr(value)
    except BaseException as error:
        if is_interrupt(error):
            raise
        return f"<{kind_of(value)}, whose repr raises {kind_of(error)}>"
    return one_line(text)


def said(error: BaseException) -> str:
    """Return what an exception says in one line, or why it says nothing."""
    try:
        text = str(error)
    except BaseException as other:
        if is_interrupt(other):
            raise
        return f"(its text raises {kind_of(other)})"
    return one_line(text)


def one_line(text: str) -> str:
    """Return a text in one line that every terminal prints: not too long, without lone surrogates."""
    line = " ".join(part.strip() for part in str.splitlines(text) if part.strip())
    line = line.encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception is the user's Ctrl-C, and not a KeyboardInterrupt that some code raised by itself.

    A signal interrupts at any instruction but ``raise``. Where the process has its own handler of the signal, which may
    raise likewise, every KeyboardInterrupt counts as the user's; where it ignores the signal, as below ``nohup``, none.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not issubclass(type(error), KeyboardInterrupt) or handler in (signal.SIG_IGN, signal.SIG_DFL):
        return False
    if handler is not signal.default_int_handler:
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or trace.tb_frame.f_code.co_code[trace.tb_lasti] != _RAISE
