"""Programs as data: procedures of tensors and calls, and the modules that the calls run.

These are the contents of an artifact's ``manifest.json``; `to_json` and `from_json` are exact inverses. The native
executor reads the same structure, so a change here is a change of the format (`FORMAT_VERSION`).

Invariants of a `Procedure`:

1. Every index into ``tensors`` is in range; -1 stands for an absent optional input of a call.
2. Every byte of a tensor is written by exactly one call, or is of an input or a constant. A view points at an earlier
   tensor that is no view. Views of parts may be written, each by a call of its own.
3. Calls stand in execution order: the bytes of a tensor are written before it is read.
4. Arena tensors that are live at the same time do not overlap; offsets are multiples of 64; each lies inside
   ``arena_bytes``. But an output may stand exactly where an input that ``Call.in_place`` names does, if the call uses
   it last. In a procedure with symbols they have no offsets, for the runtime plans its memory; unless it has
   ``arena_bytes``: then they were planned for the largest shapes, and a tensor with symbols has ``room`` bytes.
5. Storage ``dynamic`` is memory that the callee asks for; its shape is None or has a symbol. Besides, ``shape`` is None
   only for inputs and outputs of unknown rank.
6. Symbols have different names, and 0 <= low <= high. Each is bound by one place: an axis of an input, or of a tensor
   that is ``dynamic`` or an output, whose extent is that symbol alone. A tensor is used when all symbols of its shape
   and values are bound: those of inputs when the procedure begins, others when the call that writes the binding tensor
   is done. What else that call writes may depend on them: the callee asks for its memory too.
7. A view that has a symbol in its shape, or looks at a tensor that has one, is all of that tensor.
8. Tensors of storage ``extents`` are int64 or int32, have a shape of numbers, and one value for each element.
9. An ``append`` makes an output of an input: no view of either is a tensor, nothing else reads the input or writes the
   output, and what reads the output is a function that reads its strides (`Call`).
10. A variant of the entry has as many inputs and outputs as it, of the same types and ranks. Its inputs have numbers
   where the entry's have them, and where the entry has a symbol a number or a symbol within that range, in all places
   the same.
11. Tensors of a call are on one device, but for a ``copy``; those of control flow and of an ``append``, and the inputs
   and outputs of bodies, are in main memory, and so are tensors of storage ``dynamic`` and ``extents``. A view is where
   its tensor is. Each device has an arena of its own. What a copy reads in main memory for a device is live until the
   procedure ends. An output on a device has storage ``output`` and a shape that is known when the procedure begins.
12. ``equations`` are over the procedure's symbols. Each is checked when the last of its symbols is bound, which is
   before any call that begins later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from graft.runtime.c_source import CSource
from graft.runtime.extent_table import ExtentReader, ExtentWriter
from graft.runtime.extents import Extent, ExtentEquation

if TYPE_CHECKING:
    from graft.runtime._native import Artifact

FORMAT_VERSION = 2
DEVICE_FORMAT_VERSION = 3
"""Of programs that use devices: who reads only older formats would take their tensors to be in main memory."""
EQUATION_FORMAT_VERSION = 4
"""Of programs with equations of extents: who reads only older formats would not check them."""
ABI_VERSION = 2
ALIGNMENT = 64

Schedule = Mapping[str, int | str | Mapping[str, str]]
"""What a report says of how a kernel was made."""
MOST_DIMENSIONS = 32
"""The highest rank of a tensor (`GRAFT_MAXIMUM_DIMENSIONS`)."""
Storage = Literal["input", "output", "constant", "arena", "view", "dynamic", "extents"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a procedure: name, element type, shape and where its bytes lie.

    ``storage`` decides the other fields: ``input``/``output`` use ``index``; ``constant`` uses ``constant`` (key
    into the constant store); ``arena`` uses ``offset`` (bytes); ``view`` uses ``of`` (tensor index) and ``offset``
    (bytes, relative to that tensor); ``extents`` uses ``values`` (its elements). All tensors are contiguous in
    row-major order, but for what an ``append`` grows.
    """

    name: str
    dtype: str
    shape: tuple[Extent, ...] | None
    storage: Storage
    index: int = -1
    constant: str = ""
    offset: int = 0
    of: int = -1
    values: tuple[Extent, ...] = ()
    room: int = 0
    """Of an arena tensor with symbols whose place was planned for the largest shapes: the bytes that it may take."""
    device: int = 0
    """Where its bytes lie: 0 is main memory, others count `ProgramDescription.devices` from 1."""

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as numbers; None where it has others or is unknown."""
        numbers = tuple(extent for extent in self.shape or () if isinstance(extent, int))
        return numbers if self.shape is not None and len(numbers) == len(self.shape) else None


def shape_texts(tensor: TensorSpec) -> tuple[int | str, ...] | None:
    """Return a tensor's shape with numbers as they are and other extents as texts; None where it is unknown."""
    shape = tensor.shape
    return None if shape is None else tuple(one if isinstance(one, int) else str(one) for one in shape)


