"""Random models as a strategy of hypothesis, which shrinks every choice that is made: fewer rows, smaller shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies

from graft.testkit.models.model import RandomModel, model_of
from graft.testkit.models.options import Options
from graft.testkit.models.source import Source


class Drawn(Source):
    """Choices that hypothesis makes; the contents of tensors are streams of a seed that it draws."""

    def __init__(self, draw: Callable[..., int]) -> None:
        super().__init__(0)
        self.draw = draw

    def below(self, count: int) -> int:
        """Return a whole number of ``[0, count)``."""
        return self.draw(strategies.integers(0, count - 1))

    def random(self, shape: Sequence[int] | None = None) -> Any:
        """Return a number of [0, 1): of few, which hypothesis draws evenly; or float64 numbers of a shape."""
        return self.below(1000) / 1000 if shape is None else super().random(shape)


def models(options: Options | None = None) -> strategies.SearchStrategy[RandomModel]:
    """Return a strategy of models, as `random_model` makes them."""

    @strategies.composite
    def drawn(draw: Callable[..., int]) -> RandomModel:
        return model_of(Drawn(draw), 0, options or Options())

    return drawn()
