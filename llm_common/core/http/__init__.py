"""Our HTTP client for endpoints that speak OpenAI's chat completions."""

__all__: list[str] = []
