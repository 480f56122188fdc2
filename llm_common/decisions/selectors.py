"""Selectors by a decision model: one request weighs the candidates that rank best."""

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
    "the registry's text cannot be read as tools, which a decision model needs; "
    "let it return a list"
)
_UNFILLED: Final = "no chosen tool could be given its arguments; `dropped` says which"
_UNFINISHED: Final = (
    "the tools were chosen, but the deadline passed before their arguments were there; raise it"
)


class DecisionRelevanceSelector(ModelRelevanceSelector):
    """Selects the pointers that a query needs by one request to a decision model.

    The model judges the candidates that rank best: whether each one helps, and which one helps
    most, or none. Those above `min_probability` are kept, the most probable first. It sees the
    query and each candidate's summary, never a result, an argument, a path or a URL. Any failure
    selects nothing, unless `fail_closed` is False. May be shared by tasks.

    Args:
        client: A decision client, which is asked for its own default model.
        max_selected: As for `ContextRelevanceSelector`.
        fail_closed: As for `ContextRelevanceSelector`.
        timeout_s: Seconds for the request. None reads `LLM_COMMON_CONTEXT_SELECTION_TIMEOUT_S`,
            else 30.
        include_digest: Shows the model each candidate's digest of its result too.
        cache: Reuses answers for a while. None asks the model every time.
        max_candidates: Maximum number of candidates in the request.
        min_probability: A candidate is kept if the model holds it more probable than this. The
            default is "more likely than not". Measure your model before you change it.

    Raises:
        ValueError: If `max_selected` is negative, `timeout_s` or `max_candidates` not positive, or
            `min_probability` not from 0 to below 1.
        ConfigError: If a variable, read when the selector is made, has an unusable value.
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
        # In the order of the ranking, which decides between equal probabilities.
        ranking = rank_pointers(query, candidates, limit=self._max_candidates)
        ranked = [entry.pointer for entry in ranking]
        lines = fitting_lines(
            query,
            ranked,
            limit=self._max_candidates,
            max_bytes=MAX_PROMPT_BYTES - len(question.encode()),
            line_of=lambda pointer: to_json(
                shown_fields(pointer, include_digest=self._include_digest)
            ),
        )
        shown = {pointer.pointer_id: pointer for pointer in ranked if pointer.pointer_id in lines}

        def judge(weights: Mapping[str, Weight]) -> Verdict[ChosenPointers]:
            chosen = [key for key in shown if weights[key].probability > self._min_probability]
            chosen.sort(key=lambda key: (-weights[key].probability, -weights[key].share))
            pointers = [shown[key] for key in chosen]
            return Verdict(ChosenPointers(pointers, weights=weights), len(chosen))

        questions = weighing_questions(
            lines,
            noun="output",
            purpose="helps to answer the query",
            seed=query,
            sections=[f"Query:\n{in_fence(question)}"],
            judge=judge,
        )
        saved = tokens_saved(len(candidates), list(lines.values()))
        return PointerInquiry(questions, list(shown.values()), saved)


@dataclass(frozen=True, slots=True)
class _ChosenTools:
    """The names that a decision model chose, best first, and the weight of each tool."""

    names: tuple[str, ...]
    weights: Mapping[str, Weight]


@dataclass(frozen=True, slots=True)
class _ToolQuestions:
    """The questions about some tools, their names, and the tokens of the others' signatures."""

    questions: Questions[_ChosenTools]
    shown: tuple[str, ...]
    tokens_saved: int


