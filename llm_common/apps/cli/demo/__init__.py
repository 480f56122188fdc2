"""`llm-common demo`: an agent that answers five questions over public data."""

__all__: list[str] = []
