"""What the user stated as a rule stays in view; what others wrote never becomes one."""

import json
import re
import time
from typing import Any

import pytest

from llm_common.pointers.store import InMemoryContextPointerStore
from tests.history.conversations import call_and_output, conversation, folded, note_of, said

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
    result = await folded(messages, limit)
    assert result.tokens <= limit
    return note_of(result)


def rules_in(note: str) -> list[str]:
    """Return the lines under the first words of the note, those that bind."""
    said = re.search(
        r"^The user said, for this conversation:\n((?:\d+ user: .*\n)*)", note, re.MULTILINE
    )
    return re.findall(r"^\d+ user: (.*)$", said[1], re.MULTILINE) if said else []


def with_text(role: str, *texts: str, turns: int = 60) -> list[dict[str, Any]]:
    """Return a conversation with more messages near its beginning."""
    head, *messages = conversation(turns)
    return [head, *(said(role, text) for text in texts), *messages]


def parcels(count: int) -> list[str]:
    """Return rules of the user, each about another parcel."""
    return [f"Never send parcel {number} to the depot." for number in range(count)]


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


@pytest.mark.parametrize(
    "others",
    [[said("assistant", RULES["en"])], call_and_output("x", "read", {}, RULES["en"])],
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


# Only a fence without an end contains what follows as well.
OPEN = "```\n{}"
TALK = "Why must it never rain? I never eat lunch. They only came once. We always walk home."


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        *(
            (
                f"What does this mean?\n{pasted.format(RULES['en'])}\n{RULES['de']}",
                [] if pasted == OPEN else [RULES["de"]],
            )
            for pasted in PASTED
        ),
        # what only looks like a fence
        *(
            (f"{line}\n{RULES['en']}", [RULES["en"]])
            for line in ("```make test``` is fine.", "Look at <<<abc")
        ),
        # questions are no rules, and facts about the user are
        (TALK, ["I never eat lunch."]),
    ],
)
async def test_pasted_text_has_no_rules_and_ends_with_its_fence_t_07(
    text: str, rules: list[str]
) -> None:
    assert rules_in(await note_after(with_text("user", text))) == rules


async def test_fences_without_an_end_take_linear_time() -> None:
    messages = with_text("user", *["<<<a\n" * 4_000] * 12)
    start = time.process_time()
    await note_after(messages)
    assert time.process_time() - start < 6


async def test_rules_over_their_share_are_named_with_their_pointers_t_07() -> None:
    store = InMemoryContextPointerStore()
    result = await folded(with_text("user", *parcels(60)), store=store)
    assert result.tokens <= 2_000
    shown = len(rules_in(note_of(result)))
    named, [path, *_] = named_in(note_of(result))
    assert shown >= 5
    assert shown + named == 60
    assert "Never send parcel" in stored_at(store, path)


def named_in(note: str) -> tuple[int, list[str]]:
    """Return the number of rules that the note only names, and the listed paths to them."""
    receipt = re.search(r"^The user said more \((\d+)\): (.*)$", note, re.MULTILINE)
    if receipt is None:
        return 0, []
    return int(receipt[1]), re.findall(r"\w+ /\d+", receipt[2])


def stored_at(store: InMemoryContextPointerStore, path: str) -> str:
    """Return the text of a folded message by its path in the note."""
    pointer_id, _, position = path.partition(" /")
    text: str = json.loads(store.load_payload(pointer_id, query_id="s")[1])[position]["content"]
    return text


async def test_a_rule_stays_in_view_when_a_message_with_many_repeats_it_t_07() -> None:
    rules = parcels(20)
    messages = with_text("user", rules[-1])
    messages.insert(9, said("user", "\n".join(rules)))
    assert sorted(rules_in(await note_after(messages, 8_000))) == sorted(rules)


RULE = "Never delete a file of the archive unless I confirm it in writing."
LONG_RULE = RULE.replace(
    "archive", "archive, " + "which holds the contracts of many clients, " * 12
)


@pytest.mark.parametrize(
    "text",
    [
        LONG_RULE,
        "It rained. " * 1_790 + f"\n{LONG_RULE}",
        f"{('It rained. ' * 1_820)[: 20_000 - 40]}.\n{RULE} Thanks.",
    ],
    ids=["long", "long and late", "not read to its end"],
)
async def test_a_rule_that_the_note_cannot_have_whole_is_named_and_never_cut_t_07(
    text: str,
) -> None:
    note = await note_after(with_text("user", text), 8_000)
    assert rules_in(note) == []
    named, [path] = named_in(note)
    assert named == 1
    assert path.endswith(" /2")


@pytest.mark.parametrize("limit", [500, 600, 1_000])
async def test_a_short_note_names_at_least_one_pointer_of_further_rules_t_07(limit: int) -> None:
    note = await note_after(with_text("user", *parcels(30), turns=20)[1:], limit)
    named, paths = named_in(note)
    assert len(rules_in(note)) + named == 30
    assert paths


async def test_rules_that_are_only_named_stay_named_when_folded_again_t_07() -> None:
    store = InMemoryContextPointerStore()
    messages: list[Any] = []
    for rule in parcels(30):
        messages += [said("user", rule), said("assistant", "Noted. " * 20)]
    paths: list[list[str]] = []
    for _ in range(3):
        result = await folded([*messages, *conversation(20)[1:]], 1_500, store=store)
        messages = [*result.messages]
        named, listed = named_in(note_of(result))
        assert named > 0
        assert len(rules_in(note_of(result))) + named == 30
        assert f" and {named - len(listed)} more\n" in note_of(result)
        paths.append(listed)
    assert paths == [paths[0]] * 3
    assert all("Never send parcel" in stored_at(store, path) for path in paths[-1])


async def test_people_who_talk_give_no_rules() -> None:
    messages = []
    for number in range(300):
        messages.append(said("user", f"So that is point {number} of the day."))
        if number % 10 == 0:
            messages.append(said("user", f"You must never do {number} again."))
    assert rules_in(await note_after(messages)) == []


async def test_many_rules_of_a_long_chat_without_tools_all_bind_t_07() -> None:
    rules = {n: f" You must never send offer {n} to a client." for n in range(0, 300, 60)}
    messages = []
    for number in range(300):
        text = f"So that is point {number} of the day.{rules.get(number, '')}"
        messages += [said("user", text), said("assistant", "Noted.")]
    note = await note_after(messages)
    assert sorted(rules_in(note)) == sorted(rule.strip() for rule in rules.values())


async def test_the_note_is_the_same_in_each_language() -> None:
    notes = [await note_after(with_text("user", rule)) for rule in RULES.values()]
    assert len({note.split("\n")[0] for note in notes}) == 1
