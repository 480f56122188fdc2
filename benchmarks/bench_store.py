"""Measure `FileContextPointerStore` beside a floor and beside released stores of other packages.

The floor is the system calls and the encoder in a bare loop (`store_subjects.py`); the peers
(`store_peers.py`) are measured where they are installed, as by `make bench-peers`. All do the same
in turn, round after round, so that a busy machine slows them alike; a ratio is the median of the
rounds' ratios. CPU is the time of the whole process with its threads. The longest stall is the
longest time for which a coroutine that wants to run each millisecond did not get to; the machine's
own stalls, without any work, stand beside it.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.store_measuring import Sample, in_turn, measured, quiet_place, search_hits, ticked
from benchmarks.store_peers import PEERS, Haystack, installed_peers, open_peers
from benchmarks.store_subjects import Floor, Ours, Subject
from benchmarks.store_table import Column, Table, replace_between_markers, where_and_when

SIZES = {"1KB": 1_000, "32KB": 32_000, "1MB": 1_000_000, "20MB": 20_000_000}
REPEATS = {"1KB": 32, "32KB": 32, "1MB": 4, "20MB": 1}
SMALL = {"1KB", "32KB"}
JUDGED = "32KB"
TEXT = "20MB of text"
QUICKER_PEERS = {"strands-agents", "diskcache"}  # one file, or one row, without a digest
MAX_STALL_MS = {"20MB": 60, TEXT: 60}  # one call of the encoder, which holds the interpreter
AT_ONCE = 8
"""As many tool calls as a turn of an agent has."""
LARGE = 100_000
DOCUMENT = Path(__file__).parents[1] / "docs/benchmarks.md"

FLOOR, FLOOR_SHA256, FLOOR_FSYNC = "floor", "floor and SHA-256", "floor and fsync"
FLOOR_THREAD, FLOOR_FSYNC_THREAD = "floor, SHA-256, thread", "floor, SHA-256, thread, fsync"
RENAME, FULL, IDLE = "llm-common, rename", "llm-common, full", "nothing"


@dataclass(frozen=True, slots=True)
class Limit:
    """A value with its upper limit."""

    name: str
    value: float
    most: float

    @property
    def holds(self) -> bool:
        return self.value <= self.most

    def __str__(self) -> str:
        return (
            f"{'ok  ' if self.holds else 'OVER'} {self.value:9.2f}, at most {self.most:4g} "
            f"{self.name}"
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """The folder, sizes and rounds of a section."""

    folder: Path
    rounds: int
    payloads: dict[str, object]
    pointers: int
    peers: Sequence[Subject]

    def floor(self) -> Subject:
        return Floor(FLOOR, self.folder / "floor")

    def rename(self) -> Subject:
        return Ours(RENAME, self.folder / "rename", durability="rename")

    def full(self) -> Subject:
        return Ours(FULL, self.folder / "full", durability="full")

    def run(
        self,
        subjects: Sequence[Subject],
        work: Callable[[Subject, str], Awaitable[Sample]],
        *,
        drop: bool,
    ) -> dict[str, list[Sample]]:
        return asyncio.run(in_turn(subjects, work, rounds=self.rounds, drop=drop))


Outcome = tuple[list[Table], list[Limit]]


def measure_saves(setting: Setting) -> Outcome:
    """Measure one save after another."""
    floors = [
        setting.floor(),
        Floor(FLOOR_SHA256, setting.folder / "sha256", sha256=True),
        Floor(FLOOR_THREAD, setting.folder / "thread", sha256=True, thread=True),
        Floor(FLOOR_FSYNC, setting.folder / "fsync", fsync=True),
        Floor(
            FLOOR_FSYNC_THREAD,
            setting.folder / "fsync-thread",
            fsync=True,
            sha256=True,
            thread=True,
        ),
    ]
    subjects = [*floors, setting.rename(), setting.full(), *setting.peers]
    samples = {}
    for size, value in setting.payloads.items():

        async def work(
            subject: Subject, query: str, value: object = value, repeats: int = REPEATS[size]
        ) -> Sample:
            return await measured(
                lambda: save_in_turn(subject, query, value, repeats), repeats=repeats
            )

        samples[size] = setting.run(subjects, work, drop=size not in SMALL)
    cpu, wall = both_times(
        "One save after another", samples, {FULL: FLOOR_FSYNC, FLOOR_FSYNC_THREAD: FLOOR_FSYNC}
    )
    limits = []
    if JUDGED in samples:
        limits = [
            Limit(f"ms: save {JUDGED}, full", wall.columns[JUDGED].median_ms(FULL), 5),
            *limits_beside_peers(wall.columns[JUDGED], f"save {JUDGED}", setting.peers),
            *limits_beside_peers(
                cpu.columns[JUDGED], f"save {JUDGED}, CPU", setting.peers, most=2.5
            ),
        ]
    return [cpu, wall], limits


def measure_loads(setting: Setting) -> Outcome:
    """Measure one load after another, and compare what is loaded with what was saved."""
    sha256 = Floor(FLOOR_SHA256, setting.folder / "sha256", sha256=True)
    subjects = [setting.floor(), sha256, setting.rename(), *setting.peers]
    samples = {}
    for size, value in setting.payloads.items():

        async def work(
            subject: Subject, query: str, value: object = value, repeats: int = REPEATS[size]
        ) -> Sample:
            await save_in_turn(subject, query, value, repeats)
            sample = await measured(lambda: load_in_turn(subject, query, repeats), repeats=repeats)
            assert await subject.load(query, 0) == value, f"{subject.name} changed a result"
            return sample

        samples[size] = setting.run(subjects, work, drop=size not in SMALL)
    cpu, wall = both_times("One load after another", samples, {})
    return [cpu, wall], [
        Limit(f"x CPU of the floor: load {size}", cpu.columns[size].ratio(RENAME, FLOOR), 3)
        for size in filter(samples.get, (JUDGED, "1MB"))
    ]


def measure_listings(setting: Setting) -> Outcome:
    """Measure listings of one query: cold by a new object, hot by the same object again."""
    subjects = [
        setting.floor(),
        setting.rename(),
        *(peer for peer in setting.peers if peer.name != Haystack.name),
    ]
    hot: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}

    async def work(subject: Subject, _: str) -> Sample:
        fresh = subject.reopen()
        sample = await measured(lambda: fresh.list("listed"))
        hot[subject.name].append(await measured(lambda: fresh.list("listed")))
        assert await fresh.list("listed") == setting.pointers, (
            f"{subject.name} lists another number"
        )
        return sample

    for subject in subjects:
        asyncio.run(save_in_turn(subject, "listed", search_hits(SIZES["1KB"]), setting.pointers))
    cold = setting.run(subjects, work, drop=False)
    hot = {name: samples[1:] for name, samples in hot.items()}
    columns = {
        "cold, CPU": Column("cpu_s", cold),
        "cold, wall": Column("wall_s", cold),
        "hot, CPU": Column("cpu_s", hot),
        "hot, wall": Column("wall_s", hot),
    }
    return [Table(f"A listing of {setting.pointers:,}", columns, dict.fromkeys(cold, FLOOR))], [
        Limit(f"ms: list {setting.pointers:,}, hot", columns["hot, wall"].median_ms(RENAME), 10),
        *limits_beside_peers(columns["hot, wall"], "list hot", setting.peers, most=1),
    ]


def measure_saves_at_once(setting: Setting) -> Outcome:
    """Measure concurrent saves. 20 MB are left out, because some stores would need gigabytes."""
    subjects = [setting.floor(), setting.rename(), setting.full(), *setting.peers]
    tables, limits = [], []
    for size, value in setting.payloads.items():
        if size == "20MB":
            continue

        async def work(subject: Subject, query: str, value: object = value) -> Sample:
            return await ticked(lambda: save_at_once(subject, query, value))

        samples = setting.run(subjects, work, drop=size not in SMALL)
        wall, stall = Column("wall_s", samples), Column("stall_s", samples)
        columns = {"all, wall": wall, "all, CPU": Column("cpu_s", samples), "longest stall": stall}
        tables.append(Table(f"{AT_ONCE} saves of {size} at once", columns, {}))
        if size == JUDGED:
            name = f"{AT_ONCE} saves of {size} at once"
            limits.append(Limit(f"ms: {name}, full", wall.median_ms(FULL), 50))
            limits.append(Limit(f"ms longest stall: {name}, rename", stall.median_ms(RENAME), 20))
            limits += limits_beside_peers(wall, name, setting.peers)
    return tables, limits


def measure_stalls(setting: Setting) -> Outcome:
    """Measure one save, and how long it stalls the event loop."""
    subjects = [setting.floor(), setting.rename(), setting.full(), *setting.peers]
    values = {size: value for size, value in setting.payloads.items() if size not in SMALL}
    if "20MB" in values:
        values[TEXT] = "The loop has to breathe." * (SIZES["20MB"] // 24)

    async def idle() -> list[Sample]:
        return [await ticked(lambda: asyncio.sleep(0.1)) for _ in range(setting.rounds)]

    columns = {}
    for size, value in values.items():

        async def work(subject: Subject, query: str, value: object = value) -> Sample:
            return await ticked(lambda: subject.save(query, 0, value))

        samples = {IDLE: asyncio.run(idle())} | setting.run(subjects, work, drop=True)
        columns[size] = Column("stall_s", samples)
        columns[f"{size}, CPU"] = Column("cpu_s", samples)
    limits = [
        Limit(
            f"ms longest stall: save {size}, {row}",
            columns[size].median_ms(row),
            MAX_STALL_MS.get(size, 20),
        )
        for size in values
        for row in (RENAME, FULL)
    ]
    if "20MB" in values:
        limits.append(
            Limit(f"ms CPU: save 20MB, {RENAME}", columns["20MB, CPU"].median_ms(RENAME), 100)
        )
    return [Table("Longest stall during one save, and its CPU time", columns, {})], limits


def measure_large(setting: Setting) -> Outcome:
    """Measure listings of very many pointers, each in a separate process."""
    asyncio.run(fill(setting))
    command = [sys.executable, __file__, "--list-in", str(setting.folder / "large")]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        for _ in range(3)
    ]
    assert {run["listed"] for run in runs} == {setting.pointers}
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    listing = f"listing of {setting.pointers:,}"
    return [], [
        Limit(f"s CPU: {listing}, cold", best["cold_s"], 2.5),
        Limit(f"s CPU: {listing}, hot", best["hot_s"], 0.3),
        Limit(f"MB resident: {listing}", best["resident_mb"], 250),
    ]


async def fill(setting: Setting) -> None:
    store = Ours(RENAME, setting.folder / "large", durability="rename")
    for start in range(0, setting.pointers, AT_ONCE):
        batch = range(start, min(start + AT_ONCE, setting.pointers))
        await asyncio.gather(*(store.save("listed", number, "short") for number in batch))


def peak_mb() -> float:
    """Return the peak memory of this process. getrusage may return that of its parent."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


