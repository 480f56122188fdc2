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
"""The subject of the questions: a text, or a JSON object or array."""

_MIN_ALTERNATIVES = 2  # a single option or level always has probability 1
_MAX_SHOWN_CHARS = 80
# Vendors round probabilities to two decimals. A model's own float arithmetic errs by far less.
_ROUNDING, _FLOAT_ERROR = 0.005, 1e-6


class Refused(Enum):
    """The type of `REFUSED`, which replaces an answer that a model declines to give."""

    # An enum with one member, which type checkers can tell from an answer.
    REFUSED = "refused"


REFUSED: Final = Refused.REFUSED
"""The answer that a model declined to give."""


class _UnusableAnswerError(Exception):
    """An answer that does not fit its question. The text is the reason code."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A statement or a yes/no question. The answer is the probability of yes.

    Attributes:
        text: The whole question. The model does not see the question's id.
    """

    text: str

    def __post_init__(self) -> None:
        _check_text(self.text, "the text of a Predicate")

    def check(self, answer: object) -> float:
        """Return the probability of yes."""
        return _probability(answer)


@dataclass(frozen=True, slots=True)
class Choice:
    """A question with named options. The answer is the probability of each option.

    A model spreads the whole probability over the options. Add one such as "none of these" if it is
    possible that none fits.

    Attributes:
        text: The question that the options answer.
        options: At least two options by name, each with a description, or "" for none.
    """

    text: str
    options: Mapping[str, str]

    def __post_init__(self) -> None:
        _check_text(self.text, "the text of a Choice")
        if not isinstance(self.options, Mapping):
            raise TypeError(
                f"the options of a Choice must be a dict, got {type(self.options).__name__}; "
                "pass descriptions by name"
            )
        for name, description in self.options.items():
            _check_text(name, "the name of an option")
            if not isinstance(description, str):
                raise TypeError(
                    "the description of an option must be a str, got "
                    f'{type(description).__name__}; pass "" for none'
                )
        _check_count(len(self.options), "options")

    def check(self, answer: object) -> dict[str, float]:
        """Return the probability of each option."""
        return _distribution(answer, names=list(self.options))


@dataclass(frozen=True, slots=True)
class Score:
    """A rating on a scale. The answer is the probability of each level, from level 0.

    Attributes:
        text: The question that the levels answer.
        levels: Descriptions of at least two levels, the lowest first.
    """

    text: str
    levels: Sequence[str]

    def __post_init__(self) -> None:
        _check_text(self.text, "the text of a Score")
        if isinstance(self.levels, str) or not isinstance(self.levels, Sequence):
            raise TypeError(
                f"the levels of a Score must be a list, got {type(self.levels).__name__}; "
                "pass descriptions, the lowest level first"
            )
        for level in self.levels:
            _check_text(level, "the description of a level")
        _check_count(len(self.levels), "levels")

    def check(self, answer: object) -> tuple[float, ...]:
        """Return the probability of each level of a list, or of a mapping by level."""
        if isinstance(answer, Sequence) and not isinstance(answer, str):
            answer = dict(enumerate(answer))
        if isinstance(answer, Mapping):  # in JSON the levels are texts
            answer = {str(level): probability for level, probability in answer.items()}
        levels = map(str, range(len(self.levels)))
        return tuple(_distribution(answer, names=list(levels)).values())


