"""Applications on top of the library: the command line, the MCP gateway and the inspector."""

__all__: list[str] = []
