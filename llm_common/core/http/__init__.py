"""The HTTP client for endpoints that serve OpenAI's chat completions API."""

__all__: list[str] = []
