"""`fit`: shortens a prompt to its budget, the least important parts first."""

from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate, pairwise, takewhile

from pydantic import BaseModel, ConfigDict

from llm_common.core.models import LLMMessage, MessageRole
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.errors import TokenBudgetError
from llm_common.prompt.prompt_bundle import PromptBundle, PromptMeter
from llm_common.text.display import excerpt_text, printable

_STEP_SHARE = 3  # a history is cut about once in the turns that fill a third of the budget
_FIRST_CHARS = 64
_PRECISION = 64  # a cut is within a 64th of the longest that fits


class FittedPrompt(BaseModel):
    """A prompt within its budget, with an account of the cuts.

    Attributes:
        bundle: The prompt.
        tokens: Its tokens, as `count_prompt_tokens` counts.
        dropped_messages: Number of messages of the history that were left out: the oldest behind
            its system messages.
        dropped_documents: Number of documents that were left out: the last ones.
        shortened: Names of the documents and of the background, where they were cut. One that is
            empty was left out.
    """

    model_config = ConfigDict(frozen=True)

    bundle: PromptBundle
    tokens: int
    dropped_messages: int = 0
    dropped_documents: int = 0
    shortened: tuple[str, ...] = ()


def fit(bundle: PromptBundle, counter: TokenCounter | None = None) -> PromptBundle:
    """Return the bundle, never above `budget.max_input_tokens`. See `fit_detailed`.

    Raises:
        TokenBudgetError: As from `fit_detailed`.
        TypeError: As from `fit_detailed`.
    """
    return fit_detailed(bundle, counter).bundle


def fit_detailed(bundle: PromptBundle, counter: TokenCounter | None = None) -> FittedPrompt:
    """Return the bundle within its budget, with an account of the cuts.

    Cut in this order, as far as needed: the history, oldest first; the documents, last first; the
    background. A long text is cut in its middle, a short one at its end. The rest of a history
    begins with a message of the user, so no tool's answer is without its call. The history is cut
    in steps of a third of the budget where that leaves at least half of what could stay. The
    prompts of the next turns then begin alike, as a provider's cache needs.

    The tool schemas, the system text and the instructions are never cut: a prompt without the
    user's question, or with half of its rules, must not be sent. So the system messages at the head
    of the history stay too. Without instructions the question is the history's last message of the
    user. It stays, with what follows it.

    Args:
        bundle: The prompt, which is not changed.
        counter: Counts what `to_messages` sends, with and without the tools, so that an exact
            counter gives an exact bound. None uses `DefaultCounter`.

    Raises:
        TokenBudgetError: If what is never cut is over the budget. `.needed_tokens` would hold it.
        TypeError: If the bundle is no `PromptBundle`, or the counter returned no whole number.
    """
    if not isinstance(bundle, PromptBundle):
        kind = type(bundle).__name__
        raise TypeError(
            f"bundle is a {kind}; pass a PromptBundle, such as ContextBuilder.build makes"
        )
    meter = PromptMeter(counter or DefaultCounter())
    tools = PromptBundle(tools_json_schema=bundle.tools_json_schema, budget=bundle.budget)
    kept = [*_rules_of(bundle), *_question_of(bundle)]
    uncut = bundle.model_copy(update={"context_docs": [], "background": "", "history": kept})
    _require(meter, uncut, tools)
    fitted = _without_documents(_without_history(bundle, meter), meter)
    fitted = _with_shorter_background(fitted, meter)
    return _account(bundle, fitted, meter.tokens(fitted))


def _rules_of(bundle: PromptBundle) -> list[LLMMessage]:
    """Return the system messages at the head of the history."""
    return [*takewhile(lambda message: message.role == MessageRole.SYSTEM, bundle.history)]


def _question_of(bundle: PromptBundle) -> list[LLMMessage]:
    """Return the history from the user's last message on, if that is the question."""
    if bundle.instructions.strip():
        return []
    for index in reversed(range(len(bundle.history))):
        if bundle.history[index].role == MessageRole.USER:
            return bundle.history[index:]
    return []


