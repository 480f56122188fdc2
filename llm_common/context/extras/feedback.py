"""`AdaptiveWeights`: weights that learn which items helped, in one SQLite file."""

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from llm_common._threads import in_thread
from llm_common.context.bundle import ContextBundle, ItemAccount
from llm_common.context.request import IntentType, Kind
from llm_common.storage.sqlite_file import open_sqlite, sqlite_errors_as_store_errors, transaction
from llm_common.text.display import one_line

_MIN_FACTOR: Final = 0.5
_MAX_FACTOR: Final = 2.0
"""The weight of a part is at least half and at most twice that of the strategy."""

STEP: Final = 0.1
"""Most that one verdict adds to the logarithm of a factor: none decides alone."""

HALF_LIFE: Final = timedelta(days=30)
"""Time without a new verdict after which a logarithm has half its size."""


def pushes(bundle: ContextBundle, account: ItemAccount, *, helpful: bool) -> dict[str, float]:
    """What a verdict on an item adds to the logarithm of each part's factor, within ±`STEP`.

    A helpful item should beat the mean of its rivals, the other kept items of its kind, or all
    others of the kind where none was kept; an unhelpful one should lose to it. The parts by which
    it does differ are moved multiplicatively along the gradient of the logistic loss of that
    comparison (exponentiated gradient: Kivinen & Warmuth 1997,
    https://doi.org/10.1006/inco.1996.2612), so that a comparison that is right by a wide margin
    moves little. All differences are measured in the largest of them, and the moves of a verdict
    sum up to 0, as the normalisation there has it: scores keep their scale, and with it the
    cut-offs their meaning.

    Returns:
        The moves by part; empty without a rival, and where no part differs. If only one part
        differs, its move is 0: any factor gives the same order by one part.
    """
    lead = _lead(bundle, account)
    largest = max(map(abs, lead.values()), default=0.0)
    if not 0.0 < largest < math.inf:
        return {}
    lead = {name: value / largest for name, value in lead.items()}
    verdict = 1.0 if helpful else -1.0
    surprise = 1.0 / (1.0 + math.exp(verdict * sum(lead.values())))
    balance = sum(lead.values()) / len(lead)
    moves = {name: value - balance for name, value in lead.items()}
    size = STEP * verdict * surprise / max(1.0, *map(abs, moves.values()))
    return {name: size * move for name, move in moves.items()}


def faded(logarithm: float, age: timedelta) -> float:
    """The rest of a factor's logarithm after that time; all of it if the clock went back."""
    return logarithm * math.exp2(-max(0.0, age / HALF_LIFE))


def bounded(logarithm: float) -> float:
    """The logarithm, limited to that of `_MIN_FACTOR` and of `_MAX_FACTOR`."""
    return max(math.log(_MIN_FACTOR), min(math.log(_MAX_FACTOR), logarithm))


def _lead(bundle: ContextBundle, account: ItemAccount) -> dict[str, float]:
    """By how much each part of the item exceeds the mean of its rivals'.

    Parts in which none differs, and those that are no finite number, are left out.
    """
    rivals = _rivals(bundle.kept, account) or _rivals(bundle.dropped, account)
    if not rivals:
        return {}
    names = set(account.parts).union(*(rival.parts for rival in rivals))
    lead: dict[str, float] = {}
    for name in sorted(names):
        values = [rival.parts.get(name, 0.0) for rival in rivals]
        own = account.parts.get(name, 0.0)
        ahead = own - sum(values) / len(values)
        if set(values) != {own} and math.isfinite(ahead):
            lead[name] = ahead
    return lead


def _rivals(accounts: Sequence[ItemAccount], account: ItemAccount) -> list[ItemAccount]:
    of_kind = [rival for rival in accounts if rival.kind == account.kind]
    return [rival for rival in of_kind if rival.id != account.id]


T = TypeVar("T")

_APPLICATION_ID: Final = 0x6C6C6D77  # "llmw"
_MIGRATIONS: Final = (
    (
        """CREATE TABLE factors (
            intent TEXT NOT NULL,
            strategy TEXT NOT NULL,
            part TEXT NOT NULL,
            logarithm REAL NOT NULL,
            moved_at REAL NOT NULL,
            PRIMARY KEY (intent, strategy, part)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE verdicts (
            number INTEGER PRIMARY KEY,
            item BLOB NOT NULL UNIQUE,
            helpful INTEGER NOT NULL
        ) STRICT""",
    ),
)
_MAX_VERDICTS: Final = 10_000  # about 1 MB; an older one given again counts as new


