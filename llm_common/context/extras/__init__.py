"""Optional stages around the context selector."""

__all__: list[str] = []
