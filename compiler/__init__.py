"""The way of a model: load, normalise, partition, compile every region, stitch."""
