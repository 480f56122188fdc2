"""Nothing that httpx raises leaves as httpx's."""

from datetime import UTC, datetime

import httpx
import pytest
from hypothesis import example, given, strategies as st

from llm_common.core.http.transport import error_of_exception, translated
from llm_common.core.http.wire import error_of_status, is_transient, retry_after_s
from llm_common.errors import LLMConnectionError, LLMError, LLMTimeoutError, MalformedReplyError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HTTPX_EXCEPTIONS = sorted(
    (kind for kind in vars(httpx).values() if isinstance(kind, type) and issubclass(kind, Exception)),
    key=lambda kind: kind.__name__,
)


def instance(kind: type[Exception]) -> Exception:
    """One of the kind; httpx's constructors differ, and what they store does not matter here."""
    error = kind.__new__(kind)
    Exception.__init__(error, "sk-secret at https://user:pw@host")
    return error


def test_there_are_httpx_exceptions_to_walk() -> None:
    assert {httpx.ReadError, httpx.InvalidURL, httpx.StreamConsumed, httpx.CookieConflict} <= set(HTTPX_EXCEPTIONS)


@pytest.mark.parametrize("kind", HTTPX_EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_every_httpx_exception_becomes_ours_and_repeats_nothing(kind: type[Exception]) -> None:
    raised = instance(kind)
    with pytest.raises(LLMError) as caught, translated(timeout_s=3.0):
        raise raised
    assert caught.value.__cause__ is raised
    assert "sk-secret" not in str(caught.value)
    assert "host" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "ours"),
    [
        (httpx.ConnectTimeout, LLMTimeoutError),
        (httpx.PoolTimeout, LLMTimeoutError),
        (httpx.DecodingError, MalformedReplyError),
        (httpx.ReadError, LLMConnectionError),
        (httpx.RemoteProtocolError, LLMConnectionError),
    ],
)
def test_an_httpx_exception_becomes_what_it_means(kind: type[Exception], ours: type[LLMError]) -> None:
    assert type(error_of_exception(instance(kind), timeout_s=1.0)) is ours


def test_other_exceptions_pass() -> None:
    with pytest.raises(KeyError), translated(timeout_s=1.0):
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
def test_retry_after_is_read_in_both_its_forms(header: str | None, seconds: float | None) -> None:
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
def test_no_retry_after_is_more_than_ignored_f_113(header: str) -> None:
    seconds = retry_after_s(header, now=NOW)
    assert seconds is None or 0 <= seconds < float("inf")


def test_every_status_may_ask_for_a_wait() -> None:
    assert [error_of_status(status, "", retry_after="7").retry_after_s for status in (429, 503, 500, 404)] == [7.0] * 4


def test_only_what_may_pass_is_worth_a_retry() -> None:
    transient = {status for status in range(200, 600) if is_transient(error_of_status(status, ""))}
    assert transient == {408, 429, *range(500, 600)}
    assert is_transient(LLMConnectionError(""))
    assert not is_transient(LLMTimeoutError("", timeout_s=1))
    assert not is_transient(MalformedReplyError("", reason="empty"))
