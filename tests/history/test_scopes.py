"""What the user said for the conversation, for his task and for one answer are told apart."""

import json
from itertools import takewhile
from typing import Any

import pytest

from llm_common.agents import Session
from llm_common.pointers.store import InMemoryContextPointerStore
from tests.history.conversations import (
    call_and_output,
    conversation,
    folded,
    note_of,
    said,
)

HELD = "The user said, for this conversation:"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBOR" * 400}}


async def section(messages: list[Any], label: str, *, last: str = "Check the plan.") -> list[str]:
    """Return the lines below a label of the note, after these messages were folded."""
    filler = [said("assistant", "It is noted. " * 120), said("user", "Compare the plans.")] * 8
    history = [said("system", "S"), *messages, *filler, said("user", last)]
    lines = note_of(await folded(history)).split("\n")
    if label not in lines:
        return []
    below = takewhile(lambda line: line[:1].isdigit(), lines[lines.index(label) + 1 :])
    return [line.partition(" user: ")[2] for line in below]


WITH_OTHERS = {
    "Use metric units.\nHow long is the bridge?": "Use metric units.",
    "Do not touch plan.md. How long is the bridge?": "Do not touch plan.md.",
    "Keep it short. Omit logos. How long is it?": "Keep it short. Omit logos.",
    # typed behind a text of others
    "The sign reads:\nNo guests.\nAlways knock.\n\nNever quote it. What does it mean?": (
        "Never quote it."
    ),
    "Here is the code:\n```\nwait()\n```\nFix it, and never change its name.": (
        "Fix it, and never change its name."
    ),
    # a frame stands with what it frames
    "For the rest of this session. end with a short joke.\nThe sky is grey today.": (
        "For the rest of this session. end with a short joke."
    ),
    "From now on:\nNumber the pages.": "From now on: Number the pages.",
    # and a rule with its exception and its list
    "Never touch the shed. Except on Sundays.": "Never touch the shed. Except on Sundays.",
    "Never knock.\nThat is not for guests.": "Never knock. That is not for guests.",
    "You may never:\n- knock\n- sleep here\nThanks!": "You may never: - knock - sleep here",
    "House rules:\n1. Knock.\n2. Be kind.": "House rules: 1. Knock. 2. Be kind.",
    'End with "Bye. See you." from now on.': 'End with "Bye. See you." from now on.',
}
ALONE = (
    "From now on: number the pages.",
    "I can't eat walnuts.",
    "I really dislike long tables.",
    "Use the 24-hour clock.",
    "Keep the sheets short. Omit logos.",
    "Do not touch plan.md.",
    "Write in British English.",
    "When you cite a page, name its number.",
    "Stop apologising.",
    "Again: no long tables.",
    "I'd rather you asked me first.",
    "We use the metric system.",
    "Write everything in capitals.",
    "Sono celiaca.",
    "Je préfère les listes courtes.",
    '"I dislike long tables."',
    "No, better so: never use the old list.",
)


@pytest.mark.parametrize(
    ("text", "held"), [*WITH_OTHERS.items(), *((text, text) for text in ALONE)]
)
async def test_what_the_user_says_for_the_conversation_is_listed_t_07(text: str, held: str) -> None:
    assert await section([said("user", text)], HELD) == [held]
    assert await section([said("user", text)], "Done:") == []


@pytest.mark.parametrize(
    "text",
    [
        # over with its answer
        "Keep it short this time.",
        "Never mind, it works now.",
        "No worries, take your time.",
        "Write a poem about the sea.",
        "Which of them must I use?",
        "Use the following text.",
        "They never came back.",
        "I don't remember the number.",
        "I have never been to Rome.",
        "Ich war noch nie in Rom.",
        "Our landlord never answers.",
        "Write a story in which the hero never sleeps.",
        "If I were the boss, nobody would ever use lists.",
        "Implement the second part.",
        "Implement it.",
        "No, that did nothing.",
        "Please don't cancel it.",
        "Don't need a comment about that.",
        "Not yet.",
        # a fact before a question, a form or a request behind it
        "How long is the bridge? Digits only, please.",
        "The bridge always opens at noon. When does it close?",
        "The gate must always be shut. Who shuts it?",
        "When it rains, the gate must stay shut. Who shuts it?",
        "If it rains, we go home. How long is the bridge?",
        "How long is the bridge? Use metric units.",
        "Do not touch plan.md. Find a bridge.",
        # a text of others
        "What do you think of it?\n\n# Rules of the house\n\n- Never sleep here.\n- No guests.",
        "Summarise this:\n\nGuests must never sleep here.\nNever cook here.",
        "Proofread this: Never sleep here. Always knock.",
        "The sign reads:\nNever sleep here.\nAlways knock.\n\nIs that polite?",
        "From: office@example.org\nSubject: House\n\nFrom now on nobody sleeps here.\n\nIs it real?",
        "He left a note: 'Never sleep here. Always knock. No guests.' Is that polite?",
        'The sign says "never sleep here" in red.',
        "def wait(user):\n    # never sleep here\n    return user.ready\n\nIs it safe?",
        "2026-11-02 10:14:11 never sleep here\nWhy?",
        "Never sleep here. " + "The guide is long. " * 60,
        "The guide is long.\n" * 50 + "- Never sleep here.\n" + "The guide is long.\n" * 20,
    ],
)
async def test_what_the_user_does_not_say_for_the_conversation_is_not_listed_t_07(
    text: str,
) -> None:
    assert await section([said("user", text)], HELD) == []


