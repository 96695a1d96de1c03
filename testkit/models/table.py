"""The table that random models are drawn from: every operator of the built-in backends' tables."""

from __future__ import annotations

from graft.testkit.models.blocks import BLOCKS
from graft.testkit.models.elementwise import ELEMENTWISE
from graft.testkit.models.moves import MOVES
from graft.testkit.models.products import PRODUCTS
from graft.testkit.models.recent import RECENT
from graft.testkit.models.reductions import REDUCTIONS
from graft.testkit.models.sampling import SAMPLING

ROWS = (*ELEMENTWISE, *MOVES, *REDUCTIONS, *PRODUCTS, *BLOCKS, *SAMPLING, *RECENT)
