"""`ScriptedDecisionClient`: a decision model with scripted answers, for tests."""

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from llm_common.decisions.questions import Decisions, Question, State, check_arguments, decisions_of
from llm_common.testing.clients import UnexpectedCallError

FixedAnswers = Mapping[str, object] | Decisions | BaseException
Answers = (
    FixedAnswers | Callable[[State, Mapping[str, Question]], FixedAnswers | Awaitable[FixedAnswers]]
)


@dataclass(frozen=True, slots=True)
class ScriptedDecision:
    """One call as the client received it."""

    state: State
    questions: Mapping[str, Question]
    model: str | None
    timeout_s: float | None


class ScriptedDecisionClient:
    """A decision client that gives the answers of a script, one set a call, and records the calls.

    A set of answers is a dict by question (a probability, a dict by option, a list by level, or
    `REFUSED`), which is checked as a real model's reply is; a whole `Decisions`; an exception to
    raise; or a function of the state and the questions that returns one of these. An async function
    may wait, block or ignore its cancellation.

    Args:
        script: In the order of the calls; a single dict is a script of one.
        default: The answers to every call after the script. None: such a call raises
            UnexpectedCallError, which fails the test, since the library never catches it.

    Attributes:
        calls: One record a call, oldest first, also of failed calls.
    """

    def __init__(
        self,
        script: Iterable[Answers] | Mapping[str, object] = (),
        *,
        default: Answers | None = None,
    ) -> None:
        self.calls: list[ScriptedDecision] = []
        self._script: deque[Answers] = deque([script] if isinstance(script, Mapping) else script)
        self._default = default

    async def decide(
        self,
        state: State,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> Decisions:
        """The next answers of the script.

        Raises:
            UnexpectedCallError: The script is at its end and there is no default.
            MalformedReplyError: The answers fit none of the questions, or are to a question that
                was not asked.
        """
        check_arguments(state, questions, timeout_s)
        self.calls.append(ScriptedDecision(state, dict(questions), model, timeout_s))
        given = self._script.popleft() if self._script else self._default
        if given is None:
            raise UnexpectedCallError(
                f"call {len(self.calls)} has no answers; add them to the script, or give a default"
            )
        if callable(given):
            made = given(state, questions)
            given = await made if inspect.isawaitable(made) else made
        if isinstance(given, BaseException):
            raise given
        if isinstance(given, Decisions):
            return given
        return decisions_of(questions, given, model=model or "scripted")
