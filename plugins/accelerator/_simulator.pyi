"""The simulators and the walk of proofs, in C."""

def simulate(
    configuration: tuple[int, ...],
    stream: bytes,
    dram: bytearray,
    mode: int,
    seed: int,
    most_steps: int,
    /,
) -> dict[str, list[int]]: ...
def conflicts(
    configuration: tuple[int, ...],
    stream: bytes,
    dram: bytearray,
    sequence: bytes,
    tensors: bytes,
    contents: bytearray = ...,
    /,
) -> tuple[bytes, tuple[int, int, int, int, int]]: ...
def constants(data: bytes, size: int, /) -> bytes: ...
def fold(a: memoryview, b: memoryview, /) -> bytes: ...
