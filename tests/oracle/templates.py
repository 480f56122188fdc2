"""Questions about records of a kind, each with the number of records that it means."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from tests.oracle.asked import Asked, Domain
from tests.oracle.domains import Amount, Category, Kind, Record, kinds, value_of

Test = Callable[[Record], bool]

_FRAMES: Final = (
    "How many {noun} {clause}?",
    "How many of the {noun} {clause}?",
    "Count the {noun} that {clause}.",
    "How many {noun} are there that {clause}?",
    "What is the number of {noun} that {clause}?",
    "List all {noun} that {clause}.",
    "Which {noun} {clause}?",
    "Please show me the {noun} which {clause}.",
)
_WORDS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


@dataclass(frozen=True, slots=True)
class Said:
    """Something that is said of records, such as `are open`."""

    kind: str
    clause: str
    holds: Test
    field: str
    adjective: str = ""


def domains(seed: int, *, questions: int, records: int = 400) -> list[Domain]:
    """Return kinds of records with about this number of questions in all."""
    chance = random.Random(seed)
    found = []
    made = kinds(chance, records=records)
    for kind in made:
        asked = _Questions(kind, chance)
        found.append(Domain(kind.tool, kind.records, asked.some(questions // len(made))))
    return found


class _Questions:
    """Makes questions about one kind of records."""

    def __init__(self, kind: Kind, chance: random.Random) -> None:
        self._kind = kind
        self._chance = chance
        self._makers: list[Callable[[], Asked | None]] = [
            self._one,
            self._one,
            self._adjective,
            self._two,
            self._two,
            self._three,
            self._alternatives,
            self._alternatives,
            self._exception,
            self._either,
            self._neither,
            self._none_of,
            self._unanswerable,
        ]

    def some(self, count: int) -> list[Asked]:
        """Return so many questions. None is asked twice."""
        asked: dict[str, Asked] = {}
        tries = 0
        while len(asked) < count and tries < 20 * count:
            tries += 1
            made = self._chance.choice(self._makers)()
            if made is not None:
                asked.setdefault(made.question, made)
        return list(asked.values())

    # --- kinds of questions

    def _one(self) -> Asked:
        said = self._said()
        return self._asked(said.kind, said.clause, said.holds)

    def _adjective(self) -> Asked | None:
        said, other = self._said(), self._said()
        if not said.adjective or said.field == other.field:
            return None
        question = f"How many {said.adjective} {self._kind.noun} {other.clause}?"
        return self._counted("adjective", question, lambda r: said.holds(r) and other.holds(r))

    def _two(self) -> Asked | None:
        first, second = self._said(), self._said()
        if first.field == second.field:
            return None
        clause = f"{first.clause} and {second.clause}"
        return self._asked("and", clause, lambda r: first.holds(r) and second.holds(r))

    def _three(self) -> Asked | None:
        said = [self._said() for _ in range(3)]
        if len({each.field for each in said}) < 3:
            return None
        clause = f"{said[0].clause}, {said[1].clause} and {said[2].clause}"
        return self._asked("three", clause, lambda r: all(each.holds(r) for each in said))

    def _alternatives(self) -> Asked | None:
        category = self._category()
        first, second = self._chance.sample(category.values, 2)
        clause = self._chance.choice(category.clauses).format(f"{first} or {second}")
        holds = _is_one_of(category.name, first, second)
        if self._chance.random() < 0.5:
            return self._asked("alternatives", clause, holds)
        other = self._said()
        if other.field == category.name:
            return None
        clause = f"{clause} and {other.clause}"
        return self._asked("alternatives and", clause, lambda r: holds(r) and other.holds(r))

    def _exception(self) -> Asked | None:
        first, second = self._said(), self._category()
        if first.field == second.name or not second.negations:
            return None
        value = self._chance.choice(second.values)
        negation = self._chance.choice(second.negations).format(value)
        has_value = _is_one_of(second.name, value)
        clause = f"{first.clause} but {negation}"
        return self._asked("exception", clause, lambda r: first.holds(r) and not has_value(r))

    def _either(self) -> Asked | None:
        first, second = self._category(), self._category()
        if first.name == second.name:
            return None
        one, other = self._clause(first), self._clause(second)
        clause = f"{one.clause} or {other.clause}"
        return self._asked("or across", clause, lambda r: one.holds(r) or other.holds(r))

    def _neither(self) -> Asked | None:
        category = self._category()
        first, second = self._chance.sample(category.values, 2)
        clause = self._chance.choice(category.clauses)
        if not clause.startswith("are "):
            return None
        clause = clause.replace("are ", "are neither ", 1).format(f"{first} nor {second}")
        either = _is_one_of(category.name, first, second)
        return self._asked("neither", clause, lambda r: not either(r))

    def _none_of(self) -> Asked | None:
        category = self._category()
        if not category.negations:
            return None
        first, second = self._chance.sample(category.values, 2)
        clause = self._chance.choice(category.negations).format(f"{first} or {second}")
        either = _is_one_of(category.name, first, second)
        return self._asked("none of", clause, lambda r: not either(r))

    def _unanswerable(self) -> Asked:
        return Asked("unanswerable", self._chance.choice(self._kind.unanswerable), None)

    # --- questions

    def _asked(self, kind: str, clause: str, holds: Test) -> Asked:
        frame = self._chance.choice(_FRAMES)
        return self._counted(kind, frame.format(noun=self._kind.noun, clause=clause), holds)

    def _counted(self, kind: str, question: str, holds: Test) -> Asked:
        return Asked(kind, question, sum(map(holds, self._kind.records)))

    # --- what is said of records

    def _said(self) -> Said:
        kind = self._kind
        makers: list[Callable[[], Said]] = [self._of_category, self._of_amount, self._of_letters]
        if kind.flags:
            makers.append(self._of_flag)
        if kind.tags:
            makers.append(self._of_tags)
        if kind.times:
            makers += [self._of_time, self._of_time]
        return self._chance.choice(makers)()

    def _category(self) -> Category:
        return self._chance.choice(self._kind.categories)

    def _of_category(self) -> Said:
        return self._clause(self._category())

    def _clause(self, category: Category) -> Said:
        value = self._chance.choice(category.values)
        holds = _is_one_of(category.name, value)
        if category.negations and self._chance.random() < 0.3:
            clause = self._chance.choice(category.negations).format(value)
            return Said("negation", clause, lambda r: not holds(r), category.name)
        clause = self._chance.choice(category.clauses).format(value)
        adjective = value if category.adjective else ""
        return Said("value", clause, holds, category.name, adjective)

    def _of_letters(self) -> Said:
        category, choice = self._category(), self._chance.choice
        value, name = choice(category.values), category.name.replace(".", " ")
        frame, letters, meets = choice(
            (
                ("begins with the letter '{}'", value[0], str.startswith),
                ('starts with "{}"', value[:2], str.startswith),
                ("ends with the letter {}", value[-1], str.endswith),
                ("contains the letters '{}'", value[1:3], str.__contains__),
            )
        )
        letters = choice((letters.upper(), letters.lower()))
        head = choice((f"have a {name} that", f"have a {name} which"))

        def holds(record: Record) -> bool:
            return meets(str(value_of(record, category.name)).lower(), letters.lower())

        return Said("letters", f"{head} {frame.format(letters)}", holds, category.name)

    def _of_amount(self) -> Said:
        amount = self._chance.choice(self._kind.amounts)
        low, high = sorted(self._chance.sample(range(amount.low, amount.high + 1), 2))
        if amount.high > 1_000 and amount.name != "year":
            low, high = low // 100 * 100, high // 100 * 100 + 100
        name = amount.name
        first, second = self._written(amount, low), self._written(amount, high)
        choice = self._chance.choice
        makers: list[Callable[[], Said]] = [
            lambda: Said(
                "above", choice(amount.above).format(first), lambda r: r[name] > low, name
            ),
            lambda: Said(
                "below", choice(amount.below).format(first), lambda r: r[name] < low, name
            ),
            lambda: Said(
                "least", choice(amount.least).format(first), lambda r: r[name] >= low, name
            ),
            lambda: Said("most", choice(amount.most).format(first), lambda r: r[name] <= low, name),
            lambda: Said(
                "between",
                choice(amount.between).format(first, second),
                lambda r: low <= r[name] <= high,
                name,
            ),
        ]
        if amount.equals:
            makers.append(
                lambda: Said(
                    "equals", choice(amount.equals).format(first), lambda r: r[name] == low, name
                )
            )
        return choice(makers)()

    def _written(self, amount: Amount, number: int) -> str:
        if amount.name == "year":
            return str(number)
        if 0 <= number < len(_WORDS) and amount.is_whole and self._chance.random() < 0.3:
            return _WORDS[number]
        if number % 1_000 == 0 and number >= 10_000 and self._chance.random() < 0.2:
            return f"{number // 1_000}k"
        return f"{number:,}" if self._chance.random() < 0.5 else str(number)

    def _of_flag(self) -> Said:
        flag = self._chance.choice(self._kind.flags)

        def is_set(record: Record) -> bool:
            return record[flag.name] in (True, "yes", "Yes")

        if self._chance.random() < 0.5:
            return Said("flag", self._chance.choice(flag.positive), is_set, flag.name)
        clause = self._chance.choice(flag.negative)
        return Said("no flag", clause, lambda r: not is_set(r), flag.name)

    def _of_tags(self) -> Said:
        tags = self._chance.choice(self._kind.tags)
        first, second = self._chance.sample(tags.values, 2)
        number = self._chance.randint(1, 3)
        noun = tags.one if number == 1 else tags.many

        def elements(record: Record) -> set[str]:
            value = record[tags.name]
            return set(value.split(", ") if isinstance(value, str) else value)

        choices: list[tuple[str, str, Test]] = [
            ("tag", f"have the {tags.one} {first}", lambda r: first in elements(r)),
            (
                "tags and",
                f"have the {tags.many} {first} and {second}",
                lambda r: {first, second} <= elements(r),
            ),
            (
                "tags and",
                f"have both the {tags.many} {first} and {second}",
                lambda r: {first, second} <= elements(r),
            ),
            (
                "tags or",
                f"have the {tags.one} {first} or {second}",
                lambda r: bool({first, second} & elements(r)),
            ),
            ("no tag", f"do not have the {tags.one} {first}", lambda r: first not in elements(r)),
            (
                "tags neither",
                f"have neither the {tags.one} {first} nor {second}",
                lambda r: not {first, second} & elements(r),
            ),
            ("n tags", f"have exactly {number} {noun}", lambda r: len(elements(r)) == number),
            ("n tags", f"have at least {number} {noun}", lambda r: len(elements(r)) >= number),
            ("n tags", f"have more than {number} {tags.many}", lambda r: len(elements(r)) > number),
            ("no tags", f"have no {tags.many}", lambda r: not elements(r)),
        ]
        kind, clause, holds = self._chance.choice(choices)
        return Said(kind, clause, holds, tags.name)

    def _of_time(self) -> Said:
        day = self._chance.choice(self._kind.times)
        span = self._chance.choice(tuple(_SPANS))
        low, high, words = span(self._chance)
        of = self._kind.day(day.name)
        choice = self._chance.random()
        if choice < 0.4 or "{}" not in words:
            return Said(
                "date", f"{day.verb} {words.format('in')}", lambda r: low <= of(r) <= high, day.name
            )
        signs: list[tuple[str, str, Test]] = [
            ("before", "before", lambda r: of(r) < low),
            ("after", "after", lambda r: high < of(r) < date.max),
            ("since", "since", lambda r: low <= of(r) < date.max),
            ("until", "until", lambda r: of(r) <= high),
            ("not before", "on or after", lambda r: low <= of(r) < date.max),
        ]
        kind, sign, holds = self._chance.choice(signs[:4] if low != high else signs)
        return Said(f"date {kind}", f"{day.verb} {words.format(sign)}", holds, day.name)


def _is_one_of(path: str, *values: str) -> Test:
    return lambda record: value_of(record, path) in values


# --- spans of days: first, last, and words with a place for `in` or a sign


def _a_day(chance: random.Random) -> tuple[date, date, str]:
    day = date(2022, 12, 1) + timedelta(days=chance.randrange(900))
    month = _MONTHS[day.month - 1]
    written = chance.choice(
        (
            day.isoformat(),
            f"{day.day} {month} {day.year}",
            f"{month} {day.day}, {day.year}",
            f"{month[:3]} {day.day}, {day.year}",
            f"{month} {day.day}{_ordinal(day.day)}, {day.year}",
        )
    )
    return day, day, "{} " + written


def _a_month(chance: random.Random) -> tuple[date, date, str]:
    year, month = chance.randint(2023, 2024), chance.randint(1, 12)
    written = chance.choice((f"{_MONTHS[month - 1]} {year}", f"{_MONTHS[month - 1][:3]} {year}"))
    return date(year, month, 1), _last_of(year, month), "{} " + written


def _a_year(chance: random.Random) -> tuple[date, date, str]:
    year = chance.randint(2023, 2024)
    return date(year, 1, 1), date(year, 12, 31), "{} " + str(year)


def _a_quarter(chance: random.Random) -> tuple[date, date, str]:
    year, quarter = chance.randint(2023, 2024), chance.randint(1, 4)
    ordinal = ("first", "second", "third", "fourth")[quarter - 1]
    words = chance.choice((f"Q{quarter} {year}", f"the {ordinal} quarter of {year}"))
    return date(year, 3 * quarter - 2, 1), _last_of(year, 3 * quarter), "in " + words


def _a_half(chance: random.Random) -> tuple[date, date, str]:
    year, half = chance.randint(2023, 2024), chance.randint(1, 2)
    words = f"in the {('first', 'second')[half - 1]} half of {year}"
    return date(year, 6 * half - 5, 1), _last_of(year, 6 * half), words


def _between(chance: random.Random) -> tuple[date, date, str]:
    first, _, words = chance.choice((_a_day, _a_month))(chance)
    last = first + timedelta(days=chance.randint(1, 200))
    if words.count(" ") and words.format("").strip()[0].isdigit() and "-" in words:
        return first, last, f"between {first} and {last}"
    month, year = last.month, last.year
    first = first.replace(day=1)
    low = f"{_MONTHS[first.month - 1]} {first.year}"
    high = f"{_MONTHS[month - 1]} {year}"
    frame = chance.choice(("between {} and {}", "from {} to {}"))
    return first, _last_of(year, month), frame.format(low, high)


def _two_months(chance: random.Random) -> tuple[date, date, str]:
    year, month = chance.randint(2023, 2024), chance.randint(1, 11)
    words = f"in {_MONTHS[month - 1]} or {_MONTHS[month]} {year}"
    return date(year, month, 1), _last_of(year, month + 1), words


def _last_of(year: int, month: int) -> date:
    return (date(year, month, 28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)


def _ordinal(day: int) -> str:
    if day in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


_SPANS: Final = (
    _a_day,
    _a_month,
    _a_month,
    _a_year,
    _a_quarter,
    _a_half,
    _between,
    _between,
    _two_months,
)
