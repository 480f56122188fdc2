"""Translates third-party exceptions by their shape, without their packages.

Shapes: a `status_code` (OpenAI's SDK and those generated like it, LiteLLM, pydantic-ai), a `status`
(aiohttp), a `code` (Google's), or one of these on `.response` (httpx, requests); else the names of
the exception's classes, which all of them choose alike, httpx2 those of httpx. Chained causes are
read too, since packages wrap each other's exceptions.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import getattr_static
from typing import Final

from llm_common.core.http.providers import host_of
from llm_common.core.http.wire import error_of_status
from llm_common.errors import (
    LLMConnectionError,
    LLMError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
)

_TIMEOUT: Final = re.compile("Timeout|DeadlineExceeded")
_CONNECTION: Final = re.compile(
    r"ConnectionError$|^(?:TransportError|NetworkError|ConnectError|InvalidURL|gaierror)$"
)
_MALFORMED: Final = re.compile(
    r"^(?:JSONDecodeError|DecodingError|APIResponseValidationError|UnexpectedModelBehavior)$"
)
_KEY_HEADERS: Final = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key"})
_HTTP_ERRORS: Final = range(400, 600)
_MAX_CAUSES: Final = 8
_MAX_BODY_CHARS: Final = 2_000


@contextmanager
def external_errors(client: str, *, timeout_s: float) -> Iterator[None]:
    """A block of third-party code whose exceptions are raised as `LLMError`.

    Args:
        client: The client's name for the error's text, which repeats only the class of the
            exception.
        timeout_s: The limit that a timeout is reported with.

    Raises:
        LLMError: Of the class that fits, else itself.
    """
    handled = sys.exception()
    try:
        yield
    except LLMError:
        raise
    except Exception as exc:  # a third-party client may raise anything
        causes = list(_causes(exc, handled))
        error = _error_of(causes, client, timeout_s=timeout_s)
        requests = (_fact(cause, name) for cause in causes for name in ("request", "_request"))
        error.locate(
            model=None,
            host=next(filter(None, (host_of(_fact(sent, "url")) for sent in requests)), None),
        )
        raise error from exc


def _causes(exc: BaseException, handled: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and its causes, without one that the caller was already handling."""
    cause: BaseException | None = exc
    for _ in range(_MAX_CAUSES):
        if cause is None or cause is handled:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _error_of(causes: list[BaseException], client: str, *, timeout_s: float) -> LLMError:
    refusal: LLMStatusError | None = None
    for cause in causes:
        names = [kind.__name__ for kind in type(cause).__mro__]
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
                f"{client} could not read the reply; check its address, or take another model",
                reason="unreadable",
            )
        refusal = refusal or _refusal(cause, causes)
        # LiteLLM says 500 for whatever it cannot name, also for a connection that was refused.
        if refusal is not None and refusal.status < 500:  # noqa: PLR2004 - where the statuses of servers' faults begin
            return refusal
    kind = type(causes[0]).__name__
    return refusal or LLMError(
        f"{client} raised {kind}; see the cause, or raise an LLMError from the client"
    )


def _refusal(exc: BaseException, causes: list[BaseException]) -> LLMStatusError | None:
    """The error for the HTTP status that an exception holds."""
    found = [_fact(exc, name) for name in ("status_code", "status", "code")]
    found.append(_fact(_fact(exc, "response"), "status_code"))
    # With a status below 400 the answer failed for another reason.
    statuses = [status for status in found if isinstance(status, int) and status in _HTTP_ERRORS]
    if not statuses:
        return None
    status = statuses[0]
    body = _without_keys(_body(exc), causes)[:_MAX_BODY_CHARS]
    return error_of_status(status, body, retry_after=_retry_after(exc))


def _fact(owner: object, name: str) -> object:
    """Return a stored attribute, without running a third-party property, which could raise."""
    return getattr_static(owner, name, None)


def _body(exc: BaseException) -> str:
    """The endpoint's text: the decoded body, else the exception's message."""
    body = _fact(exc, "body")
    if isinstance(body, dict | list):
        return json.dumps(body, default=lambda _: None, ensure_ascii=False)
    said = (body, _fact(exc, "message"), *exc.args)
    return next((text for text in said if isinstance(text, str)), "")


def _retry_after(exc: object) -> str | None:
    for owner, name in (
        (exc, "headers"),
        (_fact(exc, "response"), "headers"),
        (exc, "litellm_response_headers"),
    ):
        for header, value in _mapping(_fact(owner, name)).items():
            if str(header).lower() == "retry-after":
                return str(value)
    return None


def _without_keys(text: str, causes: list[BaseException]) -> str:
    """The text without the request's API keys, which some endpoints repeat."""
    for cause in causes:
        for header, value in _mapping(_fact(_fact(cause, "request"), "headers")).items():
            if str(header).lower() in _KEY_HEADERS and (
                key := str(value).removeprefix("Bearer ").strip()
            ):
                text = text.replace(key, "[api key]")
    return text


def _mapping(value: object) -> Mapping[object, object]:
    return value if isinstance(value, Mapping) else {}
