"""`llm-common demo`: an agent that explores a folder, as a program and as what it shows."""

__all__: list[str] = []
