"""Questions to a decision model, its checked answers, and the protocol of a client."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import fsum, isfinite
from typing import Final, Protocol, runtime_checkable

from llm_common.core.models import LLMUsage
from llm_common.errors import MalformedReplyError

State = str | Mapping[str, object] | Sequence[object]
"""What the questions are about: a text, or a JSON object or array."""

_MIN_ALTERNATIVES = 2
_MAX_SHOWN_CHARS = 80
# Vendors round to two decimals; a model's own float arithmetic errs by far less.
_ROUNDING, _FLOAT_ERROR = 0.005, 1e-6


class Refused(Enum):
    """What a model gives instead of an answer that it declines to give."""

    REFUSED = "refused"


REFUSED: Final = Refused.REFUSED


class _UnusableAnswerError(Exception):
    """An answer that does not fit its question; its text is the reason."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A statement, or a yes/no question; the answer is the probability of yes.

    Attributes:
        text: All that the model is told of it: a question's id says nothing to the model.
    """

    text: str

    def __post_init__(self) -> None:
        _check_text(self.text, "a Predicate's text")

    def checked(self, given: object) -> float:
        """The probability of yes."""
        return _probability(given)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several options; the answer is the probability of each, in the order of the options.

    A model spreads all probability over the options that it is given. Offer one such as "none of
    these" if none may fit.

    Attributes:
        text: What to choose by.
        options: Names of at least two options, each with its description, or "" for none.
    """

    text: str
    options: Mapping[str, str]

    def __post_init__(self) -> None:
        _check_text(self.text, "a Choice's text")
        if not isinstance(self.options, Mapping):
            kind = type(self.options).__name__
            raise TypeError(
                f"a Choice's options are a {kind}; pass a dict of names and descriptions"
            )
        for name, description in self.options.items():
            _check_text(name, "the name of an option")
            if not isinstance(description, str):
                raise TypeError(
                    f"the description of an option is a {type(description).__name__}; pass a text"
                )
        _check_count(len(self.options), "options")

    def checked(self, given: object) -> dict[str, float]:
        """The probability of each option."""
        return _distribution(given, names=list(self.options))


@dataclass(frozen=True, slots=True)
class Score:
    """A place on a scale; the answer is the probability of each level, from level 0.

    Attributes:
        text: What to rate.
        levels: Descriptions of at least two levels, the lowest first.
    """

    text: str
    levels: Sequence[str]

    def __post_init__(self) -> None:
        _check_text(self.text, "a Score's text")
        if isinstance(self.levels, str) or not isinstance(self.levels, Sequence):
            raise TypeError(
                f"a Score's levels are a {type(self.levels).__name__}; pass a list of descriptions"
            )
        for level in self.levels:
            _check_text(level, "the description of a level")
        _check_count(len(self.levels), "levels")

    def checked(self, given: object) -> tuple[float, ...]:
        """The probability of each level; takes a list, or a mapping by the level's number."""
        if isinstance(given, Mapping):
            given = {str(level): value for level, value in given.items()}
        elif isinstance(given, Sequence) and not isinstance(given, str):
            given = {str(level): value for level, value in enumerate(given)}
        return tuple(
            _distribution(given, names=[str(level) for level in range(len(self.levels))]).values()
        )


