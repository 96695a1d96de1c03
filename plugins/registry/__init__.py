"""The registry of plugins: finds them, loads each in its own fence, checks what they give, hands out their backends."""
