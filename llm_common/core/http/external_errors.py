"""Errors of an endpoint as `LLMError`: of its replies, and of third-party clients.

An exception of a client is recognised by its HTTP status: a `status_code` (OpenAI's SDK and those
generated like it, LiteLLM, pydantic-ai), a `status` (aiohttp), a `code` (Google), or
`response.status_code` (httpx, requests). Otherwise the names of its classes decide, which are
similar in all packages. Chained causes are read too, since packages wrap each other's exceptions.
No such package is imported.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from inspect import getattr_static
from math import isfinite
from typing import Final

import orjson

from llm_common.core.http.providers import host_of
from llm_common.core.http.wire import BAD_REQUEST, dict_or_empty, text_or_empty
from llm_common.errors import (
    ContextTooLongError,
    LLMAuthError,
    LLMConnectionError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
    ModelNotFoundError,
)
from llm_common.redaction.redactor import Redactor
from llm_common.text.display import one_line

# Parts of the error texts of OpenAI, vLLM and Anthropic for a prompt that does not fit.
_TOO_LONG = (
    "context_length_exceeded",
    "maximum context length",
    "context length",
    "context window",
    "prompt is too long",
)
_STATUS = re.compile(r"[45][0-9]{2}")
_TRANSIENT = frozenset({408}) | frozenset(range(500, 600))
_REDIRECTS = range(300, 400)

# Codes of an account without money. They come with 429, the status of rate limits.
_NO_CREDIT = (
    "insufficient_quota",  # https://platform.openai.com/docs/guides/error-codes
    "credit_balance_exhausted",
    "spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    '"1113"',  # https://docs.z.ai/api-reference/api-code
)
_VERSION = re.compile(r"/v[0-9]+[a-z0-9]*(?:/|$)")  # a segment such as /v1, /v4 or /v1beta
_MAX_ENDPOINT_CHARS = 300
# Characters of a key that a JSON encoder may escape. None escapes letters, digits, `_` and `-`.
_ESCAPABLE = re.compile(r"[^\w-]")

# Codes of OpenAI's error objects.
_STATUS_OF_CODE = {
    "rate_limit_exceeded": 429,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "context_length_exceeded": 413,
}


def reported_error(error: object) -> LLMStatusError:
    """Return the error for the error object of a reply, which some send with status 200."""
    return error_of_status(_status_of(error), orjson.dumps(error).decode())


def _status_of(error: object) -> int:
    """Return the HTTP status that an error object names, or 200, the status of its reply."""
    fields = dict_or_empty(error)
    for code in (fields.get("code"), fields.get("status"), fields.get("type")):
        status = int(code) if isinstance(code, str) and _STATUS.fullmatch(code) else code
        if isinstance(status, int) and 400 <= status < 600:  # noqa: PLR2004 - the statuses of errors
            return status
        if isinstance(code, str) and code in _STATUS_OF_CODE:
            return _STATUS_OF_CODE[code]
    return 200


def error_of_status(
    status: int, body: str, *, retry_after: str | None = None, path: str = ""
) -> LLMStatusError:
    """Return the error for an HTTP status, or for a status in an error object.

    Args:
        status: HTTP status.
        body: The endpoint's text, which becomes `.body`. A redirect's text is left out, since it
            repeats the address.
        retry_after: Value of the header Retry-After.
        path: Path of the request's address, for the text of a 404. "" if unknown.
    """
    kind, text = _kind_of_status(status, body, path)
    error = kind(
        text,
        status=status,
        body="" if status in _REDIRECTS else body,
        retry_after_s=retry_after_s(retry_after),
    )
    error.endpoint_message = endpoint_message(error.body)
    return error


def endpoint_message(body: str) -> str:
    """Return what an endpoint wrote about an error, redacted, in one line, or "".

    Reads the message of an error object. A plain text or a page may be an echo of the request.
    """
    try:
        payload = dict_or_empty(orjson.loads(body))
    except orjson.JSONDecodeError:
        return ""
    error = payload.get("error", payload)
    if isinstance(error, str):  # as from Ollama
        text = error
    else:
        fields = dict_or_empty(error)
        text = text_or_empty(fields.get("message")) or text_or_empty(fields.get("detail"))
    redacted = Redactor().beginning(text, max_chars=4 * _MAX_ENDPOINT_CHARS)
    return one_line(redacted, max_chars=_MAX_ENDPOINT_CHARS).removesuffix(".")


def without_key(text: str, key: str) -> str:
    """Return an endpoint's text without the API key, which some endpoints repeat.

    Finds the key also with escapes of JSON, as in a body that is not decoded yet.
    """
    if not key:
        return text
    text = text.replace(key, "[api key]")
    if "\\" not in text:  # then nothing is escaped
        return text
    return re.sub(_ESCAPABLE.sub(_escaped_forms, key), "[api key]", text)


def _escaped_forms(match: re.Match[str]) -> str:
    """Return a pattern for a character of a key, plain or escaped."""
    character = match[0]
    # PHP writes `/` as `\/`, Gson `=` by its code. JSON within JSON has more backslashes.
    code = rf"(?<=\\)u(?i:{ord(character):04x})"
    return rf"\\{{0,7}}(?:{re.escape(character)}|{code})"


def _kind_of_status(status: int, body: str, path: str) -> tuple[type[LLMStatusError], str]:
    kind: type[LLMStatusError] = LLMStatusError
    text = f"the endpoint answered with an error (status {status}); see `.body` for its text"
    is_rate_limit = status == HTTPStatus.TOO_MANY_REQUESTS
    lacks_credit = is_rate_limit and any(code in body for code in _NO_CREDIT)
    is_too_long = status in BAD_REQUEST and any(phrase in body.lower() for phrase in _TOO_LONG)
    if status in {401, 403}:
        kind = LLMAuthError
        text = f"the endpoint refused the key ({status}); check the key and its permissions"
    elif status == HTTPStatus.NOT_FOUND:
        kind, text = ModelNotFoundError, _not_found_text(body, path)
    elif status == HTTPStatus.PAYMENT_REQUIRED or lacks_credit:
        text = (
            f"the account has no credit left, or reached its spending limit ({status}); "
            "add credit, raise the limit, or use another key"
        )
    elif is_rate_limit:
        kind = LLMRateLimitError
        text = "the endpoint's rate limit is reached (429); wait, or ask for a higher limit"
    elif status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or is_too_long:
        kind = ContextTooLongError
        advice = "send less or use a model with a larger window"
        text = f"the prompt does not fit the model ({status}); {advice}"
    elif status in _REDIRECTS:
        advice = "set base_url to the new address"
        text = f"the endpoint redirects ({status}), and keys are not sent elsewhere; {advice}"
    return kind, text


def _not_found_text(body: str, path: str) -> str:
    if not path or "model" in body.lower():
        return "the endpoint has no such model or path (404); check model and base_url"
    # Only the end, since an address may name an account, or have a key in its path.
    end = "/".join(path.rsplit("/", 2)[1:])
    start = "/" if path == f"/{end}" else "…/"
    text = f"POST {start}{end}: 404, the endpoint has no such path or model; check base_url"
    if not _VERSION.search(path):
        text += ", which has no version such as /v1,"
    return f"{text} and model"


def is_transient(error: BaseException | None) -> bool:
    """Return whether a retry may succeed: after broken connections, 408, rate limits and 5xx."""
    if isinstance(error, LLMStatusError):
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            return isinstance(error, LLMRateLimitError)  # not if the account has no credit
        return error.status in _TRANSIENT
    return isinstance(error, LLMConnectionError)


def retry_after_s(header: str | None, *, now: datetime | None = None) -> float | None:
    """Return the seconds of a Retry-After header, or None if missing, unreadable or past.

    Both forms of RFC 9110, section 10.2.3, are read: seconds and a date.
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        # The zone -0000 is parsed as none. Dates in HTTP are always in UTC.
        moment = date.replace(tzinfo=date.tzinfo or UTC)
        seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    if not isfinite(seconds) or seconds < 0:
        return None
    return seconds


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
