"""The bytes of a module: a header in JSON, the command stream, the weights, the graph that is simulated.

``places`` are addresses in the scratch memory, 32 bits each: of inputs, outputs, and where its fast part begins.
"""

import hashlib
import json

from graft.errors import GraftError

KIND = "ethosu"
NAMES = ("commands", "weights", "places", "graph")
DIGEST = 32
"""The bytes in front, which are the SHA-256 of all others."""


def packed(header, sections):
    """Return header and sections as the bytes of a module."""
    text = json.dumps({**header, "sections": {name: len(sections[name]) for name in NAMES}}, sort_keys=True).encode()
    body = len(text).to_bytes(4, "little") + text + b"".join(sections[name] for name in NAMES)
    return hashlib.sha256(body).digest() + body


def parts_of(data):
    """Return where each section begins in a module's bytes, and its size."""
    at = DIGEST + 4 + int.from_bytes(data[DIGEST : DIGEST + 4], "little")
    sizes, found = json.loads(data[DIGEST + 4 : at])["sections"], {}
    for name in NAMES:
        found[name] = (at, sizes[name])
        at += sizes[name]
    return found


def opened(data):
    """Return header and sections of a module's bytes; raise GraftError where they are damaged."""
    digest, body = bytes(data[:DIGEST]), bytes(data[DIGEST:])
    if hashlib.sha256(body).digest() != digest:
        raise GraftError("a module of ethosu is damaged: its bytes are not those that were written; compile it again")
    header = json.loads(body[4 : 4 + int.from_bytes(body[:4], "little")])
    return header, {name: bytes(data[at : at + size]) for name, (at, size) in parts_of(data).items()}


def described(header):
    """Return a module as people read it: cycles by layer, the most expensive first."""
    total = max(header["cycles"], 1)
    lines = [
        f"{header['accelerator']}: {header['cycles']:,} cycles, {header['cycles'] / header['clock'] * 1e3:.3f} ms at "
        f"{header['clock'] / 1e6:.0f} MHz, {header['macs']:,} multiplications, commands "
        f"{header['sections']['commands']:,} B, weights {header['sections']['weights']:,} B, scratch "
        f"{header['scratch']:,} B, {header['transposed']:,} B transposed where the region begins and ends",
        *(f"{name}: peak {one['peak']:,} B, {one['cycles']:,} cycles" for name, one in header["memories"].items()),
    ]
    for name, operator, cycles, macs in sorted(header["layers"], key=lambda row: -row[2])[:20]:
        lines.append(f"{cycles:>12,} {100 * cycles / total:5.1f} % {operator:<16} {macs:>12,} {name}")
    lines += header["messages"].splitlines()
    return "\n".join(lines)
