"""Pack scored items into a bundle that fits the budget, the last of the pure stages."""

__all__ = []
