"""The table that random models are drawn from: every operator of the built-in backends' tables."""

from __future__ import annotations

from tests.end_to_end.random_models.blocks import BLOCKS
from tests.end_to_end.random_models.elementwise import ELEMENTWISE
from tests.end_to_end.random_models.moves import MOVES
from tests.end_to_end.random_models.products import PRODUCTS
from tests.end_to_end.random_models.reductions import REDUCTIONS

ROWS = (*ELEMENTWISE, *MOVES, *REDUCTIONS, *PRODUCTS, *BLOCKS)
