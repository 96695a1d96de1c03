"""The registry of custom datatypes: names, formats, and the lowering of every operation.

A type string ``custom[name]bits`` names a datatype and a width. An operation of it is computed by the lowering that was
registered for it, by the datatype's `Format` if it has one, or from other operations (``GT`` from ``LT``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graft.core.types import FLOATS, SIGNED, UNSIGNED, is_custom, parse_custom
from graft.errors import DatatypeError
from graft.runtime.arguments import FUNCTION, TEXT, WHOLE, WIDTHS, instance, optional, takes

if TYPE_CHECKING:
    from graft.datatypes.formats import Format
    from graft.datatypes.lowering import Lowering

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*")
ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Min", "Max", "Fma")
COMPARISONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
FUNCTIONS = (
    "Sqrt", "Floor", "Ceil", "Trunc", "Round", "Exp", "Exp2", "Expm1", "Log", "Log2", "Log1p", "Tanh", "Sigmoid", "Erf",
    "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Pow", "Rsqrt",
)  # fmt: skip
OPERATIONS = frozenset({*ARITHMETIC, *COMPARISONS, *FUNCTIONS, "Cast", "Lowest", "Highest"})
"""The operations that a lowering may be registered for."""
ORDINARY = ("bool", *sorted(FLOATS), *sorted(SIGNED), *sorted(UNSIGNED))
"""The types beside custom ones that a Cast may be from or to."""


@dataclass(slots=True)
class Datatype:
    """A registered name: who registered it, the optional code of older tools, formats by width, lowerings."""

    name: str
    code: int | None = None
    owner: str = "this program"
    formats: Callable[[int], Format | None] | None = None
    widths: tuple[int, ...] = ()
    """The widths that it has, any if none are stated; beside ``formats``, which decide, the usual ones, for lists."""
    lowerings: dict[tuple[str, str, str], Lowering] = field(default_factory=dict)
    """By (backend or "" for any, operation, source datatype); the source is "" but for casts."""
    codes: dict[tuple[str, str, str], int | None] = field(default_factory=dict, repr=False, compare=False)
    """The codes of constants that were asked for (`graft.datatypes.constants`), by type, backend and number."""

    def format(self, bits: int) -> Format | None:
        """Return the format of this width, None if the datatype has only registered lowerings.

        Raise DatatypeError for a width that the datatype does not have.
        """
        found = None if self.formats is None else self.formats(bits)
        if found is None and (self.formats is not None or (self.widths and bits not in self.widths)):
            known = ", ".join(f"custom[{self.name}]{width}" for width in self.widths)
            raise DatatypeError(
                f"datatype '{self.name}' has no width {bits}; its types are {known}", datatype=self.name
            )
        return found


class DatatypeRegistry:
    """Datatypes by name. Registering a name twice is an error that names both owners."""

    def __init__(self) -> None:
        self._rows: dict[str, Datatype] = {}
        self.discover: Callable[[], None] | None = None
        """Called once, when a name is not known, to register what plugins bring; the front door sets it."""

    @takes(name=TEXT, code=optional(WHOLE), format=optional(FUNCTION), widths=WIDTHS, owner=TEXT)
    def register(
        self,
        name: str,
        code: int | None = None,
        *,
        format: Callable[[int], Format | None] | None = None,
        widths: tuple[int, ...] = (),
        owner: str = "this program",
    ) -> Datatype:
        """Register a datatype; raise DatatypeError if the name or the code is taken, or is no name.

        ``format`` gives the `Format` of a width (None for a width that it does not have). Without it every operation
        needs a lowering, given by `register_op`, and it has the ``widths`` that are given, any where none are.
        ``code`` is kept for those who come from TVM; nothing needs it.
        """
        if _NAME.fullmatch(name) is None:
            raise DatatypeError(
                f"'{name}' cannot name a datatype; use letters, digits and single underscores", datatype=name
            )
        if name in self._rows:
            raise DatatypeError(
                f"datatype '{name}' is registered already, by {self._rows[name].owner}; {owner} must choose another "
                "name",
                datatype=name,
            )
        taken = next((row for row in self._rows.values() if code is not None and row.code == code), None)
        if taken is not None:
            raise DatatypeError(
                f"code {code} belongs to datatype '{taken.name}', registered by {taken.owner}; choose another code for "
                f"'{name}' or leave it out",
                datatype=name,
                code=code,
            )
        self._rows[name] = Datatype(name, code, owner, format, widths)
        return self._rows[name]

    def admit(self, datatype: object, owner: str) -> None:
        """Register a whole `Datatype` that a plugin brings; one that it has brought before is kept.

        Raise DatatypeError for anything else than a `Datatype`, and for a name that another owner has.
        """
        if not isinstance(datatype, Datatype):
            raise DatatypeError(
                f"{owner}: graft_datatypes gave {type(datatype).__name__}; give graft.datatypes.Datatype objects",
                owner=owner,
            )
        known = self._rows.get(datatype.name)
        if known is None or known.owner != owner:
            format, widths = datatype.formats, datatype.widths
            row = self.register(datatype.name, datatype.code, format=format, widths=widths, owner=owner)
            row.lowerings.update(datatype.lowerings)

    @takes(op=TEXT, backend=optional(TEXT), datatype=TEXT, source=optional(TEXT))
    def register_op(
        self, lowering: Lowering, op: str, backend: str | None = None, datatype: str = "", source: str | None = None
    ) -> None:
        """Register how an operation of a datatype is computed: by every backend that generates code, or by one alone.

        What is registered for a ``backend`` by its name goes before what is registered for any (None).

        ``datatype`` is the name of the result's datatype; of a Cast it is what is cast to, and ``source`` what is cast
        from: each may be an ordinary type, as in ``register_op(lowering, "Cast", None, "float32", "posit")``. Raises
        DatatypeError for an unknown operation or datatype, or if the lowering is no lowering.
        """
        from graft.datatypes.lowering import lowering_of

        if op not in OPERATIONS:
            near = difflib.get_close_matches(op, OPERATIONS, 1)
            hint = f"did you mean '{near[0]}'" if near else f"operations are {', '.join(sorted(OPERATIONS))}"
            raise DatatypeError(f"there is no operation '{op}' of custom datatypes; {hint}", operation=op)
        if op == "Cast" and source is None:
            raise DatatypeError(
                f"a Cast to '{datatype}' needs the datatype that it casts from; write register_op(lowering, 'Cast', "
                f"{backend!r}, '{datatype}', 'float32')",
                operation=op,
            )
        owner = source if op == "Cast" and datatype not in self._rows and source is not None else datatype
        row = self._row(owner)
        for name in (datatype, source) if op == "Cast" else ():
            self._require_type(name or "")
        cast = f"{source}->{datatype}" if op == "Cast" else ""
        row.lowerings[(backend or "", op, cast)] = lowering_of(lowering, op, owner)
        row.codes.clear()

    def lowering(self, op: str, backend: str | None, dtype: str, source: str | None = None) -> Lowering | None:
        """Return what was registered for an operation of a type, None if nothing was.

        For no backend in particular (None), what was registered for one will do where nothing is for any. ``dtype``
        and ``source`` (of a Cast) are type names, custom or ordinary.
        """
        names = [parse_custom(kind)[0] if kind is not None and is_custom(kind) else kind for kind in (dtype, source)]
        cast = f"{names[1]}->{names[0]}" if op == "Cast" else ""
        for kind in (dtype, source):
            if kind is not None and is_custom(kind):
                known = self.of(kind).lowerings
                whose = (backend, "") if backend else ("", *(one[0] for one in known))
                found = next((known[key] for name in whose if (key := (name, op, cast)) in known), None)
                if found is not None:
                    return found
        return None

    def of(self, dtype: str) -> Datatype:
        """Return the datatype of ``custom[name]bits``; raise DatatypeError naming the nearest name."""
        return self._row(parse_custom(dtype)[0])

    def format(self, dtype: str) -> Format | None:
        """Return the format of ``custom[name]bits``, None if the datatype has only registered lowerings."""
        name, bits = parse_custom(dtype)
        return self._row(name).format(bits)

    def __iter__(self) -> Iterator[Datatype]:
        return iter(self._rows.values())

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def _require_type(self, name: str) -> None:
        """Raise DatatypeError for an end of a Cast that is neither a registered datatype nor a number of ONNX."""
        if name not in ORDINARY and name not in self._rows:
            near = difflib.get_close_matches(name, (*ORDINARY, *self._rows), 1)
            hint = f"did you mean '{near[0]}'" if near else f"ordinary types are {', '.join(ORDINARY)}"
            raise DatatypeError(f"'{name}' is neither a registered datatype nor a type of ONNX; {hint}", datatype=name)

    def _row(self, name: str) -> Datatype:
        row = self._rows.get(name)
        if row is None and self.discover is not None:
            discover, self.discover = self.discover, None
            discover()
            row = self._rows.get(name)
        if row is None:
            near = difflib.get_close_matches(name, self._rows, 1)
            hint = f"did you mean '{near[0]}'" if near else f"registered are {', '.join(sorted(self._rows)) or 'none'}"
            raise DatatypeError(f"datatype '{name}' is not registered; {hint}", datatype=name)
        return row


DATATYPES = DatatypeRegistry()
"""The production registry; `graft.datatypes.shipped` fills it."""


REGISTRY = instance(DatatypeRegistry, wanted="a DatatypeRegistry, as graft.datatypes.DATATYPES is")
"""What functions take as their registry."""
