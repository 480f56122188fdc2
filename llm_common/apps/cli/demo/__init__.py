"""`llm-common demo`: an agent that answers five questions, as a program and as what it shows."""

__all__: list[str] = []
