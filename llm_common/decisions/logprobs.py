"""`LogprobDecisions`: any chat model that reports log probabilities as a decision model."""

import asyncio
import json
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
from llm_common.errors import LLMError, LLMTimeoutError, MalformedReplyError

# What OpenAI and vLLM report at most; a choice with more options is asked in groups.
_TOP_TOKENS: Final = 20
_LETTERS: Final = ascii_uppercase[:_TOP_TOKENS]
_MAX_LEVELS: Final = 10  # digits
# Marks of the beginning of a word in raw tokens, and what models put around an answer.
_AROUND_LABEL: Final = " \t\r\n\u2581\u0120\u010a\"'`*_()[].:,"
_ROUNDING: Final = 1e-3  # a certain token's log probability may come out a little above 0
_SYSTEM: Final = (
    "You judge what you are shown. You answer with one word, letter or digit, and nothing else."
)


class LogprobDecisions:
    """Decisions by the log probabilities of an answer's first token.

    For endpoints that report them for chat completions: llama.cpp, vLLM, SGLang, OpenAI's models
    without reasoning. The model is asked for one token: yes or no for a predicate, a letter for a
    choice, a digit for a score. The probabilities of those labels are scaled to add up to 1; other
    tokens do not count.

    Costs one call a question, and one token of output each. A choice of more than 20 options is
    asked in groups of 20 and then between the likeliest of each group: `ceil(options / 20) + 1`
    calls. All calls begin with the same text, the state, which servers with a prefix cache read
    once. A decision model needs one call for everything: see `HttpDecisionClient`.

    Probabilities of small models are poorly calibrated; measure yours before a threshold decides.

    Args:
        client: Any `LLMClient`; the caller closes it.
        model: Used when a call names none; None takes the client's default.
        timeout_s: Deadline in seconds of all calls for one set of questions.
        max_concurrency: Most calls at the same time.
        options: Further options of each call, such as those that keep a model from thinking before
            it answers: `{"chat_template_kwargs": {"enable_thinking": False}}`.
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
        """The answers to all questions about one state, by at least one call each.

        Args:
            state: What the questions are about; a dict or list is shown as JSON.
            questions: By ids that the model does not see. A choice takes up to 400 options, a score
                up to 10 levels.
            model: None takes the one that this client was made with.
            timeout_s: Deadline of all calls; None takes the one that this client was made with.

        Returns:
            An answer for each question, or the reason `no_label` if none of the labels is among the
            likeliest tokens.

        Raises:
            LLMTimeoutError: Not every answer came within the deadline.
            MalformedReplyError: `no_logprobs` if the endpoint reports none; `no_answers` if no
                question has an answer.
            LLMError: A call failed: the error of the first that did. The other calls are cancelled.
            ValueError: No questions, too many options or levels, or a deadline that is not
                positive.
            TypeError: An argument of the wrong kind, or a state that is not JSON.
        """
        check_arguments(state, questions, timeout_s)
        _check_sizes(questions)
        timeout_s = timeout_s or self._timeout_s
        run = _Run(
            client=self._client,
            model=model or self._model,
            options=self._options,
            state=_text_of(state),
            timeout_s=timeout_s,
            slots=asyncio.Semaphore(self._max_concurrency),
        )
        facts: dict[str, Attribute] = {
            "llm_common.model": run.model or "default",
            "llm_common.questions": len(questions),
        }
        with span("llm_common.decide", facts) as current:
            try:
                decisions = await run.decisions(questions)
            except LLMError as exc:
                # With the charges of the calls before it.
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

    async def decisions(self, questions: Mapping[str, Question]) -> Decisions:
        """The answers to all questions, or the error of the first call that failed."""
        started = monotonic()
        try:
            async with asyncio.timeout(self.timeout_s), asyncio.TaskGroup() as group:
                tasks = {
                    name: group.create_task(self._answer(question))
                    for name, question in questions.items()
                }
        except TimeoutError as exc:
            raise LLMTimeoutError(
                f"not all of {len(questions)} questions were answered within {self.timeout_s:g} s; "
                "raise timeout_s, ask less, or take a faster model",
                timeout_s=self.timeout_s,
            ) from exc
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        given = {name: task.result() for name, task in tasks.items()}
        return decisions_of(
            questions,
            {name: answer for name, answer in given.items() if answer is not None},
            reasons=dict.fromkeys(questions, "no_label"),
            model=self.answered_by,
            usage=self.bill.usage,
            cost_usd=self.bill.cost_usd,
            latency_ms=round((monotonic() - started) * 1000),
        )

    async def _answer(self, question: Question) -> object:
        if isinstance(question, Predicate):
            found = await self._ask(
                f"{question.text}\nIs this so? Answer yes or no.", ("yes", "no")
            )
            return found and found[0]
        if isinstance(question, Choice):
            return await self._choice(question.text, question.options)
        levels = "\n".join(f"{number}. {level}" for number, level in enumerate(question.levels))
        digits = [str(number) for number in range(len(question.levels))]
        return await self._ask(
            f"{question.text}\n{levels}\nAnswer with the digit of the level that fits.", digits
        )

    async def _choice(self, text: str, options: Mapping[str, str]) -> dict[str, float] | None:
        """The probability of each option.

        Those of more than one group are weighted by a choice between the best.
        """
        names = list(options)
        groups = [names[start : start + _TOP_TOKENS] for start in range(0, len(names), _TOP_TOKENS)]
        shares = await asyncio.gather(*(self._letters(text, group, options) for group in groups))
        found: dict[str, float] = {}
        for group_shares in shares:
            found |= group_shares or {}
        if len(groups) == 1 or not found:
            return found or None
        best = [max(group, key=lambda name: found.get(name, 0.0)) for group in groups]
        weights = await self._letters(text, best, options)
        if weights is None:
            return None
        weight = {
            name: weights[top] for group, top in zip(groups, best, strict=True) for name in group
        }
        weighted = {name: found.get(name, 0.0) * weight[name] for name in names}
        whole = sum(weighted.values())
        if not whole:
            return None
        return {name: share / whole for name, share in weighted.items()}

    async def _letters(
        self, text: str, names: Sequence[str], options: Mapping[str, str]
    ) -> dict[str, float] | None:
        if len(names) == 1:
            return {names[0]: 1.0}
        described = (f"{name}: {options[name]}" if options[name] else name for name in names)
        listed = "\n".join(
            f"{letter}. {each}" for letter, each in zip(_LETTERS, described, strict=False)
        )
        shares = await self._ask(
            f"{text}\n{listed}\nAnswer with the letter of the option that fits.",
            _LETTERS[: len(names)].lower(),
        )
        if shares is None:
            return None
        return dict(zip(names, shares, strict=True))

    async def _ask(self, question: str, labels: Sequence[str]) -> list[float] | None:
        """The share of each label, which is in lower case.

        None if none is among the likeliest tokens.
        """
        messages = [
            LLMMessage(role=MessageRole.SYSTEM, content=_SYSTEM),
            LLMMessage(role=MessageRole.USER, content=f"{self.state}\n\n{question}"),
        ]
        async with self.slots:
            with external_errors(type(self.client).__name__, timeout_s=self.timeout_s):
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
        masses = _masses_of(response)
        found = [masses.get(label, 0.0) for label in labels]
        whole = sum(found)
        if not whole:
            return None
        return [mass / whole for mass in found]


def _masses_of(response: LLMResponse) -> dict[str, float]:
    """The probability of each answer, in lower case, among the likeliest first tokens."""
    content = (getattr(response, "logprobs", None) or {}).get("content")
    first = (
        content[0] if isinstance(content, list) and content and isinstance(content[0], dict) else {}
    )
    rows = first.get("top_logprobs")
    if not isinstance(rows, list) or not rows:
        raise MalformedReplyError(
            "the reply holds no log probabilities; take an endpoint and a model that report "
            "`top_logprobs`, and a "
            "model that answers without thinking first",
            reason="no_logprobs",
        )
    masses: dict[str, float] = {}
    for row in rows:
        if not isinstance(row, dict):
            continue
        token, logprob = row.get("token"), row.get("logprob")
        # NaN is not
        if isinstance(token, str) and isinstance(logprob, int | float) and logprob <= _ROUNDING:
            label = token.strip(_AROUND_LABEL).lower()
            masses[label] = masses.get(label, 0.0) + exp(logprob)
    return masses


def _check_sizes(questions: Mapping[str, Question]) -> None:
    for question in questions.values():
        if isinstance(question, Choice) and len(question.options) > _TOP_TOKENS**2:
            raise ValueError(
                f"a choice has {len(question.options):,} options; at most {_TOP_TOKENS**2} can "
                "be told apart"
            )
        if not isinstance(question, Predicate | Choice) and len(question.levels) > _MAX_LEVELS:
            raise ValueError(
                f"a score has {len(question.levels):,} levels; at most {_MAX_LEVELS} have a digit"
            )


def _text_of(state: State) -> str:
    return (
        state if isinstance(state, str) else json.dumps(state, ensure_ascii=False, allow_nan=False)
    )
