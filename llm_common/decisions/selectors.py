"""Selectors that ask a decision model once about the candidates that rank best."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llm_common._threads import in_thread
from llm_common.core.selection_cache import SelectionCache
from llm_common.core.structured import SupportsChat
from llm_common.core.two_attempts import CallOptions, Outcome, Verdict, ask_with_fallback
from llm_common.decisions.questions import DecisionClient, check_decision_client
from llm_common.decisions.weighing import (
    DEFAULT_CANDIDATES,
    DEFAULT_PROBABILITY,
    Questions,
    weighing_questions,
)
from llm_common.errors import NoThreadError, ToolFailedError
from llm_common.pointers.pointer import ContextPointer
from llm_common.selection.catalogue import Catalogue, fitting_lines as fitting_tools, rank_tools
from llm_common.selection.lexical_tools import filled_call
from llm_common.selection.relevance import (
    MAX_PROMPT_BYTES,
    ChosenPointers,
    ModelRelevanceSelector,
    PointerInquiry,
    checked_timeout,
    fitting_lines,
    shown_fields,
    shown_query,
    tokens_saved,
)
from llm_common.selection.relevance_ranking import rank_pointers
from llm_common.selection.results import (
    ChoiceReason,
    DroppedCall,
    ToolChoice,
    ToolSelection,
    ToolSelectionConfig,
    Weight,
)
from llm_common.selection.tool_calls import check_calls
from llm_common.selection.tools import ChoosesTools, ToolRequest, ToolSelector
from llm_common.text.display import in_fence, to_json

_UNREADABLE: Final = (
    "the registry's text cannot be read as tools, and a decision model needs a list; "
    "let get_tools_schema() return one"
)
_UNFILLED: Final = "the required arguments of no chosen tool could be filled; see `dropped`"
_UNFINISHED: Final = (
    "the tools were chosen, but the deadline passed before their arguments were written; raise it"
)


class DecisionRelevanceSelector(ModelRelevanceSelector):
    """A selector that asks a decision model once which pointers help to answer a query.

    The model judges the candidates that rank best: whether each helps, and which helps most.
    Candidates above `min_probability` are selected, the most probable first. The model sees the
    query and each candidate's summary, never a result, an argument, a path or a URL. Any failure
    selects nothing, unless `fail_closed` is False. Safe to share between tasks.

    Args:
        client: A decision client, whose default model is used.
        max_selected: As for `ContextRelevanceSelector`.
        fail_closed: As for `ContextRelevanceSelector`.
        timeout_s: Seconds for the request. None reads `LLM_COMMON_CONTEXT_SELECTION_TIMEOUT_S`,
            with 30 as the default.
        include_digest: Whether the model sees each candidate's `digest` too.
        cache: Cache of answers. None asks the model every time.
        max_candidates: Maximum number of candidates in the request.
        min_probability: A candidate is selected if its probability is higher. The default means
            "more likely than not". Measure your model before you change it.

    Raises:
        ValueError: If `max_selected` is negative, `timeout_s` or `max_candidates` is not positive,
            or `min_probability` is not from 0 to below 1.
        ConfigError: If an environment variable has an unusable value. Variables are read once, in
            the constructor.
        TypeError: If `client` is not a decision client.
    """

    def __init__(
        self,
        client: DecisionClient,
        max_selected: int | None = None,
        fail_closed: bool | None = None,
        *,
        timeout_s: float | None = None,
        include_digest: bool = False,
        cache: SelectionCache | None = None,
        max_candidates: int = DEFAULT_CANDIDATES,
        min_probability: float = DEFAULT_PROBABILITY,
    ) -> None:
        check_decision_client(client)
        _check_limits(max_candidates, min_probability)
        super().__init__(
            client,
            CallOptions(timeout_s=checked_timeout(timeout_s), cache=cache),
            max_selected=max_selected,
            fail_closed=fail_closed,
            include_digest=include_digest,
        )
        self._max_candidates = max_candidates
        self._min_probability = min_probability

    def _limits(self) -> dict[str, float]:
        return {
            **super()._limits(),
            "max_candidates": self._max_candidates,
            "min_probability": self._min_probability,
        }

    def _inquiry(self, query: str, candidates: list[ContextPointer]) -> PointerInquiry:
        question = shown_query(query)
        ranking = rank_pointers(query, candidates, limit=self._max_candidates)
        ranked = [entry.pointer for entry in ranking]
        lines = fitting_lines(
            query,
            ranked,
            limit=self._max_candidates,
            # The query and the candidates share the limit of the prompt.
            max_bytes=MAX_PROMPT_BYTES - len(question.encode()),
            line_of=lambda pointer: to_json(
                shown_fields(pointer, include_digest=self._include_digest)
            ),
        )
        weighed = [pointer for pointer in ranked if pointer.pointer_id in lines]

        def judge(weights: Mapping[str, Weight]) -> Verdict[ChosenPointers]:
            chosen: list[tuple[Weight, ContextPointer]] = []
            for pointer in weighed:
                weight = weights[pointer.pointer_id]
                if weight.probability > self._min_probability:
                    chosen.append((weight, pointer))
            # The sort is stable: the ranking decides between equal weights.
            chosen.sort(key=lambda pair: (-pair[0].probability, -pair[0].share))
            pointers = [pointer for _, pointer in chosen]
            return Verdict(ChosenPointers(pointers, weights=weights), len(pointers))

        questions = weighing_questions(
            lines,
            noun="output",
            purpose="helps to answer the query",
            seed=query,
            sections=[f"Query:\n{in_fence(question)}"],
            judge=judge,
        )
        saved = tokens_saved(len(candidates), list(lines.values()))
        return PointerInquiry(questions, weighed, saved)


@dataclass(frozen=True, slots=True)
class _ChosenTools:
    """The names of the tools that a decision model chose, best first, and each tool's weight."""

    names: tuple[str, ...]
    weights: Mapping[str, Weight]


