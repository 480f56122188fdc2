"""Public doubles, for tests of what is built on llm-common."""

from llm_common.testing.clients import ScriptedClient, UnexpectedCallError

__all__ = ["ScriptedClient", "UnexpectedCallError"]
