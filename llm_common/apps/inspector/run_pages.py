"""The pages of traces: the runs, one run, a step with the exact text, two steps side by side, tools by their cost."""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from llm_common.apps.inspector.layout import address_of, link, moment, note, page, pager, size
from llm_common.apps.inspector.recorded_runs import RunRow, ToolCost, ToolCosts
from llm_common.trace.account import title
from llm_common.trace.differing import same_prefix, step_changes
from llm_common.trace.lines import (
    AnswerLine,
    Line,
    ModelCallLine,
    PackingLine,
    RunBegin,
    RunEnd,
    ToolCallLine,
)
from llm_common.trace.markup import MAX_SHOWN_CHARS, bdi, number_cell, plain, table
from llm_common.trace.page import budget_bar, run_body, run_head, step_article
from llm_common.trace.recording import digest, same_bytes
from llm_common.trace.trace_file import RecordedRun

_HOME: Final = ("/runs", "Runs")
_BEFORE_CHARS: Final = 300
_AFTER_CHARS: Final = 3_000
_SHARES: Final = 1_000
_MAX_CHOICES: Final = 50

Place = tuple[RecordedRun, Line]


def runs_page(rows: list[RunRow], *, total: int, number: int, where: str) -> str:
    """The runs of a folder of traces, newest first."""
    cells = []
    for row in rows:
        query = row.begin.query_id if row.begin else row.folder
        asked = (row.begin.query if row.begin else None) or ""
        ended = (row.end.status, f"{row.end.seconds:.2f}") if row.end else ("no end", "-")
        cells.append(
            [
                link(address_of("runs", row.folder, row.run_id), asked[:200] or row.run_id)
                + f" <small class=id>{bdi(row.run_id)}</small>",
                bdi(query),
                bdi(ended[0]),
                f"<span class=num>{ended[1]}</span>",
                size(row.bytes),
                moment(row.begin.at if row.begin else None),
            ]
        )
    columns = ("Run", "Query", "Ended", "Seconds", "Trace", "Began")
    return page(
        "Runs",
        f"<p class=lead>{total:,} runs in {bdi(where)}</p>",
        table("Runs, newest first", columns, cells, kind="plain")
        or "<p>There are none. Runs are recorded where LLM_COMMON_TRACE_DIR is set.</p>",
        pager("/runs", number, total),
        place="runs",
    )


def run_page(run: RecordedRun, *, stored: bool) -> str:
    """A run as its trace tells it, each step with a link to its own page.

    Args:
        run: The run.
        stored: Whether the store has the query's outputs.
    """
    folder = run.path.parent.name
    outputs = (
        f"<p>{link(address_of('queries', folder), 'The stored outputs of its query')}</p>"
        if stored
        else ""
    )
    body = run_body(run, address_of=lambda line: _address(run, line))
    return page(
        f"Run {run.run_id}",
        run_head(run, heading=False),
        outputs,
        *body,
        place="runs",
        above=[_HOME],
    )


def step_page(run: RecordedRun, line: Line, others: Mapping[str, Sequence[Place]]) -> str:
    """A step with its bar, its tables and, where the trace has texts, exactly what was shown or sent.

    Args:
        run: The run.
        line: The step.
        others: Steps of the same kind that it can be compared with, by what they belong to.
    """
    groups = "".join(
        f'<optgroup label="{plain(name)}">'
        + "".join(
            f'<option value="{plain(_place(*each))}">{plain(_name(each[1]))}</option>'
            for each in places
        )
        + "</optgroup>"
        for name, places in others.items()
        if places
    )
    compare = (
        f'<form class=filter action="/compare"><input type=hidden name=after value="{plain(_place(run, line))}">'
        f"<label for=before>Compare with</label><select id=before name=before>{groups}</select>"
        "<button>Side by side</button></form>"
    )
    return page(
        _name(line),
        compare if groups else "",
        step_article(line, run, heading=False),
        _exact(line),
        place="runs",
        above=[_HOME, (address_of("runs", run.path.parent.name, run.run_id), f"Run {run.run_id}")],
    )