async def test_what_was_said_within_a_long_message_is_quoted_t_07() -> None:
    told = "The depot moved in spring, and the canteen is on the third floor. " * 6
    messages = [said("user", f"{told}Deliveries come to 9 Canal Street. {told}")]
    quotes = await section(messages, "From messages of the user:")
    assert "Deliveries come to 9 Canal Street." in quotes


@pytest.mark.parametrize("paste", ["```\nNever sleep.\n```", "The guide is long. " * 60])
async def test_the_frame_of_a_paste_stands_with_its_pointer_t_07(paste: str) -> None:
    text = f"From now on follow this guide:\n{paste}"
    [line] = await section([said("user", text)], HELD)
    assert line.startswith("From now on follow this guide: [a pasted text follows: id ")
    assert line.endswith(" /2]")


@pytest.mark.parametrize(
    ("rule", "change", "is_listed"),
    [
        ("Always answer in German.", "Forget what I said about German.", True),
        ("No emojis please.", "You can use emojis again.", True),
        ("No emojis please.", "Emojis are ok in titles, just not in reports.", True),
        ("Ask me before each order.", "You don't have to ask any more.", True),
        ("Ask me before each order.", "You can order the blue one.", False),
        ("Use tabs, not spaces.", "Let's go with spaces after all.", True),
        ("Réponds toujours en français.", "Tu peux répondre en anglais.", True),
        ("Only use plain words.", "Scrap the rule about words.", True),
        ("No emojis please.", "You can open the window again.", False),
    ],
)
async def test_what_changes_a_rule_is_listed_behind_it_t_07(
    rule: str, change: str, *, is_listed: bool
) -> None:
    messages = [said("user", rule), said("assistant", "Fine."), said("user", change)]
    assert await section(messages, HELD) == [rule, change][: 1 + is_listed]
    assert await section(messages[2:], HELD) == [], "there is nothing to change"


async def test_what_holds_stays_when_a_paste_repeats_it_t_07() -> None:
    messages = [
        said("user", "Never sleep here."),
        said("user", "Never sleep here. " + "A b. " * 300),
    ]
    assert await section(messages, HELD) == ["Never sleep here."]


async def test_a_consent_is_listed_with_its_calls_and_holds_no_more_t_07() -> None:
    messages = [
        said("assistant", "Shall I book it?"),
        said("user", "Yes, please book it. Only use my blue card."),
        *call_and_output(1, "find", {}, "done"),
        *call_and_output(2, "book", {}, "done"),
        said("user", "No, don't cancel the other one."),
        said("assistant", "Then it stays."),
    ]
    assert await section(messages, HELD) == []
    assert await section(messages, "Done:") == [
        "Yes, please book it. (then called find, book)",
        "No, don't cancel the other one. (no call followed)",
    ]


@pytest.mark.parametrize(
    ("last", "expected"), [("Yes, go ahead.", True), ("Find the bill.", False), ("Blue.", True)]
)
async def test_the_latest_task_is_listed_unless_a_newer_one_is_in_view(
    last: str, *, expected: bool
) -> None:
    history = [
        said("user", "Compare both\noffers."),
        *([said("assistant", "It is noted. " * 120), said("user", "Yes, go on.")] * 8),
        said("assistant", "Shall I?"),
        said("user", last),
        said("assistant", "It is noted. " * 300),
    ]
    task = "\nThe user's latest task up to message 20:\n1 user: Compare both offers.\n"
    assert (task in note_of(await folded(history))) is expected


def parcels(count: int) -> list[Any]:
    """Return messages with a rule each, and their answers."""
    messages = []
    for number in range(count):
        messages += [said("user", f"Never send parcel {number} to the depot.")]
        messages += [said("assistant", "Fine.")]
    return messages


@pytest.mark.parametrize("count", [40, 70])
async def test_what_was_said_takes_the_room_that_others_leave_t_07(count: int) -> None:
    messages = parcels(count)
    listed = await section(messages, HELD)
    oldest = [message["content"] for message in messages[: 2 * len(listed) : 2]]
    assert listed == oldest, "the oldest come first"
    assert len(listed) >= 40, "its share alone has room for fewer"


async def test_what_takes_a_rule_back_is_listed_where_room_is_short_t_07() -> None:
    change = "You can send parcel 3 again."
    listed = await section([*parcels(70), said("user", change)], HELD)
    assert 30 < len(listed) < 70
    assert listed[-1] == change


async def test_a_folded_image_is_named_t_14() -> None:
    message = said("user", [{"type": "text", "text": "The plan."}, IMAGE])
    more = [said("assistant", "z " * 2_000), said("user", "Go on with the rest.")] * 2
    note = note_of(await folded([message, *more], 3_000))
    assert "; image, 1,600 tokens, not shown" in note


async def test_a_folded_image_can_be_read_back() -> None:
    message = said("user", [{"type": "text", "text": "The plan."}, IMAGE])
    store = InMemoryContextPointerStore()
    result = await folded([message, *conversation(40)[1:]], 3_000, store=store)
    [part] = (part for part in result.parts if (part.kind, part.first) == ("messages", 1))
    reader = Session(store, session_id="s").reader()
    arguments = {"id": part.pointer_id, "path": "/1/content/1"}
    reading = await reader.run(arguments)
    text = reading.text
    while reading.cursor:
        reading = await reader.run({**arguments, "cursor": reading.cursor})
        text += reading.text
    assert json.loads(text) == IMAGE
