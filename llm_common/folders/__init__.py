"""Finds the files of folders that answer a question, and packs them under a budget of tokens."""

__all__: list[str] = []
