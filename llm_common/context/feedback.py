"""Learn from feedback which parts of a score matter, in one SQLite file."""

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
from llm_common.context.request import IntentType, Kind, with_zone
from llm_common.storage.sqlite_file import open_sqlite, sqlite_errors_as_store_errors, transaction
from llm_common.text.display import one_line

_MIN_FACTOR: Final = 0.5
_MAX_FACTOR: Final = 2.0
"""A factor stays between a half and two, so that no part is silenced or drowns the others."""

STEP: Final = 0.1
"""Maximum that a verdict adds to the logarithm of a factor, so that none decides alone."""

HALF_LIFE: Final = timedelta(days=30)
"""Time without a verdict in which the logarithm of a factor halves."""


def pushes(bundle: ContextBundle, account: ItemAccount, *, helpful: bool) -> dict[str, float]:
    """Return what a verdict on an item adds to the logarithm of each part's factor.

    A helpful item should beat the mean of its rivals, and an unhelpful one should lose to it. The
    rivals are the other kept items of its kind, or the dropped ones if no other was kept. The
    factors move along the gradient of the logistic loss of this comparison (exponentiated gradient,
    Kivinen & Warmuth 1997, https://doi.org/10.1006/inco.1996.2612). So a comparison that is right
    by a wide margin moves little. Differences are relative to the largest one. The moves of a
    verdict add up to 0, as the normalization in that paper does. So scores keep their scale, and
    the cut-offs their meaning.

    Returns:
        The moves by part, within ±`STEP`. Empty without a rival, and if no part differs. If only
        one part differs, its move is 0, since no factor of a single part changes the order.
    """
    lead = _lead(bundle, account)
    largest = max(map(abs, lead.values()), default=0.0)
    if not 0.0 < largest < math.inf:
        return {}
    lead = {name: value / largest for name, value in lead.items()}
    verdict = 1.0 if helpful else -1.0
    surprise = 1.0 / (1.0 + math.exp(verdict * sum(lead.values())))
    mean = sum(lead.values()) / len(lead)
    moves = {name: value - mean for name, value in lead.items()}
    size = STEP * verdict * surprise / max(1.0, *map(abs, moves.values()))
    return {name: size * move for name, move in moves.items()}


def faded(logarithm: float, age: timedelta) -> float:
    """Return the logarithm of a factor after some time, unchanged if the clock went back."""
    return logarithm * math.exp2(-max(0.0, age / HALF_LIFE))


def bounded(logarithm: float) -> float:
    """Limit the logarithm of a factor to those of `_MIN_FACTOR` and `_MAX_FACTOR`."""
    return max(math.log(_MIN_FACTOR), min(math.log(_MAX_FACTOR), logarithm))


def _lead(bundle: ContextBundle, account: ItemAccount) -> dict[str, float]:
    """Return by how much each part of the item exceeds the mean of its rivals.

    Parts that are the same for all, and differences that are not finite, are omitted.
    """
    rivals = _rivals(bundle.kept, account) or _rivals(bundle.dropped, account)
    if not rivals:
        return {}
    names = set(account.parts)
    for rival in rivals:
        names.update(rival.parts)
    lead: dict[str, float] = {}
    # A sum of floats depends on its order, and the order of a set on the hash seed.
    for name in sorted(names):
        value = account.parts.get(name, 0.0)
        rival_values = [rival.parts.get(name, 0.0) for rival in rivals]
        difference = value - sum(rival_values) / len(rival_values)
        if set(rival_values) != {value} and math.isfinite(difference):
            lead[name] = difference
    return lead


def _rivals(accounts: Sequence[ItemAccount], account: ItemAccount) -> list[ItemAccount]:
    rivals: list[ItemAccount] = []
    for rival in accounts:
        if rival.kind == account.kind and rival.id != account.id:
            rivals.append(rival)
    return rivals


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
_MAX_VERDICTS: Final = 10_000  # about 1 MB. An older verdict that is repeated counts again.


