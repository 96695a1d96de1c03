"""Scaled types: numbers that share scales, as OCP's microscaling types, NVFP4, block floating point, scaled posits."""
