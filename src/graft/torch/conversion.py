"""A part of an FX graph as an ONNX model: its operators by the table, what comes in, and what goes out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import onnx_ir as ir
import sympy
import torch
from torch.fx import Node

from graft.patterns.definitions import import_domains
from graft.torch.aten import complex_numbers
from graft.torch.aten.builder import COMPLEX, EIGHTHS, Builder, Extent, Refused, Tensor, onnx_type, require
from graft.torch.aten.plugin_rows import row_of
from graft.torch.aten.table import VIEWS

OPSET = 26
BITS = {torch.bfloat16: torch.int16, **dict.fromkeys(EIGHTHS, torch.uint8)}


@dataclass(frozen=True)
class Converted:
    """An ONNX model with what it takes: nodes of the FX graph, and symbols that none of their shapes is."""

    model: ir.Model
    inputs: tuple[Node, ...]
    symbols: tuple[sympy.Symbol, ...]
    """Each comes as the extent of a tensor of [extent, 0], behind the inputs."""
    numbers: frozenset[sympy.Symbol]
    """Those of the symbols that may be negative, so no extents: each comes as an int64 tensor of one element."""
    outputs: tuple[Node, ...]
    dims: dict[str, tuple[int, int | None]]
    """The ranges of symbols."""
    origins: dict[str, str]
    """By ONNX node, the name of the FX node that it was written for."""


def fake(node: Node) -> Any:
    """Return what a node gives, without its numbers."""
    return node.meta.get("val")


def memory_order(value: torch.Tensor) -> list[int]:
    """Return the axes from the outermost in memory to the innermost; equal strides stay in their order."""
    strides = value.stride()
    return sorted(range(value.dim()), key=lambda axis: -_hint(strides[axis]))


def _hint(value: Extent) -> int:
    return value if isinstance(value, int) else int(value.node.hint or 1)


def is_dense(value: torch.Tensor) -> bool:
    """Whether a tensor is contiguous once its axes are in the order of its memory."""
    return bool(value.is_contiguous() or value.permute(memory_order(value)).is_contiguous())


def _order(value: torch.Tensor, plain: bool) -> list[int]:
    return list(range(value.dim())) if plain or not is_dense(value) else memory_order(value)


def where(node: Node) -> str:
    """Return the place of a node as people know it: the module's path and the line of Python.

    Where no code of the user's was met, as in `nn.Sequential`, the line is that of the module's own ``forward``.
    """
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    entries = list(stack.values()) if isinstance(stack, dict) else []
    name, kind = entries[-1][:2] if entries else ("", None)
    module = re.sub(r"L\['self'\]\.?|\._modules|_(?:modules|parameters)\b", "", name)
    module = re.sub(r"\['([^']*)'\]", r".\1", module).strip(".").removeprefix("L.fn").strip(".")
    trace = node.meta.get("stack_trace") or node.meta.get("fwd_stack_trace") or ""
    line = _line(trace) or _line_of_forward(kind)
    return f"{module}/{node.name}{line}" if module else f"{node.name}{line}"


def _line_of_forward(kind: Any) -> str:
    code = getattr(getattr(kind, "forward", None), "__code__", None)
    return "" if code is None else f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


@lru_cache(maxsize=1024)  # the operators that one line comes to follow each other
def _line(stack: str) -> str:
    lines = re.findall(r'File "[^"]*?([^"/]+)", line (\d+)', stack)
    return f" ({lines[-1][0]}:{lines[-1][1]})" if lines else ""


def refusal(node: Node, *, has_pairs: bool = False) -> str | None:
    """Return why a node stays in PyTorch, None where it has a row that takes it.

    ``has_pairs`` says that complex numbers may be met (`Builder.has_pairs`).
    """
    builder = Builder(has_pairs=has_pairs)
    inputs: dict[Node, Any] = {}
    try:
        require(node.op == "call_function" and _row(builder, node), f"{node.target} has no row in the table")
        for one in node.all_input_nodes:
            inputs[one] = _stand_in(builder, one)
        _written(builder, node, inputs)
    except Refused as why:
        return str(why)
    except Exception as error:  # a form of the operator that its row does not know: said, counted, never hidden
        return f"its row fails: {type(error).__name__}: {error}"
    return None


def has_gaps(node: Node) -> bool:
    """Whether PyTorch expects a result that is no view, and not dense in memory: parts write none."""
    return node.target not in VIEWS and not all(
        is_dense(one) for one in _flat(fake(node)) if isinstance(one, torch.Tensor)
    )


def _stand_in(builder: Builder, node: Node) -> Any:
    value = fake(node)
    if isinstance(value, list | tuple):
        return [_tensor(one, node.name, builder.has_pairs) for one in value]
    _admit_symbols(builder, value)
    return _tensor(value, node.name, builder.has_pairs) if isinstance(value, torch.Tensor) else value


def _admit_symbols(builder: Builder, value: Any) -> None:
    for one in symbols_of(value):
        name = str(one)
        builder.symbols.setdefault(one, ir.Value(name=name, type=ir.TensorType(ir.DataType.INT64)))


def _row(builder: Builder, node: Node) -> Callable[..., Any] | None:
    """Return the row of a node: one for complex numbers where it meets any, of a builder that knows them."""
    met = [one for given in (node, *node.all_input_nodes) for one in _flat(fake(given))]
    if builder.has_pairs and any(isinstance(one, torch.Tensor) and one.dtype in COMPLEX for one in met):
        return complex_numbers.ROWS.get(node.target)
    return row_of(node.target)


def _tensor(value: Any, name: str, has_pairs: bool = False) -> Tensor:
    require(isinstance(value, torch.Tensor), "a value that is no tensor")
    require(value.device.type == "cpu", f"a tensor on '{value.device.type}': compiled parts take main memory")
    require(value.layout == torch.strided, f"a tensor of layout '{value.layout}'")
    require(not value.is_quantized and type(value).__name__ in ("FakeTensor", "Tensor", "Parameter"), "a subclass")
    is_pairs = has_pairs and value.dtype in COMPLEX
    kind = onnx_type(COMPLEX[value.dtype] if is_pairs else value.dtype)
    extents = (*value.shape, 2) if is_pairs else value.shape
    shape = ir.Shape([one if isinstance(one, int) else None for one in extents])
    return Tensor(ir.Value(name=name, shape=shape, type=ir.TensorType(kind)), value.dtype, tuple(value.shape))


def symbols_of(value: Any) -> set[sympy.Symbol]:
    """Return the symbols of a shape, or of a number."""
    if isinstance(value, torch.Tensor):
        return {one for extent in value.shape for one in symbols_of(extent)}
    return set(value.node.expr.free_symbols) if isinstance(value, torch.SymInt) else set()


def _written(builder: Builder, node: Node, values: Mapping[Node, Any]) -> Any:
    """Write one node; return its tensor, or a list of them, with shapes."""
    out = fake(node)
    results = out if isinstance(out, list | tuple) else [out]
    require(all(one is None or isinstance(one, torch.Tensor) for one in results), "a result that is no tensor")
    for one in results:
        if one is not None:
            _tensor(one, node.name, builder.has_pairs)
            _admit_shape(one)
    arguments = torch.fx.node.map_arg(node.args, lambda one: values[one])
    named = torch.fx.node.map_arg(node.kwargs, lambda one: values[one])
    builder.origin = where(node)
    row = _row(builder, node)
    assert row is not None, f"{node.target} is converted without a row"
    found = row(builder, out, *_plain(arguments), **dict(named))
    if isinstance(out, list | tuple):
        return [_shaped(one, kind) for one, kind in zip(found, out, strict=True)]
    return _shaped(found, out)


def _admit_shape(value: torch.Tensor) -> None:
    symbols = symbols_of(value)
    require(not any(str(one).startswith("u") for one in symbols), "a shape that depends on data")
    require(not symbols & _negative(symbols, [value]), "a shape that depends on a number that may be negative")


def _plain(values: Any) -> Any:
    """Lists of FX as plain ones."""
    if isinstance(values, list | tuple):
        return type(values)(_plain(one) for one in values) if type(values) in (list, tuple) else [*map(_plain, values)]
    return values


def _shaped(found: Tensor, out: torch.Tensor | None) -> Tensor | None:
    if out is None:
        return None
    assert found.dtype == out.dtype, f"a row gives {found.dtype} for {out.dtype}"
    return Tensor(found.value, found.dtype, tuple(out.shape))


def converted(
    nodes: Sequence[Node], outputs: Sequence[Node], constants: Mapping[Node, torch.Tensor],
    signature: Sequence[Node] | None = None, limits: Mapping[sympy.Expr, Any] | None = None,
) -> Converted:  # fmt: skip
    """Return the model of some nodes, in order; inputs and outputs lie as PyTorch lays them, without a copy.

    ``constants`` are nodes whose tensors do not change. With a ``signature``, the nodes of all inputs in order, it is a
    model that others than PyTorch call: inputs and outputs have their axes in the order of their shapes. ``limits`` are
    the ranges of symbols; without, those that PyTorch traced with.
    """
    inside, plain = set(nodes), signature is not None
    builder = Builder(has_pairs=plain)
    for one in outputs if plain else ():
        _tensor(fake(one), one.name)  # none of complex numbers
    read = (one for node in nodes for one in node.all_input_nodes if one not in inside)
    given = list(dict.fromkeys((*(signature or ()), *read)))
    tensors = [one for one in given if isinstance(fake(one), torch.Tensor) and one not in constants]
    wanted = {
        one for node in (*nodes, *given) for value in _flat(fake(node)) for one in symbols_of(value)
    }  # fmt: skip
    model_inputs: list[ir.Value] = []
    names: dict[sympy.Expr, str] = {}
    derived: dict[sympy.Symbol, Any] = {}
    values: dict[Node, Any] = {one: fake(one) for one in given if not isinstance(fake(one), torch.Tensor)}
    readers = {one: where(node) for node in reversed(nodes) for one in node.all_input_nodes}
    for place, node in enumerate(tensors):
        builder.origin = readers.get(node, node.name)
        values[node] = _input(builder, node, f"in_{place}", names, derived, model_inputs, plain)
    if plain:  # others than PyTorch give no number beside the tensors
        _derive(builder, {one: derived[one] for one in sorted(wanted & derived.keys() - names.keys(), key=str)})
    left = sorted(wanted - builder.symbols.keys(), key=str)
    known = [fake(one) for one in (*given, *nodes)]
    numbers = _negative(left, known)
    for one in left:
        names[one] = str(one)
        model_inputs.append(_carrier(builder, one, one in numbers))
    for node, tensor in constants.items():
        if node in given:
            builder.origin = readers[node]
            values[node] = _constant(builder, node, tensor)
    for node in nodes:
        values[node] = _item(values, node) if is_getitem(node) else _written(builder, node, values)
    results = [_output(builder, values[node], node, number, plain) for number, node in enumerate(outputs)]
    graph = ir.Graph(
        model_inputs, results, nodes=builder.nodes, initializers=list(builder.constants.values()),
        opset_imports={"": OPSET}, name="torch",
    )  # fmt: skip
    import_domains(graph, builder.nodes, {})
    return Converted(
        ir.Model(graph, ir_version=13), tuple(tensors), tuple(left), numbers, tuple(outputs),
        _ranges(names, limits or getattr(_environment(known), "var_to_range", {})),
        builder.names,
    )  # fmt: skip


def is_number(node: Node) -> bool:
    """Whether a node computes extents: PyTorch does that, and parts read them from their inputs."""
    return isinstance(fake(node), torch.SymInt | int | torch.SymBool | torch.SymFloat | bool)


def is_getitem(node: Node) -> bool:
    """Whether a node takes one result of several."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def _item(values: Mapping[Node, Any], node: Node) -> Any:
    source, place = node.args
    return values[source][place]


