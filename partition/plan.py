"""The plan: where every operator of a model goes, and why it does not go elsewhere, as data."""

from __future__ import annotations

import difflib
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from graft.core.backend_spec import OptionValue, backend_text
from graft.core.lazy import Lazy
from graft.core.reject import Reject
from graft.errors import PlanError, UnsupportedError
from graft.runtime.arguments import PATH, TEXT, TEXTS, optional, takes
from graft.runtime.system.displayed import Displayed
from graft.runtime.system.json_text import parse_json

if TYPE_CHECKING:
    from graft.runtime.program import Program

FORMAT = "graft.plan"
VERSION = 1
FAILED = "compile-failed"
NOTHING = Lazy.of("")


@dataclass(frozen=True, slots=True)
class Placement:
    """One operator: where it goes and, for every other backend, the one reason why not."""

    node: str
    op_type: str
    backend: str
    """The backend, ``runtime`` for control flow that the executor runs, "" where nobody takes the operator."""
    region: str = ""
    """The region's global symbol; "" for what stands in no region."""
    composite: str = ""
    flops: int = 0
    reasons: Mapping[str, Reject] = field(default_factory=dict)
    """By backend, in order of preference."""
    precision: str = ""
    """What the factors of the operator's products are rounded to, such as ``bf16``; "" where they stay as they are."""


class Reasons(Mapping[str, Reject]):
    """The reasons of a node by backend, found when the first is read."""

    __slots__ = ("_find", "_found")

    def __init__(self, row: Placement, find: Callable[[Placement], Mapping[str, Reject]]) -> None:
        self._found: Placement | Mapping[str, Reject] = row
        self._find = find

    def _all(self) -> Mapping[str, Reject]:
        if isinstance(self._found, Placement):
            self._found = self._find(self._found)
        return self._found

    def __getitem__(self, backend: str) -> Reject:
        return self._all()[backend]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[type[dict[str, Reject]], tuple[dict[str, Reject]]]:
        return dict, (dict(self),)


