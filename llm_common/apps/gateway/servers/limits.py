"""Limit what one server may send, so that it takes nothing from the host and other servers."""

from typing import Final

MAX_MESSAGE_BYTES: Final = 64_000_000
"""Of a line, or of the body of an answer over HTTP after its decompression."""

MAX_LOGIN_BYTES: Final = 1_000_000
"""Of a document of an authorization server."""

MAX_LIST_BYTES: Final = 32_000_000
"""Of all pages of a list, and of the record of a server."""

# A hostile server could send pages for ever.
MAX_PAGES: Final = 100
MAX_ENTRIES: Final = 10_000

PAGE_ENTRIES: Final = 250
"""Entries that are handled at once. The SDK validates each of them twice, in about 50 µs."""

MAX_LEFT_OUT: Final = 100
"""Entries of lists that are left out and named. The others share one note."""

MAX_WAITING: Final = 100
"""Messages of one kind that wait for the host."""

MAX_LOGS: Final = 100
"""Log messages within a second, which is more than a person reads."""

MAX_LINE_CHARS: Final = 200
"""Of a line in which a server's words are shown, such as a title or a reason."""

MAX_NAME_CHARS: Final = 60
"""Of a name in such a line."""

REQUEST_WAIT_S: Final = 15.0
"""Seconds for a server that may be starting, or that is asked on a guess."""
