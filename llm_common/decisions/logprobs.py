"""`LogprobDecisions`: a chat model with log probabilities as a decision model."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from string import ascii_uppercase
from time import monotonic
from typing import Any, Final

from llm_common._telemetry import Attribute, span
from llm_common.core.client import LLMClient
from llm_common.core.external_errors import external_errors
from llm_common.core.http.costs import Bill
from llm_common.core.models import LLMMessage, LLMResponse, LLMUsage, MessageRole
from llm_common.decisions.questions import (
    Choice,
    Decisions,
    Predicate,
    Question,
    State,
    check_arguments,
    decisions_of,
)
from llm_common.decisions.wire_formats import state_text
from llm_common.errors import LLMError, LLMTimeoutError, MalformedReplyError

# The maximum that OpenAI and vLLM report. A choice with more options is asked in groups.
_TOP_TOKENS: Final = 20
_LETTERS: Final = ascii_uppercase[:_TOP_TOKENS]
_MAX_LEVELS: Final = 10  # each level is asked as one digit
# Tokenizers' marks for the beginning of a word, and what models put around an answer.
_AROUND_LABEL: Final = " \t\r\n\u2581\u0120\u010a\"'`*_()[].:,"
_ROUNDING: Final = 1e-3  # a certain token's log probability can be reported slightly above 0
_SYSTEM: Final = (
    "You judge what you are shown. You answer with one word, letter or digit, and nothing else."
)


class LogprobDecisions:
    """A decision client that reads the log probabilities of an answer's first token.

    For endpoints that report them for chat completions: llama.cpp, vLLM, SGLang, and OpenAI's
    models without reasoning. The model is asked for one token: yes or no for a predicate, a letter
    for a choice, a digit for a score. The probabilities of those labels are scaled to add up to 1.
    Other tokens are ignored.

    Each question costs one call and one token of output. A choice of more than 20 options is asked
    in groups of 20, and then between the most probable options of the groups. That is
    `ceil(options / 20) + 1` calls. All calls begin with the state, which servers with a prefix
    cache process once. A decision model needs one call for everything (`HttpDecisionClient`).

    The probabilities of small models are poorly calibrated. Measure yours before a threshold
    decides.

    Args:
        client: Any `LLMClient`. The caller closes it.
        model: Model for calls that name none. None uses the client's default.
        timeout_s: Deadline in seconds of all calls for one set of questions.
        max_concurrency: Maximum number of simultaneous calls.
        options: Further options of each call, such as those that keep a model from thinking before
            it answers: `{"chat_template_kwargs": {"enable_thinking": False}}`.

    Raises:
        ValueError: If `max_concurrency` is below 1.
    """

    def __init__(
        self,
        client: LLMClient,
        model: str | None = None,
        *,
        timeout_s: float = 30.0,
        max_concurrency: int = 8,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if max_concurrency < 1:
            raise ValueError("max_concurrency must be at least 1")
        self._client = client
        self._model = model
        self._timeout_s = timeout_s
        self._max_concurrency = max_concurrency
        self._options = dict(options or {})

    async def decide(
        self,
        state: State,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> Decisions:
        """Return the answers to all questions about one state, with at least one call each.

        Args:
            state: The subject of the questions. A dict or list is shown as JSON.
            questions: The questions by id, which the model does not see. A choice can have up to
                400 options, a score up to 10 levels.
            model: None uses the client's `model`.
            timeout_s: Deadline of all calls in seconds. None uses the client's.

        Returns:
            An answer for each question, or the reason `no_label` if none of its labels is among the
            most probable tokens.

        Raises:
            LLMTimeoutError: If not every answer came within the deadline.
            MalformedReplyError: `no_logprobs` if the endpoint reports none. `no_answers` if no
                question has an answer.
            LLMError: If a call failed: the error of the first that did. The other calls are
                cancelled.
            ValueError: If there are no questions, too many options or levels, or the deadline is
                not positive.
            TypeError: If an argument has the wrong type, or the state is not JSON.
        """
        check_arguments(state, questions, timeout_s)
        _check_sizes(questions)
        run = _Run(
            client=self._client,
            model=model or self._model,
            options=self._options,
            state=state_text(state),
            timeout_s=timeout_s or self._timeout_s,
            slots=asyncio.Semaphore(self._max_concurrency),
        )
        attributes: dict[str, Attribute] = {
            "llm_common.model": run.model or "default",
            "llm_common.questions": len(questions),
        }
        with span("llm_common.decide", attributes) as current:
            try:
                decisions = await run.decide(questions)
            except LLMError as exc:
                # The error reports the charges of the successful calls before it, too.
                if isinstance(exc.usage, LLMUsage):
                    run.bill.add(exc.usage, cost_usd=exc.cost_usd)
                exc.usage, exc.cost_usd = run.bill.usage, run.bill.cost_usd
                raise
            current.set_attribute("llm_common.unanswered", len(decisions.unanswered))
        return decisions


@dataclass(slots=True, kw_only=True)
class _Run:
    """The calls for one set of questions, and their charges."""

    client: LLMClient
    model: str | None
    options: Mapping[str, Any]
    state: str
    timeout_s: float
    slots: asyncio.Semaphore
    answered_by: str = ""
    bill: Bill = field(default_factory=Bill)

    async def decide(self, questions: Mapping[str, Question]) -> Decisions:
        """Return the answers to all questions, or raise the error of the first call that failed."""
        started = monotonic()
        tasks: dict[str, asyncio.Task[object]] = {}
        try:
            # The deadline is around the group, which ends its calls before the TimeoutError.
            async with asyncio.timeout(self.timeout_s), asyncio.TaskGroup() as group:
                for question_id, question in questions.items():
                    tasks[question_id] = group.create_task(self._answer(question))
        except TimeoutError as exc:
            raise LLMTimeoutError(
                f"not all of {len(questions)} questions were answered within {self.timeout_s:g} s; "
                "raise timeout_s, ask fewer, or use a faster model",
                timeout_s=self.timeout_s,
            ) from exc
        except BaseExceptionGroup as group_error:
            # The first failure cancels the other calls. Callers expect it without a group.
            raise group_error.exceptions[0] from None
        raw_answers: dict[str, object] = {}
        for question_id, task in tasks.items():
            answer = task.result()
            if answer is not None:
                raw_answers[question_id] = answer
        return decisions_of(
            questions,
            raw_answers,
            reasons=dict.fromkeys(questions, "no_label"),
            model=self.answered_by,
            usage=self.bill.usage,
            cost_usd=self.bill.cost_usd,
            latency_ms=round((monotonic() - started) * 1000),
        )

    async def _answer(self, question: Question) -> object:
        if isinstance(question, Predicate):
            prompt = f"{question.text}\nIs this so? Answer yes or no."
            shares = await self._shares(prompt, ("yes", "no"))
            return shares and shares[0]
        if isinstance(question, Choice):
            return await self._choose(question.text, question.options)
        levels = []
        for level, description in enumerate(question.levels):
            levels.append(f"{level}. {description}")
        lines = "\n".join(levels)
        return await self._shares(
            f"{question.text}\n{lines}\nAnswer with the digit of the level that fits.",
            [str(level) for level in range(len(levels))],
        )

    async def _choose(self, text: str, options: Mapping[str, str]) -> dict[str, float] | None:
        """Return the probability of each option.

        With more than one group, the options of a group are weighted by a choice between the most
        probable option of each.
        """
        names = list(options)
        groups = [names[start : start + _TOP_TOKENS] for start in range(0, len(names), _TOP_TOKENS)]
        tasks: list[asyncio.Task[dict[str, float] | None]] = []
        try:
            async with asyncio.TaskGroup() as calls:
                for group in groups:
                    choosing = self._choose_one(text, group, options)
                    tasks.append(calls.create_task(choosing))
        except BaseExceptionGroup as group_error:
            # One failed call cancels the others, which cost money too.
            raise group_error.exceptions[0] from None
        in_group: dict[str, float] = {}
        for task in tasks:
            in_group |= task.result() or {}
        if len(groups) == 1 or not in_group:
            return in_group or None
        # A group without an answer is compared by its first option, and gets no share below.
        best = [max(group, key=lambda name: in_group.get(name, 0.0)) for group in groups]
        # Shares are comparable only within one call, so another call compares the groups.
        between_groups = await self._choose_one(text, best, options)
        if between_groups is None:
            return None
        shares: dict[str, float] = {}
        for group, name_of_best in zip(groups, best, strict=True):
            for name in group:
                shares[name] = in_group.get(name, 0.0) * between_groups[name_of_best]
        total = sum(shares.values())
        if not total:
            return None
        return {name: share / total for name, share in shares.items()}

    async def _choose_one(
        self, text: str, names: Sequence[str], options: Mapping[str, str]
    ) -> dict[str, float] | None:
        """Return the probability of each of at most 20 options, by one call."""
        if len(names) == 1:  # the last group of 21, 41, … options
            return {names[0]: 1.0}
        lines = []
        for letter, name in zip(_LETTERS, names, strict=False):
            description = f": {options[name]}" if options[name] else ""
            lines.append(f"{letter}. {name}{description}")
        listing = "\n".join(lines)
        shares = await self._shares(
            f"{text}\n{listing}\nAnswer with the letter of the option that fits.",
            _LETTERS[: len(names)].lower(),
        )
        if shares is None:
            return None
        return dict(zip(names, shares, strict=True))

    async def _shares(self, question: str, labels: Sequence[str]) -> list[float] | None:
        """Return the share of each label, which is in lower case.

        None if none is among the most probable tokens.
        """
        messages = [
            LLMMessage(role=MessageRole.SYSTEM, content=_SYSTEM),
            LLMMessage(role=MessageRole.USER, content=f"{self.state}\n\n{question}"),
        ]
        # Only for one call: `_choose` waits for several, and would wait for its own slot.
        async with self.slots:
            with external_errors(type(self.client).__name__, timeout_s=self.timeout_s):
                # The alternatives to the first token are the answer, so one token is enough.
                response = await self.client.chat_completion(
                    messages=messages,
                    model=self.model,
                    temperature=0.0,
                    max_tokens=1,
                    logprobs=True,
                    top_logprobs=_TOP_TOKENS,
                    **self.options,
                )
        self.bill.add(response.usage, cost_usd=response.cost_usd)
        self.answered_by = response.model or self.answered_by
        probabilities = _first_token_of(response)
        label_probabilities = [probabilities.get(label, 0.0) for label in labels]
        total = sum(label_probabilities)
        if not total:
            return None
        return [probability / total for probability in label_probabilities]


def _first_token_of(response: LLMResponse) -> dict[str, float]:
    """Return the probabilities of the most probable first tokens, by label in lower case."""
    # `getattr`, since an application's client may return a response of its own type
    content = (getattr(response, "logprobs", None) or {}).get("content")
    rows = None
    if isinstance(content, list) and content and isinstance(content[0], dict):
        rows = content[0].get("top_logprobs")
    if not isinstance(rows, list) or not rows:
        raise MalformedReplyError(
            "the reply contains no log probabilities; use an endpoint and a model that report "
            "`top_logprobs`, and a model that answers without thinking first",
            reason="no_logprobs",
        )
    probabilities: dict[str, float] = {}
    for row in rows:
        if not isinstance(row, dict):
            continue
        token, logprob = row.get("token"), row.get("logprob")
        # False for NaN
        if isinstance(token, str) and isinstance(logprob, int | float) and logprob <= _ROUNDING:
            # Several tokens can be one label: "yes", " Yes", "YES".
            label = token.strip(_AROUND_LABEL).lower()
            probabilities[label] = probabilities.get(label, 0.0) + exp(logprob)
    return probabilities


def _check_sizes(questions: Mapping[str, Question]) -> None:
    max_options = _TOP_TOKENS**2  # groups of 20, between whose best one call decides
    for question in questions.values():
        if isinstance(question, Choice) and len(question.options) > max_options:
            raise ValueError(
                f"a choice has {len(question.options):,} options; ask several choices of at most "
                f"{max_options}"
            )
        if not isinstance(question, Predicate | Choice) and len(question.levels) > _MAX_LEVELS:
            raise ValueError(
                f"a score has {len(question.levels):,} levels; ask with at most {_MAX_LEVELS}, one "
                "for each digit"
            )
