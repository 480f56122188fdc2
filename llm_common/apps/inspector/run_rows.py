"""What a list shows of each run beside its first and last line."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from llm_common.apps.inspector.output_tokens import OutputTokens
from llm_common.apps.inspector.run_outputs import flows
from llm_common.apps.inspector.runs_page import RecordedRuns, RunRow
from llm_common.errors import StoreError
from llm_common.trace import ModelCallLine, RecordedRun, account

_MAX_READ_BYTES: Final = 20_000_000  # of all runs of a page, about half a second


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list.

    Attributes:
        row: Its first and last line.
        returned: Tokens of all its outputs, estimated for those that were not counted. None if the
            run was not read.
        shown: Tokens of them in the prompt. None if the run was not read.
        models: Names of the models that it called.
        cost_usd: Dollars of all model calls. None if a price is unknown, or nothing was called.
    """

    row: RunRow
    returned: int | None = None
    shown: int | None = None
    models: tuple[str, ...] = ()
    cost_usd: float | None = None


def summaries(runs: RecordedRuns, rows: Sequence[RunRow], tokens: OutputTokens) -> list[RunSummary]:
    """Return the rows with the sums of their runs. Reads the first runs of up to 20 MB."""
    read_bytes = 0
    read: dict[RunRow, RecordedRun] = {}
    for row in rows:
        read_bytes += row.bytes
        if read_bytes <= _MAX_READ_BYTES:
            with suppress(OSError, StoreError):  # a `Trace` may delete the file meanwhile
                read[row] = runs.run(row.folder, row.run_id)
    counts = tokens.of(read.values())
    listed = []
    for row in rows:
        run = read.get(row)
        listed.append(RunSummary(row) if run is None else _summary(row, run, counts))
    return listed


def _summary(row: RunRow, run: RecordedRun, counts: Mapping[str, int]) -> RunSummary:
    outputs = flows(run, returned_tokens=counts)
    attempts = [
        line.attempt for line in run.of(ModelCallLine) if line.attempt.model != account.NO_MODEL
    ]
    models = dict.fromkeys(attempt.model for attempt in attempts if attempt.model)
    costs = [attempt.cost_usd for attempt in attempts if attempt.cost_usd is not None]
    cost = sum(costs) if costs and len(costs) == len(attempts) else None
    return RunSummary(row, outputs.returned, outputs.shown, tuple(models), cost)