class AdaptiveWeights:
    """Learns factors for the parts of a score from feedback, by intent and strategy.

    They have no effect unless the caller passes them to a request:

        request = ContextSelectionRequest(intent=intent, weights=await
        adaptive.weights(intent.classification), ...)

    They change scores and nothing else. The budget, the newest turns, and mentioned, pinned and
    excluded items are not affected, but an item near the strategy's cut-off may cross it. Every
    factor stays within [0.5, 2], and its logarithm halves in 30 days. `pushes` describes the rule.

    Verdicts on the six best outputs of each query of one half change Recall@6 on the other half.
    These are means of ten splits (benchmarks/quality_feedback.py): bfcl_long_mix .92 to .99,
    bfcl_base_mix .97 to 1, wiki_musique .62 to .67, wiki_session .79 to .83, tau_airline_mix .92 to
    .94, wiki_hotpot_b .97 as before, wiki_hotpot_a .93 to .92.

    The file contains factors by the names of intents, strategies and parts, and hashes of the last
    10,000 verdicts, so that none counts twice. It contains no texts and no ids of items. Tasks,
    threads and processes of one machine may share it. The work is done in a thread.

    Args:
        path: The file, on a local disk. `~` is expanded. The file is created on first use, readable
            only by its owner.
        lock_timeout_s: Seconds to wait while another process writes.
    """

    def __init__(self, path: Path | str, *, lock_timeout_s: float = 10.0) -> None:
        # Absolute, since the file is opened anew each time and the working directory may change.
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
        """Record whether an item helped, and adjust the weights of the bundle's intent.

        A repeated verdict on the same bundle is ignored. The opposite verdict replaces it.

        Args:
            bundle: The bundle for which the item was considered.
            item_id: Id of an item that the bundle kept or dropped.
            helpful: Whether a kept item helped, or whether a dropped item should have been kept.
            kind: Kind of the item, required if items of two kinds have this id.
            now: The time of the verdict. None uses the current time, and a time without a zone is
                in UTC.

        Returns:
            Whether the verdict was new.

        Raises:
            ValueError: If the bundle has no such item, or several.
            StoreError: If the file cannot be used. Nothing is learned then.
        """
        account = _account(bundle, item_id, kind)
        at = _seconds(now)
        return await self._run(
            lambda connection: _learn(connection, bundle, account, helpful=helpful, at=at)
        )

    async def weights(
        self, intent: IntentType, *, strategy: str = "measured", now: datetime | None = None
    ) -> dict[str, float]:
        """Return the factors for requests of an intent, by part. Factors of 1 are omitted.

        Factors are rounded to hundredths. Otherwise their decay would change every bundle a little.

        Args:
            intent: The intent's classification.
            strategy: Name of the strategy of the request.
            now: The current time. None reads the clock, and a time without a zone is in UTC.

        Raises:
            StoreError: If the file cannot be used.
        """
        at = _seconds(now)
        logarithms = await self._run(
            lambda connection: _logarithms(connection, intent, strategy, at)
        )
        factors: dict[str, float] = {}
        for part, logarithm in logarithms.items():
            factor = round(math.exp(logarithm), 2)
            if factor != 1.0:
                factors[part] = factor
        return factors

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the work in a thread with a new connection, since feedback is rare."""

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
    accounts: list[ItemAccount] = []
    for account in (*bundle.kept, *bundle.dropped):
        if account.id == item_id and kind in (None, account.kind):
            accounts.append(account)
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
    intent, strategy = bundle.metadata.intent, bundle.metadata.strategy
    moves = pushes(bundle, account, helpful=helpful)
    undone = pushes(bundle, account, helpful=not helpful)
    item = _fingerprint(bundle, account)
    # Read and written in one transaction, so that two processes lose no verdict.
    with transaction(connection):
        before = connection.execute(
            "SELECT helpful FROM verdicts WHERE item = ?", (item,)
        ).fetchone()
        if before == (helpful,):  # SQLite returns 1 for True, and they are equal
            return False
        if before is not None:
            # The opposite verdict came from the same bundle, so its moves can be computed again.
            moves = {part: move - undone[part] for part, move in moves.items()}
        inserted = connection.execute(
            "INSERT OR REPLACE INTO verdicts (item, helpful) VALUES (?, ?)", (item, helpful)
        )
        # A verdict that is replaced gets a new number, so the highest numbers are the newest.
        oldest = (inserted.lastrowid or 0) - _MAX_VERDICTS
        connection.execute("DELETE FROM verdicts WHERE number <= ?", (oldest,))
        logarithms = _logarithms(connection, intent, strategy, at)
        for part, move in moves.items():
            logarithm = bounded(logarithms.get(part, 0.0) + move)
            connection.execute(
                "INSERT OR REPLACE INTO factors VALUES (?, ?, ?, ?, ?)",
                (intent, strategy, part, logarithm, at),
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


def _fingerprint(bundle: ContextBundle, account: ItemAccount) -> bytes:
    """Hash an item together with its whole bundle, so that no id can be guessed from the hash."""
    all_accounts = (*bundle.kept, *bundle.dropped)
    rows = [(item.kind, item.id, item.form, item.score) for item in all_accounts]
    # Scores and forms too, so that the same verdict on a later selection counts as a new one.
    key = [account.kind, account.id, bundle.metadata.selection_strategy, rows]
    return hashlib.sha256(json.dumps(key).encode()).digest()


def _seconds(moment: datetime | None) -> float:
    return with_zone(moment or datetime.now(UTC)).timestamp()
