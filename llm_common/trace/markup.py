"""What every page is made of: the document with its style and policy, tables, and texts of others made inert."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

from llm_common.text.display import inert

MAX_SHOWN_CHARS: Final = 200_000
"""Most characters of a text that a page shows."""


def document(title: str, *body: str) -> str:
    """A page that loads nothing and runs nothing; its policy allows its own style alone.

    Args:
        title: Text of others.
        *body: Markup.
    """
    style, policy = page_style()
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">',
            f"<title>{escape(inert(title))}</title><style>{style}</style></head><body>",
            *body,
            "</body></html>\n",
        ]
    )


@cache
def page_style() -> tuple[str, str]:
    """The style, and the policy that allows nothing but it."""
    style = files("llm_common.trace").joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return style, f"default-src 'none'; style-src 'sha256-{digest}'"


def plain(value: object) -> str:
    """Text of others where no element may stand, as in an attribute."""
    return escape(inert(str(value)))


def bdi(value: object) -> str:
    """Text of others, apart from its surroundings."""
    return f"<bdi>{plain(value)}</bdi>"


def pair(name: str, value: str) -> str:
    """A figure under its name."""
    return f"<div><dt>{escape(name)}</dt><dd>{bdi(value)}</dd></div>"


def facts_list(facts: Mapping[str, object]) -> str:
    """Facts under their names, without those that are None."""
    return f"<dl class=facts>{''.join(pair(name, str(value)) for name, value in facts.items() if value is not None)}</dl>"


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = ""
) -> str:
    """A table that scrolls in itself, and shows a row as a list on a narrow screen.

    "" without rows.

    Args:
        caption: What it holds.
        columns: Their heads.
        rows: Markup for each cell.
        kind: A class of the style; "" for tables whose second column holds ids.
    """
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    names = [escape(column) for column in columns]
    cells = [
        "".join(
            f'<td data-name="{name}">{cell}</td>' for name, cell in zip(names, row, strict=True)
        )
        for row in rows
    ]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f'<div class=scroll role=group aria-label="{escape(caption)}" tabindex="0">'
        f"<table{f' class={kind}' if kind else ''}><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def long_text(name: str, text: str | None) -> str:
    """A text to be unfolded, cut if it is very long."""
    if not text:
        return ""
    rest = len(text) - MAX_SHOWN_CHARS
    note = f"<p>{rest:,} more characters are in the trace.</p>" if rest > 0 else ""
    shown = bdi(text[:MAX_SHOWN_CHARS])
    head = f"<details><summary>{escape(name)}: {len(text):,} characters</summary>"
    return f'{head}<pre tabindex="0">{shown}</pre>{note}</details>'


def score_cell(score: float | None) -> str:
    """A score with its bar; "-" without one."""
    if score is None:
        return "-"
    share = min(max(score, 0.0), 1.0)
    return f'<span class=num>{score:.2f}</span> <meter min="0" max="1" value="{share:.3f}" aria-hidden="true"></meter>'


def number_cell(value: int | None) -> str:
    """A number with commas; "-" without one."""
    return "<span class=num>-</span>" if value is None else f"<span class=num>{value:,}</span>"


def yes_or_no(is_chosen: bool) -> str:
    """Yes or no, coloured."""
    return "<span class=yes>yes</span>" if is_chosen else "<span class=no>no</span>"