@dataclass(frozen=True, slots=True)
class _ToolQuestions:
    """The questions about some tools.

    Attributes:
        questions: The questions and their judge.
        names: Names of the tools that the questions are about, in the order of their ranking.
        tokens_saved: Tokens of the other tools' signatures.
    """

    questions: Questions[_ChosenTools]
    names: tuple[str, ...]
    tokens_saved: int


class DecisionToolSelector(ChoosesTools):
    """A selector that asks a decision model once which tools to call for a task.

    The model judges the tools that rank best: whether each has to be called, and which most. Tools
    above `min_probability` are called, in the order of their share of the choice. A decision model
    writes no text, so the arguments come from a chat client, which sees only the chosen tools.
    Without one they are those that `fill_arguments` finds, and a tool without its required
    arguments is not called. Fails closed: a failure selects no calls, and `select_detailed` reports
    the reason.

    Args:
        client: A decision client, whose default model is used.
        config: Settings. Its models are those of the chat client. None reads the environment once,
            in the constructor.
        arguments: A chat client that writes the arguments. None fills them without a model.
        cache: Cache of answers. None asks the model every time.
        max_candidates: Maximum number of tools in the request.
        min_probability: A tool is chosen if its probability is higher.

    Raises:
        ConfigError: If an environment variable has an unusable value.
        ValueError: If `max_candidates` is not positive, or `min_probability` is not from 0 to below
            1.
        TypeError: If `client` is not a decision client, `arguments` is not a chat client, or
            `config` is not a `ToolSelectionConfig`.
    """

    used = "model"

    def __init__(
        self,
        client: DecisionClient,
        config: ToolSelectionConfig | None = None,
        *,
        arguments: SupportsChat | None = None,
        cache: SelectionCache | None = None,
        max_candidates: int = DEFAULT_CANDIDATES,
        min_probability: float = DEFAULT_PROBABILITY,
    ) -> None:
        check_decision_client(client)
        _check_limits(max_candidates, min_probability)
        super().__init__(config)
        self._client = client
        self._writer: ToolSelector | None = None
        if arguments is not None:
            self._writer = ToolSelector(arguments, self.config, cache=cache)
        self._cache = cache
        self._max_candidates = max_candidates
        self._min_probability = min_probability

    def _total_s(self) -> float:
        if self.config.deadline_s is not None:
            return self.config.deadline_s
        # One request to the decision model, and as long as usual for the chat client's calls.
        return self.config.timeout_s + (self.config.total_s if self._writer else 0.0)

    async def choose(
        self, catalogue: Catalogue, request: ToolRequest, *, ends_at: float
    ) -> tuple[ToolSelection, Sequence[str]]:
        """Select the calls of the tools that the model chooses. See `ChoosesTools.choose`."""
        # A third-party registry may return its tools as a text for a chat model.
        if not catalogue.definitions:
            raise ToolFailedError(_UNREADABLE, tool="the tool registry")
        async with asyncio.timeout_at(ends_at):
            # In a thread, since ranking a large catalogue takes many milliseconds.
            inquiry = await in_thread(self._questions, catalogue, request)
        # Without the models of the configuration, which are chat models.
        options = CallOptions(timeout_s=self.config.timeout_s, cache=self._cache)
        outcome = await ask_with_fallback(self._client, inquiry.questions, options, ends_at=ends_at)
        chosen: tuple[str, ...] = ()
        if outcome.verdict is not None:
            chosen = outcome.verdict.choice.names[: self.config.max_calls]
        selection = _selection_of(outcome, inquiry, catalogue, chosen)
        if chosen:
            selection = await self._with_calls(
                selection, catalogue.restricted_to(chosen), chosen, request, ends_at=ends_at
            )
        return selection, inquiry.names

    def _questions(self, catalogue: Catalogue, request: ToolRequest) -> _ToolQuestions:
        """Build the questions about the tools that rank best and fit `max_catalogue_tokens`.

        Raises:
            UnserialisableError: If the context contains values that JSON cannot represent.
        """
        tools = rank_tools(catalogue, request.sub_tasks, request.whole, limit=self._max_candidates)
        if not tools or len(catalogue.definitions) <= self._max_candidates:
            # Tools without a word of the task follow if none ranks, or if all can be shown.
            ranked_names = {tool.name for tool in tools}
            unranked = (tool for tool in catalogue.definitions if tool.name not in ranked_names)
            tools = (*tools, *unranked)[: self._max_candidates]
        lines: dict[str, str] = {}
        signature_tokens = 0
        for name, line, tokens in fitting_tools(
            tools, in_full=False, limit_tokens=self.config.max_catalogue_tokens
        ):
            lines[name] = line
            signature_tokens += tokens

        def judge(weights: Mapping[str, Weight]) -> Verdict[_ChosenTools]:
            names = [name for name in lines if weights[name].probability > self._min_probability]
            # The sort is stable: the ranking decides between equal weights.
            names.sort(key=lambda name: (-weights[name].share, -weights[name].probability))
            return Verdict(_ChosenTools(tuple(names), weights), len(names))

        questions = weighing_questions(
            lines,
            noun="tool",
            purpose="has to be called for the task",
            seed="\n".join(request.texts),
            sections=request.sections(),
            judge=judge,
        )
        tokens_saved = 0
        if len(lines) < len(catalogue.definitions):
            tokens_saved = max(catalogue.signature_tokens - signature_tokens, 0)
        return _ToolQuestions(questions, tuple(lines), tokens_saved)

    async def _with_calls(
        self,
        selection: ToolSelection,
        catalogue: Catalogue,
        chosen: Sequence[str],
        request: ToolRequest,
        *,
        ends_at: float,
    ) -> ToolSelection:
        """Return the selection with calls of the chosen tools.

        `catalogue` contains the chosen tools only.
        """
        try:
            if self._writer is None:
                async with asyncio.timeout_at(ends_at):
                    filled = await in_thread(_filled_calls, catalogue, chosen, request)
                return selection.model_copy(update=filled)
            # The catalogue has only the chosen tools, so the chat client cannot call another.
            written, _ = await self._writer.choose(catalogue, request, ends_at=ends_at)
        # The choice was made, so these errors keep its record, but call nothing.
        except NoThreadError as exc:
            return selection.model_copy(update={"status": "error", "problem": exc.message})
        except TimeoutError:
            return selection.model_copy(update={"status": "timeout", "problem": _UNFINISHED})
        return selection.model_copy(
            update={
                "calls": written.calls,
                "dropped": written.dropped,
                "notes": written.notes,
                "again": written.again,
                "status": written.status,
                "problem": written.problem,
                "fallback": written.fallback,
                "attempts": (*selection.attempts, *written.attempts),
            }
        )


