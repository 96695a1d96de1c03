"""All networks, by name."""

from __future__ import annotations

from benchmarks.architectures.networks import audio, dense_images, images, sequences, series, tables
from benchmarks.architectures.networks.layers import NETWORKS

__all__ = ["NETWORKS", "audio", "dense_images", "images", "sequences", "series", "tables"]
