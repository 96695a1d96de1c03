"""Arithmetic that machines lack, as expressions of what they have: functions, fused operations, 16-bit floats."""
