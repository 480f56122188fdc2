"""Data as safe text: canonical JSON, excerpts, fences."""

__all__: list[str] = []
