"""Shorten a prompt to its budget, starting with its least important parts."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise, takewhile

from llm_common.core.models import LLMMessage, MessageRole
from llm_common.core.tokens import DefaultCounter, TokenCounter, without_media
from llm_common.errors import TokenBudgetError
from llm_common.parts.fill import fill, largest_room
from llm_common.prompt.prompt_bundle import PromptBundle, PromptMeter
from llm_common.text.display import excerpt_text, printable

_STEP_SHARE = 3  # a history is cut about once for each third of the budget that new turns fill


def fit(bundle: PromptBundle, counter: TokenCounter | None = None) -> PromptBundle:
    """Shorten a prompt to `budget.max_input_tokens`.

    Parts are cut only as far as needed: first the history, oldest messages first, then the
    documents, last ones first, then the background. A long text is cut in its middle, a short one
    at its end. A cut history begins with a message of the user, so no tool result lacks its call.
    The history is cut in steps of a third of the budget, if that keeps at least half of what would
    fit. The prompts of the next turns then share their beginning, as a provider's cache needs.

    A prompt without its question or with half of its rules must not be sent. So the tool schemas,
    the system text, the instructions and the system messages at the head of the history are never
    cut. Without instructions, the question is the last message of the user in the history. It
    stays, and so do the messages after it.

    Args:
        bundle: The prompt, which is not changed.
        counter: Counts what `to_messages` returns, with and without the tools. An exact counter
            makes the limit exact. None uses `DefaultCounter`.

    Returns:
        The prompt, never over its budget.

    Raises:
        TokenBudgetError: If the parts that are never cut exceed the budget. `.needed_tokens` is the
            smallest budget that would suffice.
        TypeError: If `bundle` is not a `PromptBundle`, or if the counter returns no whole number.
    """
    if not isinstance(bundle, PromptBundle):
        kind = type(bundle).__name__
        raise TypeError(
            f"bundle is a {kind}; pass a PromptBundle, such as ContextBuilder.build makes"
        )
    meter = PromptMeter(counter or DefaultCounter())
    # If the tool schemas alone exceed the budget, the error says so.
    tools = PromptBundle(tools_json_schema=bundle.tools_json_schema, budget=bundle.budget)
    required = [*_rules_of(bundle), *_question_of(bundle)]
    uncut = bundle.model_copy(update={"context_docs": [], "background": "", "history": required})
    _require(meter, uncut, tools)
    fitted = _without_documents(_without_history(bundle, meter), meter)
    return _with_shorter_background(fitted, meter)


def _rules_of(bundle: PromptBundle) -> list[LLMMessage]:
    """Return the system messages at the head of the history."""
    return [*takewhile(lambda message: message.role == MessageRole.SYSTEM, bundle.history)]


def _question_of(bundle: PromptBundle) -> list[LLMMessage]:
    """Return the user's last message in the history and all after it, if that is the question."""
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
        problem = f"system text, question and tool schemas, which are never cut, take {needed}"
        remedy = "shorten them"
        media_tokens = sum(without_media(message.content)[1] for message in uncut.history)
        if needed - media_tokens <= limit:
            remedy = f"send fewer images, sounds and files, which count {media_tokens}"
    else:
        problem = f"the tool schemas alone take {meter.tokens(tools)}"
        remedy = "give fewer tools"
    raise TokenBudgetError(
        f"{problem} tokens of {limit}; {remedy}, or raise max_input_tokens to {needed}",
        needed_tokens=needed,
        limit_tokens=limit,
    )


def _without_history(bundle: PromptBundle, meter: PromptMeter) -> PromptBundle:
    """Drop the oldest messages, up to a message of the user, until the bundle fits."""
    history = bundle.history
    rules = _rules_of(bundle)
    last = len(history) - len(_question_of(bundle))
    if last <= len(rules) or meter.fits(bundle):
        return bundle

    def starting_at(start: int) -> PromptBundle:
        return bundle.model_copy(update={"history": [*rules, *history[start:]]})

    indexes = range(len(rules) + 1, last)
    starts = [index for index in indexes if history[index].role == MessageRole.USER]
    starts.append(last)
    # A later start takes fewer tokens, so a binary search finds the first that fits.
    fitting = bisect_left(starts, 1, key=lambda start: int(meter.fits(starting_at(start))))
    # If no start fits, the documents and the background are cut too.
    first = starts[min(fitting, len(starts) - 1)]

    # The first start in a new step of tokens stays the same over the prompts of many turns.
    tokens_before = [0, *accumulate(map(meter.message, history))]
    step = max(bundle.budget.max_input_tokens // _STEP_SHARE, 1)
    steady = first
    for earlier, start in pairwise([0, *starts]):
        begins_step = tokens_before[start] // step > tokens_before[earlier] // step
        if begins_step and start >= first:
            steady = start
            break
    steady_tokens = tokens_before[-1] - tokens_before[steady]
    possible_tokens = tokens_before[-1] - tokens_before[first]
    if 2 * steady_tokens >= possible_tokens and meter.fits(starting_at(steady)):
        return starting_at(steady)
    return starting_at(first)


def _without_documents(bundle: PromptBundle, meter: PromptMeter) -> PromptBundle:
    """Keep the first documents, as many as fit, and a part of the next document."""
    if not bundle.context_docs or meter.fits(bundle):
        return bundle

    def with_documents(documents: Sequence[str]) -> PromptBundle:
        return bundle.model_copy(update={"context_docs": [*documents]})

    def part_of(document: str, max_tokens: int) -> str | None:
        excerpt = _longest_excerpt(document, lambda text: meter.text(text) <= max_tokens)
        return excerpt or None

    # What is sent beside the text of a document. Further documents add their own fences.
    other_tokens = meter.tokens(with_documents(["x"])) - meter.text("x")
    documents = fill(
        bundle.budget.max_input_tokens - other_tokens,
        bundle.context_docs,
        meter.text,
        part=part_of,
        whole=lambda documents: meter.tokens(with_documents(documents)) - other_tokens,
    )
    return with_documents(documents)


def _with_shorter_background(bundle: PromptBundle, meter: PromptMeter) -> PromptBundle:
    if meter.fits(bundle):
        return bundle

    def with_background(text: str) -> PromptBundle:
        return bundle.model_copy(update={"background": text})

    excerpt = _longest_excerpt(bundle.background, lambda text: meter.fits(with_background(text)))
    return with_background(excerpt)


def _longest_excerpt(text: str, fits: Callable[[str], bool]) -> str:
    """Return nearly the longest excerpt that fits, or "", of a text that does not fit."""
    text = printable(text)  # as it is sent, so that an escape is not cut in two
    chars = largest_room(len(text), lambda chars: fits(excerpt_text(text, chars).text))
    return excerpt_text(text, chars).text if chars else ""
