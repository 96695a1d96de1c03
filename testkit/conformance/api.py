"""`conformance`: a class of tests for pytest, one for each subject of each level."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx

from graft.runtime.arguments import WHOLE, Kind, takes
from graft.testkit.conformance.apart import ApartSuite
from graft.testkit.conformance.ledger import Given
from graft.testkit.conformance.suite import Model, Suite, bad, suite_of

NAME = Kind("the name of a backend, as in 'npu'", lambda value: isinstance(value, str) and bool(value))
LEDGER = Kind(
    "the path of a ledger, or reasons by the name of a case",
    lambda value: (
        value is None
        or (isinstance(value, str) and bool(value) and "\0" not in value)
        or isinstance(value, os.PathLike)
        or (isinstance(value, dict) and all(isinstance(one, str) for pair in value.items() for one in pair))
    ),
)
MODELS = Kind(
    "a list of ONNX models, as paths or ModelProtos",
    lambda value: (
        isinstance(value, list | tuple)
        and all(isinstance(one, onnx.ModelProto | os.PathLike) or (isinstance(one, str) and one) for one in value)
    ),
)
FILES = Kind(
    "a list of paths of Python files",
    lambda value: isinstance(value, list | tuple) and all(isinstance(one, str | os.PathLike) for one in value),
)


@takes(name=NAME, level=WHOLE, xfail=LEDGER, models=MODELS, plugin_files=FILES, seeds=WHOLE)
def conformance(
    name: str,
    *,
    level: int = 3,
    xfail: Given = None,
    models: Sequence[Model] = (),
    plugin_files: Sequence[str | os.PathLike[str]] = (),
    seeds: int = 60,
) -> type:
    """Return a class of tests that hold the backend ``name`` to a level of conformance, and to those below it.

    ``name`` may have options, as in ``npu:bits=8``.

        from graft.testkit import conformance

        TestNpu = conformance("npu", level=3, xfail="ledger.txt")

    ``xfail`` is the ledger of expected failures: a file (a relative path is beside the file that calls), or reasons by
    the name of a case. It is strict: an entry that passes is a failure. ``models`` are yours: they join the random
    models, ``seeds`` in number, and show composites that the kit cannot write a model of. ``plugin_files`` are plugins
    that are not installed. The cases run in a process of their own, so that a crash of the vendor's is the failure of
    its group; ``--graft-in-process`` runs them in that of pytest. Raises GraftError for a level or a ledger that is
    none; what is wrong with the backend is for the tests to say.
    """
    import pytest

    from graft.testkit.pytest_names import IN_PROCESS, PROPERTY

    arguments: dict[str, Any] = {
        "name": name, "level": level, "xfail": _beside_caller(xfail), "models": models, "plugin_files": plugin_files,
        "seeds": seeds,
    }  # fmt: skip
    here, apart = suite_of(**arguments), ApartSuite(arguments)

    def suite(config: pytest.Config) -> Suite | ApartSuite:
        return here if config.getoption(IN_PROCESS, False) else apart

    def pytest_generate_tests(self: object, metafunc: pytest.Metafunc) -> None:
        metafunc.parametrize(("level", "subject"), suite(metafunc.config).groups())

    def test(self: object, level: int, subject: str, request: pytest.FixtureRequest, record_property: Any) -> None:
        results = suite(request.config).run(level, subject)
        record_property(PROPERTY, {"backend": name, "results": [asdict(one) for one in results]})
        wrong = bad(results)
        if wrong:
            lines = [f"{one.name}: {one.text}" for one in wrong]
            pytest.fail(f"{len(wrong)} of {len(results)} cases of {name}:\n" + "\n".join(lines), pytrace=False)
        ran = [one for one in results if one.verdict != "not-claimed"]
        if all(one.verdict == "not-run" for one in ran):
            pytest.skip(ran[0].text if ran else f"{name} claims nothing of it")

    members = {"test": test, "pytest_generate_tests": pytest_generate_tests, "__doc__": name}
    return type("Test" + "".join(filter(str.isalnum, name.title())), (), members)


def _beside_caller(given: Given) -> Given:
    """Return a ledger's path, a relative one from the folder of the file that calls Graft."""
    if given is None or isinstance(given, Mapping) or Path(given).is_absolute():
        return given
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("graft."):
        frame = frame.f_back
    return Path(str(frame.f_globals.get("__file__", "."))).parent / given
