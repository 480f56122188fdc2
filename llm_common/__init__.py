"""Decides what an agent's next model call gets to see.

The public names live in the packages below this one, `llm_common.agents` first.
"""

__all__ = ["__version__"]

__version__ = "1.0.0"


def __getattr__(name: str) -> object:
    """Say in which package a public name is."""
    from llm_common.errors import missing_name  # noqa: PLC0415 - for mistakes alone

    raise missing_name(__name__, name)
