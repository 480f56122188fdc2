"""What a terminal or an editor adds to a text is no part of it."""

import time

import pytest

from llm_common.text.unwrapping import (
    ReadLetters,
    unwrapped,
    without_frame,
    without_line_numbers,
)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("plain\ntext", "plain\ntext"),
        ("\ufeffid,name", "id,name"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("id\r1\r2", "id\n1\n2"),
        ("\x1b[31merror\x1b[0m: x\x1b[1;32m ok", "error: x ok"),
        ("\x1b]0;title\x07prompt", "prompt"),
        ("copy 1%\rcopy 50%\rcopy 100%\ndone", "copy 100%\ndone"),
        ("10%\r\x1b[K100%\rdone\r\nnext", "done\nnext"),
        ("id,note\n1,a\rb", "id,note\n1,a\rb"),  # one may be data
        ("", ""),
    ],
)
def test_a_text_is_read_without_its_wrapping_t_17(text: str, read: str) -> None:
    assert unwrapped(text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("```csv\nid,n\n1,2\n```\n", "\nid,n\n1,2\n"),
        ('<file path="a.csv">\nid,n\n1,2\n</file>', "\nid,n\n1,2\n"),
        ("<ul>\n<li>a</li>\n</ul>", "<ul>\n<li>a</li>\n</ul>"),  # a document of tags
        ("```\na\n```\nb\n```\nc\n```", "```\na\n```\nb\n```\nc\n```"),
    ],
)
def test_a_frame_around_a_text_is_no_part_of_its_tables_t_17(text: str, read: str) -> None:
    assert without_frame(text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("     1\tid,n\n     2\t1,2", "id,n\n1,2"),
        ("7\u2192a\n8\u2192b", "a\nb"),
        ("1: a\n2: b\n", "a\nb\n"),
        ("1\ta\n3\tb", "1\ta\n3\tb"),  # a column of numbers
        ("1\ta\nb", "1\ta\nb"),
    ],
)
def test_numbers_before_all_lines_are_no_data_t_17(text: str, read: str) -> None:
    assert without_line_numbers(text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r'{"a": "\u7f16\u53f7"}', '{"a": "\u7f16\u53f7"}'),
        (r'"\ud83d\ude00 \u0022"', '"\U0001f600 ""'),
        (r'"\u000a \\u7f16"', '"\n \\u7f16"'),
        (r'"\u001b[31mred\u001b[0m\r\nC:\\new"', '"red\nC:\\new"'),
        ("plain", "plain"),
    ],
)
def test_escaped_letters_are_letters_t_17(text: str, read: str) -> None:
    assert ReadLetters(text, is_json=True).text == read


def test_hostile_wrapping_takes_linear_time_t_17() -> None:
    for part in ("\x1b[", "\x1b]0;" + "x" * 300, "\r", "a\rb\r", "\x1b", "```\n", "<a>\n"):
        start = time.process_time()
        without_frame(unwrapped("line\n" + part * (2_000_000 // len(part))))
        assert time.process_time() - start < 20
