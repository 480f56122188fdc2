"""LoCoMo's talks: their turns, their questions, and how much of the evidence a ranking finds."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["Outcome", "Question", "Turn", "outcome_of", "questions_of", "turns_of"]


class Turn(NamedTuple):
    """A turn, with the date of its session, the speaker and the caption of its image in the text."""

    id: str
    text: str


class Question(NamedTuple):
    """A question with the turns that are its evidence."""

    text: str
    category: int
    gold: frozenset[str]


class Outcome(NamedTuple):
    """What of the evidence is among the first distinct sessions, and the first ten turns."""

    category: int
    any_session_at_1: float
    any_session_at_5: float
    any_session_at_10: float
    all_sessions_at_5: float
    all_sessions_at_10: float
    turns_at_10: float


def turns_of(talk: dict[str, Any]) -> list[Turn]:
    """Return the turns of all sessions, in the order of the talk."""
    turns = []
    for name in (key for key, value in talk.items() if re.fullmatch(r"session_\d+", key) and value):
        for row in talk[name]:
            caption = f" [image: {row['blip_caption']}]" if row.get("blip_caption") else ""
            text = f"{talk[f'{name}_date_time']} {row['speaker']}: {row.get('text', '')}{caption}"
            turns.append(Turn(row["dia_id"], text))
    return turns


def questions_of(talk: dict[str, Any]) -> Iterator[Question]:
    """Yield the questions that name evidence."""
    for row in talk["qa"]:
        gold = frozenset(re.findall(r"D\d+:\d+", " ".join(row["evidence"])))
        if gold:
            yield Question(row["question"], row["category"], gold)


def outcome_of(question: Question, ranked: Sequence[str]) -> Outcome:
    """Return what a ranking of turns finds."""
    sessions = [*dict.fromkeys(map(_session_of, ranked))]
    wanted = set(map(_session_of, question.gold))
    first_5, first_10 = set(sessions[:5]), set(sessions[:10])
    return Outcome(
        question.category,
        float(bool(wanted & set(sessions[:1]))),
        float(bool(wanted & first_5)),
        float(bool(wanted & first_10)),
        float(wanted <= first_5),
        float(wanted <= first_10),
        len(question.gold.intersection(ranked[:10])) / len(question.gold),
    )


def _session_of(turn_id: str) -> str:
    return turn_id.partition(":")[0]