class DecisionToolSelector(ChoosesTools):
    """Tool calls for a task, chosen by one request to a decision model.

    The model judges the tools that rank best: whether each one has to be called, and which one, or
    none. Those above `min_probability` are called, the largest share of the choice first. Such a
    model writes no text. The arguments come from a chat client, which is shown the chosen tools
    alone, or are those that `fill_arguments` finds: a tool without its required arguments is not
    called. Fails closed: a failure gives no calls, and `select_detailed` reports why.

    Args:
        client: A decision client, which is asked for its own default model.
        config: Settings. Its models are those of the chat client. None reads the environment once,
            here.
        arguments: A chat client that writes the arguments. None fills them without a model.
        cache: Reuses answers for a while. None asks the model every time.
        max_candidates: Maximum number of tools in the request.
        min_probability: A tool is chosen if the model holds it more probable than this.

    Raises:
        ConfigError: If an environment variable cannot be used.
        ValueError: If `max_candidates` is not positive, or `min_probability` not from 0 to below 1.
        TypeError: If `client` is not a decision client, `arguments` not a chat client, or `config`
            not a `ToolSelectionConfig`.
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
        return self.config.timeout_s + (self.config.total_s if self._writer else 0.0)

    async def choose(
        self, catalogue: Catalogue, request: ToolRequest, *, ends_at: float
    ) -> tuple[ToolSelection, Sequence[str]]:
        """Return the calls of the tools that the model chooses. See `ChoosesTools.choose`."""
        if not catalogue.definitions:
            raise ToolFailedError(_UNREADABLE, tool="the tool registry")
        async with asyncio.timeout_at(ends_at):
            asked = await in_thread(self._questions, catalogue, request)
        options = CallOptions(timeout_s=self.config.timeout_s, cache=self._cache)
        outcome = await ask_with_fallback(self._client, asked.questions, options, ends_at=ends_at)
        chosen: tuple[str, ...] = ()
        if outcome.verdict is not None:
            chosen = outcome.verdict.choice.names[: self.config.max_calls]
        selection = _account_of(outcome, asked, catalogue, chosen)
        if chosen:
            selection = await self._with_calls(
                selection, catalogue.restricted_to(chosen), chosen, request, ends_at=ends_at
            )
        return selection, asked.shown

    def _questions(self, catalogue: Catalogue, request: ToolRequest) -> _ToolQuestions:
        """Build the questions about the tools that rank best and fit `max_catalogue_tokens`.

        Raises:
            UnserialisableError: If the context holds what JSON cannot.
        """
        tools = rank_tools(catalogue, request.sub_tasks, request.whole, limit=self._max_candidates)
        if not tools or len(catalogue.definitions) <= self._max_candidates:
            # No word in common, or room for all: the others follow those that rank.
            ranked_names = {tool.name for tool in tools}
            others = (tool for tool in catalogue.definitions if tool.name not in ranked_names)
            tools = (*tools, *others)[: self._max_candidates]
        fitting = list(
            fitting_tools(tools, in_full=False, limit_tokens=self.config.max_catalogue_tokens)
        )
        shown = tuple(name for name, _, _ in fitting)

        def judge(weights: Mapping[str, Weight]) -> Verdict[_ChosenTools]:
            names = [name for name in shown if weights[name].probability > self._min_probability]
            # Equal shares stay in the order of the ranking.
            names.sort(key=lambda name: (-weights[name].share, -weights[name].probability))
            return Verdict(_ChosenTools(tuple(names), weights), len(names))

        questions = weighing_questions(
            {name: line for name, line, _ in fitting},
            noun="tool",
            purpose="has to be called for the task",
            seed="\n".join(request.texts),
            sections=request.sections(),
            judge=judge,
        )
        saved = 0
        if len(shown) < len(catalogue.definitions):
            saved = catalogue.signature_tokens - sum(tokens for _, _, tokens in fitting)
        return _ToolQuestions(questions, shown, max(saved, 0))

    async def _with_calls(
        self,
        selection: ToolSelection,
        catalogue: Catalogue,
        chosen: Sequence[str],
        request: ToolRequest,
        *,
        ends_at: float,
    ) -> ToolSelection:
        """Return the selection with the calls of the chosen tools: those of the catalogue."""
        try:
            if self._writer is None:
                async with asyncio.timeout_at(ends_at):
                    filled = await in_thread(_filled_calls, catalogue, chosen, request)
                return selection.model_copy(update=filled)
            written, _ = await self._writer.choose(catalogue, request, ends_at=ends_at)
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


def _account_of(
    outcome: Outcome[_ChosenTools],
    asked: _ToolQuestions,
    catalogue: Catalogue,
    chosen: Sequence[str],
) -> ToolSelection:
    """Return the account of the model's choice, without calls."""
    choice = _ChosenTools((), {})
    if outcome.verdict is not None:
        choice = outcome.verdict.choice
    choices: list[ToolChoice] = []
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
        tools_shown=len(asked.shown),
        tokens_saved=asked.tokens_saved,
        cached=outcome.cached,
        problem=outcome.failure,
    )


def _filled_calls(
    catalogue: Catalogue, chosen: Sequence[str], request: ToolRequest
) -> dict[str, Any]:
    """Return the fields of a selection that calls the chosen tools which can be filled."""
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
    calls = check_calls(proposed, catalogue, max_calls=len(chosen)).calls
    fields: dict[str, Any] = {"calls": calls, "dropped": tuple(dropped)}
    if not calls:
        fields |= {"status": "invalid", "problem": _UNFILLED}
    return fields
