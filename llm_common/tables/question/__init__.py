"""What a question means: the words, conditions and order that it sets for a table."""

__all__ = []
