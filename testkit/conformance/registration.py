"""Level 0: the backend is listed from metadata, loads, answers every question, and says why it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from graft.errors import GraftError
from graft.plugins.registry.doctor import examine
from graft.runtime.foreign import one_line
from graft.testkit.conformance import processes
from graft.testkit.conformance.cases.outcome import Case, Failure, NotClaimed
from graft.testkit.conformance.kit import Kit, silent

CHECKS = ("listed", "loaded", "examined", "available", "asked-twice", "fingerprint")


def subjects(kit: Kit) -> list[str]:
    """Return the checks."""
    return ["registration"]


def cases(kit: Kit, subject: str) -> Iterator[Case]:
    """Give the checks in order."""
    for name, check in zip(CHECKS, (_listed, _loaded, _examined, _available, _asked_twice, _fingerprint), strict=True):
        yield Case(f"0/{subject}/{name}", partial(check, kit))


def _plugin(kit: Kit) -> str:
    """Return the name of the plugin that brings the backend."""
    for plugin in kit.manager.plugins():
        if any(backend.name == kit.name for backend in plugin.backends):
            return plugin.name
    return kit.name


def _listed(kit: Kit) -> None:
    """Listing plugins imports none of the vendor's modules."""
    if kit.plugin_files:
        raise NotClaimed
    imported = processes.run("listed", _plugin(kit)).strip()
    if imported:
        raise Failure(f"listing the plugins imports {imported}")


def _loaded(kit: Kit) -> None:
    """The backend is there, and its plugin prints nothing."""
    with silent() as printed:
        try:
            _ = kit.backend
        except GraftError as error:
            raise Failure(one_line(error.message)) from error
    if printed:
        raise Failure(f"prints to the standard output: {one_line(printed[0])}")


def _examined(kit: Kit) -> None:
    """What `graft backends doctor` finds is nothing, notes aside."""
    plugin = _plugin(kit)
    with silent() as printed:
        found = [one for one in examine(kit.manager) if one.plugin == plugin and one.severity != "note"]
    if found:
        raise Failure(one_line(found[0].text))
    if printed:
        raise Failure(f"prints to the standard output: {one_line(printed[0])}")


def _available(kit: Kit) -> None:
    """The backend can run here."""
    reason = kit.backend.available()
    if reason:
        raise Failure(f"cannot run here: {one_line(reason)}")


def _asked_twice(kit: Kit) -> None:
    """The same question has the same answer: plans are made more than once."""
    from graft.testkit.conformance.cases.drawn import draw_model, trial_of

    for seed in range(6):
        trial = trial_of(draw_model(seed))
        if kit.claims(trial) != kit.claims(trial):
            raise Failure("asked twice, it takes other nodes of one model", trial)


def _fingerprint(kit: Kit) -> None:
    """The fingerprint, which joins the keys of caches, does not change."""
    backend = kit.backend
    if backend.fingerprint() != backend.fingerprint():
        raise Failure("fingerprint() gives another text each time; make it depend on the library's version alone")