def _exact(line: Line) -> str:
    """The text of a step, whole."""
    if isinstance(line, ModelCallLine) and line.prompt.text:
        inner = "".join(
            _message(number, text) for number, text in enumerate(line.prompt.text.split("\n"), 1)
        )
        return f"<section aria-labelledby=exact><h2 id=exact>Exactly what was sent</h2>{inner}</section>"
    text = text_of(line)
    if text is None:
        known = isinstance(line, PackingLine | ModelCallLine | AnswerLine)
        return (
            "<p>The texts are not in the trace. Record with <code>Trace(…, texts=True)</code> to see them.</p>"
            * known
        )
    return (
        f"<section aria-labelledby=exact><h2 id=exact>Exactly the text</h2>"
        f"<pre class=whole tabindex=0 aria-labelledby=exact>{bdi(text)}</pre></section>"
    )


def _message(number: int, text: str) -> str:
    """A message of a prompt: its text if that is all it has, else its JSON."""
    shown, role = text, ""
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        message = None
    if isinstance(message, dict):
        role = str(message.get("role", ""))
        content = message.get("content")
        is_text = isinstance(content, str) and set(message) == {"role", "content"}
        shown = (
            str(content) if is_text else orjson.dumps(message, option=orjson.OPT_INDENT_2).decode()
        )
    name = f"message-{number}"
    return (
        f"<h3 id={name}>Message {number:,} <small>{bdi(role)}</small></h3>"
        f"<pre class=whole tabindex=0 aria-labelledby={name}>{bdi(shown[:MAX_SHOWN_CHARS])}</pre>"
    )


def text_of(line: Line) -> str | None:
    """What a step showed, sent or gave, as far as its trace has it."""
    match line:
        case PackingLine() | AnswerLine():
            return line.text
        case ModelCallLine():
            return line.prompt.text
        case ToolCallLine():
            return line.args
    return None


def comparison_page(before: Place, after: Place) -> str:
    """Two steps side by side, from the first byte on that differs."""
    changes = step_changes(before[1], after[1])
    listed = "".join(f"<li>{bdi(change)}</li>" for change in changes)
    texts = [text_of(before[1]), text_of(after[1])]
    same, said = _first_change(before[1], after[1])
    sides = "".join(
        _side(place, name, text, same)
        for place, name, text in zip((before, after), ("Before", "After"), texts, strict=True)
    )
    return page(
        "Two steps side by side",
        f"<p class=lead>{bdi(said)}</p>",
        _shared_bar(same, texts[1]),
        f"<div class=sides>{sides}</div>",
        f"<section aria-labelledby=changes><h2 id=changes>What changed</h2><ul>{listed}</ul></section>"
        if listed
        else "",
        place="runs",
        above=[_HOME, (_address(*after), f"Run {after[0].run_id}, line {after[1].seq}")],
    )


def _first_change(before: Line, after: Line) -> tuple[int | None, str]:
    """From which byte on the texts differ, None where that is not known, and a sentence about it."""
    old, new = text_of(before), text_of(after)
    if isinstance(before, ModelCallLine) and isinstance(after, ModelCallLine):
        least, most = same_prefix(before.prompt, after.prompt)
        if before.prompt.digest == after.prompt.digest:
            return least, f"Both prompts are the same {after.prompt.bytes:,} bytes."
        if least != most:
            said = f"The first changed byte is between {least:,} and {most:,} of {after.prompt.bytes:,}."
            return None, f"{said} Traces with texts tell it exactly."
    if old is None or new is None:
        return None, "Where the texts differ is not known: a trace has them only with texts=True."
    same = same_bytes(old.encode(), new.encode())
    total = len(new.encode())
    whole = [
        isinstance(line, PackingLine) and line.text_digest != digest(line.text or "")
        for line in (before, after)
    ]
    cut = " At least one of the texts is cut or redacted in its trace." if any(whole) else ""
    if old == new:
        return same, f"Both texts are the same {total:,} bytes.{cut}"
    alike = f"{same / max(total, 1):.0%} begins alike."
    return same, f"The first changed byte is {same:,} of {total:,}, counted from 0: {alike}{cut}"


def _shared_bar(same: int | None, text: str | None) -> str:
    if same is None or text is None:
        return ""
    share = round(_SHARES * same / max(len(text.encode()), 1))
    return (
        f'<figure><svg viewBox="0 0 {_SHARES} 24" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class=s-memory x="0" width="{share}" height="24"/>'
        f'<rect class=s-output x="{share}" width="{_SHARES - share}" height="24"/></svg>'
        "<figcaption><ul class=legend><li><span class=s-memory>Begins alike: a cache can serve it</span></li>"
        "<li><span class=s-output>From the first changed byte on</span></li></ul></figcaption></figure>"
    )


