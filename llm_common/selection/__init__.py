"""Chooses stored outputs and tool calls for a query; fails closed."""

__all__: list[str] = []
