"""Prompts within their budget."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.agents import AgenticExecutor, Answering, ToolContextManager, ToolRegistry
from llm_common.core import ExactCounter, LLMMessage, MessageRole, TokenCounter, UpperBoundCounter
from llm_common.errors import TokenBudgetError
from llm_common.prompt import PromptBundle, TokenBudget, fit
from llm_common.prompt.prompt_bundle import count_prompt_tokens
from llm_common.testing import ScriptedClient
from llm_common.text.display import printable
from tests.history.conversations import mean_shared_prefix
from tests.prompt.test_prompt_bundle import ASSISTANT, USER, call_and_output, message_of

WORDS = (
    "zebra ",
    "\n",
    '{"k": [1, 2.5]}',
    "日本語",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "e\u0301",
    "  " * 20,
    "\ud83d",
    "\ude00",
    "<<<0123456789ab",
    "### ",
    "def f(x):\n    return x",
    "ключ ",
    "A" * 70,
    "\0",
)


class FourCharacters:
    """Counts a token for every four characters, rounded up, by the rule of thumb."""

    def count(self, text: str) -> int:
        return -(-len(text) // 4)


@pytest.fixture(scope="module")
def exact() -> TokenCounter:
    return ExactCounter()


def text_of(chance: random.Random, most: int) -> str:
    return "".join(chance.choices(WORDS, k=chance.randint(0, most)))


def turns(index: int, text: str = "some words of a turn") -> list[LLMMessage]:
    return [message_of((USER, ASSISTANT)[item % 2], f"{item} {text}") for item in range(index)]


def fit_within(limit: int, **parts: Any) -> PromptBundle:
    return fit(PromptBundle(**parts, budget=TokenBudget(max_input_tokens=limit)))


def with_limit(bundle: PromptBundle, limit: int) -> PromptBundle:
    return bundle.model_copy(update={"budget": TokenBudget(max_input_tokens=limit)})


def random_bundle(seed: int) -> PromptBundle:
    chance = random.Random(seed)
    size = chance.choice((1, 5, 40, 300))
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "t", "arguments": text_of(chance, 5)},
    }
    messages = [
        message_of(USER, text_of(chance, size)),
        LLMMessage(role=ASSISTANT, content=None, tool_calls=[call]),
        LLMMessage(role=MessageRole.TOOL, content=text_of(chance, size), tool_call_id="c"),
        message_of(ASSISTANT, text_of(chance, size)),
        LLMMessage(role=USER, content=[{"type": "text", "text": text_of(chance, 5)}], name="n"),
    ]
    return PromptBundle(
        system=text_of(chance, min(size, 40)),
        instructions=text_of(chance, min(size, 40)),
        tools_json_schema=chance.choice((None, '[{"name":"t"}]')),
        context_docs=[text_of(chance, size) for _ in range(chance.randint(0, 5))],
        history=chance.choices(messages, k=chance.randint(0, 12)),
        background=text_of(chance, size),
        budget=TokenBudget(max_input_tokens=chance.choice((40, 64, 200, 1_000, 4_000))),
    )


def sent_tokens(bundle: PromptBundle, counter: TokenCounter, *, include_tools: bool) -> int:
    """Count the tokens of the texts, independently of the library's meter."""
    texts = [message.content for message in bundle.to_messages(include_tools=include_tools)]
    beside = bundle.tools_json_schema or "" if not include_tools else ""
    return sum(counter.count(text) for text in texts if isinstance(text, str)) + counter.count(
        beside
    )


def question_of(bundle: PromptBundle) -> list[LLMMessage]:
    """Return the messages that contain the user's question if there are no instructions."""
    rest = list(bundle.history)
    while (
        not bundle.instructions.strip()
        and rest
        and MessageRole.USER in [message.role for message in rest[1:]]
    ):
        rest.pop(0)
    return (
        [] if bundle.instructions.strip() or not rest or rest[0].role != MessageRole.USER else rest
    )


def assert_never_over(seed: int, counter: TokenCounter) -> None:
    bundle = random_bundle(seed)
    uncut = bundle.model_copy(
        update={"history": question_of(bundle), "context_docs": [], "background": ""}
    )
    needed = count_prompt_tokens(uncut, counter)
    if needed > bundle.budget.max_input_tokens:
        with pytest.raises(TokenBudgetError) as caught:
            fit(bundle, counter)
        assert caught.value.needed_tokens == needed
        with pytest.raises(TokenBudgetError):
            fit(with_limit(bundle, needed - 1), counter)
        bundle = with_limit(bundle, needed)
    limit = bundle.budget.max_input_tokens
    fitted = fit(bundle, counter)
    assert (fitted.system, fitted.instructions) == (
        bundle.system,
        bundle.instructions,
    )
    assert count_prompt_tokens(fitted, counter) <= limit
    for include_tools in (False, True):
        assert sent_tokens(fitted, counter, include_tools=include_tools) <= limit
        for message in fitted.to_messages(include_tools=include_tools):
            str(message.content).encode()
    assert fitted.history[len(fitted.history) - len(uncut.history) :] == uncut.history
    if count_prompt_tokens(bundle, counter) <= limit:
        assert fitted == bundle


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.torture)])
def test_random_bundles_are_never_over_by_the_exact_count_s3_03(
    exact: TokenCounter, count: int
) -> None:
    for seed in range(count):
        assert_never_over(seed, exact)


