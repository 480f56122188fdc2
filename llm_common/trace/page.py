"""`render_html`: a run as one page without script, which says why the model did not see something."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from llm_common.trace.account import (
    Node,
    missing_tokens,
    near_misses,
    title,
    tree,
    unseen,
    verdicts,
    why_in,
    why_not_chosen,
    why_out,
)
from llm_common.trace.differing import packing_changes
from llm_common.trace.lines import (
    AnswerLine,
    Candidate,
    FoldLine,
    Line,
    ModelCallLine,
    PackedItem,
    PackingLine,
    SelectionLine,
    ToolCallLine,
)
from llm_common.trace.markup import (
    bdi,
    document,
    facts_list,
    long_text,
    number_cell,
    pair,
    plain,
    score_cell,
    table,
    yes_or_no,
)
from llm_common.trace.trace_file import RecordedRun

SOURCES: Final = {
    "project": "Project",
    "file": "Files",
    "memory": "Memories",
    "output": "Outputs",
    "turn": "Turns",
}
FORMS: Final = {
    "left_out": "out",
    "passages": "passages",
    "excerpt": "head and tail",
    "pointer": "one line",
}
_BAR_WIDTH: Final = 1_000
_MAX_SHOWN_UNSEEN: Final = 500


def render_html(run: RecordedRun) -> str:
    """The page: one file that loads nothing and runs nothing, the same for the same trace.

    Texts of others are shown as text: markup, control characters and marks that turn its direction
    have no effect.
    """
    skip = '<a class="skip" href="#unseen">To what the model did not see</a>'
    footer = "<footer><p>Made by llm-common from a trace. This page loads nothing and runs nothing.</p></footer>"
    return document(
        f"Run {run.run_id}",
        skip,
        f"<header>{run_head(run)}</header><main>",
        *run_body(run),
        "</main>",
        footer,
    )


def run_head(run: RecordedRun, *, heading: bool = True) -> str:
    """The run's name as the page's heading, its question and its figures."""
    query = (run.begin.query if run.begin else None) or ""
    asked = f"<p class=query>{bdi(query)}</p>" if query else ""
    name = f"<h1>{bdi(f'Run {run.run_id}')}</h1>" if heading else ""
    return f"{name}{asked}{_figures(run)}"


def run_body(run: RecordedRun, *, address_of: Callable[[Line], str] | None = None) -> list[str]:
    """What the model did not see, the tree of the run, and its steps.

    Args:
        run: The run.
        address_of: Where a step has a page of its own, which its heading then leads to.
    """
    nav = f'<nav aria-label="Steps">{_tree(tree(run))}</nav>'
    steps = [line for line in run.lines if line.kind not in {"run_begin", "run_end"}]
    return [
        _notes(verdicts(run)),
        _unseen(run),
        f"<section aria-labelledby=tree><h2 id=tree>The run</h2>{nav}</section>",
        "<section aria-labelledby=steps><h2 id=steps>Step by step</h2>",
        *(
            step_article(line, run, address=address_of(line) if address_of else "")
            for line in steps
        ),
        "</section>",
    ]


def _figures(run: RecordedRun) -> str:
    calls = run.of(ModelCallLine)
    usages = [call.attempt.usage for call in calls if call.attempt.usage]
    costs = [call.attempt.cost_usd for call in calls]
    sent = sum(usage.prompt_tokens for usage in usages)
    cached = sum(usage.cached_tokens for usage in usages)
    tools = run.of(ToolCallLine)
    failed = sum(tool.failure is not None for tool in tools)
    figures = {
        "Ended": run.end.status if run.end else "no end",
        "Seconds": f"{run.end.seconds:.2f}" if run.end else "-",
        "Model calls": f"{len(calls):,}",
        "Tokens sent": f"{sent:,}" + (f", {cached / sent:.0%} from the cache" if sent else ""),
        "Tokens answered": f"{sum(usage.completion_tokens for usage in usages):,}",
        "Cost": _cost(costs),
        "Tool calls": f"{len(tools):,}" + (f", {failed:,} failed" if failed else ""),
    }
    return f"<dl class=figures>{''.join(pair(name, value) for name, value in figures.items())}</dl>"


def _cost(costs: Sequence[float | None]) -> str:
    known = [cost for cost in costs if cost is not None]
    if costs and not known:
        return "unknown"
    return f"{'' if len(known) == len(costs) else 'at least '}${sum(known):.4f}"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    listed = "".join(f"<li>{bdi(note)}</li>" for note in notes)
    return (
        f'<section class=notes aria-label="What concerns the whole run"><ul>{listed}</ul></section>'
    )


def _unseen(run: RecordedRun) -> str:
    missed = unseen(run)
    head = '<section aria-labelledby=unseen><h2 id=unseen tabindex="-1">Why did the model not see …?</h2>'
    if not missed:
        return f"{head}<p>Nothing that this run chose from was left out.</p></section>"
    near = sum(one.is_near for one in missed)
    rows = [
        [
            bdi(one.source),
            _named(one.id, one.name),
            ("<strong class=near>near miss</strong> " if one.is_near else "") + bdi(one.why),
            bdi(one.missing),
            score_cell(one.score),
            f'<a href="#line-{one.seq}">line {one.seq}</a>',
        ]
        for one in missed[:_MAX_SHOWN_UNSEEN]
    ]
    caption = f"{len(missed):,} things were not seen, or not whole; {near:,} of them came close and stand first"
    return f"{head}{table(caption, ('What', 'Id', 'Why', 'Not shown', 'Score', 'Said by'), rows)}</section>"


def _named(item_id: str, name: str) -> str:
    return bdi(item_id) + (f"<small>{bdi(name)}</small>" if name not in {"", item_id} else "")


def _tree(nodes: Iterable[Node]) -> str:
    items = "".join(
        f'<li class=k-{node.line.kind}><a href="#line-{node.line.seq}">{bdi(title(node.line))}</a>'
        f"{_tree(node.children)}</li>"
        for node in nodes
    )
    return f"<ol>{items}</ol>" if items else ""


def step_article(line: Line, run: RecordedRun, *, address: str = "", heading: bool = True) -> str:
    """A step of a run with its bar and its tables.

    Args:
        line: The step.
        run: The run that it belongs to.
        address: Where it has a page of its own; "" without one.
        heading: Whether it is named above; a page of its own has the name as its heading.
    """
    match line:
        case SelectionLine():
            inner = _selection(line)
        case PackingLine():
            inner = _packing(line) + _packing_difference(line, run.of(PackingLine))
        case ModelCallLine():
            inner = _model_call(line)
        case FoldLine():
            rows = [
                [
                    bdi(part.pointer_id),
                    part.kind,
                    f"{part.first} to {part.last}",
                    number_cell(part.tokens),
                ]
                for part in line.parts
            ]
            inner = table("Behind pointers", ("Pointer", "What", "Messages", "Tokens"), rows)
        case ToolCallLine():
            facts = {
                "Pointer": line.pointer_id,
                "Arguments": line.args or line.args_digest,
                "Seconds": line.seconds,
            }
            inner = facts_list(facts)
        case AnswerLine():
            shown = ", ".join(line.shown) or "none"
            inner = facts_list(
                {"Status": line.status, "Outputs shown": shown, "Characters": line.text_chars}
            )
            inner += long_text("The answer", line.text)
        case _:
            inner = ""
    name = f'<a href="{plain(address)}">{bdi(title(line))}</a>' if address else bdi(title(line))
    head = f"<h3 id=line-{line.seq}><span class=seq>{line.seq}</span> {name}</h3>"
    if not heading:
        return f'<article class=k-{line.kind} aria-label="Line {line.seq}">{inner}</article>'
    return f"<article class=k-{line.kind} aria-labelledby=line-{line.seq}>{head}{inner}</article>"


def _selection(line: SelectionLine) -> str:
    def row(one: Candidate) -> list[str]:
        is_chosen = one.reason == "chosen"
        size = number_cell(one.size_bytes) if line.of == "outputs" else number_cell(one.tokens)
        why = "chosen" if is_chosen else bdi(why_not_chosen(one, line))
        score = one.score if one.probability is None else one.probability
        return [yes_or_no(is_chosen), _named(one.id, one.name), why, size, score_cell(score)]

    unit = "Bytes" if line.of == "outputs" else "Tokens"
    inner = table(
        f"Candidates: {line.of}",
        ("Chosen", "Id", "Why", unit, "Score"),
        [row(one) for one in line.candidates],
    )
    refused = [[bdi(one.id), bdi(one.reason), bdi("; ".join(one.problems))] for one in line.dropped]
    if refused:
        inner += table(
            "Entries of the reply that do not count", ("Named", "Reason", "Problems"), refused
        )
    return inner + long_text("The question", line.query)


def _packing(line: PackingLine) -> str:
    kept = [item for item in line.items if item.form != "left_out"]
    out = [item for item in line.items if item.form == "left_out"]
    near = {(item.source, item.id) for item in near_misses(line)}

    def row(item: PackedItem) -> list[str]:
        why = bdi(why_in(item) if item.form == "whole" else why_out(item, line))
        badge = "<strong class=near>near miss</strong> " if (item.source, item.id) in near else ""
        shown = f" <small>{item.chars_shown / item.chars:.0%} shown</small>" if item.chars else ""
        parts = " ".join(f"{part} {value:.2f}" for part, value in item.parts.items() if value)
        return [
            f"<span class=s-{item.source}>{bdi(item.source)}</span>",
            _named(item.id, item.name),
            bdi(FORMS.get(item.form, item.form)),
            badge + why,
            number_cell(item.tokens),
            f"{number_cell(missing_tokens(item, line))}{shown}",
            f"{score_cell(item.score)}<small>{bdi(parts)}</small>",
        ]

    columns = ("Source", "Id", "Form", "Why", "Tokens", "Not shown, about", "Score")
    return (
        budget_bar(line)
        + table("In the prompt, in its order", columns, [row(item) for item in kept])
        + f"<details><summary>{len(out) + line.unlisted:,} left out</summary>"
        + table("Left out, best first", columns, [row(item) for item in out])
        + "</details>"
        + long_text("The text as it was rendered", line.text)
    )


def _packing_difference(line: PackingLine, packings: Sequence[PackingLine]) -> str:
    """What changed since the packing before, in the same run."""
    before = [each for each in packings if each.seq < line.seq][-1:]
    changes = [change for each in before for change in packing_changes(each, line)]
    if not before or not changes:
        return "<p>Nothing changed since the packing before.</p>" if before else ""
    listed = "".join(f"<li>{bdi(change)}</li>" for change in changes)
    return f"<details><summary>{len(changes):,} changes since line {before[0].seq}</summary><ul>{listed}</ul></details>"


def by_source(line: PackingLine) -> dict[str, int]:
    """The tokens of each source, then those of the headings and fences, then those that are free."""
    sums = {
        source: sum(item.tokens for item in line.items if item.source == source)
        for source in SOURCES
    }
    sums["marks"] = max(line.tokens - sum(sums.values()), 0)
    return sums | {"free": max(line.budget - sum(sums.values()), 0)}


def budget_bar(line: PackingLine) -> str:
    """The budget of a packing as a bar, with its parts named and counted."""
    sums, start, parts = by_source(line), 0.0, []
    total = max(sum(sums.values()), 1)
    for source, tokens in sums.items():
        width = tokens * _BAR_WIDTH / total
        parts.append(f'<rect class=s-{source} x="{start:.1f}" width="{width:.1f}" height="24"/>')
        start += width
    names = SOURCES | {"marks": "Headings and fences", "free": "Free"}
    legend = "".join(
        f"<li><span class=s-{source}>{names[source]}</span> {tokens:,}</li>"
        for source, tokens in sums.items()
        if tokens
    )
    return (
        f'<figure><svg viewBox="0 0 {_BAR_WIDTH} 24" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
        f"<figcaption>{line.tokens:,} of {line.budget:,} tokens "
        f'<meter min="0" max="{line.budget}" value="{line.tokens}" aria-label="used share of the budget"></meter>'
        f"<ul class=legend>{legend}</ul></figcaption></figure>"
    )


def _model_call(line: ModelCallLine) -> str:
    attempt, prompt = line.attempt, line.prompt
    usage = attempt.usage
    cost = "unknown" if attempt.cost_usd is None else f"${attempt.cost_usd:.4f}"
    sent = (
        "not counted"
        if usage is None
        else f"{usage.prompt_tokens:,}, {usage.cached_tokens:,} from the cache"
    )
    facts: dict[str, object] = {
        "Tokens sent": sent,
        "Tokens answered": usage.completion_tokens if usage else None,
        "Cost": cost,
    }
    facts["Milliseconds"] = attempt.latency_ms
    facts["Prompt"] = f"{prompt.bytes:,} bytes, {prompt.digest}"
    total = max(sum(message.bytes for message in prompt.messages), 1)
    tokens = usage.prompt_tokens if usage else 0
    rows = [
        [
            str(number),
            bdi(message.role),
            number_cell(message.bytes),
            number_cell(round(tokens * message.bytes / total)) if tokens else "-",
        ]
        for number, message in enumerate(prompt.messages, 1)
    ]
    columns = ("Message", "Role", "Bytes", "Tokens, about")
    return (
        facts_list(facts)
        + _difference(line)
        + f"<details><summary>{len(rows):,} messages</summary>"
        + f"{table('Messages of the prompt', columns, rows)}</details>"
        + long_text("The prompt", prompt.text)
        + long_text("The reply", line.reply)
    )


def _difference(line: ModelCallLine) -> str:
    prompt = line.prompt
    if prompt.same_bytes is None:
        return "<p>No earlier prompt for this model to compare with.</p>"
    share = prompt.same_bytes / max(prompt.bytes, 1)
    changed = (
        "nothing changed"
        if prompt.same_bytes == prompt.bytes
        else f"the first changed byte is {prompt.same_bytes:,}"
    )
    return (
        f"<p>{share:.0%} begins like {bdi(prompt.same_as)}: {changed} of {prompt.bytes:,}; a provider's cache "
        f'can serve what comes before. <meter min="0" max="1" value="{share:.3f}" '
        'aria-label="share of the prompt that is the same"></meter></p>'
    )
