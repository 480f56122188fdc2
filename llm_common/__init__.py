"""Decides what an agent's next model call gets to see.

The public names live in the packages below this one, `llm_common.agents` first.
"""

__all__ = ["__version__"]

__version__ = "1.0.0"
