"""Data for calibration: arrays, `.npz` files, folders of them, or anything that gives batches one by one."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import ValueView
from graft.errors import GraftError, RecipeError
from graft.runtime.arguments import FUNCTION, takes
from graft.runtime.dtypes import numpy_dtype
from graft.runtime.foreign import kind_of, said

LABELS = "labels"
ROWS = 32
"""Rows that a model whose batch is open gets at a time."""
Feeds = dict[str, np.ndarray]
Result = TypeVar("Result")
Given = Any
"""A mapping of names to stacked arrays, a path, or an iterable of batches; a batch is a mapping, an array, or a pair of
inputs and labels."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a model runs on at one time, with the labels of the rows if there are any."""

    feeds: Feeds
    labels: np.ndarray | None = None


class Batches:
    """Batches for a model, which are read again each time unless they come from an iterator."""

    def __init__(self, given: Given, model: ir.Model) -> None:
        self._given = next(_files(Path(given))) if _is_file(given) else given
        self._inputs = [ValueView(value) for value in model.graph.inputs if value.name not in model.graph.initializers]
        self._spent = False

    def __iter__(self) -> Iterator[Batch]:
        if self._spent:
            raise RecipeError(
                "the data are an iterator that has ended, and are needed once more; give a list or a path"
            )
        self._spent = isinstance(self._given, Iterator)
        count = 0
        for part in _parts(self._given):
            for batch in self._cut(part):
                count += 1
                yield batch
        if not count:
            raise RecipeError("the data are empty; give at least one batch of the model's inputs")

    @property
    def total(self) -> int | None:
        """The number of batches; None where they are given one by one."""
        known = isinstance(self._given, Mapping | np.ndarray)
        return sum(1 for _ in self._cut(self._given)) if known else None

    def _cut(self, part: Any) -> Iterator[Batch]:
        """Yield the batches of a part, cut along the first axis as the model takes them."""
        arrays, labels = self._named(part)
        rows = {name: len(array) if array.ndim else 1 for name, array in arrays.items()}
        fixed = self._rows_at_a_time()
        total = min(rows.values())
        if fixed is None:
            step = ROWS if len(set(rows.values())) == 1 else total
        else:
            step = fixed
            if any(count % step for count in rows.values()) or len(set(rows.values())) > 1:
                shown = ", ".join(f"'{name}' {count}" for name, count in rows.items())
                raise RecipeError(
                    f"the model takes {step} rows at a time, and the data have {shown}; give whole batches"
                )
        if labels is not None and len(labels) != total:
            raise RecipeError(f"there are {len(labels)} labels for {total} rows of data; give one label for each row")
        for first in range(0, total, step):
            cut = {name: array[first : first + step] if array.ndim else array for name, array in arrays.items()}
            yield Batch(cut, None if labels is None else labels[first : first + step])

    def _rows_at_a_time(self) -> int | None:
        """Return the number of rows that the inputs have, None if they are open or differ."""
        extents = {view.shape[0] for view in self._inputs if view.shape}
        only = next(iter(extents)) if len(extents) == 1 else None
        return only if isinstance(only, int) else None

    def _named(self, part: Any) -> tuple[Feeds, np.ndarray | None]:
        labels = None
        if isinstance(part, tuple | list) and len(part) == 2:
            part, labels = part[0], np.asarray(part[1])
        if isinstance(part, Mapping):
            named = dict(part)
            names = {view.name for view in self._inputs}
            labels = named.pop(LABELS) if LABELS in named and LABELS not in names else labels
        elif len(self._inputs) == 1:
            named = {self._inputs[0].name: part}
        else:
            inputs = ", ".join(view.name for view in self._inputs)
            raise RecipeError(f"a batch is {kind_of(part)}; the model has several inputs: give a mapping of {inputs}")
        missing = [view.name for view in self._inputs if view.name not in named]
        if missing:
            raise RecipeError(
                f"the data have no array '{missing[0]}'; the model's inputs are "
                f"{', '.join(view.name for view in self._inputs)}",
                input=missing[0],
            )
        feeds = {view.name: self._fitting(view, np.asarray(named[view.name])) for view in self._inputs}
        return feeds, None if labels is None else np.asarray(labels).reshape(-1)

    @staticmethod
    def _fitting(view: ValueView, array: np.ndarray) -> np.ndarray:
        shape = view.shape
        if shape is not None:
            pairs = list(zip(array.shape[1:], shape[1:], strict=False))
            if array.ndim != len(shape) or any(isinstance(own, int) and own != given for given, own in pairs):
                wanted = ",".join(str(extent) for extent in shape)
                raise RecipeError(
                    f"array '{view.name}' of the data has shape {list(array.shape)}, but the model takes [{wanted}]; "
                    "stack rows along the first axis",
                    input=view.name,
                )
        try:
            return array.astype(numpy_dtype(view.dtype), copy=False)
        except (TypeError, ValueError) as error:
            raise RecipeError(f"array '{view.name}' of the data holds no numbers: {error}", input=view.name) from error


