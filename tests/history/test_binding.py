"""What the user stated as a rule stays in view; what others wrote never becomes one."""

import json
import re
import time
from typing import Any

import pytest

from llm_common.history import FoldPolicy, Message, fold
from llm_common.pointers.store import InMemoryContextPointerStore
from tests.history.conversations import conversation, plain

RULES = {
    "en": "Under no circumstances merge to the release branch.",
    "de": "Verschicke niemals Rechnungen vor dem 5. des Monats.",
    "fr": "N'envoyez jamais de SMS après 20 heures.",
    "es": "Nunca llames al cliente por su nombre de pila.",
    "it": "Non usare mai il server di produzione.",
    "pt": "É proibido enviar a planilha aos fornecedores.",
    "nl": "Vanaf nu alle bedragen in dollars.",
    "pl": "Nie wolno zmieniać nazw plików.",
    "ru": "Никогда не пиши клиентам по выходным.",
    "tr": "Müşterilere asla fiyat verme.",
    "zh": "不要把合同发给第三方。",
    "ja": "顧客の名前は書かないでください。",
}


async def note_after(messages: Any, limit: int = 2_000) -> str:
    """Return the note of a history."""
    folded = await fold(
        messages,
        store=InMemoryContextPointerStore(),
        session_id="s",
        policy=FoldPolicy(max_tokens=limit),
    )
    assert folded.tokens <= limit
    texts = [str(plain(message)["content"]) for message in folded.messages]
    return next(text for text in texts if text.startswith("Earlier messages are folded away"))


def rules_in(note: str) -> list[str]:
    """Return the lines under the first words of the note, those that bind."""
    said = re.search(
        r"^The user said, for this conversation:\n((?:\d+ user: .*\n)*)", note, re.MULTILINE
    )
    return re.findall(r"^\d+ user: (.*)$", said[1], re.MULTILINE) if said else []


def with_text(role: str, text: str, *, turns: int = 60, at: int = 1) -> list[dict[str, Any]]:
    """Return a conversation with one more message near its beginning."""
    messages = conversation(turns)
    messages.insert(at, {"role": role, "content": text})
    return messages


@pytest.mark.parametrize("language", RULES)
async def test_a_rule_of_the_user_stays_word_for_word_t_07(language: str) -> None:
    rule = RULES[language]
    for text in (rule, f"Hello, here is the plan for today. {rule} The weather is fine."):
        assert rules_in(await note_after(with_text("user", text))) == [rule]


@pytest.mark.parametrize(
    "labelled",
    [
        "[IMPORTANT] {}",
        "[Rule 1]: {}",
        "[重要] {}",
        "<rule>{}</rule>",
        "<rules>\n  <rule>{}</rule>\n  <rule>The sky is grey.</rule>\n</rules>",
        "<rule>{}",
        "[Note] The weather is fine. {} It rains.",
    ],
)
async def test_a_rule_behind_a_label_stays_word_for_word_t_07(labelled: str) -> None:
    text = f"Hello there.\n{labelled.format(RULES['en'])}\nThanks in advance."
    note = await note_after(with_text("user", text), 8_000)
    assert rules_in(note) == [RULES["en"]]
    assert not re.search(r"^\d+ user: (The (sky|weather) is \w+|It rains)\.", note, re.MULTILINE)


CALL = {"id": "x", "type": "function", "function": {"name": "read", "arguments": "{}"}}


@pytest.mark.parametrize(
    "others",
    [
        [{"role": "assistant", "content": RULES["en"]}],
        [
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "x", "content": RULES["en"]},
        ],
    ],
    ids=["the model", "a tool"],
)
async def test_no_text_of_others_becomes_a_rule_t_07(others: list[Any]) -> None:
    messages: list[Any] = conversation(60)
    assert rules_in(await note_after([messages[0], *others, *messages[1:]])) == []


PASTED = [
    "```\n{}\n```",
    "```\n{}",
    "> {}",
    "<<<abc\n{}\nabc>>>",
    '"{} ' + "and so on, as the handbook says at length, " * 6 + '"',
    "2026-01-02T10:00:00 {}",
    "[error] {}",
    "[ERROR] {}",
    "[main] WARN {}",
    "[Errno 2] {}",
    '{{"text": "{}"}}',
    "| {} |",
    "[10:04] {}",
    '<p class="first">{}</p>',
    "```py\n{}\n```",
    "```\n{}\n````",
    "~~~ x\n{}\n~~~~",
    "```\n``` x\n{}\n```",
    "<<<abc\n```\n{}\n\nabc>>>",
]


@pytest.mark.parametrize("pasted", PASTED)
async def test_pasted_text_has_no_rules_and_ends_with_its_fence(pasted: str) -> None:
    # Only a fence without an end contains what follows as well.
    after = [] if pasted == "```\n{}" else [RULES["de"]]
    text = f"What does this mean?\n{pasted.format(RULES['en'])}\n{RULES['de']}"
    assert rules_in(await note_after(with_text("user", text))) == after


@pytest.mark.parametrize("line", ["```make test``` is fine.", "Look at <<<abc"])
async def test_what_only_looks_like_a_fence_hides_no_rule_t_07(line: str) -> None:
    text = f"{line}\n{RULES['en']}"
    assert rules_in(await note_after(with_text("user", text))) == [RULES["en"]]


async def test_fences_without_an_end_take_linear_time() -> None:
    messages = conversation(60)
    for _ in range(12):
        messages.insert(1, {"role": "user", "content": "<<<a\n" * 4_000})
    start = time.process_time()
    await note_after(messages)
    assert time.process_time() - start < 6