class AdaptiveWeights:
    """Factors for the parts of a score, by intent and strategy, learned from feedback.

    Nothing uses them unless the caller puts them into a request:

        request = ContextSelectionRequest(intent=intent, weights=await
        adaptive.weights(intent.classification), ...)

    They are factors of scores and nothing else: the budget, what is mentioned, pinned or excluded,
    and the newest turns are as without them; an item near the strategy's cut-off may cross it.
    Every factor stays within [0.5, 2], so that no part is silenced and none drowns the others, and
    falls back to 1 by half in 30 days; for the rule see `pushes`.

    Recall@6 on one half of the queries after verdicts on the six best outputs of each of the other
    half, mean of ten divisions (benchmarks/quality_feedback.py): bfcl_long_mix .92 to .99,
    bfcl_base_mix .97 to 1, wiki_musique .62 to .67, wiki_session .79 to .83, tau_airline_mix .92 to
    .94, wiki_hotpot_b .97 as before, wiki_hotpot_a .93 to .92.

    The file holds factors by the names of intents, strategies and parts, and a hash for each
    verdict of the last 10,000, so that none counts twice; no text and no id of any item. Tasks,
    threads and processes of one machine may share it; the work is done in a thread.

    Args:
        path: The file, made at the first use, readable by its owner alone; on a local disk. `~` is
            expanded.
        lock_timeout_s: Seconds to wait while another process writes; 10 outlasts any healthy write.
    """

    def __init__(self, path: Path | str, *, lock_timeout_s: float = 10.0) -> None:
        self._path = Path(path).expanduser().absolute()
        self._lock_timeout_s = lock_timeout_s

    async def record_feedback(
        self,
        bundle: ContextBundle,
        item_id: str,
        helpful: bool,
        *,
        kind: Kind | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Learns whether an item helped; moves the weights of the bundle's intent at once.

        The same verdict on the same bundle counts once. The opposite one undoes it and counts
        itself.

        Args:
            bundle: What the item was considered for.
            item_id: Id of an item that is in the bundle or was dropped from it.
            helpful: Whether it helped; of a dropped item, whether it should have been in.
            kind: Kind of the item; needed only where items of two kinds share the id.
            now: The moment; None takes the present one. UTC when it has no zone.

        Returns:
            Whether the verdict was new.

        Raises:
            ValueError: The bundle has no such item, or several.
            StoreError: The file cannot be used; nothing was learned.
        """
        account = _account(bundle, item_id, kind)
        at = _seconds(now)
        return await self._run(
            lambda connection: _learn(connection, bundle, account, helpful=helpful, at=at)
        )

    async def weights(
        self, intent: IntentType, *, strategy: str = "measured", now: datetime | None = None
    ) -> dict[str, float]:
        """The factors for requests of this intent, by part, without those of 1.

        They are rounded to hundredths: otherwise the decay would change every bundle a little.

        Args:
            intent: The intent's classification.
            strategy: Name of the strategy that the request asks for.
            now: The moment; None takes the present one. UTC when it has no zone.

        Raises:
            StoreError: The file cannot be used.
        """
        at = _seconds(now)
        logarithms = await self._run(
            lambda connection: _logarithms(connection, intent, strategy, at)
        )
        factors = {part: round(math.exp(logarithm), 2) for part, logarithm in logarithms.items()}
        return {part: factor for part, factor in factors.items() if factor != 1.0}

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the work in a thread with a new connection: feedback is rare."""

        def run() -> T:
            with (
                sqlite_errors_as_store_errors(self._path),
                closing(
                    open_sqlite(
                        self._path,
                        application_id=_APPLICATION_ID,
                        migrations=_MIGRATIONS,
                        lock_timeout_s=self._lock_timeout_s,
                    )
                ) as connection,
            ):
                return work(connection)

        return await in_thread(run)


def _account(bundle: ContextBundle, item_id: str, kind: Kind | None) -> ItemAccount:
    accounts = [account for account in (*bundle.kept, *bundle.dropped) if account.id == item_id]
    if kind is not None:
        accounts = [account for account in accounts if account.kind == kind]
    if len(accounts) == 1:
        return accounts[0]
    problem, remedy = "no item", "take one of its accounts"
    if accounts:
        problem, remedy = "items of several kinds", "give the kind"
    quoted_id = one_line(repr(item_id), max_chars=80)
    raise ValueError(f"the bundle has {problem} with the id {quoted_id}; {remedy}")


def _learn(
    connection: sqlite3.Connection,
    bundle: ContextBundle,
    account: ItemAccount,
    *,
    helpful: bool,
    at: float,
) -> bool:
    figures = bundle.metadata
    moves = pushes(bundle, account, helpful=helpful)
    undone = pushes(bundle, account, helpful=not helpful)
    item = _fingerprint(bundle, account)
    with transaction(connection):
        before = connection.execute(
            "SELECT helpful FROM verdicts WHERE item = ?", (item,)
        ).fetchone()
        if before == (helpful,):
            return False
        if before is not None:
            moves = {part: move - undone[part] for part, move in moves.items()}
        _keep_verdict(connection, item, helpful=helpful)
        logarithms = _logarithms(connection, figures.intent, figures.strategy, at)
        for part, move in moves.items():
            logarithm = bounded(logarithms.get(part, 0.0) + move)
            connection.execute(
                "INSERT OR REPLACE INTO factors VALUES (?, ?, ?, ?, ?)",
                (figures.intent, figures.strategy, part, logarithm, at),
            )
    return True


def _logarithms(
    connection: sqlite3.Connection, intent: str, strategy: str, at: float
) -> dict[str, float]:
    rows = connection.execute(
        "SELECT part, logarithm, moved_at FROM factors WHERE intent = ? AND strategy = ? ORDER "
        "BY part",
        (intent, strategy),
    )
    logarithms: dict[str, float] = {}
    for part, logarithm, moved_at in rows:
        logarithms[part] = faded(logarithm, timedelta(seconds=at - moved_at))
    return logarithms


def _keep_verdict(connection: sqlite3.Connection, item: bytes, *, helpful: bool) -> None:
    kept = connection.execute(
        "INSERT OR REPLACE INTO verdicts (item, helpful) VALUES (?, ?)", (item, helpful)
    )
    connection.execute(
        "DELETE FROM verdicts WHERE number <= ?", ((kept.lastrowid or 0) - _MAX_VERDICTS,)
    )


def _fingerprint(bundle: ContextBundle, account: ItemAccount) -> bytes:
    """Identifies an item of one bundle.

    The hash covers the whole bundle, so no id can be guessed from it.
    """
    all_accounts = (*bundle.kept, *bundle.dropped)
    rows = [(item.kind, item.id, item.form, item.score) for item in all_accounts]
    key = [account.kind, account.id, bundle.metadata.selection_strategy, rows]
    return hashlib.sha256(json.dumps(key).encode()).digest()


def _seconds(moment: datetime | None) -> float:
    if moment is None:
        moment = datetime.now(UTC)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
