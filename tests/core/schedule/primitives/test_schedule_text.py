import re

import pytest

from graft.core.schedule.primitives.schedule_text import parse_schedule, print_schedule, with_names
from graft.errors import ScheduleError

TILED = """\
split i 2 -> i0 i1
split j 4 -> j0 j1
split k 4 -> k0 k1
reorder i0 j0 k0 i1 j1 k1
cache_read a at k0 in scratch -> near
cache_write c at j0 in register -> sums
vectorize j1
unroll k1
parallel i0
"""


def test_a_schedule_prints_as_it_was_read():
    text = TILED + "fuse i0 j0 -> ij\nbind ij block.x\ncache_read b at k in shared -> bs by ty tx\npipeline k near bs\n"
    text += "split k 4 -> m k tail rest\njam k\ncompute_at p at i1\ntensorize k1 dot4_u8s8\n"
    assert print_schedule(parse_schedule(text)) == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("spilt i 2 -> a b", "schedule, line 1: there is no primitive 'spilt'; did you mean 'split'"),
        (
            "split i x -> a",
            "schedule, line 1: 'split i x -> a' is not of the form 'split loop factor -> outer inner tail tail', "
            "with numbers of up to 9 digits",
        ),
        (
            "unroll i\npeel k ² -> r",
            "schedule, line 2: 'peel k ² -> r' is not of the form 'peel loop count -> rest', "
            "with numbers of up to 9 digits",
        ),
        (
            "pad t 0 1000000000",
            "schedule, line 1: 'pad t 0 1000000000' is not of the form 'pad buffer dimension extent', "
            "with numbers of up to 9 digits",
        ),
        ("bind i", "schedule, line 1: 'bind i' is not of the form 'bind loop level'"),
        ("unroll i j", "schedule, line 1: 'unroll i j' is not of the form 'unroll loop'"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_step_is_an_error_with_its_number(line, message):
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        parse_schedule(line)


def test_inputs_may_be_called_by_their_numbers() -> None:
    text = "pack @1 0 16 -> @1_packed\ncache_read @0 at k in shared -> near\npack x@1 0 4 -> p\npack @7 0 4 -> p\n"
    assert with_names(text, ["image", "weights"]) == (
        "pack weights 0 16 -> weights_packed\ncache_read image at k in shared -> near\n"
        "pack x@1 0 4 -> p\npack @7 0 4 -> p\n"
    )