def _flat(value: Any) -> list[Any]:
    return [one for part in value for one in _flat(part)] if isinstance(value, list | tuple) else [value]


def _input(
    builder: Builder, node: Node, name: str, names: dict[sympy.Expr, str], derived: dict[sympy.Symbol, Any],
    inputs: list[ir.Value], plain: bool,
) -> Tensor:  # fmt: skip
    """Declare an input as it lies in memory, and transpose it where PyTorch sees its axes in another order.

    What is written for it belongs to the first node that reads it, which stays in PyTorch where no backend takes it.
    ``names`` are the extents that are known, ``derived`` the symbols that are arithmetic of one.
    """
    value = fake(node)
    given = _tensor(value, name)
    order = _order(value, plain)
    shape: list[int | str] = []
    for axis, extent in enumerate(value.shape[place] for place in order):
        if isinstance(extent, int):
            shape.append(extent)
            continue
        expression = extent.node.expr
        if expression.is_number:
            shape.append(int(expression))
            continue
        is_name = isinstance(expression, sympy.Symbol)
        shape.append(str(expression) if is_name else names.setdefault(expression, f"{name}_{axis}"))
        if is_name and expression not in names:
            names[expression] = str(expression)
            builder.symbols[expression] = _extent_of(builder, given, axis).value
        elif not is_name:
            for symbol, (factor, rest) in _linear(expression).items():
                derived.setdefault(symbol, (given, axis, factor, rest))
    given.value.shape = ir.Shape(shape)
    inputs.append(given.value)
    back = sorted(range(len(order)), key=order.__getitem__)
    moved = Tensor(given.value, given.dtype, tuple(value.shape[place] for place in order))
    return builder.transposed(moved, back)