@given(st.integers(0, 64), st.tuples(*[st.text(alphabet=st.characters(), max_size=400)] * 5))
def test_any_text_fits_a_tiny_budget_f_148(limit: int, texts: tuple[str, ...]) -> None:
    system, instructions, document, turn, background = texts
    bundle = PromptBundle(
        system=system,
        instructions=instructions,
        context_docs=[document, document],
        history=[LLMMessage(role=MessageRole.USER, content=turn)],
        background=background,
        budget=TokenBudget(max_input_tokens=limit),
    )
    try:
        messages = fit(bundle, FourCharacters()).to_messages()
    except TokenBudgetError as error:
        over = error.needed_tokens - limit
        assert over > 0
        return
    assert str(messages[-1].content if messages else "").endswith(printable(instructions))
    assert sum(len(str(message.content)) for message in messages) <= 4 * limit
    for message in messages:
        str(message.content).encode()


def test_a_prompt_that_fits_is_not_changed_s3_03() -> None:
    bundle = PromptBundle(
        system="s", instructions="i", context_docs=["d"], history=turns(4), background="b"
    )
    assert fit(bundle) == bundle


def test_parts_are_cut_in_their_order_s3_03() -> None:
    """As the budget shrinks, cut the history, the last document, the first, the background."""
    bundle = PromptBundle(
        system="system " * 40,
        instructions="instructions " * 40,
        context_docs=["first " * 40, "second " * 40],
        history=turns(8),
        background="background " * 40,
    )
    parts = ("history", "second", "first", "background")
    uncut = PromptBundle(system=bundle.system, instructions=bundle.instructions)
    seen = []
    for limit in range(count_prompt_tokens(bundle), count_prompt_tokens(uncut) - 1, -1):
        fitted = fit(with_limit(bundle, limit))
        sent = str(fitted.to_messages())
        whole = {
            "history": fitted.history == bundle.history,
            "background": fitted.background == bundle.background,
            "first": bundle.context_docs[0] in fitted.context_docs,
            "second": bundle.context_docs[1] in fitted.context_docs,
        }
        states = [whole[part] for part in parts]
        assert states == sorted(states), "a part was cut while an earlier one was whole"
        dropped = [fitted.history == [], "second" not in sent, "first" not in sent]
        for is_whole, is_dropped in zip(states[1:], dropped, strict=True):
            assert is_whole or is_dropped, "a part was cut while some of an earlier one remained"
        seen.append(tuple(states))
        assert (fitted.system, fitted.instructions) == (bundle.system, bundle.instructions)
    assert len(set(seen)) == 5
    assert fitted == uncut.model_copy(update={"budget": fitted.budget})
    with pytest.raises(TokenBudgetError):
        fit(with_limit(bundle, limit - 1))


LONG = "rule " * 600


@pytest.mark.parametrize(
    ("parts", "hint"),
    [
        ({"system": LONG, "instructions": "Which one?"}, "shorten them, or raise"),
        ({"system": "Rules.", "instructions": LONG}, "shorten them, or raise"),
        ({"system": "rule " * 300, "instructions": "why " * 300}, "shorten them, or raise"),
        ({"system": LONG, "instructions": ""}, "shorten them, or raise"),
        ({"system": "s", "tools_json_schema": '["tool"]' * 320}, "give fewer tools"),
    ],
    ids=["system", "question", "both", "system-alone", "tools"],
)
def test_what_is_never_cut_raises_over_the_budget_s3_03_f_180(
    parts: dict[str, str], hint: str
) -> None:
    rest = {"history": turns(4), "background": "b", "budget": {"max_input_tokens": 500}}
    bundle = PromptBundle.model_validate(parts | rest)
    with pytest.raises(TokenBudgetError, match=r"take \d{3} tokens of 500") as caught:
        fit(bundle)
    assert hint in str(caught.value)
    assert caught.value.limit_tokens == 500
    fitted = fit(with_limit(bundle, caught.value.needed_tokens))
    assert {name: getattr(fitted, name) for name in parts} == parts


async def test_an_answer_whose_rules_exceed_the_budget_calls_no_model_f_180(
    tmp_path: Path,
) -> None:
    client = ScriptedClient([])
    answering = Answering(system=LONG, budget=TokenBudget(max_input_tokens=500))
    executor = AgenticExecutor(client, ToolRegistry(), ToolContextManager(tmp_path))
    answer = await executor.run("Which one?", answering=answering)
    assert (answer.status, answer.text, answer.prompt_tokens) == ("error", None, 0)
    assert "never cut, take 6" in answer.problem
    assert client.calls == []


