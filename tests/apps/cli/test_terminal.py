"""Control characters in files, paths and arguments never reach a terminal."""

import json
import logging
import os
import sys
from pathlib import Path

import pytest

from llm_common.apps.cli.terminal import InertLogHandler, as_inert_json, print_text, safe_text
from llm_common.errors import install_command
from tests.apps.cli.running import on_terminal, run
from tests.folders.tree import write

CONTROLS = [
    *(
        "\0",
        "\x07",
        "\x08",
        "\x0b",
        "\r",
        "\x1b",
        "\x1f",
        "\x7f",
        "\x80",
        "\x9b",
        "\x9f",
        "\u061c",
        "\u200e",
        "\u200f",
    ),
    *("\u202a", "\u202e", "\u2066", "\u2069", "\ud800", "\udfff"),
]
HOSTILE = "x\x1b]0;title\x07\x9b2J\u202eevil\u2066"


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_control_characters_are_replaced_f_174(control: str) -> None:
    assert safe_text(f"a{control}b").plain == "a\N{REPLACEMENT CHARACTER}b"
    document = as_inert_json({"text": control})
    assert control not in document
    assert json.loads(document) == {"text": control}


@pytest.mark.parametrize(
    "text", ["a b", "a\tb\nc", "~\xa0é", "שלום", "👩\u200d💻", "\u2029\u2065\u206a", "[bold]"]
)
def test_other_text_is_unchanged_f_174(text: str) -> None:
    assert safe_text(text).plain == text
    if "\n" not in text:
        assert f'"{text}"' in as_inert_json({"text": text})


@pytest.mark.parametrize(
    "arguments",
    [
        ["pack", "q", HOSTILE],
        ["pack", "q", ".", f"--{HOSTILE}"],
        ["pack", "q", ".", "--budget", HOSTILE],
        ["pack", "q", f"no\ud800{HOSTILE}"],
        ["pack", "q", "pipe\x1b\u202e"],
        ["pack", "q", "a.txt", "-o", f"absent/{HOSTILE}"],
        ["context", "list", HOSTILE, "--store", "."],
        ["context", "show", "q", HOSTILE],
        ["tools", "list", HOSTILE],
        ["tools", "check", "a.txt"],
        ["demo", f"--{HOSTILE}"],
        [f"--{HOSTILE}"],
        [HOSTILE],
    ],
    ids=lambda arguments: ascii("-".join(arguments))[:24],
)
def test_errors_quote_arguments_without_controls_f_174(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(write(tmp_path, {"a.txt": "text"}))
    os.mkfifo(tmp_path / "pipe\x1b\u202e")
    code = 3 if arguments[:2] == ["context", "list"] else 2
    assert not set(run(*arguments, code=code).output) & set(CONTROLS)


def test_packed_text_is_inert_on_a_terminal_and_unchanged_in_a_pipe_f_174(tmp_path: Path) -> None:
    name = "a\x1b[2J\u202eb.txt"
    path = write(tmp_path / "tree", {name: f"cookie {HOSTILE}\n"}) / name
    command = ("pack", "cookie", path, "--cache-dir", tmp_path / "cache")
    table, piped = on_terminal("stderr", *command)
    assert f"cookie {HOSTILE}" in piped
    packed, _ = on_terminal("stdout", *command)
    assert "cookie x\N{REPLACEMENT CHARACTER}]0;title" in packed
    assert not set(packed) & set(CONTROLS) - {"\r"}
    assert "a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}b.txt" in table


def test_a_library_warning_is_one_inert_line_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = logging.makeLogRecord(
        {"msg": "server %s ended", "args": (f"a\n{HOSTILE}",), "levelno": logging.WARNING}
    )
    InertLogHandler().handle(record)
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert "evil" in output.err
    assert not set(output.err) & set(CONTROLS)


def test_documents_keep_the_true_text_escaped_f_174(tmp_path: Path) -> None:
    tree = write(tmp_path / f"tree{HOSTILE}", {"a.txt": f"cookie {HOSTILE}\n"})
    document = run("pack", "cookie", tree, "--json", "--cache-dir", tmp_path).stdout
    assert not set(document) & set(CONTROLS)
    assert f"cookie {HOSTILE}" in json.loads(document)["packed"]


def test_a_lone_surrogate_is_written_to_a_file(tmp_path: Path) -> None:
    print_text("a\ud800", tmp_path / "out")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "a?\n"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_path_that_is_not_unicode_is_written_to_a_file(
    tmp_path: Path, options: list[str]
) -> None:
    tree = write(tmp_path / os.fsdecode(b"tree\xff"), {"a.txt": "cookie\n"})
    command = ("pack", "cookie", tree / "a.txt", "-o", tmp_path / "out")
    run(*command, "--cache-dir", tmp_path / "c", *options)
    assert "cookie" in (tmp_path / "out").read_text(encoding="utf-8")


def test_the_summary_names_an_extra_with_its_brackets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bpe_openai._bindings", None)
    tree = write(tmp_path / "tree", {"a.txt": "cookie\n"})
    told = run("pack", "cookie", tree, "--cache-dir", tmp_path / "cache").stderr
    assert install_command("tokens") in " ".join(told.split())
