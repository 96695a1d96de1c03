"""Devices: boards, emulated ones first, that run a C project and talk over a serial line."""
