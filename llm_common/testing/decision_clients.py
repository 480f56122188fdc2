"""`ScriptedDecisionClient`: a decision model with scripted answers."""

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
    """The arguments of a call."""

    state: State
    questions: Mapping[str, Question]
    model: str | None
    timeout_s: float | None


class ScriptedDecisionClient:
    """A decision client that returns the answers of a script in order, and records the calls.

    An entry of the script is one of these:

    - a dict of answers by question: a probability, a dict by option, a list by level, or `REFUSED`.
      It is validated like a real model's reply.
    - a `Decisions`
    - an exception to raise
    - a function of the state and the questions that returns one of these. It may be async, to wait
      or to block.

    Args:
        script: The entries. A single dict is a script of one entry.
        default: The entry for every call after the script. By default, such a call raises
            UnexpectedCallError, which the library never catches, so the test fails.

    Attributes:
        calls: The calls, oldest first, including failed ones.
    """

    def __init__(
        self,
        script: Iterable[Answers] | Mapping[str, object] = (),
        *,
        default: Answers | None = None,
    ) -> None:
        self.calls: list[ScriptedDecision] = []
        # A single dict would give its keys.
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
        """Return the next answers of the script. See `DecisionClient`.

        Raises:
            UnexpectedCallError: If the script has ended and there is no default.
            MalformedReplyError: If no answer fits its question, or there is an answer to an unknown
                question.
        """
        # A real client refuses arguments before it sends anything, so no call is recorded.
        check_arguments(state, questions, timeout_s)
        # The caller may change its dict after the call.
        self.calls.append(ScriptedDecision(state, dict(questions), model, timeout_s))
        answers = self._script.popleft() if self._script else self._default
        if answers is None:
            raise UnexpectedCallError(
                f"call {len(self.calls)} has no answers. Add them to the script, or set a default"
            )
        if callable(answers):
            result = answers(state, questions)
            answers = await result if inspect.isawaitable(result) else result
        if isinstance(answers, BaseException):
            raise answers
        if isinstance(answers, Decisions):
            return answers
        return decisions_of(questions, answers, model=model or "scripted")
