"""Packing: the last of the pure stages, from scored items to a bundle that fits."""

__all__ = []
