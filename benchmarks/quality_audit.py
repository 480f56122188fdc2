"""Does `llm-common audit` name what a compaction dropped, and count tokens exactly?

Twenty sessions are written as Claude Code, Codex and an application with chat completions record
them. Each is five runs of `history/airline.tune.json` in `LLM_COMMON_EVAL_DATA` one after the other
(sierra-research/tau-bench, MIT), with sentences of `said/*.tune.json` in messages of their own. In
its midst a summary replaces the prompt. It has half of these sentences, so the others are known to
be dropped. Values of later calls are known from the messages, without code of the library: an
argument of four characters or more, with a digit or a slash, that the prompt had and the summary
has not. Plain words, such as the class of a flight, are choices of a tool and no values.

    python benchmarks/quality_audit.py            # prints the shares
    python benchmarks/quality_audit.py --list     # and what was missed or named falsely
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llm_common.apps.audit import findings_of, transcripts_in
from llm_common.core import ExactCounter
from llm_common.text import stable_json

DATA: Final = os.environ.get("LLM_COMMON_EVAL_DATA")
COUNTER: Final = ExactCounter()
SESSIONS: Final = 20
RUNS: Final = 5  # of a session
SENTENCES: Final = 8  # of a session
MIN_VALUE_CHARS: Final = 4
# What a change may not lose: found, false and the error of the tokens.
MIN_FOUND: Final = 0.95
MAX_FALSE: Final = 0.05
MAX_TOKEN_ERROR: Final = 0.01

Message = dict[str, Any]


@dataclass
class Case:
    """A session with what its compaction dropped.

    Attributes:
        before: The messages before the compaction.
        summary: What replaced them.
        after: The messages behind it.
        said: The sentences that the summary lacks.
        values: The values that later calls needed, and the summary lacks.
    """

    before: list[Message]
    summary: str
    after: list[Message]
    said: set[str]
    values: set[str]


def cases() -> Iterator[Case]:
    """Yield the sessions."""
    folder = Path(DATA or "")
    runs = json.loads((folder / "history" / "airline.tune.json").read_text())
    sentences: list[str] = []
    # Alternately of coders, who say how, and of others, who say what they prefer.
    for pair in zip(
        json.loads((folder / "said" / "coder_rules.tune.json").read_text()),
        json.loads((folder / "said" / "preferences.tune.json").read_text()),
        strict=False,
    ):
        sentences += pair
    for number in range(SESSIONS):
        messages: list[Message] = []
        for run in runs[number * RUNS : (number + 1) * RUNS]:
            messages += run["messages"][1:]
        for message in messages:
            for call in message.get("tool_calls") or ():
                function = call["function"]
                # Two of the three forms have the arguments as JSON, and one as an object.
                function["arguments"] = stable_json(json.loads(function["arguments"]))
        middle = len(messages) // 2
        while messages[middle]["role"] != "user":
            middle += 1
        stated = sentences[number * SENTENCES : (number + 1) * SENTENCES]
        before = messages[:middle]
        users = [index for index, message in enumerate(before) if message["role"] == "user"]
        # From the last on, so that the positions of the others stay.
        for position, sentence in reversed([*enumerate(stated)]):
            index = users[position * len(users) // len(stated)]
            before.insert(index, {"role": "user", "content": f"From now on: {sentence}"})
        kept = stated[::2]
        summary = "The user asked about flights. He said:\n" + "\n".join(f"- {s}" for s in kept)
        yield Case(
            before=before,
            summary=summary,
            after=messages[middle:],
            said={*stated} - {*kept},
            values=dropped_values(before, summary, messages[middle:]),
        )


def dropped_values(before: list[Message], summary: str, after: list[Message]) -> set[str]:
    """Return the arguments of calls that an earlier text has and a summary has not."""
    text = "\n".join(text for message in before for text in texts_of(message))
    first = "\n".join(text for message in after[:1] for text in texts_of(message))
    dropped = set()
    for message in after:
        for call in message.get("tool_calls") or ():
            for value in leaves(json.loads(call["function"]["arguments"])):
                form = rf"(?<!\w){re.escape(value)}(?!\w)"
                is_kept = re.search(form, f"{summary}\n{first}") is not None
                is_value = len(value) >= MIN_VALUE_CHARS and re.search(r"[\d/]", value)
                if is_value and re.search(form, text) and not is_kept:
                    dropped.add(value)
    return dropped


def leaves(argument: Any) -> Iterator[str]:
    """Yield the values of an argument."""
    if isinstance(argument, dict):
        argument = [*argument.values()]
    if isinstance(argument, list):
        for item in argument:
            yield from leaves(item)
    elif not isinstance(argument, bool):
        yield str(argument)


def texts_of(message: Message) -> Iterator[str]:
    """Yield what a model reads of a message."""
    if message.get("content"):
        yield message["content"]
    for call in message.get("tool_calls") or ():
        yield f"{call['function']['name']} {call['function']['arguments']}"


def as_requests(case: Case) -> Iterator[Message]:
    """Yield the requests of an application, each with its whole prompt."""
    summary = [{"role": "user", "content": case.summary}]
    # It keeps a message that no other session has, and no value of a call.
    greeting = {"role": "assistant", "content": "Welcome to the desk of the airline."}
    yield {"messages": [greeting, *case.before]}
    start = [greeting, *summary]
    for end, message in enumerate(case.after, 1):
        if message["role"] == "assistant":
            yield {"messages": [*start, *case.after[: end - 1]]}
    yield {"messages": [*start, *case.after]}


def as_claude_code(case: Case) -> Iterator[Message]:
    """Yield the lines of Claude Code."""
    yield from claude_lines(case.before, "a")
    yield {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"trigger": "auto"}}
    content = {"role": "user", "content": case.summary}
    yield {"type": "user", "uuid": "s", "isCompactSummary": True, "message": content}
    yield from claude_lines(case.after, "b")


def claude_lines(messages: list[Message], name: str) -> Iterator[Message]:
    """Yield messages as lines, with each block in a line."""
    for number, message in enumerate(messages):
        blocks: list[Message] = []
        role = message["role"]
        if role == "tool":
            role = "user"
            result = {"tool_use_id": message["tool_call_id"], "content": message["content"]}
            blocks.append({"type": "tool_result", **result})
        elif message.get("content"):
            blocks.append({"type": "text", "text": message["content"]})
        for call in message.get("tool_calls") or ():
            arguments = json.loads(call["function"]["arguments"])
            use = {"id": call["id"], "name": call["function"]["name"], "input": arguments}
            blocks.append({"type": "tool_use", **use})
        for block in blocks:
            line = {"role": role, "id": f"{name}{number}", "content": [block]}
            yield {"type": role, "uuid": f"{name}{number}", "message": line}


def as_codex(case: Case) -> Iterator[Message]:
    """Yield the lines of a rollout."""
    yield {"type": "session_meta", "payload": {"id": "s"}}
    yield from codex_lines(case.before)
    content = [{"type": "input_text", "text": case.summary}]
    kept = [{"type": "message", "role": "user", "content": content}]
    yield {"type": "compacted", "payload": {"message": "", "replacement_history": kept}}
    yield from codex_lines(case.after)


def codex_lines(messages: list[Message]) -> Iterator[Message]:
    """Yield messages as items of the Responses API."""
    for message in messages:
        items: list[Message] = []
        if message["role"] == "tool":
            output = {"call_id": message["tool_call_id"], "output": message["content"]}
            items.append({"type": "function_call_output", **output})
        elif message.get("content"):
            content = [{"type": "input_text", "text": message["content"]}]
            items.append({"type": "message", "role": message["role"], "content": content})
        for call in message.get("tool_calls") or ():
            items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
        for item in items:
            yield {"type": "response_item", "payload": item}


FORMS: Final = (as_claude_code, as_codex, as_requests)


def measure(*, lists: bool) -> bool:
    """Print what was found, and return whether it is enough."""
    known = {"said": 0, "values": 0}
    found = {"said": 0, "values": 0}
    named = {"said": 0, "values": 0}
    errors = []
    for number, case in enumerate(cases()):
        form = FORMS[number % len(FORMS)]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "session"
            file.write_text("".join(f"{json.dumps(line)}\n" for line in form(case)))
            [transcript] = transcripts_in(file)
        findings = findings_of(transcript, COUNTER)
        [compaction] = findings.compactions
        assert compaction.losses
        said = {text.removeprefix("From now on: ") for text in compaction.losses.said}
        for kind, names, truth in (
            ("said", said, case.said),
            ("values", {*compaction.losses.values}, case.values),
        ):
            known[kind] += len(truth)
            found[kind] += len(truth & names)
            named[kind] += len(names)
            if lists:
                for text in sorted(truth - names):
                    print(f"  missed {kind}: {text}")
                for text in sorted(names - truth):
                    print(f"  false {kind}: {text}")
        exact = 0
        for message in (*case.before, *case.after):
            exact += sum(COUNTER.count(text) for text in texts_of(message))
        errors.append(abs(findings.tokens.total() - exact) / exact)
    is_enough = max(errors) <= MAX_TOKEN_ERROR
    for kind, count in known.items():
        share, false = found[kind] / count, 1 - found[kind] / named[kind]
        print(f"{kind}: {found[kind]} of {count} found ({share:.3f}), {false:.3f} named falsely")
        is_enough = is_enough and share >= MIN_FOUND and false <= MAX_FALSE
    print(f"tokens: at most {max(errors):.2%} from an exact count")
    return is_enough


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="list what is wrong")
    options = parser.parse_args()
    if not DATA:
        sys.exit("set LLM_COMMON_EVAL_DATA to the folder of the evaluation sets")
    if not measure(lists=options.list):
        sys.exit("less is found than before")


if __name__ == "__main__":
    main()
