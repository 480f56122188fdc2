"""Test the documented loop with Anthropic's client against a scripted endpoint."""

from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic

from tests.integrations.plain_loop_checks import (
    Loop,
    check_calls_run_together,
    check_failures,
    check_parallel_results,
    check_restart_and_users,
)
from tests.integrations.scripted_endpoint import POINTER, Calls, Endpoint
from tests.integrations.scripted_messages import newest_results, scripted_messages

pytestmark = pytest.mark.integrations


def connect(endpoint: Endpoint) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=endpoint.url, api_key="none", max_retries=0)


def loop() -> Loop:
    return Loop("anthropic_loop", scripted_messages, connect, newest_results)


async def test_two_parallel_results_are_offloaded_and_read_back(tmp_path: Path) -> None:
    await check_parallel_results(loop(), tmp_path)


async def test_the_model_reads_why_a_tool_failed_without_secrets(tmp_path: Path) -> None:
    await check_failures(loop(), tmp_path)


async def test_the_calls_of_a_reply_run_at_the_same_time(tmp_path: Path) -> None:
    await check_calls_run_together(loop(), tmp_path)


async def test_a_restarted_process_reads_an_old_pointer_and_another_user_does_not(
    tmp_path: Path,
) -> None:
    await check_restart_and_users(loop(), tmp_path)


def test_the_page_runs_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def read(messages: list[dict[str, Any]]) -> Calls:
        [pointer_id] = POINTER.findall(newest_results(messages))
        return [("read_context", {"id": pointer_id, "path": "/1500/stock"})]

    listing: Calls = [("list_parts", {"kind": "all"})]
    with scripted_messages(listing, "Which one?", read, newest_results) as endpoint:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", endpoint.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        exec(loop().program, {"__name__": anthropic.__name__})
    printed = capsys.readouterr().out
    assert printed.startswith("Which one?")
    assert "10500" in printed
    assert endpoint.largest < 8_000
