"""The tensor IR: definition, text form, verifier, interpreter."""
