"""What passes without the gateway and not with it, with the reason."""

from collections.abc import Mapping

_NO_EVENTS = "the gateway stores no events, so a stream that breaks is not resumed"

DIFFERENCES: Mapping[tuple[str, str], str] = {
    ("server-sse-polling", "server-sse-priming-event"): _NO_EVENTS,
    ("server-sse-polling", "server-sse-retry-field"): _NO_EVENTS,
    ("server-sse-polling", "server-sse-disconnect-resume"): _NO_EVENTS,
}
"""The reason by scenario and check."""