async def list_twice(base: Path) -> None:
    """Print what two listings take in this process, as a line of JSON."""
    store = Ours(RENAME, base, durability="rename")
    cold = await measured(lambda: store.list("listed"))
    hot = await measured(lambda: store.list("listed"))
    listed = await store.list("listed")
    print(
        json.dumps(
            {"listed": listed, "cold_s": cold.cpu_s, "hot_s": hot.cpu_s, "resident_mb": peak_mb()}
        )
    )


def limits_beside_peers(
    column: Column, name: str, peers: Sequence[Subject], *, most: float = 5
) -> list[Limit]:
    """Return a limit for each peer that keeps a result with its digest.

    None of them describes a result, looks for secrets or takes a lock, which is most of a small
    save.
    """
    return [
        Limit(f"x time of {peer.name}: {name}", column.ratio(RENAME, peer.name), most)
        for peer in peers
        if peer.name not in QUICKER_PEERS and peer.name in column.samples
    ]


async def save_in_turn(subject: Subject, query: str, value: object, saves: int) -> None:
    for number in range(saves):
        await subject.save(query, number, value)


async def load_in_turn(subject: Subject, query: str, loads: int) -> None:
    for number in range(loads):
        await subject.load(query, number)


async def save_at_once(subject: Subject, query: str, value: object) -> None:
    await asyncio.gather(*(subject.save(query, number, value) for number in range(AT_ONCE)))


