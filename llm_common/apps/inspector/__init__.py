"""Pages over a store and its traces, served on this machine alone; needs the extra `inspect`."""

from typing import TYPE_CHECKING

from llm_common._lazy import lazy_exports

if TYPE_CHECKING:
    from llm_common.apps.inspector.application import (
        Inspector as Inspector,
        serve as serve,
    )

__getattr__, __all__ = lazy_exports(__name__)