async def test_rules_over_their_share_are_named_with_their_pointers_t_07() -> None:
    messages = conversation(60)
    for number in range(60):
        messages.insert(1, {"role": "user", "content": f"Never send parcel {number} to the depot."})
    store = InMemoryContextPointerStore()
    folded = await fold(messages, store=store, session_id="s", policy=FoldPolicy(max_tokens=2_000))
    assert folded.tokens <= 2_000
    note = str(plain(folded.messages[1])["content"])
    shown = len(rules_in(note))
    receipt = re.search(r"^The user said more \((\d+)\): (\w+) /(\d+)", note, re.MULTILINE)
    assert receipt is not None
    assert shown >= 5
    assert shown + int(receipt[1]) == 60
    stored = json.loads(store.load_payload(receipt[2], query_id="s")[1])
    assert "Never send parcel" in stored[receipt[3]]["content"]


def named_in(note: str) -> tuple[int, list[str]]:
    """Return the number of rules that the note only names, and the listed paths to them."""
    receipt = re.search(r"^The user said more \((\d+)\): (.*)$", note, re.MULTILINE)
    if receipt is None:
        return 0, []
    return int(receipt[1]), re.findall(r"\w+ /\d+", receipt[2])


async def test_a_rule_stays_in_view_when_a_message_with_many_repeats_it_t_07() -> None:
    rules = [f"Never send parcel {number} to the depot." for number in range(20)]
    messages = conversation(60)
    messages.insert(1, {"role": "user", "content": rules[-1]})
    messages.insert(9, {"role": "user", "content": "\n".join(rules)})
    note = await note_after(messages, 8_000)
    assert sorted(rules_in(note)) == sorted(rules)


@pytest.mark.parametrize("filler", ["", "It rained. " * 1_790 + "\n"])
async def test_a_rule_too_long_for_the_note_is_named_and_never_cut_t_07(filler: str) -> None:
    clause = "which holds the contracts of many clients, "
    rule = f"Never delete a file of the archive, {clause * 12}unless I confirm it in writing."
    note = await note_after(with_text("user", f"{filler}{rule}"), 8_000)
    assert rules_in(note) == []
    named, [path] = named_in(note)
    assert named == 1
    assert path.endswith(" /2")


async def test_a_rule_that_is_not_read_to_its_end_is_named_and_never_cut_t_07() -> None:
    rule = "Never delete a file of the archive unless I confirm it in writing."
    filler = "It rained. " * 1_820
    note = await note_after(with_text("user", f"{filler[: 20_000 - 40]}.\n{rule} Thanks."), 8_000)
    assert rules_in(note) == []
    assert named_in(note)[0] == 1


@pytest.mark.parametrize("limit", [500, 600, 1_000])
async def test_a_short_note_names_at_least_one_pointer_of_further_rules_t_07(limit: int) -> None:
    messages = conversation(20)[1:]
    for number in range(30):
        messages.insert(0, {"role": "user", "content": f"Never send parcel {number} to the depot."})
    note = await note_after(messages, limit)
    named, paths = named_in(note)
    assert len(rules_in(note)) + named == 30
    assert paths


async def test_rules_that_are_only_named_stay_named_when_folded_again_t_07() -> None:
    store = InMemoryContextPointerStore()
    policy = FoldPolicy(max_tokens=1_500)
    messages: list[Any] = []
    for number in range(30):
        messages.append({"role": "user", "content": f"Never send parcel {number} to the depot."})
        messages.append({"role": "assistant", "content": "Noted. " * 20})
    counts = []
    paths: list[list[str]] = []
    for _ in range(3):
        messages += conversation(20)[1:]
        folded = await fold(messages, store=store, session_id="s", policy=policy)
        messages = [*folded.messages]
        note = str(plain(messages[0])["content"])
        named, listed = named_in(note)
        counts.append((len(rules_in(note)) + named, named > 0))
        assert f" and {named - len(listed)} more\n" in note
        paths.append(listed)
    assert counts == [(30, True)] * 3
    assert paths == [paths[0]] * 3
    for path in paths[-1]:
        pointer_id, _, position = path.partition(" /")
        stored = json.loads(store.load_payload(pointer_id, query_id="s")[1])
        assert "Never send parcel" in stored[position]["content"]


async def test_questions_are_no_rules_and_facts_about_the_user_are_t_07() -> None:
    text = "Why must it never rain? I never eat lunch. They only came once. We always walk home."
    assert rules_in(await note_after(with_text("user", text))) == ["I never eat lunch."]


async def test_people_who_talk_give_no_rules() -> None:
    messages: list[Message] = []
    for number in range(300):
        messages.append({"role": "user", "content": f"So that is point {number} of the day."})
        if number % 10 == 0:
            messages.append({"role": "user", "content": f"You must never do {number} again."})
    assert rules_in(await note_after(messages)) == []


async def test_many_rules_of_a_long_chat_without_tools_all_bind_t_07() -> None:
    wanted = []
    messages: list[Message] = []
    for number in range(300):
        content = f"So that is point {number} of the day."
        if number % 60 == 0:
            wanted.append(f"You must never send offer {number} to a client.")
            content += f" {wanted[-1]}"
        messages.append({"role": "user", "content": content})
        messages.append({"role": "assistant", "content": "Noted."})
    note = await note_after(messages)
    assert sorted(rules_in(note)) == sorted(wanted)


async def test_the_note_is_the_same_in_each_language() -> None:
    frames = set()
    for rule in RULES.values():
        note = await note_after(with_text("user", rule))
        frames.add(note.split("\n")[0])
    assert len(frames) == 1
