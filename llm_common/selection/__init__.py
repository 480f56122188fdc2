"""Chooses stored outputs and tool calls for a query. Fails closed."""

__all__: list[str] = []
