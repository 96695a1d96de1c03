"""Passes that bring quantised models to integer arithmetic."""
