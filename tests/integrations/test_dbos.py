"""Test the DBOS program of `how-to/durable_runs.md`: killed at each step, and recovered.

Nothing here is DBOS's or ours alone: the page's own program runs in processes that end by
`os._exit`. `python -m tests.integrations.dbos_runs 10` does ten such rounds with whole megabytes.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integrations.dbos_runs import (
    PAGES,
    Outcome,
    expected_calls,
    run_killed,
    run_undisturbed,
)
from tests.services.postgres_server import NoServerError, find_postgres, running_server

pytestmark = pytest.mark.integrations

ROWS = 1_000
MAX_BYTES_PER_CALL = 16_000


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    base = tmp_path_factory.mktemp("undisturbed")
    return run_undisturbed(base / "run", url=f"sqlite:///{base}/parts.sqlite", rows=ROWS)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """Yield the address of a new PostgreSQL server, or skip the test with the reason."""
    try:
        with running_server(find_postgres()) as server:
            yield f"postgresql://tester@/parts?host={server.folder}"
    except NoServerError as exc:
        pytest.skip(str(exc))


def check_same(outcome: Outcome, undisturbed: Outcome, *, round_number: int) -> None:
    assert outcome.calls == expected_calls(round_number)
    assert outcome.answer == undisturbed.answer == "All pages are read."
    # Every process that asked a model sent the same bytes.
    assert outcome.prompts == undisturbed.prompts
    assert outcome.pages == undisturbed.pages
    assert outcome.recorded_bytes == undisturbed.recorded_bytes


def test_an_undisturbed_run_records_little_and_keeps_each_result(undisturbed: Outcome) -> None:
    assert [page[0]["id"] for page in undisturbed.pages] == [n * ROWS for n in range(PAGES)]
    assert [len(prompts) for prompts in undisturbed.prompts.values()] == [1] * (PAGES + 1)
    assert undisturbed.recorded_bytes <= 2_000 * PAGES
    assert undisturbed.database_bytes <= MAX_BYTES_PER_CALL * PAGES


def test_a_run_that_is_killed_at_each_step_repeats_and_loses_nothing_t_13(
    tmp_path: Path, undisturbed: Outcome
) -> None:
    url = f"sqlite:///{tmp_path}/parts.sqlite"
    outcome = run_killed(tmp_path / "run", url=url, rows=ROWS, round_number=0)
    check_same(outcome, undisturbed, round_number=0)
    assert outcome.database_bytes <= MAX_BYTES_PER_CALL * PAGES


def test_a_run_on_postgresql_that_is_killed_at_each_step_repeats_and_loses_nothing_t_13(
    tmp_path: Path, undisturbed: Outcome, postgres_url: str
) -> None:
    assert os.environ.get("DBOS_SYSTEM_DATABASE_URL") is None
    outcome = run_killed(tmp_path / "run", url=postgres_url, rows=ROWS, round_number=1)
    check_same(outcome, undisturbed, round_number=1)