Question = Predicate | Choice | Score
"""A question with typed answers."""
Answer = float | Mapping[str, float] | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Decisions:
    """The answers to one set of questions, and what they cost.

    Attributes:
        answers: By question id: the probability of yes, of each option, or of each level.
        unanswered: By id of every other question, the reason: `missing`, `refused`, `wrong_type`,
            `out_of_range`, `wrong_options` or `not_a_distribution`. `LogprobDecisions` adds
            `no_label`.
        model: The model that answered, as the endpoint names it.
        usage: Tokens of all requests.
        cost_usd: Dollars of all requests. None for an unknown price.
        latency_ms: Milliseconds from the call to the answers, retries included.
    """

    answers: Mapping[str, Answer]
    unanswered: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    usage: LLMUsage = field(default_factory=LLMUsage)
    cost_usd: float | None = None
    latency_ms: int | None = None

    def yes(self, question: str) -> float:
        """Return the probability that a predicate holds, or 0.0 without an answer.

        Raises:
            KeyError: If there was no such question.
            TypeError: If the question is not a Predicate.
        """
        answer = self._answer(question, float, "Predicate")
        # Fails closed: a missing answer is a no.
        return answer if isinstance(answer, float) else 0.0

    def options(self, question: str) -> Mapping[str, float]:
        """Return the probability of each option of a choice, or {} without an answer.

        Raises:
            KeyError: If there was no such question.
            TypeError: If the question is not a Choice.
        """
        answer = self._answer(question, Mapping, "Choice")
        return answer if isinstance(answer, Mapping) else {}

    def score(self, question: str) -> float | None:
        """Return the expected level of a score, from 0, or None without an answer.

        Raises:
            KeyError: If there was no such question.
            TypeError: If the question is not a Score.
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
            raise TypeError(f"question {question[:_MAX_SHOWN_CHARS]!r} is not a {name}")
        return answer


@runtime_checkable
class DecisionClient(Protocol):
    """An object that asks a decision model. Subclassing is optional."""

    async def decide(
        self,
        state: State,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> Decisions:
        """Return the answers to all questions about one state.

        Args:
            state: The subject of the questions.
            questions: The questions by id. The caller chooses the ids, which the model need not
                see.
            model: Name at the endpoint. None uses the client's default.
            timeout_s: Deadline in seconds, retries included. None uses the client's.

        Returns:
            An answer, or the reason for its absence, for each question and for no other id.

        Raises:
            LLMError: If the call failed, if the reply answers a question that was not sent, or if
                no answer is usable and none was refused. The subclass says which.
            ValueError: If there are no questions, or too many for the endpoint, or the deadline is
                not positive.
            TypeError: If an argument has the wrong type, or the state is not JSON.
        """


def decisions_of(
    questions: Mapping[str, Question],
    raw_answers: Mapping[str, object],
    *,
    reasons: Mapping[str, str] | None = None,
    model: str = "",
    usage: LLMUsage | None = None,
    cost_usd: float | None = None,
    latency_ms: int | None = None,
) -> Decisions:
    """Check the answers of a reply against their questions.

    Each probability must be a number from 0 to 1. Those of a choice or a score must add up to 1,
    rounding aside. Any other answer is listed as unanswered, and never counts as a no.

    Args:
        questions: The questions that were sent, by id.
        raw_answers: By question id: a number, a mapping by option, a list of levels, a mapping by
            level, or `REFUSED`.
        reasons: By question id, the reason for an answer that is not there. The default is
            `missing`.
        model: As in `Decisions`.
        usage: As in `Decisions`.
        cost_usd: As in `Decisions`.
        latency_ms: As in `Decisions`.

    Returns:
        The usable answers, and a reason for each other question.

    Raises:
        MalformedReplyError: `wrong_question` if an answer has the id of no question. `no_answers`
            if no answer is usable and none was refused.
    """
    if raw_answers.keys() - questions.keys():
        raise MalformedReplyError(
            "the reply answers a question that was not asked; check the endpoint, or use "
            "another model",
            reason="wrong_question",
        )
    answers: dict[str, Answer] = {}
    unanswered: dict[str, str] = {}
    for question_id, question in questions.items():
        if question_id not in raw_answers:
            unanswered[question_id] = (reasons or {}).get(question_id, "missing")
        elif raw_answers[question_id] is REFUSED:
            unanswered[question_id] = REFUSED.value
        else:
            try:
                answers[question_id] = question.check(raw_answers[question_id])
            # One unusable answer does not make the others unusable.
            except _UnusableAnswerError as exc:
                unanswered[question_id] = str(exc)
    # A reply that only refuses is an answer: a second request would not help.
    if not answers and REFUSED.value not in unanswered.values():
        problems = ", ".join(sorted(set(unanswered.values())))
        raise MalformedReplyError(
            f"the reply has no usable answer to any of {len(questions)} questions ({problems}); "
            "use another model",
            reason="no_answers",
        )
    return Decisions(answers, unanswered, model, usage or LLMUsage(), cost_usd, latency_ms)


def check_arguments(state: object, questions: object, timeout_s: object) -> None:
    """Raise what `DecisionClient.decide` promises for unusable arguments."""
    # Bytes are sequences, but not JSON.
    if not isinstance(state, str | Mapping | Sequence) or isinstance(state, bytes | bytearray):
        raise TypeError(
            f"state must be a str, a dict or a list, got {type(state).__name__}; pass JSON data"
        )
    if not isinstance(state, str):
        try:
            json.dumps(state, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            # Not chained, since the text of the error may quote the state.
            raise TypeError(
                "state is not JSON: pass texts, numbers, lists, and dicts with texts as keys"
            ) from None
    if not isinstance(questions, Mapping):
        raise TypeError(
            f"questions must be a dict, got {type(questions).__name__}; pass a dict such as "
            '{"late": Predicate("It is late.")}'
        )
    for question_id, question in questions.items():
        _check_text(question_id, "the id of a question")
        if not isinstance(question, Question):
            raise TypeError(
                f"question {question_id[:_MAX_SHOWN_CHARS]!r} is a {type(question).__name__}; "
                "pass a Predicate, a Choice or a Score"
            )
    if not questions:
        raise ValueError("there are no questions; pass at least one")
    if timeout_s is not None and not (
        isinstance(timeout_s, int | float) and isfinite(timeout_s) and timeout_s > 0
    ):
        raise ValueError("timeout_s must be a positive number of seconds")


def _check_text(text: object, name: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, got {type(text).__name__}; pass a text")
    if not text:
        raise ValueError(f"{name} is empty; pass a text")


def _check_count(count: int, name: str) -> None:
    if count < _MIN_ALTERNATIVES:
        raise ValueError(
            f"a question has {count} {name}; pass at least {_MIN_ALTERNATIVES}, or ask a Predicate"
        )


def _probability(value: object) -> float:
    # A bool is an int, but a model that answers true has reported no probability.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnusableAnswerError("wrong_type")
    if not 0 <= value <= 1:  # also true of NaN
        raise _UnusableAnswerError("out_of_range")
    return float(value)


def _distribution(answer: object, *, names: list[str]) -> dict[str, float]:
    """Return the probability of each name, in the order of the names."""
    if not isinstance(answer, Mapping):
        raise _UnusableAnswerError("wrong_type")
    if answer.keys() != set(names):
        raise _UnusableAnswerError("wrong_options")
    shares = {name: _probability(answer[name]) for name in names}
    # Each share may be rounded, so the error of the sum grows with their number.
    if abs(fsum(shares.values()) - 1) > _ROUNDING * len(names) + _FLOAT_ERROR:
        raise _UnusableAnswerError("not_a_distribution")
    return shares


# Decision models of other packages by the name of a base class, which needs no import of the
# package, and the adapter for each.
_ADAPTERS: Final = {
    "BaseDecisionModel": "LangChainDecisions(model)",
    "DecisionModel": "PydanticAIDecisions(model)",
}


def check_decision_client(client: object) -> None:
    """Check that an object is a decision client.

    Raises:
        TypeError: If it has no callable `decide`, or is a decision model of another package. The
            text names what to pass instead.
    """
    name = client.__name__ if isinstance(client, type) else type(client).__name__
    adapter = ""
    for base in type(client).__mro__:
        adapter = adapter or _ADAPTERS.get(base.__name__, "")
    if isinstance(client, type):
        remedy = f"pass an instance of {name}"
    elif adapter:  # before `decide`: pydantic-ai's models have one with other arguments
        remedy = f"wrap it: llm_common.decisions.{adapter}"
    elif callable(getattr(client, "decide", None)):
        return
    elif callable(getattr(client, "chat_completion", None)):
        remedy = (
            "pass chat clients to ContextRelevanceSelector or ToolSelector of llm_common.agents, "
            "or wrap one that reports log probabilities: "
            "llm_common.decisions.LogprobDecisions(client)"
        )
    else:
        remedy = "pass a DecisionClient, such as llm_common.decisions.HttpDecisionClient.from_env()"
    raise TypeError(f"{name} is not a decision client; {remedy}")