@dataclass(frozen=True, slots=True)
class ExtentBound:
    """The least and the greatest (None: open) that an operation on symbols may be; checked when these are bound."""

    extent: Extent
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class SymbolSpec:
    """A symbol of a procedure: its range (``high`` is None where it is open), and the axis that binds it."""

    name: str
    low: int = 0
    high: int | None = None
    tensor: int = -1
    axis: int = 0


@dataclass(frozen=True, slots=True)
class AxisReason:
    """Why an axis of an input has the extent that its shape says: what a node demands, for the message alone."""

    tensor: int
    axis: int
    says: tuple[str, str, str]
    """What stands before the extent that came, between it and the one that is wanted, and behind that."""


@dataclass(frozen=True, slots=True)
class Call:
    """One step of a procedure.

    kind ``call``: run ``function`` of module number ``module`` on ``inputs`` giving ``outputs``.
    kind ``copy``: copy the one input to the one output.
    kind ``append``: ``inputs`` = (an input of the procedure, what comes behind it along ``axis``); the output is both.
    The caller may give input and output as the first rows of one buffer with room for more: then only new rows are
    written, and those who read the output find the distance of one block of rows from the next in its strides.
    kind ``if``: ``inputs[0]`` is the condition; ``bodies`` = (then, else) procedure numbers; ``arguments`` holds,
    per body, the tensor indices passed as that body's inputs; outputs in order.
    kind ``loop``: ONNX Loop. ``inputs`` = (trip count or -1, condition or -1, carried...); ``bodies`` = (body,);
    ``arguments[0]`` = captured tensors, passed after (iteration, condition, carried...); outputs = carried..., scans...
    kind ``scan``: ONNX Scan. ``inputs`` = states..., scan inputs...; ``bodies`` = (body,); ``arguments[0]`` = captured
    tensors, passed after (states..., slices...); ``attributes`` = {"scan_inputs": n, "input_axes": [...],
    "input_directions": [...], "output_axes": [...], "output_directions": [...]}.

    ``in_place`` (kind ``call``) holds the positions of inputs whose bytes the one output may be written over: the
    function has read an element whenever it writes the one at its place. ``schedule`` says how a kernel was made: its
    ``strategy`` and the knobs of that, what it is said to cost (``cycles``), and why others were not (``refused``, by
    strategy); it is for people.
    """

    kind: Literal["call", "copy", "append", "if", "loop", "scan"]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    module: int = -1
    function: str = ""
    bodies: tuple[int, ...] = ()
    arguments: tuple[tuple[int, ...], ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    origin: tuple[str, ...] = ()
    flops: int = 0
    in_place: tuple[int, ...] = ()
    schedule: Schedule = field(default_factory=dict)
    axis: int = 0
    """Of an append."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """A list of calls over a table of tensors; procedure 0 of a program is its entry."""

    name: str
    tensors: tuple[TensorSpec, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    calls: tuple[Call, ...]
    arena_bytes: int = 0
    arena_bound: int = 0
    """The lower bound of ``arena_bytes``: the largest sum of bytes live at one time."""
    symbols: tuple[SymbolSpec, ...] = ()
    """With symbols, the runtime plans the arena for each binding of them; then both numbers above are 0. Where they are
    not, it was planned once for the largest shapes."""
    bounds: tuple[ExtentBound, ...] = ()
    """What operations on symbols may be, beside the ranges of each of these: ``past + seq`` at most 1024."""
    equations: tuple[ExtentEquation, ...] = ()
    """What the nodes demand of extents that was not proven when they were compiled."""
    reasons: tuple[AxisReason, ...] = ()
    """Of axes of inputs that nodes demand to have the extents of others."""
    device_arenas: tuple[int, ...] = ()
    """The bytes of the arenas on devices; empty where there are none, or they are planned for each binding."""


@dataclass(frozen=True, slots=True)
class Device:
    """A memory besides main memory that a program computes in, and the plugin whose loader's library has its table."""

    name: str
    plugin: str = ""
    install: str = ""


SECRET: Mapping[str, Any] = {"secret": True}
"""What stands for an option's value that is not saved, and that whoever loads the program gives again."""


@dataclass(frozen=True, slots=True)
class Module:
    """What a backend makes of a region: code or data of one ``kind``, and the functions in it.

    ``data`` is opaque to everyone but the loader of ``kind``. ``constants`` are handed over to the loader once, at
    load, by name. ``plugin`` is the entry-point name that provides the loader, ``install`` the line that installs it.
    ``backend`` is the plugin's backend that made it, with these ``options``, as JSON values or `SECRET`.
    """

    name: str
    kind: str
    functions: tuple[str, ...]
    data: bytes
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    plugin: str = ""
    install: str = ""
    bound: str = ""
    """Why the module works in this process only ("" if it works everywhere); such a program cannot be saved."""
    source: CSource | None = None
    """The same functions in C, for exports; None where there is no such text."""
    backend: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProgramDescription:
    """Everything that the runtime needs: procedures, modules and constants by key."""

    procedures: tuple[Procedure, ...]
    modules: tuple[Module, ...]
    constants: Mapping[str, np.ndarray]
    """Keyed by content hash; `Module.constants` of the modules are merged into the same store by the writer."""
    targets: tuple[Mapping[str, Any], ...] = ()
    """For each native target: {"arch": "x86_64", "features": ["avx512f", ...]}; checked at load."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Facts for people and tools (plan summary, graft version); the executor ignores them."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further members of the artifact by path, such as the partitioned model; the executor ignores them."""
    artifact: Artifact | None = None
    """Whose constants are still to be checked, which the program does when it first runs; None if nothing is left."""
    variants: tuple[int, ...] = ()
    """Numbers of procedures that are the entry for some of its shapes (invariant 10): the first whose inputs' shapes
    fit runs, and procedure 0 where none does."""
    devices: tuple[Device, ...] = ()
    """The memories other than main memory that tensors are in (invariant 11)."""


def procedures_to_json(description: ProgramDescription, *, schedules: bool = True) -> dict[str, Any]:
    """Return the fields of a manifest that say what runs: ``procedures``, and ``variants`` where there are any.

    Without ``schedules`` they are what the native runtime reads, which is half of it.
    """
    rows: dict[str, Any] = {
        "procedures": [procedure_to_json(one, schedules=schedules) for one in description.procedures]
    }
    if description.devices:
        rows["devices"] = [asdict(device) for device in description.devices]
    return {**rows, "variants": list(description.variants)} if description.variants else rows


def procedure_to_json(procedure: Procedure, *, schedules: bool = True) -> dict[str, Any]:
    """Return the JSON form of a procedure; fields at their default are left out."""
    extents = ExtentWriter(symbol.name for symbol in procedure.symbols)
    row: dict[str, Any] = {
        "name": procedure.name,
        "tensors": [_tensor_to_json(tensor, extents, _is_planned_later(procedure)) for tensor in procedure.tensors],
        "inputs": list(procedure.inputs),
        "outputs": list(procedure.outputs),
        "calls": [_call_to_json(call, schedules=schedules) for call in procedure.calls],
    }
    if not _is_planned_later(procedure):
        row |= {"arena_bytes": procedure.arena_bytes, "arena_bound": procedure.arena_bound}
    if procedure.device_arenas:
        row["device_arenas"] = list(procedure.device_arenas)
    if procedure.symbols:
        bounds = [{**asdict(one), "extent": extents.dimension(one.extent)} for one in procedure.bounds]
        rows: dict[str, Any] = {"symbols": [asdict(symbol) for symbol in procedure.symbols], "extents": extents.rows}
        equations = [_equation_to_json(one, extents) for one in procedure.equations]
        rows |= {"bounds": bounds} if bounds else {}
        rows |= {"equations": equations} if equations else {}
        rows |= (
            {"reasons": [{**asdict(one), "says": list(one.says)} for one in procedure.reasons]}
            if procedure.reasons
            else {}
        )
        return row | rows
    return row


def _is_planned_later(procedure: Procedure) -> bool:
    return bool(procedure.symbols) and not procedure.arena_bytes and not any(procedure.device_arenas)


def procedure_from_json(data: Mapping[str, Any]) -> Procedure:
    """Return the procedure that `procedure_to_json` wrote; raise ValueError for extents that are none."""
    symbols = tuple(
        SymbolSpec(row["name"], row["low"], row["high"], row["tensor"], row["axis"]) for row in data.get("symbols", ())
    )
    extents = ExtentReader((symbol.name for symbol in symbols), data.get("extents", ()))
    return Procedure(
        name=data["name"],
        tensors=tuple(_tensor_from_json(tensor, extents) for tensor in data["tensors"]),
        inputs=tuple(data["inputs"]),
        outputs=tuple(data["outputs"]),
        calls=tuple(_call_from_json(call) for call in data["calls"]),
        arena_bytes=data.get("arena_bytes", 0) if symbols else data["arena_bytes"],
        arena_bound=data.get("arena_bound", 0) if symbols else data["arena_bound"],
        symbols=symbols,
        bounds=tuple(
            ExtentBound(extents.extent(row["extent"]), row["low"], row["high"]) for row in data.get("bounds", ())
        ),
        device_arenas=tuple(data.get("device_arenas", ())),
        equations=tuple(
            ExtentEquation(
                extents.extent(row["left"]), extents.extent(row["right"]), row["kind"], _message(row["says"])
            )
            for row in data.get("equations", ())
        ),
        reasons=tuple(AxisReason(row["tensor"], row["axis"], _message(row["says"])) for row in data.get("reasons", ())),
    )


def _message(parts: Sequence[str]) -> tuple[str, str, str]:
    if not isinstance(parts, list) or len(parts) != 3 or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{parts!r} are not the three parts of a message")
    return parts[0], parts[1], parts[2]


def _equation_to_json(equation: ExtentEquation, extents: ExtentWriter) -> dict[str, Any]:
    left, right = extents.dimension(equation.left), extents.dimension(equation.right)
    return {"left": left, "right": right, "kind": equation.kind, "says": list(equation.says)}


def _tensor_to_json(tensor: TensorSpec, extents: ExtentWriter, is_planned_later: bool) -> dict[str, Any]:
    shape = extents.shape(tensor.shape)
    row: dict[str, Any] = {"name": tensor.name, "dtype": tensor.dtype, "shape": shape, "storage": tensor.storage}
    match tensor.storage:
        case "input" | "output":
            row["index"] = tensor.index
        case "constant":
            row["constant"] = tensor.constant
        case "arena":
            row |= {} if is_planned_later else {"offset": tensor.offset}
            row |= {"room": tensor.room} if tensor.room else {}
        case "view":
            row |= {"of": tensor.of, "offset": tensor.offset}
        case "dynamic":
            pass
        case "extents":
            row["values"] = extents.shape(tensor.values)
    if tensor.device:
        row["device"] = tensor.device
    return row


def _tensor_from_json(row: Mapping[str, Any], extents: ExtentReader) -> TensorSpec:
    rest = {key: row[key] for key in ("index", "constant", "offset", "of", "room", "device") if key in row}
    values = extents.shape(row.get("values", ())) or ()
    return TensorSpec(row["name"], row["dtype"], extents.shape(row["shape"]), row["storage"], **rest, values=values)


def _call_to_json(call: Call, *, schedules: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": call.kind, "inputs": list(call.inputs), "outputs": list(call.outputs)}
    if call.kind == "call":
        row |= {"module": call.module, "function": call.function}
    if call.kind == "append":
        row["axis"] = call.axis
    if call.bodies:
        row |= {"bodies": list(call.bodies), "arguments": [list(row) for row in call.arguments]}
    if call.attributes:
        row["attributes"] = dict(call.attributes)
    if call.origin:
        row["origin"] = list(call.origin)
    if call.flops:
        row["flops"] = call.flops
    if call.in_place:
        row["in_place"] = list(call.in_place)
    if call.schedule and schedules:
        row["schedule"] = dict(call.schedule)
    return row


def _call_from_json(row: Mapping[str, Any]) -> Call:
    return Call(
        kind=row["kind"],
        inputs=tuple(row["inputs"]),
        outputs=tuple(row["outputs"]),
        module=row.get("module", -1),
        function=row.get("function", ""),
        bodies=tuple(row.get("bodies", ())),
        arguments=tuple(tuple(indices) for indices in row.get("arguments", ())),
        attributes=dict(row.get("attributes", {})),
        origin=tuple(row.get("origin", ())),
        flops=row.get("flops", 0),
        in_place=tuple(row.get("in_place", ())),
        schedule=dict(row.get("schedule", {})),
        axis=row.get("axis", 0),
    )


def contiguous_bytes(dtype_bytes: int, shape: Sequence[int]) -> int:
    """Return the size in bytes of a contiguous tensor."""
    return int(np.prod(shape, dtype=np.int64)) * dtype_bytes
