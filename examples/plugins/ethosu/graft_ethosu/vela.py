"""Vela in process: from a TOSA graph to a command stream, and what it estimates of it."""

import os
from configparser import ConfigParser
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Literal

import graft
from graft.errors import CompileError
from graft.runtime.system.printed import printed

SYSTEMS = {"u55": "Ethos_U55_High_End_Embedded", "u65": "Ethos_U65_High_End", "u85": "Ethos_U85_SYS_DRAM_Mid"}
MODES = {"u55": "Shared_Sram", "u65": "Dedicated_Sram_384KB", "u85": "Dedicated_Sram_384KB"}
"""The system and the memory mode that Vela takes by itself."""
WHY = {
    "Resize": "U55 and U65 repeat elements 2, 4 or 8 times, and enlarge linearly by 2",
    "ArgMax": "U55 and U65 find the largest of at most 127 channels of one image",
    "Table": "U55 and U65 look up bytes only",
    "Transpose": "the axes are longer than the NPU's transposition has",
    "Conv2D": "a kernel has at most 64 rows and 4096 places, strides are at most 3",
}
"""By Vela's operator what its documentation says of limits; its own message names the operator alone."""


@dataclass(frozen=True)
class EthosUOptions:
    """What is compiled for, and how."""

    accelerator: Literal[
        "u55-32", "u55-64", "u55-128", "u55-256", "u65-256", "u65-512",
        "u85-128", "u85-256", "u85-512", "u85-1024", "u85-2048",
    ] = graft.option("u55-128", help="the NPU and its multiplications in a cycle, on all its cores")  # fmt: skip
    optimise: Literal["performance", "size"] = graft.option("performance", help="what a schedule is good at")
    system: str | None = graft.option(None, help="a System_Config of the configuration file; none: Vela's default")
    memory: str | None = graft.option(None, help="a Memory_Mode of the configuration file; none: Vela's default")
    config: str | None = graft.option(None, help="a configuration file of Vela's; none: Arm's own")
    arena: int | None = graft.option(None, help="bytes of SRAM that a schedule may take; none: as the memory mode says")

    def __post_init__(self):
        if (self.config or self.system or self.memory) and find_spec("ethosu") is not None:
            configuration(self)

    @property
    def family(self):
        """The generation of the NPU."""
        return self.accelerator.partition("-")[0]


@dataclass(frozen=True)
class Compiled:
    """What a driver needs to run a graph, and what Vela says of it."""

    commands: bytes
    weights: bytes
    scratch: int
    fast_scratch: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """Where inputs and outputs lie in the scratch memory."""
    cycles: int
    macs: int
    clock: float
    """Of the NPU, in Hz."""
    memories: dict
    layers: tuple[dict, ...]
    messages: str
    """What Vela printed."""

    @property
    def seconds(self):
        """The estimated time."""
        return self.cycles / self.clock


@lru_cache(maxsize=16)
def configuration(options):
    """Return Vela's system configuration for options, as text, and the clock; raise ValueError for wrong names."""
    from ethosu.vela.architecture_features import CONFIG_FILES_PATH

    path = options.config or os.path.join(CONFIG_FILES_PATH, "Arm", "vela.ini")
    system, mode = options.system or SYSTEMS[options.family], options.memory or MODES[options.family]
    parser = ConfigParser()
    if not parser.read(path):
        raise ValueError(f"the configuration file {path} cannot be read; give the path of one by config=")
    for kind, name in (("System_Config", system), ("Memory_Mode", mode)):
        if not parser.has_section(f"{kind}.{name}"):
            known = ", ".join(one.partition(".")[2] for one in parser.sections() if one.startswith(kind))
            raise ValueError(f"no {kind} '{name}' in {path}; it has {known}")
    cores = 2 if options.accelerator == "u65-512" else 1
    macs = int(options.accelerator.partition("-")[2]) // cores
    with open(path) as file:
        text = file.read()
    head = f"[architecture]\nmacs={macs}\ncores={cores}\n[vela]\n"
    head += f"system_config_name={system}\nmemory_mode_name={mode}\n"
    limit = options.arena or parser.getint(f"Memory_Mode.{mode}", "arena_cache_size", fallback=1 << 40)
    return head + text, limit, parser.getfloat(f"System_Config.{system}", "core_clock")


def compiled(flatbuffer, options, where):
    """Return what Vela makes of a graph; raise CompileError with its reason where it does not."""
    from ethosu import regor

    system, limit, clock = configuration(options)
    settings = (
        "[compiler]\noutput_format=Raw\nenable_db=true\ncop_format=COP1\n"
        f"[scheduler]\noptimize={options.optimise.capitalize()}\narena_size_limit={limit}\n"
        "cpu_tensor_alignment=16\ntensor_allocator=HillClimb\n"
    )
    family = f"Ethos{options.family.upper()}"
    with printed() as messages:
        try:
            made = regor.compile(family, flatbuffer, "TOSA", system, options=settings, verbose=False)
        except (RuntimeError, ValueError) as error:
            raise CompileError(f"ethosu: Vela refuses {where}: {_reason(str(error), options)}") from error
    report = made.perf_report
    if report.cpuOps:
        raise CompileError(f"ethosu: Vela leaves {report.cpuOps} operators of {where} to the processor")
    memories = {
        one.memoryName: {"peak": one.peakUsage, "cycles": one.totalAccessCycles} for one in report.memories.values()
    } if isinstance(report.memories, dict) else {}  # fmt: skip
    table = made.opt_database.tables["perf"]
    layers = tuple(dict(zip(table.header, row, strict=True)) for row in table.data)
    return Compiled(
        bytes(made.command_stream), bytes(made.read_only.data), made.scratch.size, made.scratch_fast.size,
        tuple(one.address for one in made.inputs), tuple(one.address for one in made.outputs),
        report.totalCycles, report.macCount, clock, memories, layers, messages[0],
    )  # fmt: skip


def _reason(text, options):
    operator = text.partition("(")[2].partition(")")[0]
    why = WHY.get(operator)
    return f"{text} of {options.accelerator}" + (f": {why}" if why and options.family != "u85" else "")
