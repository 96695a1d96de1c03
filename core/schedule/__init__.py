"""Schedules: strategies that turn stages into loop nests."""
