"""All networks, by name."""

from __future__ import annotations

from benchmarks.architectures.networks import audio, images, sequences, tables
from benchmarks.architectures.networks.layers import NETWORKS

__all__ = ["NETWORKS", "audio", "images", "sequences", "tables"]
