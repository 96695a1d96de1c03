"""Data for calibration: arrays, `.npz` files, folders of them, or anything that gives batches one by one."""

from __future__ import annotations

import os
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
from graft.runtime.system.numpy_files import read_numpy

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
    """Batches for a model, which are read again each time unless they come from an iterator.

    An input gets as many rows at a time as its first axis has. Where that is open it gets ``rows`` (which every input
    must take if they are given), or what makes as many batches as the inputs whose first axis is fixed have. With
    ``whole`` what is left of a piece of data behind whole batches is left out.
    """

    def __init__(self, given: Given, model: ir.Model, rows: int | None = None, *, whole: bool = False) -> None:
        self._given = next(_files(Path(given))) if _is_file(given) else given
        self._inputs = [ValueView(value) for value in model.graph.inputs if value.name not in model.graph.initializers]
        self._rows, self._whole = rows, whole
        self._spent = False

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch()

    def epoch(self, random: np.random.Generator | None = None) -> Iterator[Batch]:
        """Yield all batches, with the rows of each piece of data as they are, or in a drawn order if all have as many.

        Raises RecipeError for data that do not fit the model, and for none.
        """
        if self._spent:
            raise RecipeError(
                "the data are an iterator that has ended, and are needed once more; give a list or a path"
            )
        self._spent = isinstance(self._given, Iterator)
        count = 0
        for part in _parts(self._given):
            for batch in self._cut(part, random):
                count += 1
                yield batch
        if not count and isinstance(self._given, Iterator):
            raise RecipeError("the data are an iterator without, or with no more, batches; give a list or a path")
        if not count:
            rows = "" if self._rows is None else f" of {self._rows} rows"
            raise RecipeError(f"the data are empty; give at least one batch{rows} of the model's inputs")

    @property
    def total(self) -> int | None:
        """The number of batches; None where they are given one by one."""
        if not isinstance(self._given, Mapping | np.ndarray):
            return None
        feeds, _ = self._named(self._given)
        return self._steps(feeds)[0]

    def _cut(self, part: Any, random: np.random.Generator | None) -> Iterator[Batch]:
        """Yield the batches of a part, cut along the first axis as the model takes them."""
        feeds, labels = self._named(part)
        count, steps = self._steps(feeds)
        name = next(iter(steps), None)
        rows, step = (1, 1) if name is None else (len(feeds[name]), steps[name])
        if labels is not None and len(labels) != rows:
            raise RecipeError(f"there are {len(labels)} labels for {rows} rows of data; give one label for each row")
        order = None if random is None or len(set(steps.values())) > 1 else random.permutation(rows)
        for number in range(count):

            def piece(array: np.ndarray, step: int, number: int = number) -> np.ndarray:
                place = slice(number * step, (number + 1) * step)
                return array[place] if order is None else array[order[place]]

            cut = {name: piece(one, steps[name]) if name in steps else one for name, one in feeds.items()}
            yield Batch(cut, None if labels is None else piece(labels, step))

    def _steps(self, feeds: Feeds) -> tuple[int, dict[str, int]]:
        """Return the number of batches that arrays make, and by input how many rows of it are in one."""
        lengths = {view.name: len(feeds[view.name]) for view in self._inputs if feeds[view.name].ndim}
        extents = {view.name: view.shape[0] for view in self._inputs if view.name in lengths and view.shape}
        fixed = {name: extent for name, extent in extents.items() if isinstance(extent, int)}
        for name, extent in fixed.items():
            if self._rows not in (None, extent):
                raise RecipeError(
                    f"the model takes {extent} rows of '{name}' at a time, not {self._rows}; ask for batches of "
                    f"{extent}",
                    input=name,
                )
        if not fixed and len(set(lengths.values())) == 1:
            step = self._rows or ROWS
            count = max(lengths.values()) // step if self._whole else -(-max(lengths.values()) // step)
            return count, dict.fromkeys(lengths, step)
        count = next((lengths[name] // max(extent, 1) for name, extent in fixed.items()), 1)
        steps = {name: fixed.get(name, self._rows or length // max(count, 1)) for name, length in lengths.items()}
        left = {length - count * steps[name] for name, length in lengths.items()}
        if left - {0} and not (self._whole and len(left) == 1):
            raise RecipeError(f"the data have {_rows_said(lengths, steps)}; give whole batches, as many of each input")
        return count, steps

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
            return _cast(array, view)
        except (TypeError, ValueError) as error:
            raise RecipeError(f"array '{view.name}' of the data holds no numbers: {error}", input=view.name) from error


def _cast(array: np.ndarray, view: ValueView) -> np.ndarray:
    """Return an array in an input's type; raise RecipeError for numbers that it has not (rounded ones it has)."""
    kind = numpy_dtype(view.dtype)
    if array.dtype == kind or array.dtype.kind not in "biufc":
        return array.astype(kind, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        found = array.real.astype(kind)
    lost = found != array if kind.kind in "biu" else (np.isfinite(array) & ~np.isfinite(found)) | (array.imag != 0)
    if lost.any():
        raise RecipeError(
            f"array '{view.name}' of the data holds {array[lost][0]}, which {view.dtype} has not; give numbers that it "
            "has",
            input=view.name,
        )
    return found


def _rows_said(lengths: Mapping[str, int], steps: Mapping[str, int]) -> str:
    """Return how many rows there are of each input, and how many the model takes of it, for errors."""
    return ", ".join(f"{length} rows of '{name}', {steps[name]} at a time" for name, length in lengths.items())


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
            arrays = read_numpy(file)
            if not isinstance(arrays, dict):
                raise ValueError("it is an .npy file, of one array without a name")
        except (OSError, ValueError) as error:
            raise RecipeError(
                f"'{file}' is not an .npz file: {error}; make one with numpy.savez", path=str(file)
            ) from error
        yield arrays
