"""Hooks for agent frameworks, one module per framework.

Each module imports its framework, so this package imports none of them.
"""

__all__: list[str] = []
