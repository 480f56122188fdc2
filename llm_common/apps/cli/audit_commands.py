"""`llm-common audit`: tells what the compactions of recorded sessions dropped."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    end,
    print_json,
    print_text,
    show_progress,
)

# The command imports what only it needs when it runs, so `--help` answers quickly.
# ruff: noqa: PLC0415


def audit(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            exists=True,
            readable=True,
            help="Recorded sessions, or folders of them, such as ~/.claude/projects.",
            show_default=False,
        ),
    ],
    *,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all sessions, outputs, calls and losses.")
    ] = False,
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens",
            metavar="TOKENS",
            min=2_000,
            help="Limit of a folded prompt in the comparison.",
        ),
    ] = 32_000,
    fail_on: Annotated[
        Literal["said", "needed", "said,needed"] | None,
        typer.Option("--fail-on", help="End with 1 if a compaction dropped any of these."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Tell what compactions dropped in sessions of Claude Code, Codex and others.

    Reads transcripts of Claude Code (JSONL), Codex (rollouts) and chat completions (JSON or JSONL),
    recognized by their content. Changes nothing and sends nothing.

    For each session: the tokens by kind and tool, the outputs that cost most, the calls that were
    made again, what each compaction dropped of what the user said for the conversation and of the
    ids, paths and numbers that later calls needed, and what the prompts would be behind llm-common.
    Secrets are redacted.
    """
    from llm_common.agents import SessionConfig
    from llm_common.apps.audit import findings_of, replay, report, transcripts_in
    from llm_common.core import counter_label
    from llm_common.history import FoldPolicy

    config = SessionConfig(fold=FoldPolicy(max_tokens=max_tokens))
    audited = []
    others = []
    with show_progress("Reading the sessions", silent=json):
        for path in paths:
            for transcript in transcripts_in(path):
                if not transcript.host:
                    others.append(transcript.name)
                    continue
                findings = findings_of(transcript, config.counter)
                turns = asyncio.run(replay(transcript, findings.prompt_tokens, config))
                audited.append((findings, turns))
    if json:
        sessions = [{**dict(findings), "turns": turns} for findings, turns in audited]
        print_json({"counter": counter_label(), "sessions": sessions, "other_files": others})
    if not audited:
        end(f"There is no session in {', '.join(map(str, paths))}.", ExitCode.NOTHING)
    if not json:
        print_text(report(audited, config, show_all=show_all, other_files=len(others)).rstrip())
    dropped = {kind for findings, _ in audited for kind in findings.losses}
    if fail_on and not dropped.isdisjoint(fail_on.split(",")):
        raise typer.Exit(ExitCode.FAILED)
