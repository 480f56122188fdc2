"""The servers behind a gateway: start, reach, list and remember them. Private."""

__all__: list[str] = []
