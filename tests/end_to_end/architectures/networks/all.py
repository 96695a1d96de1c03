"""All networks, by name."""

from __future__ import annotations

from tests.end_to_end.architectures.networks import audio, dense_images, images, sequences, series, tables
from tests.end_to_end.architectures.networks.layers import NETWORKS

__all__ = ["NETWORKS", "audio", "dense_images", "images", "sequences", "series", "tables"]
