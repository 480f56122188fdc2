"""Every exception of httpx is translated, and retries follow the rules."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial

import httpx
import pytest
from hypothesis import example, given, strategies as st

from llm_common.core.http.external_errors import (
    error_of_status,
    external_errors,
    is_transient,
    retry_after_s,
)
from llm_common.core.http.transport import (
    RetryPolicy,
    translate_errors,
)
from llm_common.core.http.wire import ChatRequest
from llm_common.errors import LLMConnectionError, LLMError, LLMTimeoutError, MalformedReplyError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HTTPX_EXCEPTIONS = sorted(
    (
        kind
        for kind in vars(httpx).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ),
    key=lambda kind: kind.__name__,
)


def instance(kind: type[Exception]) -> Exception:
    """Return an exception of a class without its constructor, since httpx's constructors differ."""
    error = kind.__new__(kind)
    Exception.__init__(error, "sk-secret at https://user:pw@host")
    return error


@pytest.mark.parametrize("kind", HTTPX_EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_every_httpx_exception_is_translated_without_its_text(kind: type[Exception]) -> None:
    raised = instance(kind)
    with pytest.raises(LLMError) as caught, translate_errors(timeout_s=3.0):
        raise raised
    assert caught.value.__cause__ is raised
    assert "sk-secret" not in str(caught.value)
    assert "host" not in str(caught.value)


@pytest.mark.parametrize(
    "translate", [translate_errors, partial(external_errors, "Client")], ids=["ours", "third-party"]
)
@pytest.mark.parametrize(
    ("kind", "ours"),
    [
        (httpx.ReadTimeout, LLMTimeoutError),
        (httpx.ConnectTimeout, LLMTimeoutError),
        (httpx.PoolTimeout, LLMTimeoutError),
        (httpx.ConnectError, LLMConnectionError),
        (httpx.ReadError, LLMConnectionError),
        (httpx.DecodingError, MalformedReplyError),
        (httpx.RemoteProtocolError, LLMConnectionError),
        (httpx.InvalidURL, LLMConnectionError),
    ],
)
def test_an_exception_of_httpx_has_one_error_whoever_raises_it(
    kind: type[Exception],
    ours: type[LLMError],
    translate: Callable[..., AbstractContextManager[None]],
) -> None:
    with pytest.raises(ours), translate(timeout_s=3.0):
        raise instance(kind)


# --- when to send again


def policy(*, max_attempts: int = 99, left_s: float = 60.0) -> RetryPolicy:
    request = ChatRequest(model="m", core={}, optional={})
    deadline = asyncio.get_running_loop().time() + left_s
    return RetryPolicy(
        original=request,
        refused=frozenset(),
        max_attempts=max_attempts,
        deadline=deadline,
        host="h",
    )


async def test_delays_double_from_a_tenth_of_a_second_to_five() -> None:
    retries = policy()
    for least_s in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
        wait_s = retries.wait_s(LLMConnectionError(""))
        assert wait_s is not None
        assert least_s <= wait_s <= least_s + 0.4


@pytest.mark.parametrize(("left_s", "retried"), [(0.45, False), (0.9, True)])
async def test_a_retry_is_made_only_if_its_longest_delay_fits(left_s: float, retried: bool) -> None:
    assert (policy(left_s=left_s).wait_s(LLMConnectionError("")) is not None) is retried


async def test_the_endpoints_delay_has_no_jitter_f_112() -> None:
    assert policy().wait_s(error_of_status(429, "", retry_after="7")) == 7.0
    assert policy(left_s=6.9).wait_s(error_of_status(503, "", retry_after="7")) is None
    assert policy().wait_s(error_of_status(404, "", retry_after="7")) is None


def test_other_exceptions_are_not_translated() -> None:
    with pytest.raises(KeyError), translate_errors(timeout_s=1.0):
        raise KeyError("x")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("2", 2.0),
        ("0", 0.0),
        (" 1.5 ", 1.5),
        ("-1", None),
        ("inf", None),
        ("", None),
        ("tomorrow", None),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 00:00:30", 30.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", None),
        ("Thu, 01 Jan 99999 00:00:00 GMT", None),
    ],
)
def test_both_forms_of_retry_after_are_read(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, now=NOW) == seconds


_DATE_WORDS = st.sampled_from(
    [
        "Mon",
        "Thu,",
        "01",
        "31",
        "Jan",
        "Feb",
        "1970",
        "2026",
        "9999",
        "99999",
        "00:00:30",
        "25:61:61",
        "GMT",
        "+9999",
        "-0000",
        ",",
        ":",
    ]
)


@given(st.text(max_size=40) | st.lists(_DATE_WORDS, max_size=7).map(" ".join))
@example("Thu, 31 Dec 9999 23:59:59 -2359")
@example("Mon, 01 Jan 0001 00:00:00 +2359")
def test_an_unusable_retry_after_is_ignored_f_113(header: str) -> None:
    seconds = retry_after_s(header, now=NOW)
    assert seconds is None or 0 <= seconds < float("inf")


def test_only_transient_errors_are_retried() -> None:
    transient = {status for status in range(200, 600) if is_transient(error_of_status(status, ""))}
    assert transient == {408, 429, *range(500, 600)}
    assert is_transient(LLMConnectionError(""))
    assert not is_transient(LLMTimeoutError("", timeout_s=1))
    assert not is_transient(MalformedReplyError("", reason="empty"))
