"""Schedules with knobs, as lists of steps, and the points of them that are worth measuring."""
