"""Hooks for agent frameworks: one module each, which imports its framework; this package imports nothing."""

__all__: list[str] = []
