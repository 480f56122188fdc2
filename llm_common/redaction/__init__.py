"""Takes secrets out of data before it is stored."""

__all__: list[str] = []
