"""A model of cost that learns from races: boosted trees for what the model of cycles is wrong by.

Every time of a race is kept, losers' too, with the numbers of its loops (`graft.core.schedule.templates.features`), in
a database beside that of tunings. What is learnt from all kernels of a machine ranks the candidates of the next one.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from graft.core.schedule.parameters import Parameters, from_json, is_void, to_json
from graft.core.schedule.templates.features import CYCLES, Features
from graft.core.tuning.database import Database
from graft.errors import TuningError
from graft.runtime.system.files import write
from graft.runtime.system.json_text import parse_json

FEWEST_RACES, FEWEST_TIMES = 20, 4
"""Races from which something can be learnt, and times of each."""
ROUNDS = 100
SHIPPED = Path(__file__).with_name("shipped_cost.txt")
"""Trees for one machine, which its first line names, as LightGBM writes them (``benchmarks.schedules.cost_model``)."""
SETTINGS = {
    "objective": "regression", "num_leaves": 15, "learning_rate": 0.1, "min_data_in_leaf": 10, "lambda_l2": 1.0,
    "feature_fraction": 0.6, "bagging_fraction": 0.8, "bagging_freq": 1, "seed": 1, "deterministic": True,
    "num_threads": 1, "verbose": -1,
}  # fmt: skip

log = logging.getLogger("graft.tuning")


@dataclass(frozen=True, slots=True)
class Timed:
    """The time of a candidate in a race, which is named, and what its loops are like."""

    race: str
    features: Features
    seconds: float


class Times:
    """The times of races on one machine, in a file that several processes may use at a time."""

    def __init__(self, path: Path, machine: str) -> None:
        self.machine = machine
        columns = "machine TEXT, race TEXT, features TEXT, seconds REAL, PRIMARY KEY (machine, race, features)"
        self._database = Database(path, "trials", columns, "times of candidates")

    def known(self) -> list[Timed]:
        """Return all times."""
        question = "SELECT race, features, seconds FROM trials WHERE machine = ? AND seconds < 9e999"
        rows = self._database.rows(question, self.machine)
        found = [Timed(race, _features(text), seconds) for race, text, seconds in rows]
        for one in found:
            if not (one.features and one.seconds > 0):
                raise self._database.refusal(f"the times of race '{one.race}' are damaged")
        return found

    def keep(self, times: Iterable[Timed]) -> None:
        """Remember times."""
        for one in times:
            values = (self.machine, one.race, json.dumps(one.features), one.seconds)
            self._database.write("INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?)", *values)

    def failed(self, kernel: str) -> set[Parameters]:
        """Return the candidates of a kernel, with its compiler, that crashed, hung or were wrong."""
        question = "SELECT features FROM trials WHERE machine = ? AND race = ? AND seconds = 9e999"
        texts = [text for (text,) in self._database.rows(question, self.machine, kernel)]
        try:
            found = [from_json(text) for text in texts if not is_void(text)]
        except TuningError as error:
            raise self._database.refusal(str(error)) from error
        return {one for one in found if one is not None}

    def fail(self, kernel: str, candidate: Parameters) -> None:
        """Remember a candidate that is never to run again."""
        values = (self.machine, kernel, to_json(candidate), math.inf)
        self._database.write("INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?)", *values)


@dataclass(slots=True)
class LearntCost:
    """What was learnt, if there was enough to learn from, and what candidates' loops are like."""

    times: Times
    described: dict[Parameters, Features] = field(default_factory=dict)
    _trees: Any = None

    def learn(self) -> None:
        """Learn from all times of the machine; as long as these are few, what is shipped for its like is known."""
        self._trees = trained(self.times.known()) or shipped(self.times.machine)

    def seconds(self, rows: Sequence[Features]) -> list[float]:
        """Return what candidates are likely to take, in any unit."""
        return predicted(self._trees, rows)

    def keep(self, race: str, times: Mapping[Parameters, float]) -> None:
        """Remember the times of a race, of candidates that were described."""
        own = ((self.described.get(parameters), seconds) for parameters, seconds in times.items())
        self.times.keep(Timed(race, features, seconds) for features, seconds in own if features is not None)


def trained(times: Sequence[Timed]) -> Any:
    """Return the trees that say by which factor, as a logarithm, cycles are wrong; None if too little is known."""
    races = defaultdict[str, list[Timed]](list)
    known = Counter(frozenset(one.features) for one in times).most_common(1)  # another Graft's may be others
    for one in times:
        if frozenset(one.features) == known[0][0]:
            races[one.race].append(one)
    rows, wrong = list[Features](), list[float]()
    for own in (own for own in races.values() if len(own) >= FEWEST_TIMES):
        factors = [math.log(one.seconds / one.features[CYCLES]) for one in own]
        rows += [one.features for one in own]
        wrong += [factor - sum(factors) / len(own) for factor in factors]
    lightgbm = _lightgbm()
    if lightgbm is None or len(races) < FEWEST_RACES or not rows:
        return None
    table = lightgbm.Dataset(_table(rows), wrong, feature_name=_words(rows[0]))
    return lightgbm.train(SETTINGS, table, ROUNDS)


def shipped(machine: str, file: Path = SHIPPED) -> Any:
    """Return the trees that come with Graft, None if they are of another machine."""
    lightgbm = _lightgbm()
    if lightgbm is None:
        return None
    first, _, text = file.read_text(encoding="utf-8").partition("\n")
    if like(machine) != first:
        return None
    return lightgbm.Booster(model_str=text)


def ship(trees: Any, machine: str, file: Path = SHIPPED) -> None:
    """Write trees to come with Graft."""
    write(file, f"{like(machine)}\n{trees.model_to_string(importance_type='gain')}", "the model of cost", TuningError)


def like(machine: str) -> str:
    """Return what machines have in common that one model serves: processor and features, whatever the threads are."""
    return re.sub(r" threads=\d+$", "", machine)


def predicted(trees: Any, rows: Sequence[Features]) -> list[float]:
    """Return cycles, corrected by what was learnt, if it was."""
    cycles = [one[CYCLES] for one in rows]
    if trees is None or not rows or trees.feature_name() != _words(rows[0]):
        return cycles
    return [one * math.exp(factor) for one, factor in zip(cycles, trees.predict(_table(rows)), strict=True)]


def _features(text: str) -> Features:
    """Return the numbers of loops that a text says; none if it says something else."""
    try:
        found = parse_json(text)
    except (TypeError, ValueError):
        return {}
    is_good = isinstance(found, dict) and all(isinstance(one, int | float) for one in found.values())
    return found if is_good and found.get(CYCLES, 0) > 0 else {}


def _table(rows: Sequence[Features]) -> Any:
    import numpy as np

    names = _names(rows[0])
    return np.array([[one[name] for name in names] for one in rows], np.float64)


def _names(row: Features) -> list[str]:
    return sorted(set(row) - {CYCLES})


def _words(row: Features) -> list[str]:
    """Return the names as LightGBM takes them."""
    return [name.replace(" ", "_") for name in _names(row)]


@cache
def _lightgbm() -> Any:
    """Return the library, None if it is not installed, which is said once."""
    try:
        import lightgbm
    except ImportError:
        log.info("candidates are ranked by the model of cycles alone: `pip install graft-compiler[tune]` learns")
        return None
    return lightgbm
