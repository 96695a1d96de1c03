"""The calls of a procedure as C statements, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from graft.runtime.c_operators import cast, infix, prefix, product
from graft.runtime.export.c_control import control_lines
from graft.runtime.export.c_names import c_type, comment_text
from graft.runtime.export.c_scope import CScope
from graft.runtime.extents import Agreement, Symbol, symbols_of
from graft.runtime.procedure import Call

_AGREEMENTS: Mapping[Agreement, tuple[tuple[str, str, str], ...]] = {
    "equal": (("left", "==", "right"),),
    "broadcast": (("left", "==", "right"), ("left", "==", "one"), ("right", "==", "one")),
    "expand": (("left", "==", "right"), ("left", "==", "one")),
    "at most": (("left", "<=", "right"),),
}


def procedure_lines(scope: CScope) -> Iterator[str]:
    """Yield the statements of a procedure: checks of its symbols, then its calls."""
    yield from _checks(scope)
    known, declared = set[int](), set[int]()
    for call in scope.procedure.calls:
        for index in sorted({*call.inputs, *(one for row in call.arguments for one in row)} - known - {-1}):
            known.add(index)
            yield from _extents(scope, index)
        if call.origin:
            yield f"/* {comment_text(', '.join(call.origin))} */"
        if call.kind == "call":
            given = dict.fromkeys(one for one in (*call.inputs, *call.outputs) if one in scope.pointers)
            fresh = [one for one in given if one not in declared]
            declared.update(fresh)
            yield from map(scope.declaration, fresh)
        yield from _call_lines(scope, call)
    if not scope.is_entry:
        yield from _handed_on(scope)


def _checks(scope: CScope) -> Iterator[str]:
    error = f"{scope.program.name.upper()}_ERROR_INPUT"
    late = scope.program.late_symbols(scope.procedure)
    names = {Symbol(symbol.name) for symbol in late}
    for symbol in scope.procedure.symbols:
        own = scope.symbols[symbol.name]
        if symbol not in late:
            yield f"if ({_outside(own, symbol.low, symbol.high)}) return {error};"
    for bound in scope.procedure.bounds:
        yield f"if ({_outside(scope.text(bound.extent), bound.low, bound.high)}) return {error};"
    for equation in scope.procedure.equations:
        if not {symbol for side in (equation.left, equation.right) for symbol in symbols_of(side)} & names:
            texts = {"left": scope.text(equation.left), "right": scope.text(equation.right), "one": "1"}
            tests = [infix(texts[one], sign, texts[other]) for one, sign, other in _AGREEMENTS[equation.kind]]
            agrees = reduce(lambda one, other: infix(one, "||", other), tests)
            yield f"if ({prefix('!', agrees)}) return {error}; /* {comment_text('...'.join(equation.says))} */"


def _outside(value: str, low: int, high: int | None) -> str:
    """Return whether a value is outside of a range."""
    below = infix(value, "<", str(low))
    return below if high is None else infix(below, "||", infix(value, ">", str(high)))


def _extents(scope: CScope, index: int) -> Iterator[str]:
    """Yield the array of a tensor whose elements are extents."""
    tensor = scope.procedure.tensors[index]
    if tensor.storage == "extents":
        kind = c_type(tensor.dtype, f"'{tensor.name}'")
        values = ", ".join(cast(kind, scope.text(one)) for one in tensor.values) or "0"
        yield f"const {kind} graft_extents{index}[] = {{{values}}};"


def _handed_on(scope: CScope) -> Iterator[str]:
    """Yield copies of those results of a body that no call writes: inputs, constants, and what is given twice."""
    for number, index in enumerate(scope.procedure.outputs):
        if scope.procedure.tensors[index].storage != "output" or scope.parameters[index] != f"out{number}":
            yield from _extents(scope, index)
            yield f"(void)memmove(out{number}, {scope.values(index)}, {scope.size(index)});"


def _call_lines(scope: CScope, call: Call) -> Iterator[str]:
    match call.kind:
        case "call":
            function = scope.program.function(call)
            arguments = ["context"] if function.needs_host else []
            arguments += ["&kept"] if function.keeps else []
            for index, shape, strides in zip(
                (*call.inputs, *call.outputs), function.shapes, function.strides, strict=True
            ):
                arguments.append("NULL" if index < 0 else scope.pointers.get(index) or scope.values(index))
                arguments += [scope.shape_array(index)] if shape else []
                arguments += ["NULL"] if strides else []
            arguments += map(str, function.extents)
            made = f"{scope.program.kernels[function.entry]}({', '.join(arguments)});"
            if not function.needs_host:
                yield made
                return
            yield "context->used = 0;"
            status = f"status = {made}"
            yield f"{{ static GraftKept kept; {status} }}" if function.keeps else status
            yield "if (status != GRAFT_OK) return status;"
        case "copy":
            source, target = call.inputs[0], call.outputs[0]
            yield f"(void)memmove({scope.values(target)}, {scope.values(source)}, {scope.size(source)});"
        case "append":
            yield from _append_lines(scope, call)
        case _:
            yield from control_lines(scope, call)


def _append_lines(scope: CScope, call: Call) -> Iterator[str]:
    """Blocks of rows of both inputs, one behind the other."""
    old, new = call.inputs
    blocks = infix("graft_block", "<", product(map(scope.text, scope.shape(old)[: call.axis])))
    sizes = f"{scope.bytes(old, call.axis)}, {scope.bytes(new, call.axis)}"
    yield f"for (int64_t graft_block = 0, graft_sizes[] = {{{sizes}}}; {blocks}; ++graft_block) {{"
    target = cast("char *", scope.values(call.outputs[0]))
    yield f"  char *graft_row = {target} + graft_block * (graft_sizes[0] + graft_sizes[1]);"
    for number, index in enumerate(call.inputs):
        own = f"{cast('const char *', scope.values(index))} + graft_block * graft_sizes[{number}]"
        yield f"  (void)memcpy(graft_row{' + graft_sizes[0]' if number else ''}, {own}, (size_t)graft_sizes[{number}]);"
    yield "}"