def _side(place: Place, name: str, text: str | None, same: int | None) -> str:
    run, line = place
    where = link(_address(run, line), f"{run.run_id}, line {line.seq}")
    head = f"<h2 id={name.lower()}>{name}</h2><p>{where}<br>{bdi(title(line))}</p>"
    bar = budget_bar(line) if isinstance(line, PackingLine) else ""
    shown = "" if text is None or same is None else _changed_text(text, same, name)
    return f"<section aria-labelledby={name.lower()}>{head}{bar}{shown}</section>"


def _changed_text(text: str, same: int, name: str) -> str:
    """The end of what is the same, then what differs; the first changed character is marked."""
    data = text.encode()
    alike = data[:same].decode("utf-8", "ignore")  # the byte may lie in a character
    rest = text[len(alike) :]
    more = (
        f"<p>{len(rest) - _AFTER_CHARS:,} more characters follow.</p>"
        if len(rest) > _AFTER_CHARS
        else ""
    )
    gap = "…" if len(alike) > _BEFORE_CHARS else ""
    changed = (
        f"<mark>{plain(rest[:1])}</mark>{plain(rest[1:_AFTER_CHARS])}"
        if rest
        else "<mark>(its end)</mark>"
    )
    return (
        f"<pre class=whole tabindex=0 aria-labelledby={name.lower()}><bdi><span class=alike>{gap}"
        f"{plain(alike[-_BEFORE_CHARS:])}</span>{changed}</bdi></pre>{more}"
    )


def tools_page(costs: ToolCosts, stored: Mapping[str, tuple[int, int]], *, unread: int) -> str:
    """Tools, those first whose definitions take most tokens."""
    names = {*costs.by_tool, *stored}
    rows = sorted(
        ((name, costs.by_tool.get(name, ToolCost()), *stored.get(name, (0, 0))) for name in names),
        key=lambda row: (-row[1].offered_tokens, -max(row[1].bytes, row[3]), row[0]),
    )
    most = max((row[1].offered_tokens for row in rows), default=0) or 1
    cells = [
        [
            f"<strong>{bdi(name)}</strong>",
            number_cell(cost.definition_tokens or None),
            number_cell(cost.offered),
            _share(cost.offered_tokens, most),
            number_cell(cost.calls)
            + (f" <small>{cost.failed:,} failed</small>" if cost.failed else ""),
            size(cost.bytes),
            number_cell(outputs),
            size(total),
        ]
        for name, cost, outputs, total in rows[:500]
    ]
    columns = (
        "Tool",
        "Definition",
        "Offered",
        "Tokens in all",
        "Calls",
        "Returned",
        "Stored",
        "Stored bytes",
    )
    said = (
        f"Definitions, calls and what they returned in the newest {costs.read:,} of {costs.total:,} runs; stored "
        "outputs over the whole store. A definition has at most so many tokens, as a signature."
    )
    return page(
        "Tools by their cost",
        f"<p class=lead>{said}</p>",
        note(
            f"Queries still being read: {unread:,}. Reload the page for the rest." if unread else ""
        ),
        table("Tools, the dearest definitions first", columns, cells, kind="plain")
        or "<p>There are none: no trace names a tool, and the store is empty.</p>",
        place="tools",
    )


def _share(tokens: int, most: int) -> str:
    return f'{number_cell(tokens)} <meter min=0 max=1 value="{tokens / most:.3f}" aria-hidden=true></meter>'


def comparable(
    run: RecordedRun, line: Line, others: Sequence[RecordedRun]
) -> dict[str, list[Place]]:
    """The steps of the same kind, the one before it first, by the run that they belong to."""
    own = [(run, each) for each in run.lines if type(each) is type(line) and each.seq != line.seq]
    own.sort(key=lambda place: (place[1].seq > line.seq, abs(place[1].seq - line.seq)))
    found = {"This run": own[:_MAX_CHOICES]}
    for other in others:
        same = [(other, each) for each in other.lines if type(each) is type(line)]
        found[f"Run {other.run_id}"] = same[:_MAX_CHOICES]
    return found if not isinstance(line, RunBegin | RunEnd) else {}


def _name(line: Line) -> str:
    return f"Step {line.seq}: {title(line)}"


def _place(run: RecordedRun, line: Line) -> str:
    return f"{run.path.parent.name}/{run.run_id}/{line.seq}"


def _address(run: RecordedRun, line: Line) -> str:
    return address_of("runs", run.path.parent.name, run.run_id, line.seq)
