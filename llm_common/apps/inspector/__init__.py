"""Pages over a store and its traces, served on this machine alone; needs the extra `inspect`."""

from llm_common.apps.inspector.application import Inspector, serve

__all__ = ["Inspector", "serve"]