def called(what: str, function: Callable[..., Result], *arguments: object) -> Result:
    """Return what a function of the user's gives; raise RecipeError that names it for what it raises."""
    try:
        return function(*arguments)
    except GraftError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise RecipeError(f"the {what} failed ({type(error).__name__}: {said(error)})") from error


class Preprocessed:
    """Data whose pieces pass through a function before they become batches; read again each time."""

    def __init__(self, given: Given, function: Callable[[Any], Any]) -> None:
        self.given, self.function = given, function

    def __iter__(self) -> Iterator[Any]:
        return map(self.function, _pieces(self.given, any_file=True))


@takes(function=FUNCTION)
def preprocessed(data: Given, function: Callable[[Any], Any]) -> Given:
    """Return data that pass through a function, piece by piece, when they are read.

    ``function`` gets what ``data`` give (the arrays of an ``.npz`` file by name, the path of any other file of a
    folder, the items of an iterable) and returns a batch: a mapping, an array, or a pair of inputs and labels.
    """
    return map(function, data) if isinstance(data, Iterator) else Preprocessed(data, function)


def _is_file(given: Given) -> bool:
    return isinstance(given, str | os.PathLike) and not Path(given).is_dir()


def _parts(given: Given) -> Iterator[Any]:
    """Yield the pieces of data: each is a mapping of stacked arrays, or what an iterable gives.

    Whatever that raises is chained: it is the user's code that runs here.
    """
    try:
        yield from _pieces(given)
    except (GraftError, GeneratorExit):
        raise
    except Exception as error:
        raise RecipeError(f"the data cannot be read ({type(error).__name__}: {said(error)})") from error


def _pieces(given: Given, *, any_file: bool = False) -> Iterable[Any]:
    if isinstance(given, str | os.PathLike):
        return _files(Path(given), any_file=any_file)
    if isinstance(given, Mapping | np.ndarray):
        return [given]
    if isinstance(given, Iterable):
        return given
    raise RecipeError(f"data are {kind_of(given)}; give arrays by input name, a path, or an iterable of batches")


def _files(path: Path, *, any_file: bool = False) -> Iterator[Any]:
    """Yield the arrays of each ``.npz`` file, and with ``any_file`` the paths of others."""
    pattern = "[!.]*" if any_file else "*.npz"
    files: Sequence[Path] = sorted(path.glob(pattern)) if path.is_dir() else [path]
    if not files:
        raise RecipeError(
            f"folder '{path}' has no .npz file; write one for each batch with numpy.savez", path=str(path)
        )
    for file in files:
        if any_file and file.suffix != ".npz":
            yield file
            continue
        try:
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
        except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
            raise RecipeError(
                f"'{file}' is not an .npz file: {error}; make one with numpy.savez", path=str(file)
            ) from error
        yield arrays
