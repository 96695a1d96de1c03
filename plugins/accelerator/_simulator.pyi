"""The simulators in C."""

def simulate(
    configuration: tuple[int, ...],
    stream: bytes,
    dram: bytearray,
    with_time: bool,
    seed: int,
    most_steps: int,
    /,
) -> dict[str, list[int]]: ...
