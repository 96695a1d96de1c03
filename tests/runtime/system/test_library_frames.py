"""The stack of functions of libraries, by listings of hand and by those of real tool chains."""

from __future__ import annotations

import shutil

import pytest

from graft.runtime.export.c_built import built
from graft.runtime.system.library_frames import library_frames

ARM = "image:     file format elf32-littlearm\n"
TEXT = """#include <string.h>
int m_run(char *to, const char *from, long long *numbers) {
  memcpy(to, from, (size_t)numbers[0]);
  memmove(to, to + 1, (size_t)numbers[0]);
  numbers[0] /= numbers[1];
  return hook(numbers);
}
"""


def listing(**functions: str) -> tuple[str, str]:
    """Return what objdump and nm say of functions; instructions are apart by semicolons."""
    text, symbols = ARM, ""
    for number, (name, body) in enumerate(functions.items()):
        text += f"\n{number * 16:08x} <{name}>:\n" + "".join(f"  10:\t{one.strip()}\n" for one in body.split(";"))
        symbols += f"{number * 16:08x} T {name}\n"
    return text, symbols


def test_a_function_takes_what_its_instructions_push() -> None:
    arm = "push\t{r4, r5, lr}; vpush\t{d8-d9}; sub\tsp, #24; str.w\tlr, [sp, #-8]!; ldr\tr0, [sp, #-4]; pop\t{r4, pc}"
    assert library_frames(*listing(f=arm)) == {"f": 12 + 16 + 24 + 8}
    thumb = "stmdb\tsp!, {r4, r5, r6, lr}; sub.w\tsp, sp, #0x100; add\tsp, #24; bx\tlr"
    assert library_frames(*listing(f=thumb)) == {"f": 16 + 256}
    wide = "stp\tx29, x30, [sp, #-32]!; sub\tsp, sp, #0x10; ret"
    assert library_frames(*listing(f=wide)) == {"f": 48}
    riscv = "add\tsp,sp,-48; addi\tsp,sp,48; cm.push\t{ra, s0-s1},-16; ret"
    assert library_frames(*listing(f=riscv)) == {"f": 64}


def test_what_is_called_jumped_to_or_fallen_through_to_counts() -> None:
    calls = listing(f="push\t{lr}; bl\t20 <h>; b.n\t10 <g+0x4>", g="push\t{r4, r5}; bx\tlr", h="push\t{r4}; bx\tlr")
    assert library_frames(*calls) == {"f": 12, "g": 8, "h": 4}
    through = listing(f="push\t{lr}; nop; .word\t0x00000000", g="push\t{r4, r5}; pop\t{r4, pc}", h="bx\tlr")
    assert library_frames(*through) == {"f": 12, "g": 8, "h": 0}


def test_functions_of_one_address_are_the_same() -> None:
    text, symbols = listing(f="push\t{r4, lr}; pop\t{r4, pc}")
    assert library_frames(text, f"{symbols}00000000 W same\n00000000 D data\n") == {"f": 8, "same": 8}


@pytest.mark.parametrize(
    "body", ["sub\tsp, sp, r3; bx\tlr", "blx\tr3; bx\tlr", "bl\t0 <g>; bx\tlr", "jalr\ta5; ret", "br\tx3"]
)
def test_what_no_number_says_is_left_out(body: str) -> None:
    assert library_frames(*listing(f=body, g="bl\t0 <f>; bx\tlr", h="push\t{lr}; bx\tlr")) == {"h": 4}


def test_other_processors_are_not_read() -> None:
    text, symbols = listing(f="push\t{r4, lr}; pop\t{r4, pc}")
    assert library_frames(text.replace("elf32-littlearm", "elf64-x86-64"), symbols) == {}


@pytest.mark.parametrize(
    ("command", "known"),
    [("arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb", True),
     ("riscv64-unknown-elf-gcc -march=rv32imac -mabi=ilp32 -specs=picolibc.specs", True),
     ("gcc", False)],
)  # fmt: skip
def test_functions_that_are_linked_in_are_counted(command: str, known: bool) -> None:
    compiler, *flags = command.split()
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    hook = "int hook(long long *);\n"
    made = built("m", {"m.c": hook + TEXT}, ["m.c"], [compiler, *flags, "-O2"])
    counted = {one: size for one, size in made.needs.items() if one.startswith("mem")}
    assert set(counted) == {"memcpy", "memmove"} and all((size is not None) == known for size in counted.values())
    assert all(size is None or 0 <= size < 100 for size in counted.values())
    assert made.stack == made.frames["m_run"] + 64, "hook, which is nowhere, is taken to need 64 bytes"
