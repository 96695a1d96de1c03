"""Families of models that the tuned suite lacks, built with weights from a seed; `benchmarks.zoo` measures them."""
