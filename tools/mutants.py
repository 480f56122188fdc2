"""Break the package in small ways, one at a time, and check that the tests notice.

A mutant is a line of code changed so that a promise breaks. The files of `mutants/` hold them: the
promise, the file, what is replaced by what, and the tests that should notice. Run:

    make mutants                      # all, with a line for each and the share that was noticed
    make mutants MUTANTS="s0_18 m08"  # those whose name holds one of the words
    make mutants MUTANTS=--list

Each worker changes a copy of the package in a temporary folder; the checkout is never touched. Ends
with 1 when less than 95 % are noticed, and with 2 when a mutant no longer fits the code.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).with_suffix("")
COPIED = ("llm_common", "tests", "tools", "benchmarks", "examples", "docs")
TIMEOUT_S = 240
ENOUGH = 0.95
# Of pytest, which ends with 4 where a test that is named does not exist.
NOTHING_COLLECTED = (4, 5)
IGNORED = shutil.ignore_patterns("__pycache__", ".*cache")


@dataclass(frozen=True)
class Mutant:
    """One change in one file.

    Attributes:
        name: The promise's id and a few words.
        file: Path of the module, from the repository's root.
        find: Code that stands in it exactly once.
        replace: What it becomes.
        tests: Paths, or paths with `::` and a name, that should notice.
        equivalent: Why no test can notice; such a mutant counts for nothing.
    """

    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    equivalent: str = ""

    def problem(self) -> str | None:
        """Return why the mutant does not match the code, or None."""
        path = ROOT / self.file
        if not path.is_file():
            return f"there is no {self.file}"
        code = path.read_text(encoding="utf-8")
        if (count := code.count(self.find)) != 1:
            return f"{self.find!r} stands {count} times in {self.file}"
        if missing := [
            test for test in self.tests if not (ROOT / test.partition("::")[0]).exists()
        ]:
            return f"there are no tests {', '.join(missing)}"
        try:
            ast.parse(self.mutated(code))
        except SyntaxError as exc:
            return f"the changed {self.file} is no Python: {exc}"
        return None

    def mutated(self, code: str) -> str:
        """Return the code of the file with the change."""
        return code.replace(self.find, self.replace)


def read_mutants(folder: Path = FOLDER) -> list[Mutant]:
    """Return the mutants of all files, sorted by name."""
    files = [
        tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))
    ]
    return [
        Mutant(**{**table, "tests": tuple(table["tests"])})
        for file in files
        for table in file["mutant"]
    ]


@contextmanager
def workplace() -> Iterator[Path]:
    """Copy what the tests need into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        place = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, place / name, ignore=IGNORED)
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy2(path, place / path.name)
        yield place


def is_noticed(mutant: Mutant, place: Path) -> bool:
    """Return whether the tests of a mutant fail or time out in the copy."""
    target = place / mutant.file
    whole = target.read_text(encoding="utf-8")
    target.write_text(mutant.mutated(whole), encoding="utf-8")
    try:
        return run_tests(mutant.tests, place) != 0
    finally:
        target.write_text(whole, encoding="utf-8")


def run_tests(tests: tuple[str, ...], place: Path) -> int:
    """Return the exit status of the tests in the copy, or 124 after `TIMEOUT_S`.

    Raises:
        SystemExit: The tests named do not exist.
    """
    # Without bytecode: two mutants of one size within a second would share it.
    environment = os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *tests,
    ]
    if any(test.startswith("tests/apps/gateway/") for test in tests):
        command += ["-m", ""]  # with the marked ones
    with subprocess.Popen(
        command,
        cwd=place,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            status = process.wait(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # with what the tests have started
            return 124
    if status in NOTHING_COLLECTED:
        sys.exit(f"no test was found by {' '.join(tests)}")
    return status


def run(mutants: list[Mutant], workers: int) -> list[Mutant]:
    """Print a line for each mutant, and return those that no test noticed."""
    survivors: list[Mutant] = []
    places: SimpleQueue[Path] = SimpleQueue()

    def attempt(mutant: Mutant) -> None:
        place = places.get()
        started = time.monotonic()
        try:
            noticed = is_noticed(mutant, place)
        finally:
            places.put(place)
        if not noticed:
            survivors.append(mutant)
        print(
            f"{'noticed ' if noticed else 'SURVIVED'} {time.monotonic() - started:5.0f} s  "
            f"{mutant.name}",
            flush=True,
        )

    with workplace() as first, workplace() as second, ThreadPoolExecutor(workers) as threads:
        for place in (first, second)[:workers]:
            places.put(place)
        list(threads.map(attempt, mutants))
    return survivors


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only mutants whose name holds one of these")
    parser.add_argument("--list", action="store_true", help="print the names and run nothing")
    parser.add_argument(
        "--workers",
        type=int,
        choices=(1, 2),
        default=2,
        help="copies at work at a time (default 2)",
    )
    options = parser.parse_args()
    mutants = [
        one
        for one in read_mutants()
        if not options.words or any(word in one.name for word in options.words)
    ]
    if misfits := [f"{one.name}: {problem}" for one in mutants if (problem := one.problem())]:
        print(*misfits, sep="\n", file=sys.stderr)
        sys.exit(2)
    if options.list:
        print(
            *(
                one.name + (f" (equivalent: {one.equivalent})" if one.equivalent else "")
                for one in mutants
            ),
            sep="\n",
        )
        return
    tried = [one for one in mutants if not one.equivalent]
    survivors = run(tried, options.workers)
    share = 1 - len(survivors) / len(tried) if tried else 1.0
    print(f"\n{len(tried) - len(survivors)} of {len(tried)} noticed: {share:.1%}")
    if share < ENOUGH:
        sys.exit(1)


if __name__ == "__main__":
    main()
