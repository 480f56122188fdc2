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
    """A prompt within its budget, and what was cut for that.

    Attributes:
        bundle: The prompt.
        tokens: What it takes, as `count_prompt_tokens` counts.
        dropped_messages: Messages of the history that were left out, the oldest ones behind its
            system messages.
        dropped_documents: Documents that were left out, the last ones.
        shortened: Names of the documents and of the background, where they were cut; one that is
            empty was left out.
    """

    model_config = ConfigDict(frozen=True)

    bundle: PromptBundle
    tokens: int
    dropped_messages: int = 0
    dropped_documents: int = 0
    shortened: tuple[str, ...] = ()


def fit(bundle: PromptBundle, counter: TokenCounter | None = None) -> PromptBundle:
    """The bundle, never above `budget.max_input_tokens`; see `fit_detailed`.

    Raises:
        TokenBudgetError: As from `fit_detailed`.
        TypeError: As from `fit_detailed`.
    """
    return fit_detailed(bundle, counter).bundle


def fit_detailed(bundle: PromptBundle, counter: TokenCounter | None = None) -> FittedPrompt:
    """The bundle within its budget, and what was cut.

    Cut in this order, as far as needed: the history, oldest first; the documents, last first; the
    background. A long text is cut in its middle, a short one at its end. The rest of a history
    begins with a message of the user, so no tool's answer is without its call. The history is cut
    in steps of a third of the budget where that leaves at least half of what could stay: the
    prompts of the next turns then begin alike, as a provider's cache needs.

    The tool schemas, the system text and the instructions are never cut: a prompt without the
    user's question, or with half of its rules, must not be sent. So the system messages at the head
    of the history stay too. Without instructions the question is the history's last message of the
    user; it stays, with what follows it.

    Args:
        bundle: The prompt; not changed.
        counter: Counts tokens; None takes `DefaultCounter`. It counts what `to_messages` sends,
            with and without the tools, so an exact counter gives an exact bound.

    Raises:
        TokenBudgetError: What is never cut is over the budget; `.needed_tokens` would hold it.
        TypeError: The bundle is no `PromptBundle`, or the counter returned no whole number.
    """
    if not isinstance(bundle, PromptBundle):
        raise TypeError(
            f"bundle is a {type(bundle).__name__}; pass a PromptBundle, such as ContextBuilder.build makes"
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
    """The system messages at the head of the history."""
    return [*takewhile(lambda message: message.role == MessageRole.SYSTEM, bundle.history)]


def _question_of(bundle: PromptBundle) -> list[LLMMessage]:
    """The end of the history from the user's last message on, where that is the question: without instructions."""
    if bundle.instructions.strip():
        return []
    asked = (
        number for number, message in enumerate(bundle.history) if message.role == MessageRole.USER
    )
    return bundle.history[max(asked, default=len(bundle.history)) :]


def _require(meter: PromptMeter, uncut: PromptBundle, tools: PromptBundle) -> None:
    if meter.fits(uncut):
        return
    needed, limit = meter.tokens(uncut), uncut.budget.max_input_tokens
    if meter.fits(tools):
        what, remedy = (
            f"system text, question and tool schemas, which are never cut, take {needed}",
            "shorten them",
        )
    else:
        what, remedy = f"the tool schemas alone take {meter.tokens(tools)}", "give fewer tools"
    raise TokenBudgetError(
        f"{what} tokens of {limit}; {remedy}, or raise max_input_tokens to {needed}",
        needed_tokens=needed,
        limit_tokens=limit,
    )


def _account(before: PromptBundle, after: PromptBundle, tokens: int) -> FittedPrompt:
    pairs = zip(before.context_docs, after.context_docs, strict=False)
    return FittedPrompt(
        bundle=after,
        tokens=tokens,
        dropped_messages=len(before.history) - len(after.history),
        dropped_documents=len(before.context_docs) - len(after.context_docs),
        shortened=(
            *(f"context_docs[{number}]" for number, (old, new) in enumerate(pairs) if old != new),
            *(["background"] if before.background != after.background else []),
        ),
    )


def _without_history(bundle: PromptBundle, meter: PromptMeter) -> PromptBundle:
    history, rules = bundle.history, _rules_of(bundle)
    last = len(history) - len(_question_of(bundle))
    if last <= len(rules) or meter.fits(bundle):
        return bundle

    def rest(start: int) -> PromptBundle:
        return bundle.model_copy(update={"history": [*rules, *history[start:]]})

    starts = [
        number for number in range(len(rules) + 1, last) if history[number].role == MessageRole.USER
    ]
    starts.append(last)
    first = starts[
        min(bisect_left(starts, 1, key=lambda start: int(meter.fits(rest(start)))), len(starts) - 1)
    ]
    before = [0, *accumulate(map(meter.message, history))]
    step = max(bundle.budget.max_input_tokens // _STEP_SHARE, 1)
    steady = (
        start
        for earlier, start in pairwise([0, *starts])
        if before[start] // step > before[earlier] // step
    )
    later = next((start for start in steady if start >= first), first)
    if 2 * (before[-1] - before[later]) >= before[-1] - before[first] and meter.fits(rest(later)):
        return rest(later)
    return rest(first)


def _without_documents(bundle: PromptBundle, meter: PromptMeter) -> PromptBundle:
    documents = bundle.context_docs
    if not documents or meter.fits(bundle):
        return bundle

    def with_documents(kept: list[str]) -> PromptBundle:
        return bundle.model_copy(update={"context_docs": kept})

    def fits(number: int) -> bool:
        return meter.fits(with_documents(documents[:number]))

    whole = documents[
        : bisect_left(range(len(documents)), 1, key=lambda number: int(not fits(number + 1)))
    ]
    if not whole and not fits(0):
        return with_documents([])
    last = _longest_excerpt(
        documents[len(whole)], lambda text: meter.fits(with_documents([*whole, text]))
    )
    return with_documents([*whole, last] if last else whole)


def _with_shorter_background(bundle: PromptBundle, meter: PromptMeter) -> PromptBundle:
    def with_background(text: str) -> PromptBundle:
        return bundle.model_copy(update={"background": text})

    if meter.fits(bundle):
        return bundle
    return with_background(
        _longest_excerpt(bundle.background, lambda text: meter.fits(with_background(text)))
    )


def _longest_excerpt(text: str, fits: Callable[[str], bool]) -> str:
    """Nearly the longest excerpt that fits, of a text that does not; empty in the worst case."""
    text = printable(text)
    low, high = 0, _FIRST_CHARS
    while high < len(text) and fits(excerpt_text(text, high).text):
        low, high = high, 2 * high
    high = min(high, len(text))
    while high - low > 1 + low // _PRECISION:
        middle = (low + high) // 2
        if fits(excerpt_text(text, middle).text):
            low = middle
        else:
            high = middle
    return excerpt_text(text, low).text if low else ""