@pytest.mark.parametrize("count", [2.25, "7", None])
def test_a_counter_without_whole_numbers_raises_with_its_name(count: Any) -> None:
    class Odd:
        def count(self, text: str) -> Any:
            return count

    with pytest.raises(TypeError, match=r"the token counter Odd returned .*math\.ceil"):
        fit(PromptBundle(instructions="go"), Odd())


def test_a_question_in_the_history_stays_with_later_messages() -> None:
    asked = [message_of(USER, "which one? " * 20), *call_and_output("rows " * 20)]
    history = [*turns(40), *asked]
    assert fit_within(150, history=history).history == asked
    with pytest.raises(TokenBudgetError, match="never cut"):
        fit_within(40, history=history)


def test_documents_are_cut_from_the_last_and_stay_fenced_s3_03() -> None:
    documents = ["first " * 30, "second " * 300, "third " * 30]
    fitted = fit_within(200, instructions="go", context_docs=documents)
    first, second = fitted.context_docs
    assert first == documents[0]
    assert second.startswith("second ")
    assert len(second) < len(documents[1])
    content = str(fitted.to_messages()[0].content)
    nonce = content.partition("<<<")[2][:12]
    assert content.endswith(f"{nonce}>>>\n\ngo")
    assert count_prompt_tokens(fitted) > 180


@pytest.mark.parametrize("limit", range(20, 500, 13))
def test_a_cut_history_begins_with_the_user_s3_06(limit: int) -> None:
    turn = [
        message_of(USER, "question " * 20),
        *call_and_output("answer " * 20),
        message_of(ASSISTANT, "so " * 20),
    ]
    kept = fit_within(limit, instructions="go on", history=turn * 6).history
    assert not kept or kept[0].role == "user"
    dropped = 24 - len(kept)
    assert dropped % 4 == 0
    assert kept == (turn * 6)[dropped:]


@pytest.mark.parametrize("instructions", ["", "go on"])
@pytest.mark.parametrize("limit", [100, 200, 400])
def test_rules_at_the_head_of_a_history_stay_s3_03(instructions: str, limit: int) -> None:
    rules = message_of(MessageRole.SYSTEM, "Never name a price.")
    history = [rules, *turns(30, "some words of a turn " * 4)]
    fitted = fit_within(limit, instructions=instructions, history=history)
    dropped = len(history) - len(fitted.history)
    assert fitted.history == [rules, *history[dropped + 1 :]]
    assert count_prompt_tokens(fitted) <= limit
    with pytest.raises(TokenBudgetError):
        fit_within(100, instructions="go on", history=[rules] * 40)


def test_tool_schemas_count_towards_the_budget_s3_03() -> None:
    schema = '[{"name":"tool","description":"of some length"}]'
    without = fit_within(100, background="word " * 200).background
    beside = fit_within(100, background="word " * 200, tools_json_schema=schema).background
    assert len(without) - len(beside) > 40


def test_a_large_text_is_cut_quickly_and_close_to_the_limit_s3_03() -> None:
    counter = UpperBoundCounter()
    bundle = PromptBundle(instructions="go", context_docs=["some words, " * 40_000])
    tokens = count_prompt_tokens(fit(bundle, counter), counter)
    assert 0.95 * 8_000 < tokens <= 8_000


def replay(budget: TokenBudget) -> list[str]:
    """Return the prompts of sixty turns of a conversation, each as the bytes that are sent."""
    chance, history, prompts = random.Random(5), list[LLMMessage](), []
    vocabulary = [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
    ]
    for turn in range(60):
        question = f"{turn}: {' '.join(chance.choices(vocabulary, k=30))}"
        bundle = PromptBundle(
            system="You help. " * 60,
            instructions=question,
            background="## Files\n" + "import this\n" * 150,
            context_docs=[
                f"Retrieved context\n- user: {' '.join(chance.choices(vocabulary, k=15))}"
            ],
            history=history,
            budget=budget,
        )
        prompts.append(
            "\n".join(message.model_dump_json() for message in fit(bundle).to_messages())
        )
        answer = " ".join(chance.choices(vocabulary, k=120))
        history += [message_of(USER, question), message_of(ASSISTANT, answer)]
    return prompts


@pytest.mark.parametrize("limit", [100_000, 8_000], ids=["all-fits", "half-fits"])
def test_prompts_of_sixty_turns_share_long_prefixes_s3_06(limit: int) -> None:
    prompts = replay(TokenBudget(max_input_tokens=limit))
    assert mean_shared_prefix([prompt.encode() for prompt in prompts]) >= 0.9


def test_schemas_count_where_they_take_more_tokens_s3_03() -> None:
    class Hundred:
        def count(self, text: str) -> int:
            return 100

    bundle = PromptBundle(system="s", tools_json_schema="[]")
    inside = bundle.to_messages(include_tools=True)[0].content
    assert isinstance(inside, str)
    frame = count_prompt_tokens(PromptBundle(system="s"), Hundred()) - 100
    assert count_prompt_tokens(bundle, Hundred()) == frame + 200  # the system text and the schemas
    assert count_prompt_tokens(bundle) == frame + UpperBoundCounter().count(inside)
