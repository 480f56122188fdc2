"""`llm-common audit`: what it tells of recorded sessions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apps.audit import recorded
from tests.apps.cli.running import run, run_json

FORMS = {
    "Claude Code": recorded.claude_code,
    "Codex": recorded.codex,
    "chat completions": recorded.requests,
}
each_form = pytest.mark.parametrize("host", FORMS)


def audited(path: Path) -> dict[str, Any]:
    [session] = run_json("audit", path)["sessions"]
    assert isinstance(session, dict)
    return session


def session_of(folder: Path, lines: list[Any]) -> dict[str, Any]:
    return audited(recorded.write(folder / "a.jsonl", lines))


def losses_of(folder: Path, lines: list[Any]) -> Any:
    """Return what the only compaction of a session lost."""
    [compaction] = session_of(folder, lines)["compactions"]
    return compaction["losses"]


def adds_only(folder: Path, before: list[Any], after: list[Any], kind: str, count: int = 1) -> bool:
    """Return whether the report of other lines differs in the number of one kind of records."""
    whole, session = session_of(folder, before), session_of(folder, after)
    kinds = whole["other_records"]
    whole["other_records"] = {**kinds, kind: kinds.get(kind, 0) + count}
    return session == whole


def compaction_of(lines: list[recorded.Line]) -> recorded.Line:
    """Return the line of a compaction."""
    kinds = {"compacted", "compact_boundary"}
    return next(line for line in lines if {line["type"], line.get("subtype")} & kinds)


@each_form
def test_a_session_is_told_by_its_content(tmp_path: Path, host: str) -> None:
    session = audited(recorded.write(tmp_path / "session.txt", FORMS[host]()))
    assert session["host"] == host
    assert not {"unknown", "not JSON"} & session["other_records"].keys()


@pytest.mark.parametrize(
    ("host", "values"),
    [
        ("Claude Code", ["src/**", "src/orders/load.py"]),
        ("Codex", ["src/orders/save.py"]),  # the path of the task is in what Codex kept
        ("chat completions", ["INV-2231"]),  # the listing was kept
    ],
)
def test_what_a_compaction_dropped_of_the_user_and_for_later_calls_is_named_t_20(
    tmp_path: Path, host: str, values: list[str]
) -> None:
    [compaction] = session_of(tmp_path, FORMS[host]())["compactions"]
    assert compaction["losses"]["said"] == [recorded.RULE]
    assert compaction["losses"]["values"] == values
    assert compaction["tokens_before"] > compaction["tokens_after"] > 0


def test_words_of_the_host_are_not_those_of_the_user_t_20(tmp_path: Path) -> None:
    session = session_of(tmp_path, recorded.claude_code())
    assert session["compactions"][0]["losses"]["said_before"] == 1
    assert session["tokens"]["system"] > 0


def test_a_call_made_again_is_counted_with_its_reason(tmp_path: Path) -> None:
    outputs = session_of(tmp_path, recorded.claude_code())["outputs"]
    [repeat] = [output for output in outputs if output["is_repeated"]]
    assert repeat["call"] == 'Glob {"pattern":"src/**"}'
    assert repeat["was_dropped"]


def test_a_document_over_many_lines_is_one_session(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(recorded.requests()[1], indent=1))
    session = audited(tmp_path)
    assert (len(session["outputs"]), session["compactions"]) == (1, [])


@each_form
def test_nothing_is_changed_t_20(tmp_path: Path, host: str) -> None:
    file = recorded.write(tmp_path / "a.jsonl", FORMS[host]())
    before = file.read_bytes(), file.stat().st_mtime_ns, [*tmp_path.iterdir()]
    run("audit", tmp_path)
    assert (file.read_bytes(), file.stat().st_mtime_ns, [*tmp_path.iterdir()]) == before


@pytest.mark.parametrize("options", [[], ["--all"], ["--json"]])
def test_secrets_of_messages_and_calls_are_redacted_t_20(
    tmp_path: Path, options: list[str]
) -> None:
    lines = recorded.claude_code()
    lines[1]["message"]["content"] += f" From now on use the key {recorded.SECRET}."
    call = lines[4]["message"]["content"][0]
    call["input"] = {"command": f"curl -H 'Authorization: Bearer {recorded.SECRET}' /orders"}
    file = recorded.write(tmp_path / "a.jsonl", lines)
    shown = run("audit", file, *options)
    assert "From now on use the key" in shown.stdout
    assert "Authorization" in shown.stdout
    assert recorded.SECRET not in shown.stdout + shown.stderr


@pytest.mark.parametrize("losses", ["said", "needed", "said,needed"])
def test_the_exit_code_tells_of_the_losses_asked_for_t_20(tmp_path: Path, losses: str) -> None:
    recorded.write(tmp_path / "a.jsonl", recorded.claude_code())
    run("audit", tmp_path, "--fail-on", losses, code=1)


def test_a_session_that_lost_nothing_does_not_fail(tmp_path: Path) -> None:
    of_the_compaction = {"subtype", "isCompactSummary"}
    lines = [line for line in recorded.claude_code() if not of_the_compaction & line.keys()]
    recorded.write(tmp_path / "a.jsonl", lines)
    run("audit", tmp_path, "--fail-on", "said,needed")


def test_an_unknown_loss_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    refused = run("audit", tmp_path, "--fail-on", "everything", code=2)
    assert "'everything' is not one of 'said', 'needed', 'said,needed'" in refused.stderr


def test_a_folder_without_a_session_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}")
    nothing = run("audit", tmp_path, code=3)
    assert nothing.stdout == ""
    assert f"no session in {tmp_path}" in nothing.stderr


def test_the_first_screen_of_a_folder_is_a_screen(tmp_path: Path) -> None:
    forms: dict[str, Callable[[], list[Any]]] = FORMS
    for host, lines in forms.items():
        for number in range(4):
            recorded.write(tmp_path / f"{host} {number}.jsonl", lines())
    screen = run("audit", tmp_path).stdout.splitlines()
    assert screen[0].startswith("12 sessions, ")
    assert len(screen) <= 40
    assert max(map(len, screen[4:])) <= 80


def test_the_first_line_may_be_broken_t_20(tmp_path: Path) -> None:
    file = recorded.write(tmp_path / "a.jsonl", recorded.codex())
    whole = audited(file)
    file.write_text("ut\n" + file.read_text())
    assert audited(file)["compactions"] == whole["compactions"]


@pytest.mark.parametrize(
    ("record", "kind", "count"),
    [
        ({"type": "user", "uuid": "u", "message": {"role": "user", "content": ["x"]}}, "user", 1),
        (
            {
                "type": "user",
                "uuid": "u",
                "message": {"role": "user", "content": [{"type": "text"}]},
            },
            "user",
            1,
        ),
        ({"type": "response_item", "payload": {"type": "message"}}, "response_item", 1),
        ({"type": "session_meta", "payload": {"base_instructions": None}}, "session_meta", 1),
        ({"role": "wizard", "content": "Hi."}, "unknown", 1),
        ({"role": "user", "content": {"text": "Hi."}}, "unknown", 1),
        ({"speaker": "nobody"}, "unknown", 1),
        ([{"speaker": "nobody"}, {"speaker": "somebody"}], "unknown", 2),
        (7, "unknown", 1),
        ({}, "unknown", 1),
        ([], "unknown", 1),
    ],
    ids=str,
)
def test_a_record_of_a_new_form_is_counted_t_20(
    tmp_path: Path, record: Any, kind: str, count: int
) -> None:
    lines = recorded.claude_code()
    assert adds_only(tmp_path, lines, [*lines, record], kind, count)


@pytest.mark.parametrize(
    "ending", ['{"type": "user", "mess', "\x00\x01", "[1, 2"], ids=["cut", "bytes", "list"]
)
def test_a_broken_line_is_said_and_skipped_t_20(tmp_path: Path, ending: str) -> None:
    file = recorded.write(tmp_path / "a.jsonl", recorded.claude_code())
    whole = audited(file)
    with file.open("a") as lines:
        lines.write(ending)
    broken = audited(file)
    assert broken.pop("other_records") == {**whole.pop("other_records"), "not JSON": 1}
    assert broken == whole


def test_a_file_without_a_session_is_named_t_20(tmp_path: Path) -> None:
    recorded.write(tmp_path / "a.jsonl", recorded.codex())
    other = recorded.write(tmp_path / "b.jsonl", [{"event": "click"}])
    assert run_json("audit", tmp_path)["other_files"] == [str(other)]
    assert "Files without a session that this command can read: 1" in run("audit", tmp_path).stdout


def test_a_file_that_cannot_be_read_ends_no_audit_t_20(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.write(tmp_path / "a.jsonl", recorded.codex())
    (tmp_path / "b.jsonl").mkdir()
    (tmp_path / "c.jsonl").symlink_to(tmp_path / "gone")
    locked = recorded.write(tmp_path / "d.jsonl", recorded.codex())
    read_bytes = Path.read_bytes

    def read(path: Path) -> bytes:
        if path == locked:
            raise PermissionError(path)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    audit = run_json("audit", tmp_path)
    assert (len(audit["sessions"]), audit["other_files"]) == (1, [str(locked)])


def test_many_kinds_of_other_records_fit_a_screen_t_20(tmp_path: Path) -> None:
    kinds = [f"kind-{number}" for number in range(20)]
    others = ({"type": kind} for kind in kinds)
    recorded.write(tmp_path / "a.jsonl", [*recorded.codex(), *others])
    screen = run("audit", tmp_path).stdout
    assert all(f"1 {kind}" in " ".join(screen.split()) for kind in kinds)
    assert max(map(len, screen.splitlines()[1:])) <= 80


def test_a_sub_agent_is_no_part_of_the_prompt_t_20(tmp_path: Path) -> None:
    lines = recorded.claude_code()
    without = [line for line in lines if not line.get("isSidechain")]
    assert session_of(tmp_path, lines)["tokens"] == session_of(tmp_path, without)["tokens"]


def test_a_sub_agents_own_file_is_a_session(tmp_path: Path) -> None:
    lines = [{**line, "isSidechain": True} for line in recorded.claude_code()]
    # Its own three, and the one that is a sub-agent's elsewhere.
    assert len(session_of(tmp_path, lines)["prompt_tokens"]) == 4


def test_reasoning_is_no_part_of_later_prompts_t_20(tmp_path: Path) -> None:
    lines = recorded.claude_code()
    thinking = {"type": "thinking", "thinking": "Let me see.", "signature": "x" * 900}
    line = {"type": "assistant", "uuid": "t", "message": {"id": "m1", "content": [thinking]}}
    assert adds_only(tmp_path, lines, [*lines[:3], line, *lines[3:]], "assistant")


def test_blocks_of_the_host_in_a_message_of_the_user_are_not_his_t_20(tmp_path: Path) -> None:
    lines = recorded.codex()
    blocks = lines[2]["payload"]["content"]
    blocks.insert(0, {"type": "input_text", "text": "<user_notes>Never sleep.</user_notes>"})
    assert losses_of(tmp_path, lines)["said"] == [recorded.RULE]


def test_messages_that_claude_code_kept_are_in_the_next_prompt_t_20(tmp_path: Path) -> None:
    lines = recorded.claude_code()
    kept = {"headUuid": lines[4]["uuid"], "tailUuid": lines[5]["uuid"]}
    compaction_of(lines)["compactMetadata"] = {"preservedSegment": kept}
    losses = losses_of(tmp_path, lines)
    assert losses["values"] == []
    assert losses["said"] == [recorded.RULE]


def test_a_kept_message_that_is_not_recorded_leaves_the_losses_open_t_20(tmp_path: Path) -> None:
    lines = recorded.claude_code()
    compaction_of(lines)["compactMetadata"] = {
        "preservedSegment": {"headUuid": "gone", "tailUuid": "gone"}
    }
    assert losses_of(tmp_path, lines) is None
    report = run("audit", tmp_path, "--fail-on", "said,needed").stdout
    assert "what it dropped is unknown" in report


def test_what_an_encrypted_summary_of_codex_dropped_is_unknown_t_20(tmp_path: Path) -> None:
    lines = recorded.codex()
    summary = {"type": "compaction", "encrypted_content": "gAAA"}
    compaction_of(lines)["payload"]["replacement_history"].append(summary)
    assert losses_of(tmp_path, lines) is None


def test_a_summary_of_codex_counts_once_t_20(tmp_path: Path) -> None:
    lines = recorded.codex()
    tokens = []
    for summary in (recorded.SUMMARY, ""):
        compaction_of(lines)["payload"]["message"] = summary
        tokens.append(session_of(tmp_path, lines)["compactions"][0]["tokens_after"])
    assert tokens[0] == tokens[1] > 0


@pytest.mark.parametrize("host", ["Claude Code", "Codex"])
def test_instructions_of_a_host_are_no_messages_t_20(tmp_path: Path, host: str) -> None:
    lines = FORMS[host]()
    whole = session_of(tmp_path, lines)["tokens"]
    instructions = {"type": "prompt_snapshot", "systemPrompt": ["Be brief."], "tools": ["Bash"]}
    snapshot = {"type": "attachment", "uuid": "i", "attachment": instructions}
    meta = {"type": "session_meta", "payload": {"base_instructions": {"text": "Be brief."}}}
    session = session_of(tmp_path, [snapshot, meta, *lines])
    assert session["tokens"] == whole
    assert session["other_records"]["attachment"] == 1


def test_older_codex_kept_what_the_user_said(tmp_path: Path) -> None:
    lines = recorded.codex()
    compaction_of(lines)["payload"] = {"message": recorded.SUMMARY}
    losses = losses_of(tmp_path, lines)
    assert (losses["said"], losses["said_before"]) == ([], 1)


def test_items_of_codex_without_an_envelope_are_read(tmp_path: Path) -> None:
    lines = [line["payload"] for line in recorded.codex() if line["type"] == "response_item"]
    session = session_of(tmp_path, lines)
    assert (session["host"], len(session["outputs"])) == ("Codex", 3)


def test_a_request_that_shares_nothing_begins_another_session_t_20(tmp_path: Path) -> None:
    other = {"messages": [{"role": "system", "content": "You are a coder."}, user("Hi.")]}
    file = recorded.write(tmp_path / "a.jsonl", [*recorded.requests(), other])
    first, second = run_json("audit", file)["sessions"]
    assert (first["name"], second["name"]) == (str(file), f"{file}#2")
    assert (len(first["compactions"]), len(second["compactions"])) == (1, 0)


def test_a_branch_is_no_compaction_t_20(tmp_path: Path) -> None:
    first = [user("How late is it?"), {"role": "assistant", "content": "Late."}, user("Why?")]
    branch = [*first[:1], {"role": "assistant", "content": "It is late."}, user("Why is that?")]
    file = recorded.write(tmp_path / "a.jsonl", [{"messages": first}, {"messages": branch}])
    assert [session["compactions"] for session in run_json("audit", file)["sessions"]] == [[], []]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_prompt_that_the_user_took_back_is_no_compaction_t_20(tmp_path: Path) -> None:
    messages = [user("How late is it?"), {"role": "assistant", "content": "Late."}, user("Why?")]
    requests = [{"messages": messages[:end]} for end in (3, 1, 3)]
    session = session_of(tmp_path, requests)
    assert (session["compactions"], len(session["prompt_tokens"])) == ([], 1)
    assert session["tokens"] == session_of(tmp_path, requests[:1])["tokens"]


@pytest.mark.parametrize("names", ["body", "request body"])
def test_a_request_in_the_record_of_a_proxy_is_read_t_20(tmp_path: Path, names: str) -> None:
    whole = session_of(tmp_path, recorded.requests())
    lines: list[Any] = recorded.requests()
    for name in reversed(names.split()):
        lines = [{name: line, "time": "10:00"} for line in lines]
    assert session_of(tmp_path, lines) == whole


def test_a_trajectory_of_swe_agent_is_read_t_20(tmp_path: Path) -> None:
    history = recorded.requests()[1]["messages"]
    run = {"trajectory": [{"query": history[:2]}], "history": history, "info": {}}
    (tmp_path / "a.traj").write_text(json.dumps(run))
    assert len(audited(tmp_path)["outputs"]) == 1


@pytest.mark.parametrize(
    "message",
    [
        {"role": "exit", "content": "Submitted."},
        {"role": "assistant", "tool_calls": [{"id": "c9", "name": "ls", "arguments": {}}]},
        "Submitted.",
    ],
    ids=["role", "calls", "text"],
)
def test_a_message_of_a_new_form_is_counted_and_those_behind_it_are_read_t_20(
    tmp_path: Path, message: Any
) -> None:
    messages = recorded.requests()[1]["messages"]
    longer = [*messages[:2], message, *messages[2:]]
    assert adds_only(tmp_path, [{"messages": messages}], [{"messages": longer}], "unknown")


def test_blocks_of_an_output_count_as_their_text_t_20(tmp_path: Path) -> None:
    request = recorded.requests()[1]
    tokens = session_of(tmp_path, [request])["tokens"]
    request["messages"][-1]["content"] = [{"type": "text", "text": recorded.LISTING}]
    assert session_of(tmp_path, [request])["tokens"] == tokens


def test_instructions_that_exceed_the_limit_end_the_comparison(tmp_path: Path) -> None:
    request = recorded.requests()[1]
    request["messages"][0]["content"] = "Be brief. " * 900
    file = recorded.write(tmp_path / "a.jsonl", [request])
    [session] = run_json("audit", file, "--max-tokens", "2000")["sessions"]
    assert (session["turns"], len(session["outputs"])) == ([], 1)
    assert len(audited(file)["turns"]) == 1


def test_conversations_in_one_document_are_sessions(tmp_path: Path) -> None:
    chats = [{"messages": [user("One.")]}, {"messages": [user("Two.")]}]
    (tmp_path / "a.json").write_text(json.dumps(chats, indent=1))
    assert len(run_json("audit", tmp_path)["sessions"]) == 2


@pytest.mark.parametrize("key", ["messages", "traj"])
def test_runs_that_share_words_of_courtesy_are_sessions_t_20(tmp_path: Path, key: str) -> None:
    runs = []
    for task, count in (("Book a flight to Rome.", 9), ("Cancel my flight to Oslo.", 4)):
        messages = [{"role": "system", "content": "You are an agent."}, user(task)]
        for number in range(count):
            reply = {"role": "assistant", "content": f"Step {number} of: {task}"}
            messages += [reply, user(f"And {number} for: {task}")]
        runs.append({key: [*messages, user("Thank you.")], "reward": 1})
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    sessions = run_json("audit", tmp_path)["sessions"]
    assert [session["compactions"] for session in sessions] == [[], []]


def test_images_count_without_their_data(tmp_path: Path) -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "iVBO" * 9_000}
    lines = recorded.claude_code()
    output = lines[5]["message"]["content"][0]
    output["content"] = [{"type": "text", "text": "a.png"}, {"type": "image", "source": image}]
    assert 1_600 < session_of(tmp_path, lines)["tokens"]["tool"] < 1_800


def test_the_prompts_behind_llm_common_have_values_that_a_compaction_dropped(
    tmp_path: Path,
) -> None:
    session = session_of(tmp_path, recorded.documented())
    turns = session["turns"]
    assert len(turns) == len(session["prompt_tokens"])
    assert sum(turn["needed"] for turn in turns) == sum(turn["values"] for turn in turns)
    assert sum(turn["recorded_values"] for turn in turns) == 0
    assert [turn["recorded_tokens"] for turn in turns] == session["prompt_tokens"]


def test_a_smaller_limit_folds_the_prompts(tmp_path: Path) -> None:
    lines = recorded.documented()
    lines[5:5] = [line for line in lines[2:4] for _ in range(1)] * 9
    recorded.write(tmp_path / "a.jsonl", lines)
    [session] = run_json("audit", tmp_path, "--max-tokens", "2000")["sessions"]
    turns = session["turns"]
    assert max(turn["tokens"] for turn in turns) <= 2_000
    # One value was folded away.
    assert sum(turn["needed"] for turn in turns) > sum(turn["values"] for turn in turns)
