"""Models of microcontrollers on an emulated Cortex-M4."""