Question = Predicate | Choice | Score
Answer = float | Mapping[str, float] | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Decisions:
    """The answers to one set of questions, and what they cost.

    Attributes:
        answers: By question: the probability of yes, of each option, or of each level.
        unanswered: Every other question, with the reason: `missing`, `refused`, `wrong_type`,
            `out_of_range`, `wrong_options`, `not_a_distribution`; from `LogprobDecisions` also
            `no_label`.
        model: The model that answered, by its own account.
        usage: Tokens of all requests.
        cost_usd: Dollars of all requests; None for an unknown price.
        latency_ms: Milliseconds from the call to the answers, retries included.
    """

    answers: Mapping[str, Answer]
    unanswered: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    usage: LLMUsage = field(default_factory=LLMUsage)
    cost_usd: float | None = None
    latency_ms: int | None = None

    def yes(self, question: str) -> float:
        """The probability that a predicate holds; 0.0 without an answer.

        Raises:
            KeyError: There was no such question.
            TypeError: It is no Predicate.
        """
        answer = self._answer(question, float, "Predicate")
        return answer if isinstance(answer, float) else 0.0

    def options(self, question: str) -> Mapping[str, float]:
        """The probability of each option of a choice; empty without an answer.

        Raises:
            KeyError: There was no such question.
            TypeError: It is no Choice.
        """
        answer = self._answer(question, Mapping, "Choice")
        return answer if isinstance(answer, Mapping) else {}

    def score(self, question: str) -> float | None:
        """The expected level of a score, from 0; None without an answer.

        Raises:
            KeyError: There was no such question.
            TypeError: It is no Score.
        """
        answer = self._answer(question, tuple, "Score")
        if not isinstance(answer, tuple):
            return None
        return fsum(level * probability for level, probability in enumerate(answer))

    def _answer(self, question: str, kind: type, name: str) -> Answer | None:
        if question in self.unanswered:
            return None
        answer = self.answers[question]
        if not isinstance(answer, kind):
            raise TypeError(f"question {question[:_MAX_SHOWN_CHARS]!r} is no {name}")
        return answer


