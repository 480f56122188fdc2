"""Records of six kinds with what can be asked of them, and how."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final

Record = dict[str, Any]

_FIRST: Final = date(2022, 11, 1)
_DAYS: Final = 1_000
PEOPLE: Final = ("Ann Lee", "Bob Ray", "Cy Oh", "Dana Ruiz", "Eli Park", "Fay Wong", "Gus Holm")
CITIES: Final = ("Oslo", "Bern", "New York", "York", "Lima", "San Jose", "Kyoto")


@dataclass(frozen=True, slots=True)
class Category:
    """A field of few values.

    Attributes:
        name: Dotted path of the field.
        values: Its values.
        clauses: Ways to say that a record has a value, such as "are from {}".
        adjective: Whether a value may stand before the noun.
        negations: Ways to say that a record has another value.
    """

    name: str
    values: tuple[str, ...]
    clauses: tuple[str, ...]
    adjective: bool = False
    negations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Amount:
    """A field of numbers.

    Attributes:
        name: The field.
        low: Smallest number.
        high: Largest number.
        above: Ways to say that it is above a number.
        below: Ways to say that it is below a number.
        least: Ways to say that it is a number or more.
        most: Ways to say that it is a number or less.
        between: Ways to say that it lies between two numbers, with both of them.
        equals: Ways to say that it is a number. None for amounts with a fraction.
        is_whole: Whether the numbers have no fraction.
    """

    name: str
    low: int
    high: int
    above: tuple[str, ...]
    below: tuple[str, ...]
    least: tuple[str, ...]
    most: tuple[str, ...]
    between: tuple[str, ...]
    equals: tuple[str, ...] = ()
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Flag:
    """A field of yes and no.

    Attributes:
        name: The field.
        positive: Ways to say that it is set.
        negative: Ways to say that it is not.
    """

    name: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tags:
    """A field of lists.

    Attributes:
        name: The field.
        values: The elements.
        one: Noun for an element.
        many: Noun for several.
    """

    name: str
    values: tuple[str, ...]
    one: str
    many: str


@dataclass(frozen=True, slots=True)
class Day:
    """A field of days or times.

    Attributes:
        name: The field.
        verb: How a record came to its day, such as "were created".
        written: Writes a time as the field holds it.
    """

    name: str
    verb: str
    written: Callable[[datetime], str]


@dataclass(frozen=True, slots=True)
class Kind:
    """Records of one kind, and what can be asked of them."""

    tool: str
    noun: str
    records: list[Record]
    days: dict[str, list[date]] = field(default_factory=dict)
    categories: tuple[Category, ...] = ()
    amounts: tuple[Amount, ...] = ()
    flags: tuple[Flag, ...] = ()
    tags: tuple[Tags, ...] = ()
    times: tuple[Day, ...] = ()
    unanswerable: tuple[str, ...] = ()

    def day(self, name: str) -> Callable[[Record], date]:
        """Return a function that gives the day of a record."""
        by_record = {id(rec): day for rec, day in zip(self.records, self.days[name], strict=True)}
        return lambda record: by_record[id(record)]


def value_of(record: Record, path: str) -> Any:
    """Return the value at a dotted path. None if it is missing."""
    value: Any = record
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


# --- the four notations of a day


def _iso(time: datetime) -> str:
    return time.date().isoformat()


def _iso_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _english(time: datetime) -> str:
    return f"{time.day} {time:%B %Y}"


def _american(time: datetime) -> str:
    return f"{time:%b} {time.day}, {time.year}"


def _times(chance: random.Random, count: int) -> list[datetime]:
    first = datetime.combine(_FIRST, datetime.min.time())
    minutes = _DAYS * 24 * 60
    return [first + timedelta(minutes=chance.randrange(minutes)) for _ in range(count)]


# --- the kinds


def _orders(chance: random.Random, count: int) -> Kind:
    times = _times(chance, count)
    records: list[Record] = []
    for number, time in enumerate(times):
        # Some amounts look like the year of a date.
        amount = 2024.0 if number % 100 == 7 else round(chance.uniform(15, 2600), 2)
        records.append(
            {
                "order": f"ORD-{number:05d}",
                "customer": chance.choice(PEOPLE),
                "status": chance.choice(("paid", "open", "refunded", "disputed", "on hold")),
                "amount": amount,
                "items": chance.randint(1, 9),
                "gift": chance.random() < 0.3,
                "created_at": _iso_time(time),
            }
        )
    return Kind(
        "list_orders",
        "orders",
        records,
        days={"created_at": [time.date() for time in times]},
        categories=(
            Category("customer", PEOPLE, ("are from {}", "belong to {}", "were placed by {}")),
            Category(
                "status",
                ("paid", "open", "refunded", "disputed", "on hold"),
                ("are {}", "have the status {}", "are currently {}"),
                adjective=True,
                negations=("are not {}", "aren't {}", "have a status other than {}"),
            ),
        ),
        amounts=(
            Amount(
                "amount",
                15,
                2600,
                ("cost more than ${}", "are over ${}", "have an amount above {}", "exceed ${}"),
                ("cost less than ${}", "are under ${}", "have an amount below {}"),
                ("cost at least ${}", "have an amount of at least {}", "cost {} dollars or more"),
                ("cost at most ${}", "cost no more than ${}", "cost up to ${}"),
                ("cost between ${} and ${}", "have an amount between {} and {}"),
                is_whole=False,
            ),
            Amount(
                "items",
                1,
                9,
                ("have more than {} items", "contain more than {} items"),
                ("have fewer than {} items", "have less than {} items"),
                ("have at least {} items", "have {} or more items"),
                ("have at most {} items", "have {} or fewer items"),
                ("have between {} and {} items", "have {} to {} items"),
                ("have {} items", "have exactly {} items", "contain {} items"),
            ),
        ),
        flags=(Flag("gift", ("are a gift", "are gifts"), ("are not a gift", "are no gifts")),),
        times=(Day("created_at", "were created", _iso_time),),
        unanswerable=(
            "How many orders were created last week?",
            "How many orders were created in the last 7 days?",
            "How many of the 3 most expensive orders are paid?",
            "What is the average amount of paid orders?",
            "What share of the orders is refunded?",
            "How many expensive orders are open?",
            "How many paid orders were shipped in May 2024?",
            "How many orders per customer are open?",
            "How many different customers have open orders?",
            "How many open orders were created yesterday?",
            "How many urgent orders are open?",
            "How many orders cost about $500?",
            "How many items are in the orders of Ann Lee?",
            "How many orders are paid by credit card?",
            "How many customers have more than 5 open orders?",
            "What is the sum of all amounts of open orders?",
        ),
    )


def _tickets(chance: random.Random, count: int) -> Kind:
    times = _times(chance, count)
    records: list[Record] = []
    for number, time in enumerate(times):
        records.append(
            {
                "ticket": f"T-{number:04d}",
                "city": chance.choice(CITIES),
                "status": chance.choice(("open", "closed", "on hold", "in progress")),
                "plan": chance.choice(("free", "pro", "enterprise")),
                "age": chance.randint(18, 90),
                "balance": round(chance.uniform(-500, 5000), 2),
                "active": chance.random() < 0.6,
                "score": chance.randint(1, 5),
                "tags": chance.sample(["bug", "ui", "api", "docs", "perf"], chance.randint(0, 3)),
                "owner": {"name": chance.choice(PEOPLE), "team": chance.choice(("core", "web"))},
                "opened": _iso(time),
            }
        )
    return Kind(
        "list_tickets",
        "tickets",
        records,
        days={"opened": [time.date() for time in times]},
        categories=(
            Category(
                "city",
                CITIES,
                ("are from {}", "come from {}", "are in {}"),
                False,
                ("are not from {}",),
            ),
            Category(
                "status",
                ("open", "closed", "on hold", "in progress"),
                ("are {}", "have status {}", "are still {}"),
                adjective=True,
                negations=("are not {}", "aren't {}"),
            ),
            Category(
                "plan",
                ("free", "pro", "enterprise"),
                ("are on the {} plan", "have the {} plan"),
                negations=("are not on the {} plan", "are on a plan other than {}"),
            ),
            Category("owner.name", PEOPLE, ("are owned by {}", "belong to {}")),
            Category(
                "owner.team", ("core", "web"), ("belong to the {} team", "are owned by the {} team")
            ),
        ),
        amounts=(
            Amount(
                "age",
                18,
                90,
                ("are from customers older than {}", "have an age over {}"),
                ("are from customers younger than {}", "have an age under {}"),
                ("have an age of at least {}", "are from customers aged {} or older"),
                ("have an age of at most {}", "are from customers aged {} or younger"),
                ("have an age between {} and {}", "are from customers aged {} to {}"),
                ("have an age of {}", "are from customers aged {}"),
            ),
            Amount(
                "balance",
                -500,
                5000,
                ("have a balance over {}", "have a balance of more than ${}"),
                ("have a balance below {}", "have a balance of less than ${}"),
                ("have a balance of at least {}",),
                ("have a balance of at most {}", "have a balance of up to {}"),
                ("have a balance between {} and {}", "have a balance from {} to {}"),
                is_whole=False,
            ),
            Amount(
                "score",
                1,
                5,
                ("have a score above {}", "have a score greater than {}"),
                ("have a score below {}", "score lower than {}"),
                ("have a score of at least {}", "have a score of {} or higher"),
                ("have a score of at most {}", "have a score of {} or lower"),
                ("have a score between {} and {}",),
                ("have a score of {}", "have score {}"),
            ),
        ),
        flags=(
            Flag(
                "active",
                ("are active", "are still active"),
                ("are not active", "are inactive", "aren't active"),
            ),
        ),
        tags=(Tags("tags", ("bug", "ui", "api", "docs", "perf"), "tag", "tags"),),
        times=(Day("opened", "were opened", _iso),),
        unanswerable=(
            "How many tickets were closed in March 2024?",
            "How many tickets are older than a week?",
            "How many recent tickets are open?",
            "What is the mean score of open tickets?",
            "How many tickets have a low score?",
            "How many tickets did each team close?",
            "How many distinct cities have open tickets?",
            "How many blocked tickets are from Lima?",
            "How many tickets of the best customers are open?",
            "How many open tickets are assigned to a manager?",
            "How many open tickets by city?",
            "What percentage of tickets is closed?",
            "How many tickets are about login errors?",
            "How many tickets from Oslo were opened this month?",
        ),
    )


def _employees(chance: random.Random, count: int) -> Kind:
    times = _times(chance, count)
    left = _times(chance, count)
    titles = ("engineer", "senior engineer", "manager", "designer")
    records: list[Record] = []
    for number, (hired, gone) in enumerate(zip(times, left, strict=True)):
        records.append(
            {
                "employee_id": number + 1000,
                "name": f"Person {number}",
                "title": chance.choice(titles),
                "department": chance.choice(("Sales", "Support", "Research", "Finance")),
                "salary": chance.randrange(30_000, 150_000, 500),
                "experience_years": chance.randint(0, 30),
                "is_remote": chance.random() < 0.4,
                "skills": chance.sample(["SQL", "Python", "Excel", "Go"], chance.randint(0, 4)),
                "address": {
                    "city": chance.choice(CITIES),
                    "country": chance.choice(("Norway", "Peru", "Japan")),
                },
                "manager": chance.choice((*PEOPLE[:4], None)),
                "hired_on": _english(hired),
                "left_on": _english(gone) if number % 3 == 0 else None,
            }
        )
    return Kind(
        "get_employees",
        "employees",
        records,
        days={
            "hired_on": [time.date() for time in times],
            "left_on": [
                time.date() if number % 3 == 0 else date.max for number, time in enumerate(left)
            ],
        },
        categories=(
            Category("title", titles, ("have the title {}", "have the title of {}"), False),
            Category(
                "department",
                ("Sales", "Support", "Research", "Finance"),
                ("work in {}", "are in the {} department", "belong to the {} department"),
                negations=("do not work in {}", "don't work in {}", "are not in the {} department"),
            ),
            Category(
                "address.country",
                ("Norway", "Peru", "Japan"),
                ("live in {}", "are from {}", "are based in {}"),
            ),
            Category("address.city", CITIES, ("live in {}", "are located in {}")),
        ),
        amounts=(
            Amount(
                "salary",
                30_000,
                150_000,
                ("earn more than {}", "have a salary above {}", "make over {}"),
                ("earn less than {}", "have a salary below {}"),
                ("earn at least {}", "have a salary of {} or more"),
                ("earn at most {}", "have a salary of {} or less"),
                ("earn between {} and {}", "have a salary between {} and {}"),
                ("have a salary of {}", "earn exactly {}"),
            ),
            Amount(
                "experience_years",
                0,
                30,
                ("have more than {} years of experience",),
                ("have less than {} years of experience", "have fewer than {} years of experience"),
                ("have at least {} years of experience", "have {} or more years of experience"),
                ("have at most {} years of experience", "have up to {} years of experience"),
                ("have between {} and {} years of experience",),
                ("have {} years of experience", "have exactly {} years of experience"),
            ),
        ),
        flags=(
            Flag("is_remote", ("are remote", "work remote"), ("are not remote", "aren't remote")),
        ),
        tags=(Tags("skills", ("SQL", "Python", "Excel", "Go"), "skill", "skills"),),
        times=(Day("hired_on", "were hired", _english), Day("left_on", "left", _english)),
        unanswerable=(
            "How many employees were promoted in 2024?",
            "How many employees earn more than their manager?",
            "How many employees have children?",
            "How many well paid employees work in Sales?",
            "How many employees joined recently?",
            "What is the median salary in Research?",
            "How many employees stayed longer than a year?",
            "Who are the top 3 employees by salary, and how many of them are remote?",
            "How many part-time employees work in Finance?",
            "How many employees does each department have?",
            "How many departments have remote employees?",
            "How many employees speak Spanish?",
        ),
    )


def _listings(chance: random.Random, count: int) -> Kind:
    times = _times(chance, count)
    records: list[Record] = []
    for number, time in enumerate(times):
        record: Record = {
            "listing": f"L{number:05d}",
            "city": chance.choice(CITIES),
            "type": chance.choice(("house", "flat", "studio", "other")),
            "price": chance.randrange(90_000, 900_000, 1_000),
            "bedrooms": chance.randint(1, 6),
            "area_m2": chance.randint(20, 300),
            "has_garden": chance.choice(("yes", "no")),
            "furnished": chance.random() < 0.5,
            "features": ", ".join(
                chance.sample(["balcony", "lift", "garage", "pool"], chance.randint(1, 3))
            ),
            "agent": {"name": chance.choice(PEOPLE), "email": f"a{number}@example.org"},
            "listed": _american(time),
        }
        records.append(record)
    return Kind(
        "search_listings",
        "listings",
        records,
        days={"listed": [time.date() for time in times]},
        categories=(
            Category(
                "city",
                CITIES,
                ("are in {}", "are located in {}"),
                negations=("are not in {}", "are outside {}"),
            ),
            Category(
                "type",
                ("house", "flat", "studio"),
                ("are of type {}", "have the type {}"),
                negations=("are not of type {}",),
            ),
            Category("agent.name", PEOPLE, ("are offered by the agent {}", "have the agent {}")),
        ),
        amounts=(
            Amount(
                "price",
                90_000,
                900_000,
                (
                    "cost more than {}",
                    "have a price above {}",
                    "are priced over {}",
                    "are more expensive than {}",
                ),
                ("cost less than {}", "have a price below {}", "are cheaper than {}"),
                ("cost at least {}", "have a price of {} or more"),
                ("cost no more than {}", "have a price of at most {}"),
                ("cost between {} and {}", "have a price from {} to {}"),
                ("cost {}", "have a price of {}"),
            ),
            Amount(
                "bedrooms",
                1,
                6,
                ("have more than {} bedrooms",),
                ("have fewer than {} bedrooms",),
                ("have at least {} bedrooms", "have {} or more bedrooms"),
                ("have at most {} bedrooms", "have {} bedrooms or fewer"),
                ("have {} to {} bedrooms", "have between {} and {} bedrooms"),
                ("have {} bedrooms", "have exactly {} bedrooms"),
            ),
            Amount(
                "area_m2",
                20,
                300,
                ("have an area over {} m2", "are larger than {} m2"),
                ("have an area under {} m2", "are smaller than {} m2"),
                ("have an area of at least {} m2",),
                ("have an area of at most {} m2",),
                ("have an area between {} and {} m2",),
            ),
        ),
        flags=(
            Flag(
                "has_garden",
                ("have a garden",),
                ("have no garden", "do not have a garden", "are without a garden"),
            ),
            Flag("furnished", ("are furnished",), ("are not furnished", "are unfurnished")),
        ),
        tags=(Tags("features", ("balcony", "lift", "garage", "pool"), "feature", "features"),),
        times=(Day("listed", "were listed", _american),),
        unanswerable=(
            "How many listings have a sea view?",
            "How many cheap listings are in Oslo?",
            "How many listings in Oslo were sold in 2024?",
            "What is the average price in Lima?",
            "How many new listings are in Bern?",
            "How many big houses are furnished?",
            "How many listings are near Oslo?",
            "How many of the ten cheapest listings are furnished?",
            "How many agents offer listings in Oslo?",
            "How many renovated listings are in Lima?",
            "How many bedrooms do the listings in Oslo have?",
            "How many listings in Lima are pet friendly?",
        ),
    )


def _flights(chance: random.Random, count: int) -> Kind:
    times = _times(chance, count)
    records: list[Record] = []
    for number, time in enumerate(times):
        origin, destination = chance.sample(CITIES, 2)
        records.append(
            {
                "flight_no": f"XY{number:04d}",
                "origin": origin,
                "destination": destination,
                "carrier": chance.choice(("Norwind", "Andes Air", "Blue Jet")),
                "delay_minutes": chance.randint(-10, 120),
                "passengers": chance.randint(20, 300),
                "gate": f"0{chance.randint(1, 9)}",
                "cancelled": chance.random() < 0.1,
                "departed_at": _iso_time(time),
            }
        )
    return Kind(
        "search_flights",
        "flights",
        records,
        days={"departed_at": [time.date() for time in times]},
        categories=(
            Category("origin", CITIES, ("have the origin {}", "have {} as origin")),
            Category("destination", CITIES, ("have the destination {}", "have {} as destination")),
            Category(
                "carrier",
                ("Norwind", "Andes Air", "Blue Jet"),
                ("are by {}", "have the carrier {}"),
                True,
                ("are not by {}",),
            ),
        ),
        amounts=(
            Amount(
                "delay_minutes",
                -10,
                120,
                ("have a delay of more than {} minutes", "have a delay over {} minutes"),
                ("have a delay of less than {} minutes", "have a delay below {} minutes"),
                ("have a delay of at least {} minutes", "have a delay of {} minutes or more"),
                ("have a delay of at most {} minutes",),
                ("have a delay between {} and {} minutes",),
                ("have a delay of {} minutes", "have a delay of exactly {} minutes"),
            ),
            Amount(
                "passengers",
                20,
                300,
                ("have more than {} passengers", "carry more than {} passengers"),
                ("have fewer than {} passengers", "carry less than {} passengers"),
                ("have at least {} passengers", "carried {} or more passengers"),
                ("have at most {} passengers", "have no more than {} passengers"),
                ("have between {} and {} passengers",),
                ("have {} passengers",),
            ),
        ),
        flags=(
            Flag(
                "cancelled",
                ("are cancelled", "were cancelled"),
                ("are not cancelled", "were not cancelled"),
            ),
        ),
        times=(Day("departed_at", "departed", _iso_time),),
        unanswerable=(
            "How many flights arrived in May 2024?",
            "How many flights were late?",
            "How many long flights departed in 2023?",
            "How many passengers flew with Blue Jet?",
            "What is the average delay of Andes Air?",
            "How many flights of Blue Jet were diverted?",
            "How many flights of Norwind departed this year?",
            "How many carriers fly from Oslo?",
            "How many flights with a high delay were cancelled?",
            "How many flights depart in the morning?",
            "How many flights have a delay of more than 2 hours?",
            "How many flights have a delay under 1h?",
        ),
    )


def _films(chance: random.Random, count: int) -> Kind:
    records: list[Record] = []
    for number in range(count):
        records.append(
            {
                "title": f"Film {number}",
                "year": chance.randint(1980, 2024),
                "director": chance.choice((*PEOPLE, "")),
                "genre": chance.choice(
                    ("Drama", "Comedy", "Horror", "Science Fiction", "Romantic Comedy")
                ),
                "rating": round(chance.uniform(1, 10), 1),
                "running_time": chance.randint(70, 200),
                "languages": chance.sample(["French", "English", "Spanish"], chance.randint(1, 3)),
                "seen": chance.choice(("Yes", "No")),
            }
        )
    return Kind(
        "find_films",
        "films",
        records,
        categories=(
            Category(
                "director",
                PEOPLE,
                ("are by the director {}", "have {} as director", "were directed by {}"),
            ),
            Category(
                "genre",
                ("Drama", "Horror", "Science Fiction"),
                ("have the genre {}", "are of the genre {}"),
                False,
                ("are not of the genre {}",),
            ),
        ),
        amounts=(
            Amount(
                "rating",
                1,
                10,
                ("have a rating above {}", "are rated higher than {}", "have a rating over {}"),
                ("have a rating below {}", "are rated lower than {}"),
                ("have a rating of at least {}", "have a rating of {} or higher"),
                ("have a rating of at most {}",),
                ("have a rating between {} and {}",),
                is_whole=False,
            ),
            Amount(
                "running_time",
                70,
                200,
                ("have a running time of more than {} minutes", "have a running time over {}"),
                ("have a running time of less than {} minutes",),
                ("have a running time of at least {} minutes",),
                ("have a running time of at most {} minutes",),
                ("have a running time between {} and {} minutes",),
            ),
            Amount(
                "year",
                1980,
                2024,
                ("are from after {}", "were made after {}"),
                ("are from before {}", "were made before {}"),
                ("were made since {}", "were made in {} or later"),
                ("were made until {}", "were made in {} or earlier"),
                ("were made between {} and {}", "were made from {} to {}"),
                ("were made in {}", "are from the year {}", "are from {}"),
            ),
        ),
        flags=(Flag("seen", ("are seen",), ("are not seen", "are unseen")),),
        tags=(Tags("languages", ("French", "English", "Spanish"), "language", "languages"),),
        unanswerable=(
            "How many films won an Oscar?",
            "How many old films are seen?",
            "How many good films did Ann Lee direct?",
            "What is the best film of 1999?",
            "How many films were made in the last decade?",
            "How many films star Bob Ray?",
            "How many films are based on a novel?",
            "How many films have a rating above average?",
            "How many films did each director make?",
            "How many black and white films are seen?",
        ),
    )


_KINDS: Final[Sequence[Callable[[random.Random, int], Kind]]] = (
    _orders,
    _tickets,
    _employees,
    _listings,
    _flights,
    _films,
)


def kinds(chance: random.Random, *, records: int) -> list[Kind]:
    """Return the kinds, each with its records."""
    return [kind(chance, records) for kind in _KINDS]
