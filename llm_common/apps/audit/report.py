"""What `llm-common audit` prints: one screen for a session or a folder, or all of it."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from llm_common.agents import SessionConfig
from llm_common.apps.audit.findings import Findings
from llm_common.apps.audit.replay import Turn
from llm_common.core import counter_label
from llm_common.text import one_line

_FEW: Final = 3
_LINE_CHARS: Final = 76  # behind four spaces


def report(
    audited: Sequence[tuple[Findings, Sequence[Turn]]],
    config: SessionConfig,
    *,
    show_all: bool,
    other_files: int,
) -> str:
    """Return what to print about sessions: all together, then the one that lost most.

    Args:
        audited: The sessions.
        config: The limits of the comparison.
        show_all: Whether to list all sessions and all of each, and not what matters most.
        other_files: How many files have no session.
    """
    environment = Environment(  # noqa: S701 - text, not HTML
        loader=PackageLoader("llm_common.apps.audit"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "line": lambda text, chars=_LINE_CHARS: one_line(text, max_chars=chars),
        "median": median,
        "number": "{:,.0f}".format,
    }
    return environment.get_template("report.jinja").render(
        audited=sorted(
            audited, key=lambda each: (-each[0].losses.total(), -sum(each[0].prompt_tokens))
        ),
        compactions=sum(len(findings.compactions) for findings, _ in audited),
        config=config,
        count=None if show_all else _FEW,
        counter=counter_label(),
        dropped=sum((findings.losses for findings, _ in audited), Counter()),
        other_files=other_files,
        tokens=sum(findings.tokens.total() for findings, _ in audited),
    )
