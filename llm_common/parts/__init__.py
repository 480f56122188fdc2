"""What of a result is shown within a limit: its parts, their order, and the text of the chosen."""

__all__ = []
