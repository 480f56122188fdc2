"""The forms in which a text contains tables."""

__all__ = []