def both_times(
    title: str, samples: dict[str, dict[str, list[Sample]]], ratio_to: dict[str, str]
) -> tuple[Table, Table]:
    """Return CPU and wall time by size, compared with the floor unless another base is named."""
    rows = next(iter(samples.values()))
    bases = dict.fromkeys(rows, FLOOR) | ratio_to
    cpu = {size: Column("cpu_s", found) for size, found in samples.items()}
    wall = {size: Column("wall_s", found) for size, found in samples.items()}
    return Table(f"{title}, CPU time", cpu, bases), Table(f"{title}, wall time", wall, bases)


SECTIONS = {
    "save": measure_saves,
    "load": measure_loads,
    "list": measure_listings,
    "at-once": measure_saves_at_once,
    "stall": measure_stalls,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each section (default 7)")
    parser.add_argument(
        "--sizes", default=",".join(SIZES), help=f"some of {','.join(SIZES)} (default all)"
    )
    parser.add_argument(
        "--pointers", type=int, help=f"how many are listed (default 1,000; {LARGE:,} with --large)"
    )
    parser.add_argument(
        "--only", action="append", choices=SECTIONS, help="one section; may be repeated"
    )
    parser.add_argument(
        "--large", action="store_true", help=f"nothing but listings of {LARGE:,} pointers (minutes)"
    )
    parser.add_argument("--fast-peers", action="store_true", help="let orjson encode for the peers")
    parser.add_argument("--folder", help="where to measure (default: where temporary files are)")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {DOCUMENT.name}")
    parser.add_argument("--list-in", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.list_in:
        asyncio.run(list_twice(options.list_in))
        return
    sections = (
        [measure_large] if options.large else [SECTIONS[name] for name in options.only or SECTIONS]
    )
    payloads = {size: search_hits(SIZES[size]) for size in options.sizes.split(",")}
    pointers = options.pointers or (LARGE if options.large else 1_000)
    tables: list[Table] = []
    limits: list[Limit] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for section in sections:
            place = quiet_place(Path(folder))
            peers = open_peers(place, fast=options.fast_peers)
            outcome = section(Setting(place, options.rounds, payloads, pointers, peers))
            tables += outcome[0]
            limits += outcome[1]
        where = where_and_when(Path(folder), ["llm-common", "orjson", *installed_peers()])
    report(tables, limits, where=where, write=options.write)


def report(tables: Sequence[Table], limits: Sequence[Limit], *, where: str, write: bool) -> None:
    """Print the tables, and end with an error if a limit is exceeded."""
    text = "\n\n".join([where, *(table.markdown() for table in tables)])
    print(text, "", *limits, sep="\n")
    if missing := [peer.name for peer in PEERS if peer.name not in installed_peers()]:
        print(f"not measured, since not installed (make bench-peers): {', '.join(missing)}")
    if write and tables:
        replace_between_markers(DOCUMENT, "bench_store", text)
    if not all(limit.holds for limit in limits):
        sys.exit("over a limit")


if __name__ == "__main__":
    main()
