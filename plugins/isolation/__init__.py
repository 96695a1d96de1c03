"""Plugins in processes of their own while a model is planned and compiled: they crash and hang there."""