def _carrier(builder: Builder, symbol: sympy.Symbol, is_number: bool) -> ir.Value:
    """Return an input that a symbol comes as: the number itself, or the extent of an empty tensor."""
    if is_number:
        number = ir.Value(name=f"number_{symbol}", shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.INT64))
        builder.symbols[symbol] = number
        return number
    shape, kind = ir.Shape([str(symbol), 0]), ir.TensorType(ir.DataType.UINT8)
    carrier = ir.Value(name=f"extent_{symbol}", shape=shape, type=kind)
    builder.origin = f"extent of {symbol}"
    builder.symbols[symbol] = _extent_of(builder, Tensor(carrier, torch.uint8), 0).value
    return carrier


def _extent_of(builder: Builder, source: Tensor, axis: int) -> Tensor:
    """Return the extent of an axis of an input as it lies in memory."""
    return builder.op("Shape", source, dtype=torch.int64, start=axis, end=axis + 1)


def _derive(builder: Builder, derived: Mapping[sympy.Symbol, Any]) -> None:
    """Compute symbols that no extent is, each from an extent that is a multiple of it and a number."""
    for symbol, (source, axis, factor, rest) in derived.items():
        found = builder.op("Sub", _extent_of(builder, source, axis), builder.integers([rest]))
        builder.symbols[symbol] = builder.op("Div", found, builder.integers([factor])).value


