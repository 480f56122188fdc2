"""The translation of third-party exceptions by their shape."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from llm_common.core.http.external_errors import external_errors
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

SECRET = "sk-canary/0123456789"


def exception(name: str, base: type[Exception] = Exception, **attributes: Any) -> Exception:
    """Return an exception whose class has this name, with these attributes."""
    exc: Exception = type(name, (base,), {})(SECRET)
    exc.__dict__.update(attributes)
    return exc


def error_of(raised: BaseException) -> LLMError:
    with pytest.raises(LLMError) as caught, external_errors("Client", timeout_s=3.0):
        raise raised
    assert caught.value.__cause__ is raised
    assert SECRET not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (exception("APIStatusError", status_code=401), LLMAuthError),
        (exception("ClientResponseError", status=429), LLMRateLimitError),
        (exception("APIError", code=404), ModelNotFoundError),
        (
            exception("HTTPStatusError", response=SimpleNamespace(status_code=413)),
            ContextTooLongError,
        ),
        (exception("HTTPError", status_code="500", code="rate_limit", status=None), LLMError),
        (exception("APIResponseValidationError", status_code=200), MalformedReplyError),
        (exception("Redirected", status_code=302), LLMError),
        (exception("Odd", status_code=True), LLMError),
        (exception("BudgetError", status_code=599), LLMStatusError),
        (exception("APITimeoutError", status_code=408), LLMTimeoutError),
        (exception("DeadlineExceeded"), LLMTimeoutError),
        (exception("Mine", exception("ReadTimeout").__class__), LLMTimeoutError),
        (TimeoutError(SECRET), LLMTimeoutError),
        (ConnectionResetError(SECRET), LLMConnectionError),
        (exception("APIConnectionError", status_code=500), LLMConnectionError),
        (exception("ConnectError"), LLMConnectionError),
        (json.JSONDecodeError(SECRET, "{", 0), MalformedReplyError),
        (exception("UnexpectedModelBehavior"), MalformedReplyError),
        (ValueError(SECRET), LLMError),
        (StopIteration(SECRET), LLMError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_an_exception_is_recognised_by_its_shape(raised: Exception, kind: type[LLMError]) -> None:
    assert type(error_of(raised)) is kind


def test_our_own_errors_and_cancellations_pass_unchanged() -> None:
    for ours in (LLMAuthError("no", status=401), asyncio.CancelledError(), KeyboardInterrupt()):
        with pytest.raises(type(ours)) as caught, external_errors("Client", timeout_s=1.0):
            raise ours
        assert caught.value is ours


@pytest.mark.parametrize(
    "attributes",
    [
        {"headers": {"Retry-After": "7"}},
        {"response": SimpleNamespace(headers={"retry-after": "7"})},
        {"headers": None, "litellm_response_headers": {"retry-after": "7"}},
    ],
    ids=["own", "response", "litellm"],
)
def test_the_endpoints_retry_delay_is_an_attribute(attributes: dict[str, Any]) -> None:
    error = error_of(exception("RateLimitError", status_code=429, **attributes))
    assert isinstance(error, LLMRateLimitError)
    assert error.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("attributes", "body"),
    [
        ({"body": {"message": "bad ü"}}, '{"message": "bad ü"}'),
        ({"body": {"odd": object()}}, '{"odd": null}'),
        ({"body": "bad", "message": "worse"}, "bad"),
        ({"body": None, "message": "worse"}, "worse"),
        ({"body": "x" * 9_000}, "x" * 2_000),
        ({"message": None, "args": ()}, ""),
    ],
    ids=["object", "odd", "text", "message", "long", "none"],
)
def test_the_endpoints_text_is_an_attribute(attributes: dict[str, Any], body: str) -> None:
    raised = exception("APIStatusError", status_code=500)
    raised.args = attributes.pop("args", raised.args)
    raised.__dict__.update(attributes)
    error = error_of(raised)
    assert isinstance(error, LLMStatusError)
    assert error.body == body


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Authorization", f"Bearer {SECRET}"),
        ("api-key", SECRET),
        ("X-Api-Key", SECRET),
        ("x-goog-api-key", SECRET),
    ],
)
def test_a_key_that_the_endpoint_repeats_is_removed_f_116(header: str, value: str) -> None:
    inner = exception("SDKError", request=SimpleNamespace(headers={"X-Api-Key": "", header: value}))
    for written in (SECRET, SECRET.replace("/", r"\/")):
        outer = exception("WrapperError", status_code=401, body=f"no such key {written}")
        outer.__cause__ = inner
        error = error_of(outer)
        assert isinstance(error, LLMAuthError)
        assert error.body == "no such key [api key]"


@pytest.mark.parametrize(
    ("attributes", "cause", "kind"),
    [
        ({}, exception("APITimeoutError"), LLMTimeoutError),
        ({"status_code": 500}, ConnectionRefusedError(), LLMConnectionError),
        ({"status_code": 401}, ConnectionRefusedError(), LLMAuthError),
    ],
    ids=["unknown", "made-up-status", "the-endpoints-status"],
)
@pytest.mark.parametrize("link", ["__cause__", "__context__"])  # LiteLLM raises without `from`
def test_a_wrapper_is_named_by_its_cause_or_by_the_endpoints_status(
    link: str, attributes: dict[str, Any], cause: Exception, kind: type[LLMError]
) -> None:
    wrapper = exception("WrapperError", **attributes)
    setattr(wrapper, link, cause)
    assert type(error_of(wrapper)) is kind


def test_an_exception_that_the_caller_handles_is_no_cause() -> None:
    def late() -> None:
        raise TimeoutError

    try:
        late()
    except TimeoutError:
        error = error_of(ValueError("unrelated"))
    assert type(error) is LLMError


def test_no_property_of_a_third_party_exception_is_run() -> None:
    class Trap(Exception):  # noqa: N818 - a name of no family
        @property
        def status_code(self) -> int:
            raise AssertionError

        response = request = headers = body = message = status_code

        def __str__(self) -> str:
            raise AssertionError

    assert type(error_of(Trap())) is LLMError


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert type(error_of(first)) is LLMError
