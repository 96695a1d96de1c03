"""Convolutions: direct, by patches (im2col), by Winograd's algorithm, depthwise."""