@runtime_checkable
class DecisionClient(Protocol):
    """Asks a decision model; subclassing is optional."""

    async def decide(
        self,
        state: State,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> Decisions:
        """The answers to all questions about one state.

        Args:
            state: What the questions are about.
            questions: By ids that the caller chooses, which the model need not see.
            model: Name at the endpoint; None takes the client's default.
            timeout_s: Deadline in seconds, retries included; None takes the client's.

        Returns:
            An answer, or a reason why there is none, for each question and for no other id.

        Raises:
            LLMError: The call failed, no question has a usable answer and none was refused, or the
                reply answers what was not asked; the subclasses say which.
            ValueError: No questions, too many for the endpoint, or a deadline that is not positive.
            TypeError: An argument of the wrong kind, or a state that is not JSON.
        """


def decisions_of(
    questions: Mapping[str, Question],
    given: Mapping[str, object],
    *,
    reasons: Mapping[str, str] | None = None,
    model: str = "",
    usage: LLMUsage | None = None,
    cost_usd: float | None = None,
    latency_ms: int | None = None,
) -> Decisions:
    """The answers that fit their questions, and the reasons why others do not.

    Each probability must be a number from 0 to 1, and those of a choice or a score add up to 1 but
    for rounding. An answer that breaks this is left out: it counts as no answer, and never as a
    wrong one.

    Args:
        questions: What was asked.
        given: By question: a number; a mapping by option; a list, or a mapping by level; or
            `REFUSED`.
        reasons: Reasons for questions without an answer; `missing` if a question has none.
        model: As in `Decisions`.
        usage: As in `Decisions`.
        cost_usd: As in `Decisions`.
        latency_ms: As in `Decisions`.

    Raises:
        MalformedReplyError: `wrong_question` if an answer is to none of the questions; `no_answers`
            if no answer is usable and none was refused.
    """
    if given.keys() - questions.keys():
        raise MalformedReplyError(
            "the reply answers a question that was not asked; check the endpoint, or take "
            "another model",
            reason="wrong_question",
        )
    answers: dict[str, Answer] = {}
    unanswered: dict[str, str] = {}
    for name, question in questions.items():
        if name not in given:
            unanswered[name] = (reasons or {}).get(name, "missing")
        elif given[name] is REFUSED:
            unanswered[name] = REFUSED.value
        else:
            try:
                answers[name] = question.checked(given[name])
            except _UnusableAnswerError as exc:
                unanswered[name] = str(exc)
    if not answers and REFUSED.value not in unanswered.values():
        found = ", ".join(sorted(set(unanswered.values())))
        raise MalformedReplyError(
            f"the reply has no usable answer to any of {len(questions)} questions ({found}); "
            "take another model",
            reason="no_answers",
        )
    return Decisions(answers, unanswered, model, usage or LLMUsage(), cost_usd, latency_ms)


def check_arguments(state: object, questions: object, timeout_s: object) -> None:
    """Raises what `DecisionClient.decide` raises for arguments of the wrong kind."""
    if not isinstance(state, str | Mapping | Sequence) or isinstance(state, bytes | bytearray):
        raise TypeError(f"state is a {type(state).__name__}; pass a text, a dict or a list")
    if not isinstance(state, str):
        try:
            json.dumps(state, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            # Not chained: the text of the error may quote the state.
            raise TypeError(
                "state is not JSON: pass texts, numbers, lists and dicts with texts as keys"
            ) from None
    if not isinstance(questions, Mapping):
        kind = type(questions).__name__
        raise TypeError(
            f'questions is a {kind}; pass a dict such as {{"late": Predicate("It is late.")}}'
        )
    for name, question in questions.items():
        _check_text(name, "the id of a question")
        if not isinstance(question, Question):
            kind = type(question).__name__
            raise TypeError(
                f"question {name[:_MAX_SHOWN_CHARS]!r} is a {kind}; pass a Predicate, a Choice "
                "or a Score"
            )
    if not questions:
        raise ValueError("there are no questions; pass at least one")
    if timeout_s is not None and not (
        isinstance(timeout_s, int | float) and isfinite(timeout_s) and timeout_s > 0
    ):
        raise ValueError("timeout_s must be a positive number of seconds")


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} is a {type(text).__name__}; pass a text")
    if not text:
        raise ValueError(f"{what} is empty; say what it means")


def _check_count(count: int, what: str) -> None:
    if count < _MIN_ALTERNATIVES:
        raise ValueError(
            f"a question has {count} {what}; give at least {_MIN_ALTERNATIVES}, or ask a Predicate"
        )


def _probability(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnusableAnswerError("wrong_type")
    if not 0 <= value <= 1:  # NaN is not
        raise _UnusableAnswerError("out_of_range")
    return float(value)


def _distribution(given: object, *, names: list[str]) -> dict[str, float]:
    if not isinstance(given, Mapping):
        raise _UnusableAnswerError("wrong_type")
    if given.keys() != set(names):
        raise _UnusableAnswerError("wrong_options")
    found = {name: _probability(given[name]) for name in names}
    if abs(fsum(found.values()) - 1) > _ROUNDING * len(names) + _FLOAT_ERROR:
        raise _UnusableAnswerError("not_a_distribution")
    return found


# Classes by which a decision model of another package is known without importing it, and what makes
# a `DecisionClient` of it.
_ADAPTERS: Final = {
    "BaseDecisionModel": "LangChainDecisions(model)",
    "DecisionModel": "PydanticAIDecisions(model)",
}


def check_decision_client(client: object) -> None:
    """Check that an object is a decision client.

    Raises:
        TypeError: If it has no `decide` that can be called, or is a decision model of another
            package. The text names what to pass instead.
    """
    name = client.__name__ if isinstance(client, type) else type(client).__name__
    adapters = [
        _ADAPTERS[kind.__name__] for kind in type(client).__mro__ if kind.__name__ in _ADAPTERS
    ]
    if isinstance(client, type):
        way_out = f"pass an instance of {name}"
    elif adapters:
        way_out = f"wrap it: llm_common.decisions.{adapters[0]}"
    elif callable(getattr(client, "decide", None)):
        return
    elif callable(getattr(client, "chat_completion", None)):
        way_out = (
            "chat clients go to llm_common.agents.ContextRelevanceSelector and ToolSelector; or "
            "wrap one that reports log probabilities: llm_common.decisions.LogprobDecisions(client)"
        )
    else:
        way_out = (
            "pass a DecisionClient, such as llm_common.decisions.HttpDecisionClient.from_env()"
        )
    raise TypeError(f"{name} is no decision client; {way_out}")
