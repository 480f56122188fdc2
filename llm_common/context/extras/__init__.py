"""Add optional stages to the context selector."""

__all__: list[str] = []