def _linear(extent: sympy.Expr) -> dict[sympy.Symbol, tuple[int, int]]:
    """Return the symbol of an extent that is a multiple of one symbol and a number, with both numbers."""
    if len(extent.free_symbols) != 1:
        return {}
    (symbol,) = extent.free_symbols
    rest = extent.subs(symbol, 0)
    factor = extent.subs(symbol, 1) - rest
    is_whole = rest.is_Integer and factor.is_Integer and factor > 0
    return {symbol: (int(factor), int(rest))} if is_whole and (factor * symbol + rest - extent).expand() == 0 else {}


def _constant(builder: Builder, node: Node, tensor: torch.Tensor) -> Tensor:
    """Take a tensor's memory as a constant, without a copy where it is dense."""
    if builder.has_pairs and tensor.dtype in COMPLEX:
        pairs = _constant(builder, node, torch.view_as_real(tensor.detach().resolve_conj()))
        return Tensor(pairs.value, tensor.dtype, tuple(tensor.shape))
    kind = onnx_type(tensor.dtype)
    tensor = tensor.detach()
    order = _order(tensor, False)
    dense = tensor.permute(order).contiguous()
    bits = BITS.get(tensor.dtype, tensor.dtype)  # of types that NumPy does not have
    array = dense.view(bits).numpy().view(kind.numpy())
    value = ir.Value(name=node.name, shape=ir.Shape(array.shape), type=ir.TensorType(kind))
    value.const_value = ir.Tensor(array, dtype=kind, name=node.name)
    builder.constants[node.name] = value
    back = sorted(range(len(order)), key=order.__getitem__)
    return builder.transposed(Tensor(value, tensor.dtype, tuple(array.shape)), back)


def _output(builder: Builder, found: Tensor, node: Node, number: int, plain: bool) -> ir.Value:
    """Give an output in the order of the memory that PyTorch expects."""
    order = _order(fake(node), plain)
    builder.origin = where(node)
    moved = builder.transposed(found, order)
    result = builder.op("Identity", moved)
    result.value.name = f"out_{number}"
    return result.value


def _environment(values: Sequence[Any]) -> Any:
    """Return what PyTorch knows of the symbols in shapes and numbers, None where there are none."""
    extents = (
        one for value in _flat(values) for one in (value.shape if isinstance(value, torch.Tensor) else [value])
    )  # fmt: skip
    return next((one.node.shape_env for one in extents if isinstance(one, torch.SymInt)), None)


def _negative(symbols: Iterable[sympy.Symbol], values: Sequence[Any]) -> frozenset[sympy.Symbol]:
    """Return those of the symbols of some values that may be negative: numbers that are no extents."""
    env = _environment(values)
    bounds = {one: env.var_to_range.get(one) for one in symbols} if env is not None else {}
    return frozenset(one for one, found in bounds.items() if found is not None and found.lower < 0)


def _ranges(names: Mapping[sympy.Expr, str], limits: Mapping[sympy.Expr, Any]) -> dict[str, tuple[int, int | None]]:
    """Return the ranges of extents by those of symbols."""
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import bound_sympy

    found: dict[str, tuple[int, int | None]] = {}
    for extent, name in names.items():
        if extent in limits or extent.free_symbols <= limits.keys():
            bounds = limits[extent] if extent in limits else bound_sympy(extent, dict(limits))
            low = 0 if bounds.lower < 0 else int(bounds.lower)
            high = None if bounds.upper in (int_oo, sympy.oo) or bounds.upper >= 2**31 else int(bounds.upper)
            found[name] = (low, high)
    return found
