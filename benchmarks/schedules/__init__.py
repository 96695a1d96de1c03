"""Schedules of single kernels: what a search finds, and those for machines with AVX2 alone beside a library's."""
