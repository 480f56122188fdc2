"""The files that configure a gateway: its own, and those of MCP hosts. Private."""

__all__: list[str] = []
