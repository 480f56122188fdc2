"""Selects what goes into an agent's next model call.

The public names are in the packages below, first of all `llm_common.agents`.
"""

__all__ = ["__version__"]

__version__ = "1.0.0"


def __getattr__(name: str) -> object:
    """Raise an error that names the package of a public name."""
    from llm_common._exports import missing_name  # noqa: PLC0415 - for mistakes alone

    raise missing_name(__name__, name)
