"""Is every count that a preview states true, and how many questions does it answer so?

An oracle makes records of several domains and questions about them, with the truth beside each:
two generators by different authors, since who writes the reader and its questions agrees with
himself. A question is answered if the count that the preview states for it is the true one. For
the questions that the records cannot answer (averages, vague words, relative times) nothing may be
stated. `make test` holds that nothing is false, with other seeds.

The reports of test runners in a folder, such as `python/test/files` of the public repository
EnricoMi/publish-unit-test-result-action (Apache-2.0), are previewed without a question. Their own
elements tell which tests failed: how many of the first six names are in the preview, beside those
in as many characters of the beginning, and does a preview tell of failures where none failed?

The previews of the texts in a folder, such as `Rdatasets` of the public repository curran/data, are
compared with Python's own readers: how many lines and records there are, how many columns, and what
stands in a line with its number. As a control, the same is asked of previews in which each of these
numbers is one higher.

    python -m benchmarks.quality_claims            # 2,000 questions of each generator
    python -m benchmarks.quality_claims 5 1000     # another seed, 1,000 questions
    LLM_COMMON_EVAL_REPORTS=FOLDER python -m benchmarks.quality_claims
    LLM_COMMON_EVAL_TEXTS=FOLDER python -m benchmarks.quality_claims
"""

import csv
import io
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from llm_common.parts.result_parts import ResultParts
from tests.oracle import other_hand, templates
from tests.oracle.verdicts import verdict_of

REPORTS: Final = os.environ.get("LLM_COMMON_EVAL_REPORTS")
TEXTS: Final = os.environ.get("LLM_COMMON_EVAL_TEXTS")
_PREVIEW_CHARS: Final = 1_600
_MIN_CHARS: Final = 3_000
_MAX_NAMES: Final = 6  # of one report
_NAME_CHARS: Final = 40  # of a name, which a preview may clip
_TESTS: Final = {"testcase", "test-case", "test", "UnitTestResult"}
_FAILED: Final = {"Fail", "Failed", "Failure", "Error"}


def reports(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each report of a folder with the names of the tests that failed."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in {".xml", ".trx"}:
            continue
        text = path.read_text("utf-8-sig", "replace")
        with suppress(ET.ParseError):
            names = list(_failed(ET.fromstring(text.encode())))
            if len(text) >= _MIN_CHARS:
                yield text, names


def _failed(root: ET.Element) -> Iterator[str]:
    for test in root.iter():
        parts = {part.tag.rpartition("}")[2] for part in test}
        verdict = test.get("result") or test.get("outcome")
        is_failed = not parts.isdisjoint({"failure", "error"}) or verdict in _FAILED
        if test.tag.rpartition("}")[2] in _TESTS and is_failed:
            yield test.get("name") or test.get("testName") or ""


def measure_reports(folder: Path) -> None:
    """Print how many of the failed tests previews name, and whether they tell of others."""
    shares: list[float] = []
    of_heads: list[float] = []
    told: Counter[bool] = Counter()
    passed = 0
    for text, failed in reports(folder):
        preview = ResultParts(text, text, "").excerpt(_PREVIEW_CHARS).text
        told[bool(failed)] += "may tell of failures" in preview
        if not failed:
            passed += 1
            continue
        names = [name[:_NAME_CHARS] for name in failed]
        most = min(len(names), _MAX_NAMES)
        for held, shown in ((shares, preview), (of_heads, text[:_PREVIEW_CHARS])):
            held.append(min(sum(name in shown for name in names) / most, 1.0))
    print("| reports with failures | told | names shown | in the beginning | without | told |")
    print("|---|---|---|---|---|---|")
    means = [sum(each) / max(len(each), 1) for each in (shares, of_heads)]
    shown = " | ".join(f"{mean:.2f}" for mean in means)
    print(f"| {len(shares)} | {told[True]} | {shown} | {passed} | {told[False]} |")


_COUNTS: Final = re.compile(r"^Table records: ([\d,]+) records?, ([\d,]+) fields?\b", re.MULTILINE)
_LINES: Final = re.compile(r"^([\d,]+) lines\. Some of them, with their numbers:$", re.MULTILINE)
_LINE: Final = re.compile(r"^(\d+): (.*)$", re.MULTILINE)
# The share of changed statements that must be found false.
_MIN_FOUND: Final = 0.95


def statements(preview: str, text: str) -> Iterator[bool]:
    """Yield for each number of a preview whether it is true of the text.

    Only what Python's own readers tell for certain is compared: rows of commas that are all as long,
    below names without numbers, and lines that a preview shows as they are.
    """
    lines = text.splitlines()
    counts, number = _COUNTS.search(preview), _LINES.search(preview)
    if counts:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        has_names = not any(re.fullmatch(r"[-\d.]+", cell) for cell in rows[0])
        if len({*map(len, rows)}) == 1 and has_names:
            yield int(counts[1].replace(",", "")) == len(rows) - 1
            yield int(counts[2].replace(",", "")) == len(rows[0])
    if number:
        yield int(number[1].replace(",", "")) == len(lines)
        for line in _LINE.finditer(preview, number.end()):
            index = int(line[1]) - 1
            words = line[2].strip("…").split()
            yield index < len(lines) and " ".join(words) in " ".join(lines[index].split())


def measure_texts(folder: Path) -> bool:
    """Print how many statements of previews are false, and return whether none is."""
    told: Counter[bool] = Counter()
    changed: Counter[bool] = Counter()
    for path in sorted(folder.rglob("*")):
        text = ""
        with suppress(OSError, UnicodeDecodeError):
            text = path.read_bytes().decode().replace("\r\n", "\n")
        # `splitlines` knows further line ends, and a preview has no colours.
        has_others = "\x1b" in text or text.splitlines() != text.removesuffix("\n").split("\n")
        if len(text) < _MIN_CHARS or has_others:
            continue
        preview = ResultParts(text, text, "").excerpt(_PREVIEW_CHARS).text
        told.update(statements(preview, text))
        false = preview
        for pattern in (_COUNTS, _LINES, _LINE):
            false = pattern.sub(_one_higher, false)
        changed.update(statements(false, text))
    print("| statements | false | of changed ones, found |")
    print("|---|---|---|")
    found = changed[False] / max(changed.total(), 1)
    print(f"| {told.total():,} | {told[False]:,} | {found:.3f} |")
    return not told[False] and found >= _MIN_FOUND


def _one_higher(match: re.Match[str]) -> str:
    number = re.compile(r"[\d,]*\d")
    shown = match[0].partition(": ")[0] if match.re is _LINE else match[0]
    higher = number.sub(lambda digits: f"{int(digits[0].replace(',', '')) + 1:,}", shown)
    return higher.replace(",", "") + match[0][len(shown) :] if match.re is _LINE else higher


def main() -> None:
    """Print a row for each generator, and one for the reports in a folder."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 9_917
    questions = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000
    print("| questions | stated and true | false | not stated | rightly not stated |")
    print("|---|---|---|---|---|")
    for label, module in (("templates", templates), ("other hand", other_hand)):
        verdict = verdict_of(module.domains(seed, questions=questions))
        told = [verdict.outcomes[name] for name in ("right", "silent", "rightly silent")]
        right, silent, rightly = told
        print(f"| {label} | {right:,} | {len(verdict.false):,} | {silent:,} | {rightly:,} |")
    if REPORTS:
        measure_reports(Path(REPORTS))
    if TEXTS and not measure_texts(Path(TEXTS)):
        sys.exit("a preview tells something false")


if __name__ == "__main__":
    main()
