"""Chooses stored outputs and tool calls for a question; fails closed."""

__all__: list[str] = []
