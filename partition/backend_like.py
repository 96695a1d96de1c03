"""What partitioning asks of a backend, and how it asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graft.core.backend_spec import OptionValue
from graft.core.graph.view import NodeView
from graft.core.reject import Reject, plain
from graft.errors import PatternError, PluginError
from graft.patterns.composite import Composite
from graft.patterns.match import Match


class BackendLike(Protocol):
    """The part of a backend that partitioning uses.

    It may have more members: ``control_flow = True`` says that it takes If, Loop and Scan whole, ``packed = True`` that
    it takes strings, sequences and optionals, ``fallback = True`` that it is there to take what others leave,
    ``cost(region)`` and ``cost_on(region, target)`` price a region for placement by cost, ``yields(node)`` says what it
    takes only in passing, and ``fuses = True`` that it takes over what others yield, ``loses_nan`` which operators it
    computes otherwise than ONNX says where a NaN comes; ``device`` is the memory that its regions compute in, and
    ``shown_options`` what it is configured to, other than by default.
    """

    @property
    def name(self) -> str:
        """The backend's name."""
        ...

    @property
    def patterns(self) -> Sequence[Composite]:
        """The composites in order of preference."""
        ...

    def supports(self, node: NodeView) -> bool | Reject:
        """Return True to take a single node, or why not."""
        ...

    def available(self) -> str | None:
        """Return None if the backend can run here, else why not."""
        ...


MAIN_MEMORY = "cpu"


def memory_of(backend: BackendLike) -> str:
    """Return the memory that a backend's regions compute in."""
    return str(getattr(backend, "device", MAIN_MEMORY))


def options_of(backend: BackendLike) -> dict[str, OptionValue]:
    """Return the options that a backend has other than by default, secrets left out."""
    return dict(getattr(backend, "shown_options", {}))


def ask_supports(backend: BackendLike, node: NodeView) -> Reject | None:
    """Return None if the backend takes the node, else its reason; a broken answer raises PluginError."""
    try:
        answer = plain(backend.supports(node))
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(
            f"backend '{backend.name}' raised {type(error).__name__} when asked for {node.where}: {error}",
            plugin=backend.name,
            node=node.name,
        ) from error
    if answer is True or isinstance(answer, Reject):
        return answer if isinstance(answer, Reject) else None
    if answer is False:
        return Reject("no-pattern", f"{backend.name} gave no reason")
    raise PluginError(
        f"backend '{backend.name}' answered {answer!r} for {node.where}; supports(node) returns True or a Reject",
        plugin=backend.name,
        node=node.name,
    )


def ask_check(backend: str, composite: Composite, match: Match) -> Reject | None:
    """Return None if the composite's check accepts the match, else its reason; a broken check raises PatternError."""
    if composite.check is None:
        return None
    try:
        answer = plain(composite.check(match))
    except PluginError:
        raise
    except Exception as error:
        raise PatternError(
            f"the check of composite '{composite.name}' (backend '{backend}') raised {type(error).__name__} "
            f"at {match.root.where}: {error}",
            composite=composite.name,
            plugin=backend,
        ) from error
    if answer is None or answer is True:
        return None
    if isinstance(answer, Reject):
        return answer
    if answer is False:
        return Reject("no-pattern", f"the check of {composite.name} gave no reason")
    raise PatternError(
        f"the check of composite '{composite.name}' (backend '{backend}') answered {answer!r} at {match.root.where}; "
        "a check returns None or True to accept, or a Reject",
        composite=composite.name,
        plugin=backend,
    )
