"""Later stages that plug into the context selector: compression, feedback, comparison, prefetch, an intent model."""

__all__: list[str] = []
