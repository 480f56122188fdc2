"""Convert data to safe text: canonical JSON, excerpts and fences."""

__all__: list[str] = []
