"""Packs turns, files, memories, project state and stored outputs under one hard budget, and says why."""

__all__: list[str] = []
