"""`llm-common demo`: an agent asks eight questions of public data, and its prompts are compared."""

__all__: list[str] = []
