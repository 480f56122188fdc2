"""Translation of third-party exceptions to `LLMError`, without importing their packages.

An exception is recognised by its HTTP status: a `status_code` (OpenAI's SDK and those generated
like it, LiteLLM, pydantic-ai), a `status` (aiohttp), a `code` (Google), or `response.status_code`
(httpx, requests). Otherwise the names of its classes decide, which are similar in all packages.
Chained causes are read too, since packages wrap each other's exceptions.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import getattr_static
from typing import Final

from llm_common.core.http.providers import host_of
from llm_common.core.http.status_errors import error_of_status, without_key
from llm_common.errors import (
    LLMConnectionError,
    LLMError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
)

# DeadlineExceeded is Google's. The other packages' timeouts have the word in a class name.
_TIMEOUT: Final = re.compile("Timeout|DeadlineExceeded")
_CONNECTION: Final = re.compile(
    r"ConnectionError$|^(?:TransportError|NetworkError|ConnectError|InvalidURL|gaierror)$"
)
_MALFORMED: Final = re.compile(
    r"^(?:JSONDecodeError|DecodingError|APIResponseValidationError|UnexpectedModelBehavior)$"
)
# The headers of a key at OpenAI, Azure, Anthropic and Google.
_KEY_HEADERS: Final = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key"})
_HTTP_ERRORS: Final = range(400, 600)
_SERVER_ERRORS: Final = range(500, 600)
_MAX_CAUSES: Final = 8  # exceptions can be chained in a circle
_MAX_BODY_CHARS: Final = 2_000


@contextmanager
def external_errors(client: str, *, timeout_s: float) -> Iterator[None]:
    """Raise the exceptions of a block of third-party code as `LLMError`.

    An error's text repeats nothing of the exception but the name of its class.

    Args:
        client: The client's name for the error's text.
        timeout_s: Deadline that a timeout error reports.

    Raises:
        LLMError: The subclass that fits, else the class itself.
    """
    # Python makes an exception that the caller is handling the context of any new one, though it is
    # not a cause of it.
    handled = sys.exception()
    try:
        yield
    except LLMError:
        raise
    except Exception as exc:  # a third-party client may raise anything
        causes = _causes(exc, handled)
        error = _error_of(causes, client, timeout_s=timeout_s)
        for cause in causes:
            for name in ("request", "_request"):
                # `locate` keeps the first host that is not None.
                error.locate(model=None, host=host_of(_stored(_stored(cause, name), "url")))
        raise error from exc


def _causes(exc: BaseException, handled: BaseException | None) -> list[BaseException]:
    """Return an exception and its causes, up to one that the caller was already handling."""
    causes: list[BaseException] = []
    cause: BaseException | None = exc
    while cause is not None and cause is not handled and len(causes) < _MAX_CAUSES:
        causes.append(cause)
        if cause.__cause__ is not None or cause.__suppress_context__:
            cause = cause.__cause__
        else:
            cause = cause.__context__
    return causes


def _error_of(causes: list[BaseException], client: str, *, timeout_s: float) -> LLMError:
    status_error: LLMStatusError | None = None
    for cause in causes:
        names = [base.__name__ for base in type(cause).__mro__]
        # First, since httpx's timeouts are also TransportErrors.
        if any(map(_TIMEOUT.search, names)):
            return LLMTimeoutError(
                f"{client} timed out; raise its timeout, or use a faster model", timeout_s=timeout_s
            )
        if any(map(_CONNECTION.search, names)):
            return LLMConnectionError(
                f"{client} has no connection to its endpoint; check its address and the network"
            )
        if any(map(_MALFORMED.search, names)):
            return MalformedReplyError(
                f"{client} could not read the reply; check its address, or use another model",
                reason="unreadable",
            )
        status_error = status_error or _status_error(cause, causes)
        # LiteLLM reports 500 for any error that it does not know, even a refused connection: a
        # cause may be more exact.
        if status_error is not None and status_error.status not in _SERVER_ERRORS:
            return status_error
    return status_error or LLMError(
        f"{client} raised {type(causes[0]).__name__}; see the cause, or raise an LLMError from the "
        "client"
    )


def _status_error(exc: BaseException, causes: list[BaseException]) -> LLMStatusError | None:
    """Return the error for the HTTP status of an exception, or None without one."""
    statuses = [_stored(exc, name) for name in ("status_code", "status", "code")]
    statuses.append(_stored(_stored(exc, "response"), "status_code"))
    for status in statuses:
        # With a status below 400 the call failed for another reason.
        if isinstance(status, int) and status in _HTTP_ERRORS:
            # Cut last, since the part of a key before the cut would not be found.
            body = _without_keys(_body(exc), causes)[:_MAX_BODY_CHARS]
            return error_of_status(status, body, retry_after=_retry_after(exc))
    return None


def _stored(owner: object, name: str) -> object:
    """Return an attribute without running a third-party property, which could raise."""
    return getattr_static(owner, name, None)


def _headers(owner: object, name: str = "headers") -> list[tuple[str, str]]:
    """Return names in lower case and values of the headers that an object stores."""
    headers = _stored(owner, name)
    if not isinstance(headers, Mapping):
        return []
    return [(str(header).lower(), str(value)) for header, value in headers.items()]


def _body(exc: BaseException) -> str:
    """Return the endpoint's text: the decoded body, else the exception's message."""
    body = _stored(exc, "body")
    if isinstance(body, dict | list):  # decoded, as by OpenAI's SDK
        return json.dumps(body, default=lambda _: None, ensure_ascii=False)
    for text in (body, _stored(exc, "message"), *exc.args):
        if isinstance(text, str):
            return text
    return ""


def _retry_after(exc: object) -> str | None:
    for header, value in (
        *_headers(exc),
        *_headers(_stored(exc, "response")),
        *_headers(exc, "litellm_response_headers"),
    ):
        if header == "retry-after":
            return value
    return None


def _without_keys(text: str, causes: list[BaseException]) -> str:
    """Return a text without the request's API keys, which some endpoints repeat."""
    for cause in causes:
        for header, value in _headers(_stored(cause, "request")):
            key = value.removeprefix("Bearer ").strip()
            if header in _KEY_HEADERS:
                text = without_key(text, key)
    return text
