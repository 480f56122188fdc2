"""Records inside results: finds them, sketches them for a question, and answers SQL about them.

Private. `llm_common.agents.Session` has the public methods.
"""

__all__: list[str] = []