@dataclass(frozen=True, slots=True)
class Why:
    """One refusal, as `graft plan --why` prints it."""

    node: str
    op_type: str
    backend: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan(Displayed):
    """The placements of a model's operators, in the model's order, bodies after their node.

    ``model`` is a fingerprint of the model's structure; ``backends`` stand in order of preference.
    """

    backends: tuple[str, ...]
    placements: tuple[Placement, ...]
    model: str = ""
    dropped: tuple[tuple[str, str], ...] = ()
    """The composites, as (backend, name), that the plan does without: it is cheaper so."""
    gain: Lazy[str] = NOTHING
    """`faster`, found when it is first read: that takes longer than the plan, and holds the model until then."""
    options: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    """By backend, the options that it has other than by default; secrets are not among them."""
    parted: Mapping[str, str] = field(default_factory=dict)
    """By region that is a part of a larger one: why it is none with the part before it."""

    @staticmethod
    def of(program: Program) -> Plan:
        """Return the plan of what a program runs, which differs from a dry run's where a backend failed to compile."""
        return Plan.from_json(program.description.metadata["plan"])

    @property
    def faster(self) -> str:
        """What another placement would gain, in words, where it is known to; "" elsewhere."""
        return self.gain.value

    @takes(node=TEXT)
    def __getitem__(self, node: str) -> Placement:
        """Return the placement of a node; raise PlanError if the model has no such node."""
        for placement in self.placements:
            if placement.node == node:
                return placement
        near = difflib.get_close_matches(node, [placement.node for placement in self.placements], 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise PlanError(f"the plan has no node '{node}'{hint}", node=node)

    @property
    def texts(self) -> tuple[str, ...]:
        """The backends with their options, as the command line has them."""
        return tuple(map(self.text_of, self.backends))

    def text_of(self, backend: str) -> str:
        """Return a backend with its options, as the command line has it."""
        return backend_text(backend, self.options.get(backend, {}))

    @property
    def unplaced(self) -> tuple[Placement, ...]:
        """The operators that nobody takes."""
        return tuple(placement for placement in self.placements if not placement.backend)

    def require_complete(self, resort: str = "") -> None:
        """Raise UnsupportedError, with every backend's reason for the first operator that nobody takes.

        ``resort`` is a backend that takes what others leave, to be named if the plan does without it.
        """
        left = self.unplaced
        if left:
            first = left[0]
            reasons = "; ".join(f"{backend}: {reject}" for backend, reject in first.reasons.items())
            more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            hint = "" if not resort or resort in self.backends else f"; add '{resort}' to the backends"
            raise UnsupportedError(
                f"no backend takes {first.op_type} (node '{first.node}'){more}: "
                f"{reasons or 'no backend was allowed'}{hint}",
                nodes=tuple(placement.node for placement in left),
                resort=resort if hint else "",
            )

    @takes(backend=optional(TEXT))
    def regions(self, backend: str | None = None) -> tuple[str, ...]:
        """Return the regions' names (of one backend), in the model's order."""
        names = (
            placement.region
            for placement in self.placements
            if placement.region and backend in (None, placement.backend)
        )
        return tuple(dict.fromkeys(names))

    @takes(backend=TEXT)
    def coverage(self, backend: str) -> float:
        """Return the share of operators that a backend has, between 0 and 1."""
        count = sum(placement.backend == backend for placement in self.placements)
        return count / len(self.placements) if self.placements else 0.0

    @takes(backend=optional(TEXT))
    def why(self, backend: str | None = None) -> tuple[Why, ...]:
        """Return every refusal (of one backend), in the model's order, backends in order of preference."""
        return tuple(
            Why(placement.node, placement.op_type, name, reject.code, reject.text)
            for placement in self.placements
            for name, reject in placement.reasons.items()
            if backend in (None, name)
        )

    @takes(backend=TEXT)
    def reasons(self, backend: str) -> dict[str, int]:
        """Return how often a backend gave each reason code, most frequent first."""
        counts = Counter(row.code for row in self.why(backend))
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def summary(self) -> str:
        """Return one line: ``onednn 118/142 ops (83.1 %, 2 regions, 94 % of FLOPs) · llvm 24/142 · ...``."""
        total = len(self.placements)
        counts = Counter(placement.backend for placement in self.placements)
        parts: list[str] = []
        for name in (*self.backends, *sorted(set(counts) - set(self.backends))):
            text = self.text_of(name)
            if not parts:
                parts.append(f"{text} {self._first(name, counts[name], total)}")
            elif counts[name]:
                parts.append(f"{text or 'nobody'} {counts[name]}/{total}")
        top = (
            [f"{code} {count}" for code, count in list(self.reasons(self.backends[0]).items())[:3]]
            if self.backends
            else []
        )
        parts += [self._rounded(precision) for precision in sorted({row.precision for row in self.placements} - {""})]
        for name in self.backends:
            if failed := sum(row.code == FAILED for row in self.why(name)):
                parts.append(f"{name} failed to compile {failed}")
        if top:
            parts.append(f"top reasons: {', '.join(top)}")
        if self.faster:
            parts.append(self.faster)
        return " · ".join(parts)

    def _first(self, name: str, count: int, total: int) -> str:
        regions = len(self.regions(name))
        facts = [f"{100 * self.coverage(name):.1f} %", f"{regions} region{'' if regions == 1 else 's'}"]
        flops = sum(placement.flops for placement in self.placements)
        if flops:
            own = sum(placement.flops for placement in self.placements if placement.backend == name)
            facts.append(f"{100 * own / flops:.0f} % of FLOPs")
        return f"{count}/{total} ops ({', '.join(facts)})"

    def _rounded(self, precision: str) -> str:
        rows = [placement for placement in self.placements if placement.precision == precision]
        flops, own = (sum(row.flops for row in some) for some in (self.placements, rows))
        share = f" ({100 * own / flops:.0f} % of FLOPs)" if flops else ""
        return f"products in {precision} {len(rows)}/{len(self.placements)}{share}"

    @takes(nodes=TEXTS, precision=TEXT)
    def with_precision(self, nodes: Collection[str], precision: str) -> Plan:
        """Return the plan in which the products of some nodes are computed in a precision."""
        rows = (replace(row, precision=precision if row.node in nodes else row.precision) for row in self.placements)
        return replace(self, placements=tuple(rows))

    def to_json(self) -> str:
        """Return the plan as JSON that `from_json` reads back."""
        nodes = [
            {
                "node": placement.node,
                "op": placement.op_type,
                "backend": placement.backend,
                "region": placement.region,
                "composite": placement.composite,
                "flops": placement.flops,
                "reasons": {name: [reject.code, reject.text] for name, reject in placement.reasons.items()},
                **({"precision": placement.precision} if placement.precision else {}),
            }
            for placement in self.placements
        ]
        content = {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "backends": self.backends,
            "dropped": self.dropped,
            **({"faster": self.faster} if self.faster else {}),
            **({"options": self.options} if self.options else {}),
            **({"parted": self.parted} if self.parted else {}),
            "nodes": nodes,
        }
        return json.dumps(content, indent=1, ensure_ascii=False)

    @staticmethod
    @takes(text=TEXT)
    def from_json(text: str) -> Plan:
        """Read a plan; raise PlanError if the text is not one."""
        try:
            content = parse_json(text)
        except ValueError as error:
            raise PlanError(f"the plan is not JSON: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise PlanError(f"the file is not a plan: its format is not '{FORMAT}'")
        if content.get("version") != VERSION:
            raise PlanError(f"the plan has version {content.get('version')}, this Graft reads version {VERSION}")
        try:
            placements = tuple(_placement(row) for row in content["nodes"])
            dropped = tuple((str(backend), str(name)) for backend, name in content.get("dropped", ()))
            return Plan(tuple(map(str, content["backends"])), placements, str(content["model"]), dropped,
                        Lazy.of(str(content.get("faster", ""))), _options(content.get("options", {})),
                        {str(name): str(why) for name, why in content.get("parted", {}).items()})  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"the plan is damaged: {type(error).__name__} {error}") from error

    @staticmethod
    @takes(path=PATH)
    def load(path: str | os.PathLike[str]) -> Plan:
        """Read the plan in a file; raise PlanError, naming the file, if it cannot be read or holds none."""
        try:
            return Plan.from_json(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise PlanError(f"plan '{path}' cannot be read: {error.strerror}", path=str(path)) from error
        except UnicodeDecodeError as error:
            raise PlanError(
                f"'{path}' holds no plan: it is no text; give what `graft plan -o` wrote", path=str(path)
            ) from error
        except PlanError as error:
            raise PlanError(f"'{path}': {error}", path=str(path)) from error


def _options(content: object) -> dict[str, dict[str, OptionValue]]:
    if not isinstance(content, dict) or not all(isinstance(row, dict) for row in content.values()):
        raise TypeError("the options are no options of backends by name")
    return content


def _placement(row: Mapping[str, object]) -> Placement:
    reasons = row["reasons"]
    flops = row["flops"]
    if not isinstance(reasons, dict) or not isinstance(flops, int):
        raise TypeError(f"node '{row['node']}' has no proper reasons or flops")
    return Placement(
        str(row["node"]),
        str(row["op"]),
        str(row["backend"]),
        str(row["region"]),
        str(row["composite"]),
        flops,
        {str(name): _reject(pair) for name, pair in reasons.items()},
        str(row.get("precision", "")),
    )


def _reject(pair: Sequence[str]) -> Reject:
    code, text = pair
    return Reject(code, text)
