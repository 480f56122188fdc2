"""Hooks for agent frameworks: one module each, which imports its framework.

This package imports nothing.
"""

__all__: list[str] = []