def _check_limits(max_candidates: int, min_probability: float) -> None:
    if max_candidates < 1:
        raise ValueError(f"max_candidates is {max_candidates}; it must be at least 1")
    if not 0 <= min_probability < 1:
        raise ValueError(
            f"min_probability is {min_probability}; it must be at least 0 and less than 1"
        )


def _selection_of(
    outcome: Outcome[_ChosenTools],
    inquiry: _ToolQuestions,
    catalogue: Catalogue,
    chosen: Sequence[str],
) -> ToolSelection:
    """Return a selection that reports the model's choice, without calls yet."""
    choice = _ChosenTools((), {})
    if outcome.verdict is not None:
        choice = outcome.verdict.choice
    choices: list[ToolChoice] = []
    # By name, since the weights are in the shuffled order of the questions.
    for name, weight in sorted(choice.weights.items()):
        reason: ChoiceReason = "not chosen"
        if name in choice.names:
            reason = "chosen" if name in chosen else "over the cap"
        choices.append(
            ToolChoice(tool=name, reason=reason, probability=weight.probability, share=weight.share)
        )
    return ToolSelection(
        status=outcome.status,
        used="model",
        attempts=outcome.attempts,
        choices=tuple(choices),
        tools_total=len(catalogue.definitions),
        tools_shown=len(inquiry.names),
        tokens_saved=inquiry.tokens_saved,
        cached=outcome.cached,
        problem=outcome.failure,
    )


def _filled_calls(
    catalogue: Catalogue, chosen: Sequence[str], request: ToolRequest
) -> dict[str, Any]:
    """Return the fields of a selection with the calls whose arguments can be filled.

    This needs no model. A tool without a required argument is dropped.
    """
    proposed: list[dict[str, Any]] = []
    dropped: list[DroppedCall] = []
    for name in chosen:
        call = filled_call(
            catalogue.definitions_by_name[name],
            request.texts,
            request.context,
            reasoning="a decision model chose it",
        )
        if isinstance(call, DroppedCall):
            dropped.append(call)
        else:
            proposed.append(call)
    # Filled arguments are checked like those of a model: they come from the same texts.
    calls = check_calls(proposed, catalogue, max_calls=len(chosen)).calls
    fields: dict[str, Any] = {"calls": calls, "dropped": tuple(dropped)}
    if not calls:
        fields |= {"status": "invalid", "problem": _UNFILLED}
    return fields