def _require(meter: PromptMeter, uncut: PromptBundle, tools: PromptBundle) -> None:
    if meter.fits(uncut):
        return
    needed, limit = meter.tokens(uncut), uncut.budget.max_input_tokens
    if meter.fits(tools):
        what = f"system text, question and tool schemas, which are never cut, take {needed}"
        remedy = "shorten them"
    else:
        what = f"the tool schemas alone take {meter.tokens(tools)}"
        remedy = "give fewer tools"
    raise TokenBudgetError(
        f"{what} tokens of {limit}; {remedy}, or raise max_input_tokens to {needed}",
        needed_tokens=needed,
        limit_tokens=limit,
    )


def _account(before: PromptBundle, after: PromptBundle, tokens: int) -> FittedPrompt:
    shortened = []
    pairs = zip(before.context_docs, after.context_docs, strict=False)
    for index, (document, fitted) in enumerate(pairs):
        if document != fitted:
            shortened.append(f"context_docs[{index}]")
    if before.background != after.background:
        shortened.append("background")
    return FittedPrompt(
        bundle=after,
        tokens=tokens,
        dropped_messages=len(before.history) - len(after.history),
        dropped_documents=len(before.context_docs) - len(after.context_docs),
        shortened=tuple(shortened),
    )


def _without_history(bundle: PromptBundle, meter: PromptMeter) -> PromptBundle:
    """Return the bundle with as much of its history as fits, cut before a message of the user."""
    history = bundle.history
    rules = _rules_of(bundle)
    last = len(history) - len(_question_of(bundle))
    if last <= len(rules) or meter.fits(bundle):
        return bundle

    def rest(start: int) -> PromptBundle:
        return bundle.model_copy(update={"history": [*rules, *history[start:]]})

    indexes = range(len(rules) + 1, last)
    starts = [index for index in indexes if history[index].role == MessageRole.USER]
    starts.append(last)
    fitting = bisect_left(starts, 1, key=lambda start: int(meter.fits(rest(start))))
    first = starts[min(fitting, len(starts) - 1)]

    # The first start in a new step of tokens is the same for the prompts of many turns.
    tokens_before = [0, *accumulate(map(meter.message, history))]
    step = max(bundle.budget.max_input_tokens // _STEP_SHARE, 1)
    steady = first
    for earlier, start in pairwise([0, *starts]):
        begins_step = tokens_before[start] // step > tokens_before[earlier] // step
        if begins_step and start >= first:
            steady = start
            break
    kept = tokens_before[-1] - tokens_before[steady]
    possible = tokens_before[-1] - tokens_before[first]
    if 2 * kept >= possible and meter.fits(rest(steady)):
        return rest(steady)
    return rest(first)


def _without_documents(bundle: PromptBundle, meter: PromptMeter) -> PromptBundle:
    """Return the bundle with its first documents, as many as fit, and a part of the next one."""
    documents = bundle.context_docs
    if not documents or meter.fits(bundle):
        return bundle

    def with_documents(kept: list[str]) -> PromptBundle:
        return bundle.model_copy(update={"context_docs": kept})

    def fits(count: int) -> bool:
        return meter.fits(with_documents(documents[:count]))

    count = bisect_left(range(len(documents)), 1, key=lambda index: int(not fits(index + 1)))
    if count == 0 and not fits(0):
        return with_documents([])
    whole = documents[:count]
    part = _longest_excerpt(
        documents[count], lambda text: meter.fits(with_documents([*whole, text]))
    )
    return with_documents([*whole, part] if part else whole)


def _with_shorter_background(bundle: PromptBundle, meter: PromptMeter) -> PromptBundle:
    if meter.fits(bundle):
        return bundle

    def with_background(text: str) -> PromptBundle:
        return bundle.model_copy(update={"background": text})

    excerpt = _longest_excerpt(bundle.background, lambda text: meter.fits(with_background(text)))
    return with_background(excerpt)


def _longest_excerpt(text: str, fits: Callable[[str], bool]) -> str:
    """Return nearly the longest excerpt that fits, of a text that does not. It may be empty."""
    text = printable(text)
    low, high = 0, _FIRST_CHARS
    while high < len(text) and fits(excerpt_text(text, high).text):
        low = high
        high = 2 * high
    high = min(high, len(text))
    while high - low > 1 + low // _PRECISION:
        middle = (low + high) // 2
        if fits(excerpt_text(text, middle).text):
            low = middle
        else:
            high = middle
    return excerpt_text(text, low).text if low else ""
