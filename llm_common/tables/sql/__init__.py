"""SELECT statements over tables, in SQLite in memory and within limits."""

__all__ = []
