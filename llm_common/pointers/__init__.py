"""Pointers to stored outputs, their store and their selection.

Import from `llm_common.agents.context_pointers`.
"""

__all__: list[str] = []
