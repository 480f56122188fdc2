"""Tells twenty short stories in which a fact changes, and lists those that a memory gets wrong."""

from dataclasses import dataclass

from llm_common.memory import Event, FactMemory, MemoryFilters

__all__ = ["STORIES", "wrong_stories"]


@dataclass(frozen=True)
class Story:
    """Lines in order: `session: text` with the key, `session> text` without it.

    The last line with the key is the current fact.

    Attributes:
        query: The question about the fact.
        key: The key of the fact. "" supersedes the previous fact by its id.
        lines: The lines.
        by_user: Whether the sessions belong to one user, who asks in a new session.
    """

    query: str
    key: str
    lines: tuple[str, ...]
    by_user: bool = False


STORIES = (
    Story(
        "Where do I live?",
        "address",
        ("a: I live in Oslo", "a> nice weather", "a: I moved to Bergen, I live there"),
    ),
    Story(
        "what is my address",
        "address",
        ("a: my address is Main Street 1, the address of my family", "a: now Elm Road 2"),
    ),
    Story(
        "Where do I live?",
        "address",
        ("a: I live in Rome", "a: I live in Paris", "a: I live in Rome again"),
    ),
    Story(
        "which city do I live in",
        "address",
        ("a: my city is Lyon, I live in the city Lyon", "b: I left; Nice it is"),
        True,
    ),
    Story(
        "street and number",
        "address",
        ("a: street number 5", "b: street number 6", "c: street number 7"),
        True,
    ),
    Story(
        "where to send parcels",
        "",
        ("a: send parcels to the office", "a> thanks", "a: send parcels to my home"),
    ),
    Story(
        "postal code",
        "address",
        ("a: postal code 0150", "a: postal code 5003", "a> the postal service is slow"),
    ),
    Story(
        "What is my job?",
        "job",
        ("a: my job is baker", "a> bread is my job and my joy", "a: I changed: carpenter"),
    ),
    Story(
        "Who is my employer?",
        "job",
        ("a: my employer is Acme", "b: I joined Globex as my employer"),
        True,
    ),
    Story(
        "job title",
        "job",
        ("a: job title: analyst", "a: job title: senior analyst", "a: job title: head of analysis"),
    ),
    Story(
        "who do I work for",
        "",
        ("a: I work for the city", "a: I work for the county", "a: I work for myself"),
    ),
    Story(
        "my manager's name",
        "manager",
        ("a: my manager is Kim, name of my manager: Kim", "b: Lee took over"),
        True,
    ),
    Story(
        "work phone extension",
        "phone",
        ("a: work phone extension 41", "a> call me", "a: extension 42"),
    ),
    Story(
        "what hours do I work",
        "hours",
        ("a: I work nine to five hours", "a: hours from eight to four"),
    ),
    Story("coffee or tea?", "drink", ("a: I prefer coffee, coffee over tea", "a: tea from now on")),
    Story(
        "favourite colour",
        "colour",
        ("a: favourite colour blue", "b: favourite colour green", "c: it is red"),
        True,
    ),
    Story(
        "dietary preference", "diet", ("a: dietary preference: none", "a: I am a vegetarian now")
    ),
    Story("window or aisle seat", "", ("a: I want a window seat", "a: an aisle seat, please")),
    Story(
        "language of replies",
        "language",
        ("a: reply in the German language", "b: reply in English"),
        True,
    ),
    Story(
        "temperature units",
        "units",
        ("a: temperature units: Fahrenheit", "a: units: Celsius", "a: units: Kelvin"),
    ),
)


async def wrong_stories(memory: FactMemory, *, facts: bool = True) -> list[str]:
    """List the stories whose question does not return the newest fact alone, or not first in history.

    Without `facts` every line is a plain event, for comparison.
    """
    wrong = []
    for number, story in enumerate(STORIES):
        user = f"user {number}" if story.by_user else None
        former, fact = None, ""
        for line in story.lines:
            session_id, text = f"{number}{line[0]}", line[3:]
            if line[1] == ">" or not facts:
                await memory.append_event(session_id, Event(text=text), user=user)
            elif story.key:
                await memory.append_event(session_id, Event(text=text), user=user, key=story.key)
            else:
                former = await memory.append_event(
                    session_id, Event(text=text), user=user, supersedes=former
                )
            fact = text if line[1] == ":" else fact
        session_id = "new" if story.by_user else f"{number}a"
        filters = MemoryFilters(session_id=session_id, user=user, all_sessions=story.by_user)
        old = [line[3:] for line in story.lines if line[1] == ":" and line[3:] != fact]
        texts = [hit.event.text for hit in await memory.retrieve(story.query, 9, filters)]
        history = filters.model_copy(update={"history": True})
        history_texts = [
            hit.event.text
            for hit in await memory.retrieve(f"{story.query} {' '.join(old)}", 9, history)
        ]
        is_alone = fact in texts and set(old).isdisjoint(texts)
        is_complete = {fact, *old} <= set(history_texts)
        is_first = is_complete and history_texts.index(fact) < min(map(history_texts.index, old))
        if not (is_alone and is_first):
            wrong.append(f"{story.query}: {texts}, {history_texts}")
    return wrong
