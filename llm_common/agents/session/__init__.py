"""One conversation: `session.Session`, and the parts behind it."""

__all__ = []
